//! Random commands: the machine must do what the model does, and keep its invariants.

use std::collections::BTreeSet;

use model::id::{ConsumerId, Seq};
use model::time::{Millis, Timestamp};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use queue::command::{Arrival, Command, Outcome, Reply, Subscription};
use queue::effect::Effect;
use queue::queue::{Held, Queue};
use queue::settings::{DelayedRetry, Overflow, Retried, Settings, Style};

use crate::model::{Model, Place};

/// A step whose meaning depends on what is there: numbers choose among it.
#[derive(Debug, Clone)]
enum Step {
    Enqueue { bytes: u32, priority: Option<u8>, ttl: Option<u64> },
    Consume(Subscription),
    Cancel(usize),
    Gone(usize),
    Unreachable(usize),
    Limit(usize),
    Grant(usize, u32),
    Sent(usize, u32, u64),
    Get { no_ack: bool },
    Settle { holder: usize, start: usize, span: usize, outcome: Outcome, more: bool },
    SettleAll { holder: usize, outcome: Outcome },
    Bury(usize),
    Purge,
    Delete { if_unused: bool, if_empty: bool },
    Configure(Settings),
    Touch,
    Tick,
    Advance(u64),
    Restart,
    Shrink,
    Snapshot,
}

fn settings(style: Style) -> impl Strategy<Value = Settings> {
    let limits = (
        option::weighted(0.3, 0..8_u64),
        option::weighted(0.2, 0..200_u64),
        prop_oneof![
            3 => Just(Overflow::DropHead),
            1 => Just(Overflow::RejectPublish),
            1 => Just(Overflow::RejectPublishDlx),
        ],
    );
    let times = (
        option::weighted(0.3, (0..40_u64).prop_map(Millis)),
        option::weighted(0.3, (1..60_u64).prop_map(Millis)),
        option::weighted(0.3, (1..30_u64).prop_map(Millis)),
        option::weighted(0.3, (0..3_u8, 0..20_u64, 0..40_u64)),
    );
    let rest = (
        any::<bool>(),
        option::weighted(0.3, 0..4_u32),
        option::weighted(0.5, 0..6_u8),
        any::<bool>(),
        proptest::bool::weighted(0.3),
    );
    (limits, times, rest).prop_map(move |(limits, times, rest)| Settings {
        max_length: limits.0,
        max_length_bytes: limits.1,
        overflow: limits.2,
        message_ttl: times.0,
        expires: times.1,
        consumer_timeout: times.2,
        delayed_retry: times.3.map(|(which, min, max)| DelayedRetry {
            which: [Retried::Failed, Retried::Returned, Retried::All][usize::from(which)],
            min: Millis(min),
            max: Millis(max),
        }),
        auto_delete: rest.0,
        delivery_limit: rest.1,
        max_priority: rest.2,
        dead_letter: rest.0 != rest.3,
        keeps_dead: rest.2.is_some(),
        single_active_consumer: rest.4,
        style,
    })
}

fn subscription() -> impl Strategy<Value = Subscription> {
    (
        0..4_u16,
        proptest::bool::weighted(0.25),
        proptest::bool::weighted(0.15),
        proptest::bool::weighted(0.05),
        -1..2_i32,
        option::weighted(0.2, (1..30_u64).prop_map(Millis)),
        prop_oneof![3 => Just(0_u32), 1 => 1..300_u32],
    )
        .prop_map(|(prefetch, granted, no_ack, exclusive, priority, timeout, window_bytes)| {
            let consumer = ConsumerId(0);
            Subscription {
                consumer,
                prefetch,
                granted,
                no_ack,
                exclusive,
                priority,
                timeout,
                window_bytes,
            }
        })
}

fn outcome() -> impl Strategy<Value = Outcome> {
    prop_oneof![
        4 => Just(Outcome::Accept),
        2 => Just(Outcome::Return),
        1 => Just(Outcome::Retry),
        1 => Just(Outcome::Discard),
        1 => Just(Outcome::Lost),
    ]
}

fn step(style: Style) -> impl Strategy<Value = Step> {
    let ttl = option::weighted(0.3, 0..40_u64);
    let enqueue = (0..60_u32, option::of(0..12_u8), ttl);
    let settle = (any::<usize>(), 0..8_usize, 0..4_usize, outcome());
    prop_oneof![
        30 => enqueue
            .prop_map(|(bytes, priority, ttl)| Step::Enqueue { bytes, priority, ttl }),
        8 => subscription().prop_map(Step::Consume),
        3 => any::<usize>().prop_map(Step::Cancel),
        2 => any::<usize>().prop_map(Step::Gone),
        1 => any::<usize>().prop_map(Step::Unreachable),
        2 => any::<usize>().prop_map(Step::Limit),
        6 => (any::<usize>(), 0..4_u32).prop_map(|(pick, count)| Step::Grant(pick, count)),
        5 => (any::<usize>(), 0..4_u32, 0..90_u64)
            .prop_map(|(pick, messages, bytes)| Step::Sent(pick, messages, bytes)),
        5 => any::<bool>().prop_map(|no_ack| Step::Get { no_ack }),
        25 => (settle, proptest::bool::weighted(0.2)).prop_map(|(settle, more)| {
            let (holder, start, span, outcome) = settle;
            Step::Settle { holder, start, span, outcome, more }
        }),
        4 => (any::<usize>(), outcome())
            .prop_map(|(holder, outcome)| Step::SettleAll { holder, outcome }),
        3 => any::<usize>().prop_map(Step::Bury),
        1 => Just(Step::Purge),
        1 => any::<(bool, bool)>()
            .prop_map(|(if_unused, if_empty)| Step::Delete { if_unused, if_empty }),
        2 => settings(style).prop_map(Step::Configure),
        1 => Just(Step::Touch),
        4 => Just(Step::Tick),
        10 => (0..25_u64).prop_map(Step::Advance),
        1 => Just(Step::Restart),
        1 => Just(Step::Shrink),
        2 => Just(Step::Snapshot),
    ]
}

struct Pair {
    queue: Queue,
    model: Model,
    /// What was read from the last snapshot, and got the same commands since.
    twin: Option<Queue>,
    now: Timestamp,
    next_seq: u64,
    next_consumer: u64,
    /// Every message that was taken and has not left.
    here: BTreeSet<Seq>,
}

impl Pair {
    fn new(settings: Settings) -> Self {
        let now = Timestamp(1_000);
        Self {
            queue: Queue::new(settings.clone(), now),
            model: Model::new(settings, now),
            twin: None,
            now,
            next_seq: 1,
            next_consumer: 1,
            here: BTreeSet::new(),
        }
    }

    /// One of the consumers, or sometimes one that nobody knows.
    fn consumer(&self, pick: usize) -> ConsumerId {
        let consumers = &self.model.consumers;
        match consumers.get(pick % (consumers.len() + 1)) {
            Some(consumer) => consumer.terms.consumer,
            None => ConsumerId(9_999),
        }
    }

    fn holder(&self, pick: usize) -> Option<ConsumerId> {
        if pick % 7 == 6 { None } else { Some(self.consumer(pick)) }
    }

    fn perform(&mut self, step: Step) {
        let command = match step {
            Step::Enqueue { bytes, priority, ttl } => {
                let seq = Seq(self.next_seq);
                // Names need not be dense.
                self.next_seq += if bytes % 10 == 0 { 3 } else { 1 };
                Command::Enqueue(Arrival { seq, bytes, priority, ttl: ttl.map(Millis) })
            }
            Step::Consume(terms) => {
                let consumer = ConsumerId(self.next_consumer);
                self.next_consumer += 1;
                Command::Consume(Subscription { consumer, ..terms })
            }
            Step::Cancel(pick) => Command::Cancel { consumer: self.consumer(pick) },
            Step::Gone(pick) => Command::Gone { consumer: self.consumer(pick) },
            Step::Unreachable(pick) => Command::Unreachable { consumer: self.consumer(pick) },
            Step::Limit(pick) => Command::Limit { consumer: self.consumer(pick) },
            Step::Grant(pick, count) => Command::Grant { consumer: self.consumer(pick), count },
            Step::Sent(pick, messages, bytes) => {
                Command::Sent { consumer: self.consumer(pick), messages, bytes }
            }
            Step::Get { no_ack } => Command::Get { no_ack },
            Step::Settle { holder, start, span, outcome, more } => {
                let consumer = self.holder(holder);
                let held: Vec<Seq> =
                    self.model.held_by(consumer).map(|message| message.seq).collect();
                let first = held.get(start % held.len().max(1)).copied().unwrap_or(Seq(1));
                let last = Seq(first.0 + span as u64);
                Command::Settle { consumer, first, last, outcome, more }
            }
            Step::SettleAll { holder, outcome } => Command::Settle {
                consumer: self.holder(holder),
                first: Seq(0),
                last: Seq(u64::MAX),
                outcome,
                more: false,
            },
            Step::Bury(pick) => {
                let dead = &self.model.dead;
                let seq = dead.get(pick % dead.len().max(1)).map_or(Seq(1), |message| message.seq);
                Command::Bury { seq }
            }
            Step::Purge => Command::Purge,
            Step::Delete { if_unused, if_empty } => Command::Delete { if_unused, if_empty },
            Step::Configure(settings) => Command::Configure(settings),
            Step::Touch => Command::Touch,
            Step::Tick => Command::Tick,
            Step::Advance(ms) => {
                self.now = self.now + Millis(ms);
                return;
            }
            Step::Restart => return self.restart(),
            Step::Shrink => return self.queue.shrink(),
            Step::Snapshot => {
                self.twin = Some(Queue::decode(&encoded(&self.queue)).unwrap());
                return self.check_twin();
            }
        };
        self.apply(&command);
    }

    fn apply(&mut self, command: &Command) {
        let mut effects = Vec::new();
        let head = match command {
            Command::Enqueue(arrival) => Some(self.queue.arrival_head(self.now, arrival)),
            _ => None,
        };
        let reply = self.queue.apply(self.now, command.clone(), &mut effects);
        if let Some(twin) = &mut self.twin {
            let mut same = Vec::new();
            assert_eq!(twin.apply(self.now, command.clone(), &mut same), reply);
            assert_eq!(same, effects, "after {command:?}");
            self.check_twin();
        }
        let expected = self.model.apply(self.now, command.clone());
        assert_eq!(reply, expected, "reply to {command:?}");
        let released = |effects: &[Effect]| {
            let mut seqs = Vec::new();
            for effect in effects {
                if let Effect::Release { first, last } = effect {
                    seqs.extend((first.0..=last.0).map(Seq));
                }
            }
            seqs
        };
        let others = |effects: &[Effect]| {
            let other = |effect: &&Effect| !matches!(effect, Effect::Release { .. });
            effects.iter().filter(other).copied().collect::<Vec<_>>()
        };
        assert_eq!(others(&effects), others(&self.model.effects), "effects of {command:?}");
        assert_eq!(released(&effects), released(&self.model.effects), "releases of {command:?}");
        if let (Command::Enqueue(arrival), Some(head)) = (command, head)
            && let Some(found) = self.queue.head(arrival.seq)
        {
            let delivered = found.delivered;
            assert_eq!(found, queue::head::Head { delivered, ..head });
        }
        self.check_conservation(command, reply, &effects);
        self.check_state();
    }

    /// A machine that was read from a snapshot is as the one that wrote it, ever after.
    fn check_twin(&self) {
        let (queue, twin) = (&self.queue, self.twin.as_ref().unwrap());
        assert_eq!(encoded(queue), encoded(twin));
        assert_eq!(queue.next_deadline(), twin.next_deadline());
        assert_eq!(queue.unsettled_bytes(), twin.unsettled_bytes());
        for consumer in &self.model.consumers {
            let id = consumer.terms.consumer;
            assert!(queue.holdings(id).eq(twin.holdings(id)));
        }
    }

    /// What was taken is here until it leaves, and leaves once.
    fn check_conservation(&mut self, command: &Command, reply: Reply, effects: &[Effect]) {
        if let (Command::Enqueue(arrival), Reply::Enqueued) = (command, reply) {
            assert!(self.here.insert(arrival.seq));
        }
        let newest = match command {
            Command::Enqueue(arrival) => arrival.seq.0,
            _ => u64::MAX,
        };
        for effect in effects {
            match *effect {
                Effect::Deliver { seq, .. } | Effect::Noted { seq } => {
                    assert!(self.here.contains(&seq), "{seq} is no longer here");
                }
                Effect::Release { first, last } => {
                    for seq in first.0..=last.0 {
                        assert!(self.here.remove(&Seq(seq)), "{seq} left twice");
                    }
                }
                Effect::DeadLetter { seq, .. } => {
                    let refused = reply == Reply::Rejected && seq.0 >= newest;
                    // A message that expires with a command may be buried by it.
                    let is_buried = effects.contains(&Effect::Release { first: seq, last: seq })
                        && matches!(command, Command::Bury { seq: one } if *one == seq);
                    if self.queue.death(seq).is_some() || is_buried {
                        assert!(self.here.contains(&seq), "{seq} is no longer here");
                        continue;
                    }
                    assert!(self.here.remove(&seq) != refused, "{seq} left twice");
                }
                _ => {}
            }
        }
        if let (Command::Delete { .. }, Reply::Count(_)) = (command, reply) {
            self.here.clear();
        }
        let queue = &self.queue;
        let here = queue.ready() + queue.delayed() + queue.unsettled() + queue.dead();
        assert_eq!(here, self.here.len() as u64);
    }

    fn check_state(&self) {
        let (queue, model) = (&self.queue, &self.model);
        let bytes = |message: &crate::model::Message| u64::from(message.head.bytes);
        assert_eq!(queue.ready(), model.ready().count() as u64);
        assert_eq!(queue.ready_bytes(), model.ready().map(bytes).sum::<u64>());
        assert_eq!(queue.delayed(), model.delayed().count() as u64);
        assert!(queue.deaths().map(|(seq, _)| seq).eq({
            let dead: BTreeSet<Seq> = model.dead.iter().map(|message| message.seq).collect();
            dead
        }));
        for message in &model.dead {
            // Whether it was handed out is of no use where it goes.
            let delivered = message.head.delivered;
            let head = queue.head(message.seq).map(|head| queue::head::Head { delivered, ..head });
            assert_eq!(head, Some(message.head));
        }
        assert_eq!(queue.delayed_bytes(), model.delayed().map(bytes).sum::<u64>());
        assert_eq!(queue.unsettled(), model.held().count() as u64);
        assert_eq!(queue.unsettled_bytes(), model.held().map(bytes).sum::<u64>());
        assert_eq!(queue.consumers(), model.live());
        assert_eq!(queue.active(), model.active);
        assert_eq!(queue.oldest_ready(), model.ready().map(|message| message.seq).min());
        for message in &model.messages {
            assert_eq!(queue.head(message.seq), Some(message.head));
            if let Place::Held(Some(consumer), _) = message.place {
                assert!(queue.held_by(consumer) > 0, "someone known holds it");
                assert!(queue.highest_delivered() >= Some(message.seq));
            }
        }
        for consumer in &model.consumers {
            let id = consumer.terms.consumer;
            assert_eq!(queue.held_by(id), model.held_by(Some(id)).count());
            let mut held: Vec<_> = model.held_by(Some(id)).collect();
            held.sort_unstable_by_key(|message| message.delivery.0);
            let held = held.into_iter().map(|message| Held {
                seq: message.seq,
                redelivered: message.delivery.1,
                delivery_count: message.head.delivery_count,
            });
            assert!(queue.holdings(id).eq(held), "what {id:?} holds");
        }
        if !model.held_back {
            match (queue.next_deadline(), model.deadline()) {
                // Times out of consumers may be asked about too early.
                (Some(asked), Some(due)) => assert!(asked <= due, "{asked:?} is after {due:?}"),
                (None, Some(due)) => panic!("{due:?} would be missed"),
                (_, None) => {}
            }
        }
    }

    fn restart(&mut self) {
        let mut restored = Queue::restore(self.model.settings.clone(), self.now);
        self.model.restart(self.now);
        for message in &self.model.messages {
            let head = self.queue.head(message.seq).expect("it was here a moment ago");
            let delivered = message.head.delivered;
            restored.restore_message(message.seq, &head.encode(), delivered).unwrap();
        }
        self.queue = restored;
        self.twin = None;
        self.check_state();
    }
}

fn encoded(queue: &Queue) -> Vec<u8> {
    let mut out = Vec::new();
    queue.encode(&mut out);
    out
}

/// Does what a driver may do to a machine, whatever is in it.
fn use_up(mut queue: Queue) {
    let mut effects = Vec::new();
    let mut apply = |now, command| queue.apply(Timestamp(now), command, &mut effects);
    let seq = Seq(u64::MAX - 1);
    apply(1_000, Command::Enqueue(Arrival { seq, bytes: 9, priority: Some(1), ttl: None }));
    let (first, last) = (Seq(0), Seq(u64::MAX));
    for outcome in [Outcome::Return, Outcome::Lost, Outcome::Accept] {
        apply(1_000, Command::Get { no_ack: false });
        for consumer in (0..60).map(|id| (id > 0).then_some(ConsumerId(id))) {
            if let Some(consumer) = consumer {
                apply(1_001, Command::Grant { consumer, count: 2 });
                apply(1_001, Command::Limit { consumer });
                apply(1_001, Command::Sent { consumer, messages: 3, bytes: 100 });
            }
            apply(1_002, Command::Settle { consumer, first, last, outcome, more: false });
        }
        apply(100_000, Command::Tick);
    }
    apply(100_000, Command::Consume(Subscription::new(ConsumerId(10_000))));
    for consumer in (0..60).map(ConsumerId) {
        apply(100_000, Command::Gone { consumer });
    }
    apply(u64::MAX - 1, Command::Tick);
    apply(u64::MAX - 1, Command::Purge);
    apply(u64::MAX - 1, Command::Delete { if_unused: false, if_empty: false });
}

fn check(settings: Settings, steps: Vec<Step>) {
    let mut pair = Pair::new(settings);
    for step in steps {
        pair.perform(step);
    }
    // A driver that follows the deadlines comes to rest.
    pair.apply(&Command::Tick);
    for _ in 0..1_000 {
        let Some(deadline) = pair.queue.next_deadline() else { break };
        assert!(deadline > pair.now, "a tick leaves nothing due");
        pair.now = deadline;
        pair.apply(&Command::Tick);
    }
    assert_eq!(pair.queue.next_deadline(), None);
}

fn run(style: Style) -> impl Strategy<Value = (Settings, Vec<Step>)> {
    (settings(style), vec(step(style), 1..150))
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 2_000,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn classic_queues_do_as_the_model((settings, steps) in run(Style::Classic)) {
        check(settings, steps);
    }

    #[test]
    fn quorum_queues_do_as_the_model((settings, steps) in run(Style::Quorum)) {
        check(settings, steps);
    }
    #[test]
    fn a_damaged_snapshot_is_refused_or_means_something(
        (settings, steps) in run(Style::Classic).prop_union(run(Style::Quorum)),
        damages in vec((any::<usize>(), any::<u8>(), 0..4_u8), 1..4),
    ) {
        let mut pair = Pair::new(settings);
        for step in steps {
            pair.perform(step);
        }
        let mut bytes = encoded(&pair.queue);
        for (place, value, how) in damages {
            let place = place % bytes.len().max(1);
            match how {
                0 => bytes.truncate(place),
                1 => bytes.insert(place, value),
                2 if !bytes.is_empty() => drop(bytes.remove(place)),
                _ if !bytes.is_empty() => bytes[place] = value,
                _ => {}
            }
        }
        if let Ok(queue) = Queue::decode(&bytes) {
            prop_assert_eq!(Queue::decode(&encoded(&queue)).map(|queue| encoded(&queue)), Ok(encoded(&queue)));
            use_up(queue);
        }
    }

    #[test]
    fn any_bytes_can_be_read(mut bytes in vec(any::<u8>(), 0..60), version in any::<bool>()) {
        if version && !bytes.is_empty() {
            bytes[0] = 1;
        }
        drop(Settings::decode(&bytes));
        drop(Queue::decode(&bytes));
    }
}
