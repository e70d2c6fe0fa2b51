//! A slot at a desk of its own, whose journal only counts.

use std::collections::VecDeque;
use std::sync::Arc;

use amq_protocol_types::FieldTable;
use bytes::Bytes;
use journal::error::ReadError;
use journal::op::{Lsn, Op};
use metadata::boot::{self, DefaultUser};
use metadata::command::{Command as MetadataCommand, DeclareQueue};
use metadata::state::State;
use model::id::{NodeId, QueueId, Seq, StreamId};
use model::message::Message;
use model::time::{Millis, Timestamp};
use queue::settings::{Settings, Style};
use quorum::group::GroupId;
use quorum::log::Log;
use quorum::member::Member;

use super::Slot;
use crate::inbox::Inbox;
use crate::replicated::client::Leader;
use crate::replicated::fabric::{Berth, Fabric};
use crate::replicated::notice::Notice;
use crate::replicated::numbered::Sender;
use crate::router::Router;
use crate::shard::bodies::Weight;
use crate::shard::command::{Arrival, Command, Content, Done};
use crate::shard::desk::Desk;
use crate::shard::ground::Ground;
use crate::shard::outboxes::Outboxes;
use crate::shard::profile::{DeadLetterTarget, Profile};
use crate::shards::Shards;
use crate::totals::Counters;

/// Longer than the one queue has room.
const LIMIT: u64 = 2;

#[derive(Debug)]
struct Nowhere;

impl Log for Nowhere {
    fn submit(&self, _: Vec<Op>) -> Lsn {
        Lsn(0)
    }

    fn read(&self, _: StreamId, seqs: &[Seq], out: &mut Vec<Result<Bytes, ReadError>>) {
        out.extend(seqs.iter().map(|_| Err(ReadError::Missing)));
    }
}

impl Ground for Nowhere {
    fn durable(&self) -> Lsn {
        Lsn(0)
    }
}

impl Fabric for Nowhere {
    fn me(&self) -> Sender {
        Sender { node: NodeId(1), boot: 1 }
    }

    fn start_of(&self, _: NodeId) -> Option<Sender> {
        None
    }

    fn knows(&self, _: NodeId) -> Option<u8> {
        None
    }

    fn patience(&self) -> Millis {
        Millis(0)
    }

    fn orders(&self, _: NodeId, _: QueueId, _: Bytes) {}

    fn notice(&self, _: NodeId, _: &Notice) {}

    fn propose(&self, _: QueueId, _: Bytes) -> bool {
        false
    }

    fn announce(&self, _: QueueId, _: Leader) {}

    fn start(&self, _: QueueId, _: Arc<dyn Member>, _: Berth) {}

    fn move_to(&self, _: QueueId, _: GroupId, _: bool) {}

    fn delete(&self, _: QueueId, _: StreamId) {}
}

/// Of a node with one queue, `dlq`; what is posted to queues comes into the inbox.
fn desk() -> (Desk, Arc<Inbox>) {
    let mut state = State::new();
    let user = DefaultUser {
        name: "guest".into(),
        password_hash: String::new(),
        tags: vec!["administrator".into()],
    };
    let target = DeclareQueue {
        vhost: "/".into(),
        name: "dlq".into(),
        generated: false,
        durable: true,
        auto_delete: false,
        exclusive_owner: None,
        arguments: FieldTable::default(),
        user: "guest".into(),
        home: NodeId(0),
        members: Vec::new(),
        away: Vec::new(),
    };
    let declare = MetadataCommand::DeclareQueue(target);
    for command in boot::commands("/", user).into_iter().chain([declare]) {
        state.apply(command).expect("a valid command");
    }
    let shards = Arc::new(Shards::new(1));
    let inbox = Arc::clone(shards.inbox(0));
    let desk = Desk {
        now: Timestamp(1000),
        outboxes: Outboxes::default(),
        ops: Vec::new(),
        effects: Vec::new(),
        counted: Counters::default(),
        weight: Weight::default(),
        budget: Weight { cached: 1 << 20, only: 1 << 20 },
        attached: VecDeque::new(),
        consumer_window: 0,
        journal: Arc::new(Nowhere),
        inbox: Arc::clone(&inbox),
        shards,
        router: Arc::new(Router::new(state)),
        fabric: Arc::new(Nowhere),
        publish_timeout: Millis(1),
        chores: tokio::sync::mpsc::unbounded_channel().0,
        consumers: Arc::default(),
    };
    (desk, inbox)
}

/// A queue of a journal that may have two copies, which drops what is over its limit.
fn profile(exchange: &str) -> Profile {
    Profile {
        id: QueueId(100),
        vhost: "/".into(),
        name: "q".into(),
        durable: true,
        home: NodeId(1),
        journal: None,
        settings: Settings {
            max_length: Some(LIMIT),
            dead_letter: true,
            keeps_dead: true,
            ..Settings::new(Style::Classic)
        },
        dead_letter: Some(DeadLetterTarget {
            exchange: exchange.into(),
            routing_key: Some("dlq".into()),
        }),
        quorum: None,
        led_by: None,
    }
}

fn publish(slot: &mut Slot, desk: &mut Desk, count: u64) {
    for _ in 0..count {
        let arrival = Arrival {
            queue: slot.profile.id,
            content: Content::Own(Message::from_parts("", "q", &[0, 0], b"x")),
            persistent: true,
            priority: None,
            ttl: None,
            done: Done::Nothing,
        };
        assert_eq!(slot.publish(desk, &arrival), (true, true));
    }
    let mut ops = Vec::new();
    slot.hand_over(&mut ops);
}

fn surveyed(slot: &Slot) -> Vec<u64> {
    slot.survey(Seq(1), 100).records.iter().map(|(seq, _)| seq.0).collect()
}

#[test]
fn a_copy_gets_dead_messages_that_are_not_where_they_go() {
    let (mut desk, inbox) = desk();
    let mut slot = Slot::new(profile(""), desk.now);
    publish(&mut slot, &mut desk, LIMIT + 2);
    let mut batches = Vec::new();
    inbox.take(&mut batches);
    let posted: Vec<&Command> = batches.iter().flat_map(|batch| &batch.commands).collect();
    assert!(matches!(posted[..], [Command::Publish(_), Command::Publish(_)]), "{posted:?}");
    assert_eq!(surveyed(&slot), [1, 2, 3, 4], "both are under way");
    assert_eq!(slot.ready(), LIMIT);
    // A node that opens the copy, and one that starts again, has them in their old places.
    let mut copy = Slot::restored(profile(""), Seq(5), None, desk.now);
    for (seq, head) in slot.survey(Seq(1), 100).records {
        assert!(copy.restore(seq, head.as_slice()));
    }
    assert_eq!(copy.ready(), LIMIT + 2);
    slot.on_dead_lettered(&mut desk, Seq(1));
    assert_eq!(surveyed(&slot), [2, 3, 4]);
    let mut ops = Vec::new();
    slot.hand_over(&mut ops);
    let released = |op: &Op| matches!(op, Op::Release { first: Seq(1), last: Seq(1), .. });
    assert!(ops.len() == 1 && ops.iter().all(released), "{ops:?}");
}

/// Nobody copies the queues of the node's own journal, so theirs cost nothing more.
#[test]
fn queues_that_are_not_copied_do_not_know_their_dead() {
    let (mut desk, _inbox) = desk();
    let settings = Settings { keeps_dead: false, ..profile("").settings };
    let mut slot = Slot::new(Profile { settings, ..profile("") }, desk.now);
    publish(&mut slot, &mut desk, LIMIT + 2);
    assert_eq!(surveyed(&slot), [3, 4]);
    slot.on_dead_lettered(&mut desk, Seq(1));
    let mut ops = Vec::new();
    slot.hand_over(&mut ops);
    let released = |op: &Op| matches!(op, Op::Release { first: Seq(1), last: Seq(1), .. });
    assert!(ops.len() == 1 && ops.iter().all(released), "{ops:?}");
}

#[test]
fn dead_messages_that_have_no_target_are_gone_at_once_however_many_there_are() {
    const MANY: u64 = 50_000;
    let (mut desk, _inbox) = desk();
    let mut slot = Slot::new(profile("no such exchange"), desk.now);
    slot.configure(&mut desk, Profile { settings: no_limit(), ..profile("no such exchange") });
    publish(&mut slot, &mut desk, MANY);
    slot.configure(&mut desk, profile("no such exchange"));
    assert_eq!(slot.ready(), LIMIT);
    assert_eq!(surveyed(&slot), [MANY - 1, MANY]);
    let mut ops = Vec::new();
    slot.hand_over(&mut ops);
    let released =
        |op: &Op| matches!(op, Op::Release { first: Seq(1), last, .. } if last.0 == MANY - LIMIT);
    assert!(ops.len() == 1 && ops.iter().all(released), "{}", ops.len());
}

fn no_limit() -> Settings {
    Settings { max_length: None, ..profile("").settings }
}
