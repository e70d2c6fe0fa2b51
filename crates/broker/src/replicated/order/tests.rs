//! Everything that is written is read back the same; nothing else is read.

use super::*;
use crate::replicated::version::NEWEST;
use amq_protocol_types::{AMQPValue, FieldTable};
use proptest::prelude::*;

fn table() -> FieldTable {
    let mut table = FieldTable::default();
    table.insert("x-priority".into(), AMQPValue::LongInt(3));
    table
}

fn orders() -> Vec<Order> {
    let message = Message::from_parts("ex", "key", &[0, 0], b"body");
    vec![
        Order::Publish(Published {
            persistent: true,
            priority: Some(9),
            ttl: Some(Millis(5)),
            message: message.clone(),
        }),
        Order::Publish(Published { persistent: false, priority: None, ttl: None, message }),
        Order::Settle {
            runs: vec![
                Run { holder: Some(ConsumerId(4)), first: Seq(1), last: Seq(2) },
                Run { holder: None, first: Seq(3), last: Seq(3) },
            ],
            outcome: Settlement::Client(Outcome::Retry),
        },
        Order::Settle { runs: vec![], outcome: Settlement::Lost },
        Order::Sent { consumer: ConsumerId(1), messages: 2, bytes: 3 },
        Order::Grant { consumer: ConsumerId(1), count: 2 },
        Order::End { consumer: ConsumerId(1) },
        Order::Gone { consumer: ConsumerId(1) },
        Order::Cancel { consumer: ConsumerId(1) },
        Order::Consume(Box::new(Subscribed {
            at: Sender { node: NodeId(1), boot: 2 },
            connection: ConnectionId(2),
            channel: 3,
            consumer: ConsumerId(4),
            tag: "tag".into(),
            no_ack: true,
            exclusive: false,
            priority: -7,
            timeout: Some(Millis(8)),
            flow: Flow::Prefetch(9),
            window: 10,
            arguments: table(),
            user: "guest".into(),
        })),
        Order::Limit { consumer: ConsumerId(1) },
        Order::Left { connection: ConnectionId(1) },
        Order::Get { connection: ConnectionId(2), no_ack: true },
        Order::Count,
        Order::Purge,
        Order::Delete { if_unused: true, if_empty: false },
        Order::Hello,
        Order::Attach { consumers: vec![ConsumerId(3), ConsumerId(4)] },
        Order::Nothing,
        Order::Touch,
        Order::Configure(Bytes::from_static(b"settings")),
        Order::Tick,
        Order::Restarted { start: Sender { node: NodeId(6), boot: 2 } },
        Order::Lost { node: NodeId(6) },
        Order::Bury { seqs: vec![Seq(4), Seq(9)] },
        Order::Version(3),
    ]
}

fn entry() -> Bytes {
    let mut out = BytesMut::new();
    begin_entry(&mut out, NEWEST, Timestamp(77));
    let sender = Sender { node: NodeId(5), boot: 6 };
    write_batch(&mut out, sender, 100, orders().iter());
    write_batch(&mut out, OWN, 0, [Order::Tick].iter());
    write_batch(&mut out, sender, 200, orders()[..1].iter());
    out.freeze()
}

#[test]
fn what_is_written_is_read() {
    let (stamp, batches) = read_entry(entry(), NEWEST).expect("it is well-formed");
    assert_eq!((stamp, batches.len()), (Timestamp(77), 3));
    let heads: Vec<_> = batches.iter().map(|it| (it.sender.node.0, it.first, it.count)).collect();
    assert_eq!(
        heads,
        [(5, 100, u32::try_from(orders().len()).expect("few")), (0, 0, 1), (5, 200, 1)]
    );
    let mut first = batches[0].clone();
    for expected in orders() {
        let read = first.take().expect("as many as written").expect("well-formed");
        let (mut again, mut once) = (BytesMut::new(), BytesMut::new());
        read.encode(&mut again);
        expected.encode(&mut once);
        assert_eq!(again, once, "{read:?}");
    }
    assert!(first.take().is_none());
}

#[test]
fn messages_are_found_by_their_place_among_the_publishes() {
    let found = message_at(entry(), &[0, 2]).expect("they are there");
    assert_eq!(found.iter().map(Message::body).collect::<Vec<_>>(), [b"body", b"body"]);
    assert_eq!(message_at(entry(), &[3]).err(), Some(Malformed("an entry lacks a message").into()));
}

#[test]
fn acknowledgements_are_joined_where_they_follow_each_other() {
    use model::id::QueueId;
    let one = |consumer, seq| Unsettled { queue: QueueId(1), seq: Seq(seq), consumer };
    let (a, b) = (Some(ConsumerId(1)), Some(ConsumerId(2)));
    let runs: Vec<_> = runs(&[one(a, 1), one(a, 2), one(b, 3), one(b, 2), one(None, 3)])
        .into_iter()
        .map(|run| (run.holder, run.first.0, run.last.0))
        .collect();
    assert_eq!(runs, [(a, 1, 2), (b, 3, 3), (b, 2, 2), (None, 3, 3)]);
}

#[test]
fn what_no_node_may_give_is_seen_before_it_is_proposed() {
    let sender = Sender { node: NodeId(5), boot: 6 };
    let batch = |order: &Order| {
        let mut out = BytesMut::new();
        write_batch(&mut out, sender, 1, std::iter::once(order));
        out
    };
    let own = |order: &Order| {
        use Order::{Bury, Configure, Lost, Restarted, Tick, Version};
        matches!(
            order,
            Configure(_) | Tick | Restarted { .. } | Lost { .. } | Bury { .. } | Version(_)
        )
    };
    let mut all = BytesMut::new();
    for order in orders() {
        let one = batch(&order);
        assert_eq!(check_batches(&one).is_ok(), !own(&order), "{order:?}");
        if !own(&order) {
            all.extend_from_slice(&one);
            assert!((1..one.len()).all(|at| check_batches(&one[..at]).is_err()), "{order:?}");
        }
    }
    assert_eq!(check_batches(&all), Ok(()));
    let mut newer = batch(&Order::Tick);
    *newer.last_mut().expect("it has a kind") = 99;
    assert!(check_batches(&newer).is_err());
    let mut nobody = BytesMut::new();
    write_batch(&mut nobody, OWN, 0, [Order::Touch].iter());
    assert!(check_batches(&nobody).is_err());
}

proptest! {
    #[test]
    fn cut_or_changed_bytes_are_no_panic(cut in any::<prop::sample::Index>(), byte in any::<u8>()) {
        let whole = entry();
        let at = cut.index(whole.len());
        let read = read_entry(whole.slice(..at), NEWEST);
        prop_assert!(read.map_or(true, |(_, batches)| batches.len() < 3));
        let mut changed = whole.to_vec();
        changed[at] = byte;
        if let Ok((_, batches)) = read_entry(changed.into(), NEWEST) {
            for mut batch in batches {
                while let Some(Ok(_)) = batch.take() {}
            }
        }
    }
}
