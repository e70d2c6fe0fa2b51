//! What the replicated state makes of orders of nodes that come, go and follow other leaders.

use bytes::BytesMut;
use model::message::Message;

use super::*;
use crate::replicated::version::{FIRST, NEWEST};

const A: Sender = Sender { node: NodeId(1), boot: 1 };
const B: Sender = Sender { node: NodeId(2), boot: 1 };

/// A machine, and how far each sender has come.
struct Rig {
    machine: Machine,
    last: BTreeMap<Sender, u64>,
}

impl Rig {
    fn new() -> Self {
        let mut rig = Self { machine: Machine::new(NEWEST), last: BTreeMap::new() };
        rig.own(Order::Configure(Settings::new(Style::Quorum).encode().into()));
        rig
    }

    fn apply(&mut self, sender: Sender, first: u64, orders: &[Order]) -> Vec<Output> {
        let mut entry = BytesMut::new();
        order::begin_entry(&mut entry, NEWEST, Timestamp(1));
        order::write_batch(&mut entry, sender, first, orders.iter());
        let mut outputs = Vec::new();
        self.machine.apply(entry.freeze(), &mut outputs).expect("it is well-formed");
        outputs
    }

    fn own(&mut self, order: Order) -> Vec<Output> {
        self.apply(OWN, 0, &[order])
    }

    /// The next orders of a sender.
    fn next(&mut self, sender: Sender, orders: &[Order]) -> Vec<Output> {
        let last = self.last.entry(sender).or_default();
        let first = *last + 1;
        *last += orders.len() as u64;
        self.apply(sender, first, orders)
    }
}

fn publish() -> Order {
    let message = Message::from_parts("", "key", &[0, 0], b"body");
    Order::Publish(Published { persistent: true, priority: None, ttl: None, message })
}

fn consume(at: Sender, consumer: u64, prefetch: u16, no_ack: bool, window: u32) -> Order {
    Order::Consume(Box::new(Subscribed {
        at,
        connection: ConnectionId(at.node.0),
        channel: 1,
        consumer: ConsumerId(consumer),
        tag: "tag".into(),
        no_ack,
        exclusive: false,
        priority: 0,
        timeout: None,
        flow: Flow::Prefetch(prefetch),
        window,
        arguments: amq_protocol_types::FieldTable::default(),
        user: "guest".into(),
    }))
}

fn settle(holder: Option<u64>, seq: u64, outcome: Outcome) -> Order {
    let run = Run { holder: holder.map(ConsumerId), first: Seq(seq), last: Seq(seq) };
    Order::Settle { runs: vec![run], outcome: Settlement::Client(outcome) }
}

/// What is repeated, between the marks of its beginning and its end.
fn repeated(outputs: &[Output]) -> Vec<u64> {
    assert!(matches!(outputs.first(), Some(Output::Attaching { .. })), "{outputs:?}");
    let seq = |output: &Output| match output {
        Output::Again { seq, .. } => Some(seq.0),
        _ => None,
    };
    assert!(outputs.iter().any(|output| matches!(output, Output::Attached { .. })));
    outputs.iter().filter_map(seq).collect()
}

#[test]
fn a_late_settlement_does_not_touch_what_another_node_has_got_since() {
    let mut rig = Rig::new();
    let get = || Order::Get { connection: ConnectionId(9), no_ack: false };
    rig.next(A, &[publish(), get()]);
    rig.own(Order::Lost { node: A.node });
    rig.next(B, &[get()]);
    assert_eq!(rig.machine.queue().unsettled(), 1);
    let outputs = rig.next(A, &[settle(None, 1, Outcome::Return)]);
    assert_eq!(rig.machine.queue().unsettled(), 1, "it is B's: {outputs:?}");
    rig.next(B, &[settle(None, 1, Outcome::Accept)]);
    assert_eq!((rig.machine.queue().unsettled(), rig.machine.holders().count()), (0, 0));
}

#[test]
fn who_follows_another_leader_hears_of_all_that_it_holds_as_often_as_it_asks() {
    let mut rig = Rig::new();
    rig.next(A, &[consume(A, 1, 2, false, 0), consume(A, 2, 1, false, 0)]);
    rig.next(A, &[publish(), publish(), publish()]);
    rig.next(A, &[Order::Cancel { consumer: ConsumerId(2) }]);
    let attach = Order::Attach { consumers: vec![ConsumerId(1), ConsumerId(7)] };
    let outputs = rig.next(A, std::slice::from_ref(&attach));
    let mut seqs = repeated(&outputs);
    seqs.sort_unstable();
    assert_eq!(seqs, [1, 2, 3], "also what the cancelled one may lack");
    assert!(outputs.iter().any(|output| matches!(
        output,
        Output::Attached { unknown, .. } if unknown == &[ConsumerId(7)]
    )));
    let number = *rig.last.get(&A).expect("it has asked");
    assert_eq!(repeated(&rig.apply(A, number, &[attach])).len(), 3, "the answer may be lost");
}

#[test]
fn what_was_on_its_way_with_a_lost_leader_takes_no_room_in_a_window() {
    let mut rig = Rig::new();
    rig.next(A, &[consume(A, 1, 0, true, 100)]);
    rig.next(A, &[publish(), publish(), publish()]);
    assert_eq!(rig.machine.queue().ready(), 1, "two fill the window");
    rig.next(A, &[Order::Attach { consumers: vec![ConsumerId(1)] }]);
    assert_eq!(rig.machine.queue().ready(), 0);
}

/// An entry of that version with one order of the leader.
fn entry(version: u8, order: &Order) -> Bytes {
    let mut entry = BytesMut::new();
    order::begin_entry(&mut entry, version, Timestamp(1));
    order::write_batch(&mut entry, OWN, 0, std::iter::once(order));
    entry.freeze()
}

#[test]
fn a_version_comes_into_force_by_an_entry_and_stays() {
    let next = NEWEST + 1;
    let mut machine = Machine::new(next);
    let mut outputs = Vec::new();
    assert_eq!(machine.version(), FIRST);
    machine.apply(entry(FIRST, &Order::Version(next)), &mut outputs).expect("it is known");
    assert_eq!(machine.version(), next);
    // What was under way when it came, and what a leader proposed that had not seen it.
    for late in [Order::Tick, Order::Version(FIRST)] {
        machine.apply(entry(FIRST, &late), &mut outputs).expect("it is known");
    }
    machine.apply(entry(next, &Order::Tick), &mut outputs).expect("it is known");
    let state = Bytes::from(machine.encode());
    assert_eq!(Machine::decode(state.clone(), next).expect("it is known").version(), next);
    let newer = Unreadable::Newer { found: next, known: NEWEST };
    assert_eq!(Machine::decode(state, NEWEST).err(), Some(newer));
}

#[test]
fn what_is_of_a_newer_version_changes_nothing() {
    let mut rig = Rig::new();
    let before = rig.machine.encode();
    let next = NEWEST + 1;
    let newer = Unreadable::Newer { found: next, known: NEWEST };
    for bytes in [entry(next, &Order::Tick), entry(NEWEST, &Order::Version(next))] {
        assert_eq!(rig.machine.apply(bytes, &mut Vec::new()), Err(newer));
    }
    let none = rig.machine.apply(entry(0, &Order::Tick), &mut Vec::new());
    assert!(matches!(none, Err(Unreadable::Malformed(_))), "{none:?}");
    assert_eq!(rig.machine.encode(), before);
}

/// It says whether the queue may go, and what goes with it, as of its place in the log; what a
/// publisher puts behind it is taken all the same. The queue itself goes from the topology, and its
/// log with it.
#[test]
fn a_deletion_is_answered_in_its_place_among_publishes() {
    let mut rig = Rig::new();
    let delete = |if_empty| Order::Delete { if_unused: false, if_empty };
    let outputs = rig.next(A, &[publish(), delete(true), publish(), delete(false), publish()]);
    let seen = outputs.iter().filter_map(|output| match output {
        Output::Stored { seq, .. } => Some(format!("stored {}", seq.0)),
        Output::Reply { number, reply, .. } => Some(format!("{number}: {reply:?}")),
        Output::Dropped { .. } | Output::Refused { .. } => Some("refused".to_owned()),
        _ => None,
    });
    let wanted =
        ["stored 1", "2: Deleted(NotEmpty)", "stored 2", "4: Deleted(Done(2))", "stored 3"];
    assert_eq!(seen.collect::<Vec<_>>(), wanted);
}
