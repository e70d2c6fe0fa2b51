//! Whole nodes in one process, without sockets: what connections, shards and the topology do
//! together.

mod bench;
mod replicated_topology;

use std::sync::Arc;
use std::time::Duration;

use amq_protocol_types::AMQPValue;
use amqp::request::{Outcome, QueueDeclare, Reply, Request};
use journal::op::{Class, Head, Op, Payload};
use model::id::Seq;
use tokio::sync::oneshot;

use crate::gateway::declare::delete_command;
use crate::shard::command::{Batch, Command, Deleted};
use bench::{Bench, queue, with};

#[tokio::test]
async fn a_connection_that_panics_gives_back_all_that_it_held() {
    let bench = Bench::start();
    let mut other = bench.client().await;
    let mut doomed = bench.client().await;
    doomed.declare(queue("q")).await;
    doomed.declare(QueueDeclare { exclusive: true, ..queue("own") }).await;
    doomed.declare(QueueDeclare { auto_delete: true, ..queue("left") }).await;
    for body in [b"1", b"2", b"3", b"4"] {
        other.publish("q", true, body);
    }
    // One by a consumer that was cancelled, one by a live one, one by get.
    let cancelled = doomed.consume("q", false, 1).await;
    let queue_id = bench.id_of("q").expect("it was declared");
    doomed.ask(Request::Cancel { channel: 1, consumer: cancelled, queue: queue_id }).await;
    doomed.consume("q", false, 1).await;
    assert!(doomed.get("q").await.is_some());
    doomed.consume("left", false, 1).await;
    let view = bench.view("q").await;
    assert_eq!((view.ready, view.unsettled, view.consumers.len()), (1, 3, 1));
    let kept = other.get("q").await.expect("the fourth");

    doomed.panic().await;

    let view = bench.view("q").await;
    assert_eq!((view.ready, view.unsettled, view.consumers.len()), (3, 1, 0));
    assert_eq!(bench.id_of("own"), None);
    // The shard told the janitor; the declaration waits for neither, so it may only be new.
    other.settle(&kept, Outcome::Accept);
    for body in [b"1", b"2", b"3"] {
        let got = other.get("q").await.expect("it came back");
        assert_eq!((got.message.body(), got.redelivered), (&body[..], true));
    }
    assert_eq!(bench.started.node.connections.count(), 1);
}

#[tokio::test]
async fn a_message_got_for_somebody_who_waits_no_more_comes_back() {
    let bench = Bench::start();
    let mut client = bench.client().await;
    client.declare(queue("q")).await;
    client.publish("q", true, b"x");
    let node = Arc::clone(&bench.started.node);
    let mut gone = crate::gateway::Gateway::for_operator(node, "guest", "/").expect("he may");
    {
        let get = Request::Get { channel: 1, queue: "q".into(), no_ack: false };
        let mut asking = std::pin::pin!(amqp::broker::Broker::call(&mut gone, get));
        let asked = std::future::poll_fn(|context| {
            std::task::Poll::Ready(asking.as_mut().poll(context).is_pending())
        });
        assert!(asked.await);
        // By now the shard has answered.
        assert_eq!(bench.view("q").await.unsettled, 1);
    }
    drop(gone);
    let view = bench.view("q").await;
    assert_eq!((view.ready, view.unsettled), (1, 0));
}

#[tokio::test]
async fn a_declaration_during_a_deletion_makes_a_new_queue() {
    let bench = Bench::start();
    let mut client = bench.client().await;
    client.declare(queue("q")).await;
    let state = bench.started.node.router.state();
    let old = state.queue("/", "q").expect("it was declared");
    // The first half of a deletion by somebody else.
    let (answer, deleted) = oneshot::channel();
    let delete = Command::Delete { queue: old.id, if_unused: true, if_empty: true, answer };
    bench.started.node.shards.post(old.id, Batch::one(delete));
    assert_eq!(deleted.await, Ok(Deleted::Done(0)));

    client.declare(queue("q")).await;
    client.publish("q", true, b"x");
    // The second half.
    let late = bench.started.node.topology.submit(delete_command(old)).await;
    assert!(!late.expect("it is accepted").deleted);
    assert_ne!(bench.id_of("q"), Some(old.id));
    assert_eq!(client.get("q").await.expect("it was kept").message.body(), b"x");
}

#[tokio::test]
async fn a_queue_that_is_being_deleted_is_not_found() {
    let bench = Bench::start();
    let mut client = bench.client().await;
    client.declare(queue("q")).await;
    let id = bench.id_of("q").expect("it was declared");
    let (answer, deleted) = oneshot::channel();
    let delete = Command::Delete { queue: id, if_unused: false, if_empty: false, answer };
    bench.started.node.shards.post(id, Batch::one(delete));
    deleted.await.expect("it is answered");
    for request in [
        Request::QueueDeclare(QueueDeclare { passive: true, ..queue("q") }),
        Request::QueuePurge { channel: 1, queue: "q".into() },
        Request::Get { channel: 1, queue: "q".into(), no_ack: true },
    ] {
        match amqp::broker::Broker::call(&mut client.gateway, request).await {
            Reply::Refused(error) => {
                assert_eq!((error.code, error.text.as_str()), (404, "no queue 'q' in vhost '/'"));
            }
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test]
async fn a_spilled_message_whose_count_changes_does_not_survive_a_restart() {
    let bench = Bench::start_without_memory();
    let mut client = bench.client().await;
    client.declare(with(queue("q"), "x-delivery-limit", 9)).await;
    client.publish("q", true, b"persistent");
    client.publish("q", false, b"transient");
    // Its turn ends before this is answered, and with it memory is full.
    assert_eq!(bench.view("q").await.in_memory, 2);
    for _ in 0..2 {
        client.publish("q", false, b"transient");
    }
    let mut got = Vec::new();
    while let Some(delivery) = client.get("q").await {
        got.push(delivery);
    }
    assert_eq!(got.len(), 4);
    assert_eq!(bench.view("q").await.counters.disk_writes, 3, "two were spilled");
    for delivery in &got {
        client.settle(delivery, Outcome::Retry);
    }
    assert_eq!(bench.view("q").await.ready, 4);
    amqp::broker::Broker::disconnected(&mut client.gateway).await;
    drop(client);
    let bench = bench.restart().await;
    assert_eq!(bench.view("q").await.ready, 1);
    let got = bench.client().await.get("q").await.expect("the persistent one");
    assert_eq!(got.message.body(), b"persistent");
}

#[tokio::test]
async fn bodies_read_back_for_a_consumer_that_never_settles_stay_in_the_budget() {
    const CACHE: u64 = 64 * 1024;
    let bench = Bench::start_with(|config| config.memory.message_cache = CACHE);
    let mut client = bench.client().await;
    client.declare(queue("q")).await;
    let body = [0; 1024];
    for _ in 0..1000 {
        client.publish("q", true, &body);
    }
    assert_eq!(bench.view("q").await.ready, 1000);
    drop(client);
    let bench = bench.restart().await;
    let mut client = bench.client().await;
    // Nothing is published or settled any more, so the journal stands still.
    for _ in 0..1000 {
        assert!(client.get("q").await.is_some());
    }
    let view = bench.view("q").await;
    assert_eq!(view.unsettled, 1000);
    assert!(view.in_memory_bytes <= CACHE, "{} bytes", view.in_memory_bytes);
}

#[tokio::test]
async fn a_stop_in_the_middle_of_deletions_is_clean() {
    let bench = Bench::start();
    let mut client = bench.client().await;
    for index in 0..50 {
        let name = format!("q{index}");
        client.declare(QueueDeclare { auto_delete: true, ..queue(&name) }).await;
        client.consume(&name, false, 1).await;
    }
    let journal = Arc::downgrade(&bench.started.node.journal);
    // All consumers end, and the janitor gets 50 queues to delete while the shard stops.
    drop(client);
    let bench = bench.restart().await;
    assert!(journal.upgrade().is_none(), "it was closed");
    drop(bench);
}

#[tokio::test]
async fn a_cancelled_consumer_that_settles_on_delivery_gets_what_was_assigned_to_it() {
    let bench = Bench::start();
    let mut client = bench.client().await;
    client.declare(QueueDeclare { auto_delete: true, ..queue("q") }).await;
    for _ in 0..100 {
        client.publish("q", true, b"x");
    }
    assert_eq!(bench.view("q").await.ready, 100);
    drop(client);
    // From now on the bodies are on disk alone, and nobody is quicker there than one turn.
    let bench = bench.restart().await;
    let client = bench.client().await;
    let queue = bench.id_of("q").expect("it is durable");
    let (first, first_consumes, _consuming) = client.consuming(queue, true);
    let (second, second_consumes, _consuming) = client.consuming(queue, false);
    let (third, third_consumes, _consuming) = client.consuming(queue, true);
    let cancel = |consumer| {
        let (answer, answered) = oneshot::channel();
        (Command::Cancel { queue, consumer, answer }, answered)
    };
    let (cancel_first, first_ended) = cancel(first);
    let (cancel_second, second_ended) = cancel(second);
    let (delete, deleted) = oneshot::channel();
    let commands = vec![
        first_consumes,
        second_consumes,
        cancel_first,
        cancel_second,
        Command::Delete { queue, if_unused: true, if_empty: true, answer: delete },
        third_consumes,
        Command::Gone { queue, consumer: third },
    ];
    bench.started.node.shards.post(queue, Batch { origin: None, bytes: 0, commands });
    assert_eq!(deleted.await, Ok(Deleted::NotEmpty), "what is on its way counts");
    assert_eq!(second_ended.await, Ok(false), "the first is not done yet");
    assert_eq!(first_ended.await, Ok(true), "it was the last");
    let view = bench.view("q").await;
    assert_eq!((view.ready, view.unsettled, view.consumers.len()), (0, 0, 0));
    assert_eq!(view.counters.delivered_no_ack, 100);
    drop(client);
    assert_eq!(bench.restart().await.view("q").await.ready, 0, "the journal let go of them");
}

#[tokio::test]
async fn dead_messages_outlive_their_queue() {
    // More than are sent on at once.
    const COUNT: u64 = 1500;
    let bench = Bench::start();
    let mut client = bench.client().await;
    client.declare(queue("dead")).await;
    let mut source = with(queue("q"), "x-message-ttl", 0);
    for (argument, value) in [("x-dead-letter-exchange", ""), ("x-dead-letter-routing-key", "dead")]
    {
        let value = AMQPValue::LongString(value.as_bytes().to_vec().into());
        source.arguments.insert(argument.into(), value);
    }
    client.declare(source).await;
    let stream = bench.id_of("q").expect("it was declared");
    for _ in 0..COUNT {
        client.publish("q", true, b"x");
    }
    let (answer, deleted) = oneshot::channel();
    let delete = Command::Delete { queue: stream, if_unused: false, if_empty: true, answer };
    bench.started.node.shards.post(stream, Batch::one(delete));
    assert_eq!(deleted.await, Ok(Deleted::Done(0)));
    // Each look is a turn of the shard.
    let all = async { while bench.view("dead").await.ready < COUNT {} };
    tokio::time::timeout(Duration::from_mins(1), all).await.expect("all of them arrive");
}

#[tokio::test]
async fn a_start_ends_at_a_command_that_cannot_be_carried_out_again() {
    let bench = Bench::start();
    let node = Arc::clone(&bench.started.node);
    let seq = node.topology.applied() + 1;
    // As if what it is about had been lost before it.
    let payload = Payload::Bytes(metadata::command::Command::ForgetNode { id: 99 }.encode());
    let (stream, class) = (crate::topology::STREAM, Class::Vital);
    let put = Op::Put { stream, seq: Seq(seq), class, head: Head::default(), payload };
    node.journal.submit(vec![put]);
    let config = node.config.clone();
    drop(node);
    let Bench { started, folder: _folder } = bench;
    started.stop(Duration::from_secs(10)).await;
    let error = crate::start::start(config, None).expect_err("it is refused").to_string();
    let beginning =
        format!("metadata command {seq} was accepted when it was made and cannot be carried out");
    assert!(error.starts_with(&beginning), "{error}");
    assert!(error.contains("no node"), "it says why: {error}");
}
