use amqp::request::Flow;
use model::id::ConnectionId;
use model::time::Millis;
use queue::settings::{Settings, Style};

use super::*;
use crate::replicated::order::Subscribed;
use crate::replicated::version::NEWEST;

const DEAD: Sender = Sender { node: NodeId(7), boot: 3 };

fn consume(at: Sender, consumer: u64) -> Order {
    Order::Consume(Box::new(Subscribed {
        at,
        connection: ConnectionId(1),
        channel: 1,
        consumer: ConsumerId(consumer),
        tag: "tag".into(),
        no_ack: false,
        exclusive: false,
        priority: 0,
        timeout: None,
        flow: Flow::Prefetch(1),
        window: 1 << 20,
        arguments: amq_protocol_types::FieldTable::default(),
        user: "guest".into(),
    }))
}

fn batch(from: Sender, order: &Order) -> Bytes {
    let mut out = BytesMut::new();
    order::write_batch(&mut out, from, 1, std::iter::once(order));
    out.freeze()
}

/// The nodes that hold something when everything is applied that a leader had taken in.
fn holders_after(takes: impl Fn(&mut Replica)) -> BTreeSet<NodeId> {
    let mut replica = Replica::new(StreamId(1), Arc::default());
    replica.leading = Some(Leading { term: 1, ..Leading::default() });
    takes(&mut replica);
    let mut machine = Machine::new(NEWEST);
    while let Some(entry) = replica.proposal(Timestamp(1)) {
        machine.apply(entry, &mut Vec::new()).expect("it was just written");
    }
    machine.nodes()
}

#[test]
fn the_end_of_a_node_takes_along_what_of_it_was_still_under_way() {
    let lives = Sender { node: DEAD.node, boot: 4 };
    let under_way = |replica: &mut Replica| {
        // One that was proposed, and is neither applied nor among those that wait.
        replica.orders(batch(DEAD, &consume(DEAD, 1))).expect("they are good");
    };
    assert_eq!(holders_after(under_way), BTreeSet::from([DEAD.node]));
    let lost = |replica: &mut Replica| {
        under_way(replica);
        replica.is_lost(DEAD.node);
    };
    assert_eq!(holders_after(lost), BTreeSet::new());
    let restarted = |replica: &mut Replica| {
        under_way(replica);
        replica.is_here(lives);
    };
    assert_eq!(holders_after(restarted), BTreeSet::new());
    let back = |replica: &mut Replica| {
        lost(replica);
        replica.orders(batch(lives, &consume(lives, 2))).expect("they are good");
    };
    assert_eq!(holders_after(back), BTreeSet::from([DEAD.node]), "its next start is another one");
}

#[test]
fn an_end_that_concerns_nobody_is_not_written_down() {
    let mut replica = Replica::new(StreamId(1), Arc::default());
    replica.leading = Some(Leading { term: 1, ..Leading::default() });
    replica.is_lost(DEAD.node);
    replica.is_here(DEAD);
    assert!(replica.proposal(Timestamp(1)).is_none());
}

#[test]
fn an_entry_that_is_proposed_and_not_applied_counts_as_under_way() {
    let mut replica = Replica::new(StreamId(1), Arc::default());
    replica.leading = Some(Leading { term: 1, ..Leading::default() });
    replica.orders(batch(DEAD, &consume(DEAD, 1))).expect("they are good");
    let mut machine = Machine::new(NEWEST);
    let entry = replica.proposal(Timestamp(1)).expect("there is an order");
    machine.apply(entry, &mut Vec::new()).expect("it was just written");
    replica.is_lost(DEAD.node);
    let entry = replica.proposal(Timestamp(1)).expect("the end is one");
    machine.apply(entry, &mut Vec::new()).expect("it was just written");
    assert_eq!(machine.nodes(), BTreeSet::new());
}

#[test]
fn a_queue_that_expires_is_given_its_time_by_every_new_leader() {
    let expires = Some(Millis(1500));
    let profile = Profile {
        id: QueueId(9),
        vhost: "/".into(),
        name: "q".into(),
        durable: true,
        home: NodeId(0),
        journal: None,
        settings: Settings { expires, ..Settings::new(Style::Quorum) },
        dead_letter: None,
        quorum: Some(vec![metadata::objects::member::Member::founding(QueueId(1), NodeId(1))]),
        led_by: None,
    };
    let mut machine = Machine::new(NEWEST);
    let mut expired = |term: u64, now: u64| {
        let mut replica = Replica::new(StreamId(1), Arc::default());
        replica.lead(term, &profile);
        replica.tick();
        let entry = replica.proposal(Timestamp(now)).expect("there is something to say");
        let mut outputs = Vec::new();
        machine.apply(entry, &mut outputs).expect("it was just written");
        let gone = outputs.iter().any(|it| matches!(it, Output::Effect(Effect::Expired)));
        (gone, machine.queue().next_deadline())
    };
    assert_eq!(expired(1, 1000), (false, Some(Timestamp(2500))));
    // Nobody led for long, or this one's clock is ahead of the other's.
    assert_eq!(expired(2, 9000), (false, Some(Timestamp(10_500))));
}

fn keeping() -> Profile {
    Profile {
        id: QueueId(9),
        vhost: "/".into(),
        name: "q".into(),
        durable: true,
        home: NodeId(0),
        journal: None,
        settings: Settings {
            dead_letter: true,
            keeps_dead: true,
            overflow: queue::settings::Overflow::RejectPublish,
            ..Settings::new(Style::Quorum)
        },
        dead_letter: None,
        quorum: Some(vec![metadata::objects::member::Member::founding(QueueId(9), NodeId(1))]),
        led_by: None,
    }
}

#[test]
fn the_next_leader_sends_on_what_is_dead_and_kept() {
    let profile = keeping();
    let mut replica = Replica::new(StreamId(1), Arc::default());
    let message = Message::from_parts("", "key", &[0, 0], b"body");
    let discarded = Run { holder: Some(ConsumerId(1)), first: Seq(1), last: Seq(1) };
    let orders = [
        consume(DEAD, 1),
        Order::Publish(Published { persistent: true, priority: None, ttl: None, message }),
        Order::Settle {
            runs: vec![discarded],
            outcome: Settlement::Client(amqp::request::Outcome::Discard),
        },
    ];
    let mut entry = BytesMut::new();
    order::begin_entry(&mut entry, NEWEST, Timestamp(1));
    let settings = Order::Configure(profile.settings.encode().into());
    order::write_batch(&mut entry, OWN, 0, std::iter::once(&settings));
    order::write_batch(&mut entry, DEAD, 1, orders.iter());
    replica.machine.apply(entry.freeze(), &mut Vec::new()).expect("it was just written");
    replica.lead(2, &profile);
    let leading = replica.leading.as_mut().expect("it leads");
    assert_eq!(leading.dead, [(Seq(1), Reason::Rejected)]);
    assert!(replica.is_kept(Seq(1)) && replica.is_alive(Seq(1)));
    // A follower releases nothing of it, and a leader that steps down neither.
    replica.step_down();
    replica.died(&profile, Seq(1), Reason::Rejected);
    replica.lead(3, &profile);
    let leading = replica.leading.as_mut().expect("it leads");
    leading.buried.push(Seq(1));
    let entry = replica.proposal(Timestamp(2)).expect("there is something to say");
    let mut outputs = Vec::new();
    replica.machine.apply(entry, &mut outputs).expect("it was just written");
    assert!(!replica.is_kept(Seq(1)));
    let released =
        |output: &Output| matches!(output, Output::Effect(Effect::Release { first: Seq(1), .. }));
    assert!(outputs.iter().any(released), "{outputs:?}");
}

#[test]
fn the_leader_proposes_the_version_that_all_know_once() {
    let mut replica = Replica::new(StreamId(1), Arc::default());
    replica.machine = Machine::new(3);
    replica.agree(3);
    replica.leading = Some(Leading { term: 1, ..Leading::default() });
    assert_eq!(replica.proposal(Timestamp(1)), None, "who does not lead proposes nothing");
    for all_know in [1, 2, 2, 1] {
        replica.agree(all_know);
    }
    let entry = replica.proposal(Timestamp(1)).expect("there is something to say");
    assert_eq!(entry[0], 1, "it is not in force yet");
    replica.machine.apply(entry, &mut Vec::new()).expect("it was just written");
    assert_eq!(replica.machine.version(), 2);
    replica.leading.as_mut().expect("it leads").in_flight = 0;
    replica.agree(2);
    assert_eq!(replica.proposal(Timestamp(1)), None);
    // No more than it knows itself.
    replica.agree(9);
    let entry = replica.proposal(Timestamp(1)).expect("there is something to say");
    assert_eq!(entry[0], 2);
    replica.machine.apply(entry, &mut Vec::new()).expect("it was just written");
    assert_eq!(replica.machine.version(), 3);
}

#[test]
fn one_that_has_stopped_gives_no_state() {
    let mut replica = Replica::new(StreamId(1), Arc::default());
    assert!(replica.checkpoint().is_some());
    replica.stopped = Some("it cannot go on".into());
    assert_eq!(replica.checkpoint(), None);
}

#[test]
fn a_new_leader_says_nothing_until_there_is_something_to_say() {
    let plain = Profile {
        settings: Settings { max_length: Some(7), ..Settings::new(Style::Quorum) },
        ..keeping()
    };
    let mut replica = Replica::new(StreamId(1), Arc::default());
    replica.lead(1, &plain);
    assert_eq!(replica.proposal(Timestamp(1)), None, "nobody has used the queue");
    let shorter = Settings { max_length: Some(5), ..plain.settings.clone() };
    replica.configure(&Profile { settings: shorter, ..plain.clone() });
    assert_eq!(replica.proposal(Timestamp(1)), None, "a policy is no use of it");
    replica.own(Order::Tick);
    let mut machine = Machine::new(NEWEST);
    let entry = replica.proposal(Timestamp(1)).expect("there is an order");
    machine.apply(entry, &mut Vec::new()).expect("it was just written");
    assert_eq!(machine.queue().settings().max_length, Some(5), "the first entry says what it is");
}

/// The cluster's policies change also while nobody leads the queue, or a leader goes before it has
/// written the change down: whoever leads next does.
#[test]
fn a_new_leader_brings_settings_that_were_changed_without_one() {
    let of_length = |max_length| Profile {
        settings: Settings { max_length: Some(max_length), ..Settings::new(Style::Quorum) },
        ..keeping()
    };
    let mut replica = Replica::new(StreamId(1), Arc::default());
    let apply = |replica: &mut Replica| {
        if let Some(entry) = replica.proposal(Timestamp(1)) {
            replica.machine.apply(entry, &mut Vec::new()).expect("it was just written");
        }
        replica.machine.queue().settings().max_length
    };
    replica.lead(1, &of_length(7));
    replica.own(Order::Tick);
    assert_eq!(apply(&mut replica), Some(7));
    replica.step_down();
    replica.configure(&of_length(5));
    assert_eq!(apply(&mut replica), Some(7), "nobody leads");
    replica.lead(2, &of_length(5));
    assert_eq!(apply(&mut replica), Some(5));
    replica.configure(&of_length(3));
    assert!(replica.proposal(Timestamp(1)).is_some(), "it is lost with its leader");
    replica.lead(4, &of_length(3));
    assert_eq!(apply(&mut replica), Some(3));
    replica.lead(5, &of_length(3));
    assert_eq!(replica.proposal(Timestamp(1)), None, "all know them");
}
