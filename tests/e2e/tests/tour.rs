//! A tour of every extension with clients that others wrote: lapin here, pika as a script.

use std::process::Command;
use std::time::Duration;

use e2e::broker::Broker;
use futures_util::StreamExt;
use lapin::ExchangeKind;
use lapin::message::Delivery;
use lapin::options::{
    BasicAckOptions, BasicConsumeOptions, BasicGetOptions, BasicNackOptions, BasicPublishOptions,
    BasicQosOptions, ConfirmSelectOptions, ExchangeBindOptions, ExchangeDeclareOptions,
    QueueBindOptions, QueueDeclareOptions, QueueDeleteOptions, QueuePurgeOptions,
};
use lapin::types::{AMQPValue, FieldArray, FieldTable, LongString, ShortString};
use lapin::{BasicProperties, Channel, Confirmation, Connection, ConnectionProperties, Consumer};

/// Runs a tour on a runtime of its own, for at most a minute.
fn tour<F: Future<Output = ()>>(walk: F) {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime can be made");
    runtime.block_on(async {
        tokio::time::timeout(Duration::from_mins(1), walk).await.expect("the tour takes no minute");
    });
}

async fn connect(broker: &Broker) -> Connection {
    let uri = format!("amqp://guest:guest@{}/{}", broker.amqp, broker.vhost_segment());
    Connection::connect(&uri, ConnectionProperties::default()).await.expect("lapin connects")
}

fn table(pairs: &[(&str, AMQPValue)]) -> FieldTable {
    let mut table = FieldTable::default();
    for (name, value) in pairs {
        table.insert(ShortString::from(*name), value.clone());
    }
    table
}

fn text(value: &str) -> AMQPValue {
    AMQPValue::LongString(LongString::from(value))
}

async fn queue(channel: &Channel, name: &str, arguments: FieldTable) -> String {
    let options = QueueDeclareOptions { durable: true, ..QueueDeclareOptions::default() };
    let queue = channel.queue_declare(name.into(), options, arguments).await.expect("declared");
    queue.name().to_string()
}

async fn publish(
    channel: &Channel,
    exchange: &str,
    key: &str,
    properties: BasicProperties,
    body: &str,
) -> Confirmation {
    let options = BasicPublishOptions { mandatory: true, ..BasicPublishOptions::default() };
    channel
        .basic_publish(exchange.into(), key.into(), options, body.as_bytes(), properties)
        .await
        .expect("published")
        .await
        .expect("confirmed")
}

async fn consume(channel: &Channel, queue: &str, tag: &str, arguments: FieldTable) -> Consumer {
    channel
        .basic_consume(queue.into(), tag.into(), BasicConsumeOptions::default(), arguments)
        .await
        .expect("consuming")
}

async fn next(consumer: &mut Consumer) -> Delivery {
    consumer.next().await.expect("the consumer lives").expect("a delivery")
}

fn persistent() -> BasicProperties {
    BasicProperties::default().with_delivery_mode(2)
}

fn body(delivery: &Delivery) -> &str {
    std::str::from_utf8(&delivery.data).expect("text")
}

#[test]
fn lapin_confirms_returns_and_nacks() {
    let broker = Broker::start();
    tour(async {
        let connection = connect(&broker).await;
        let channel = connection.create_channel().await.unwrap();
        channel.confirm_select(ConfirmSelectOptions::default()).await.unwrap();
        queue(&channel, "q", FieldTable::default()).await;
        let confirmation = publish(&channel, "", "q", persistent(), "one").await;
        assert!(matches!(confirmation, Confirmation::Ack(None)), "{confirmation:?}");
        let returned = publish(&channel, "", "nobody", persistent(), "two").await;
        assert!(matches!(returned, Confirmation::Ack(Some(_))), "{returned:?}");
        let full = table(&[
            ("x-max-length", AMQPValue::LongInt(1)),
            ("x-overflow", text("reject-publish")),
        ]);
        queue(&channel, "full", full).await;
        let mut refused = false;
        for _ in 0..5 {
            let confirmation = publish(&channel, "", "full", persistent(), "m").await;
            refused |= matches!(confirmation, Confirmation::Nack(_));
        }
        assert!(refused);
        let mut consumer = consume(&channel, "q", "c", FieldTable::default()).await;
        let first = next(&mut consumer).await;
        let nack = BasicNackOptions { requeue: true, ..BasicNackOptions::default() };
        first.acker.nack(nack).await.unwrap();
        let again = next(&mut consumer).await;
        assert!(again.redelivered);
        assert_eq!(body(&again), "one");
        again.acker.ack(BasicAckOptions::default()).await.unwrap();
        connection.close(200, "bye".into()).await.unwrap();
    });
}

#[test]
fn lapin_routing_extensions() {
    let broker = Broker::start();
    tour(async {
        let connection = connect(&broker).await;
        let channel = connection.create_channel().await.unwrap();
        channel.confirm_select(ConfirmSelectOptions::default()).await.unwrap();
        let durable = ExchangeDeclareOptions { durable: true, ..ExchangeDeclareOptions::default() };
        let ae = table(&[("alternate-exchange", text("rest"))]);
        for (name, kind, arguments) in [
            ("rest", ExchangeKind::Fanout, FieldTable::default()),
            ("front", ExchangeKind::Topic, ae),
            ("back", ExchangeKind::Headers, FieldTable::default()),
        ] {
            channel.exchange_declare(name.into(), kind, durable, arguments).await.unwrap();
        }
        for name in ["matched", "rest", "copy", "blind"] {
            queue(&channel, name, FieldTable::default()).await;
        }
        // Exchange to exchange, headers, alternate exchange.
        channel
            .exchange_bind(
                "back".into(),
                "front".into(),
                "log.#".into(),
                ExchangeBindOptions::default(),
                FieldTable::default(),
            )
            .await
            .unwrap();
        let criteria = table(&[("x-match", text("any")), ("level", text("error"))]);
        let bind = QueueBindOptions::default();
        channel
            .queue_bind("matched".into(), "back".into(), "".into(), bind, criteria)
            .await
            .unwrap();
        channel
            .queue_bind("rest".into(), "rest".into(), "".into(), bind, FieldTable::default())
            .await
            .unwrap();
        let headers = table(&[("level", text("error"))]);
        publish(&channel, "front", "log.a.b", persistent().with_headers(headers), "m").await;
        publish(&channel, "front", "other", persistent(), "r").await;
        // Sender-selected distribution.
        let list = |name: &str| AMQPValue::FieldArray(FieldArray::from(vec![text(name)]));
        let headers = table(&[("CC", list("copy")), ("BCC", list("blind"))]);
        publish(&channel, "", "matched", persistent().with_headers(headers), "cc").await;
        for (name, count) in [("matched", 2), ("rest", 1), ("copy", 1), ("blind", 1)] {
            let passive = QueueDeclareOptions { passive: true, ..QueueDeclareOptions::default() };
            let declared =
                channel.queue_declare(name.into(), passive, FieldTable::default()).await.unwrap();
            assert_eq!(declared.message_count(), count, "{name}");
        }
        let got = channel.basic_get("blind".into(), BasicGetOptions::default()).await.unwrap();
        let got = got.expect("a message");
        let headers = got.properties.headers().clone().unwrap();
        assert!(headers.inner().get("CC").is_some() && headers.inner().get("BCC").is_none());
        let purged = channel.queue_purge("rest".into(), QueuePurgeOptions::default()).await;
        assert_eq!(purged.unwrap(), 1);
    });
}

#[test]
fn lapin_queue_extensions() {
    let broker = Broker::start();
    tour(async {
        let connection = connect(&broker).await;
        let channel = connection.create_channel().await.unwrap();
        channel.confirm_select(ConfirmSelectOptions::default()).await.unwrap();
        queue(&channel, "dead", FieldTable::default()).await;
        let arguments = table(&[
            ("x-dead-letter-exchange", text("")),
            ("x-dead-letter-routing-key", text("dead")),
            ("x-message-ttl", AMQPValue::LongInt(60_000)),
            ("x-max-priority", AMQPValue::LongInt(5)),
            ("x-single-active-consumer", AMQPValue::Boolean(true)),
        ]);
        queue(&channel, "work", arguments).await;
        for (priority, name) in [(5, "b"), (1, "c"), (3, "d")] {
            publish(&channel, "", "work", persistent().with_priority(priority), name).await;
        }
        let mut dead = consume(&channel, "dead", "dead", FieldTable::default()).await;
        let mut work = consume(&channel, "work", "work", FieldTable::default()).await;
        for expected in ["b", "d", "c"] {
            let message = next(&mut work).await;
            assert_eq!(body(&message), expected);
            let nack = BasicNackOptions { requeue: false, ..BasicNackOptions::default() };
            message.acker.nack(nack).await.unwrap();
            assert_eq!(body(&next(&mut dead).await), expected);
        }
        // The consumer is told when its queue goes.
        channel.queue_delete("work".into(), QueueDeleteOptions::default()).await.unwrap();
        assert!(work.next().await.is_none());
        // Server-named and exclusive.
        let options = QueueDeclareOptions { exclusive: true, ..QueueDeclareOptions::default() };
        let own = channel.queue_declare("".into(), options, FieldTable::default()).await.unwrap();
        assert!(own.name().as_str().starts_with("amq.gen-"));
    });
}

#[test]
fn lapin_consumer_extensions() {
    let broker = Broker::start();
    tour(async {
        let connection = connect(&broker).await;
        let channel = connection.create_channel().await.unwrap();
        channel.confirm_select(ConfirmSelectOptions::default()).await.unwrap();
        queue(&channel, "q", FieldTable::default()).await;
        channel.basic_qos(1, BasicQosOptions::default()).await.unwrap();
        let first = table(&[("x-priority", AMQPValue::LongInt(10))]);
        let mut high = consume(&channel, "q", "high", first).await;
        let mut low = consume(&channel, "q", "low", FieldTable::default()).await;
        publish(&channel, "", "q", persistent(), "1").await;
        publish(&channel, "", "q", persistent(), "2").await;
        assert_eq!(body(&next(&mut high).await), "1");
        assert_eq!(body(&next(&mut low).await), "2");
        // Direct reply-to.
        let requester = connection.create_channel().await.unwrap();
        let no_ack = BasicConsumeOptions { no_ack: true, ..BasicConsumeOptions::default() };
        let mut replies = requester
            .basic_consume(
                "amq.rabbitmq.reply-to".into(),
                "replies".into(),
                no_ack,
                FieldTable::default(),
            )
            .await
            .unwrap();
        queue(&channel, "requests", FieldTable::default()).await;
        let properties = BasicProperties::default()
            .with_reply_to("amq.rabbitmq.reply-to".into())
            .with_correlation_id("7".into());
        requester
            .basic_publish(
                "".into(),
                "requests".into(),
                BasicPublishOptions::default(),
                b"question",
                properties,
            )
            .await
            .unwrap();
        let mut requests = consume(&channel, "requests", "server", FieldTable::default()).await;
        let request = next(&mut requests).await;
        let address = request.properties.reply_to().clone().unwrap();
        publish(&channel, "", address.as_str(), BasicProperties::default(), "answer").await;
        assert_eq!(body(&next(&mut replies).await), "answer");
        // Transactions.
        let tx = connection.create_channel().await.unwrap();
        tx.tx_select().await.unwrap();
        let options = BasicPublishOptions::default();
        tx.basic_publish("".into(), "requests".into(), options, b"tx", persistent()).await.unwrap();
        tx.tx_commit().await.unwrap();
        request.acker.ack(BasicAckOptions::default()).await.unwrap();
        assert_eq!(body(&next(&mut requests).await), "tx");
    });
}

#[test]
fn pika_tour() {
    let Some(python) = std::env::var_os("E2E_PYTHON") else {
        eprintln!("skipped: E2E_PYTHON names no python3 with pika");
        return;
    };
    let broker = Broker::start();
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../python/tour.py");
    let output = Command::new(python)
        .arg(script)
        .arg(broker.amqp.ip().to_string())
        .arg(broker.amqp.port().to_string())
        .arg(&broker.vhost)
        .arg(if broker.is_ours() { "leveret" } else { "other" })
        .output()
        .expect("python can be started");
    assert!(
        output.status.success(),
        "{}\n{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
}
