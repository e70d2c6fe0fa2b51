//! A queue, a clock and short names for what tests do with them.

use model::id::{ConsumerId, Seq};
use model::time::{Millis, Timestamp};
use queue::command::{Arrival, Command, Outcome, Reply, Subscription};
use queue::effect::{Effect, Reason};
use queue::queue::Queue;
use queue::settings::{Settings, Style};

/// Drives one queue. Each verb returns the effects of its command.
pub(crate) struct Rig {
    pub(crate) queue: Queue,
    pub(crate) now: u64,
    pub(crate) reply: Reply,
    next: u64,
}

pub(crate) fn classic() -> Settings {
    Settings::new(Style::Classic)
}

pub(crate) fn quorum() -> Settings {
    Settings::new(Style::Quorum)
}

pub(crate) fn terms(consumer: u64) -> Subscription {
    Subscription::new(ConsumerId(consumer))
}

pub(crate) fn deliver(consumer: u64, seq: u64) -> Effect {
    Effect::Deliver {
        consumer: ConsumerId(consumer),
        seq: Seq(seq),
        redelivered: false,
        delivery_count: 0,
    }
}

pub(crate) fn redeliver(consumer: u64, seq: u64, delivery_count: u32) -> Effect {
    Effect::Deliver {
        consumer: ConsumerId(consumer),
        seq: Seq(seq),
        redelivered: true,
        delivery_count,
    }
}

pub(crate) fn release(first: u64, last: u64) -> Effect {
    Effect::Release { first: Seq(first), last: Seq(last) }
}

pub(crate) fn dead(seq: u64, reason: Reason) -> Effect {
    Effect::DeadLetter { seq: Seq(seq), reason }
}

pub(crate) fn noted(seq: u64) -> Effect {
    Effect::Noted { seq: Seq(seq) }
}

/// Without what only classic queues say.
pub(crate) fn unnoted(mut effects: Vec<Effect>) -> Vec<Effect> {
    effects.retain(|effect| !matches!(effect, Effect::Noted { .. }));
    effects
}

pub(crate) fn active(consumer: Option<u64>) -> Effect {
    Effect::ActiveChanged { consumer: consumer.map(ConsumerId) }
}

impl Rig {
    /// The first message will be 1, the clock stands at 1,000 ms.
    pub(crate) fn new(settings: Settings) -> Self {
        let queue = Queue::new(settings, Timestamp(1_000));
        Self { queue, now: 1_000, reply: Reply::Done, next: 1 }
    }

    pub(crate) fn apply(&mut self, command: Command) -> Vec<Effect> {
        let mut effects = Vec::new();
        self.reply = self.queue.apply(Timestamp(self.now), command, &mut effects);
        effects
    }

    /// Ten bytes, no properties.
    pub(crate) fn publish(&mut self) -> Vec<Effect> {
        self.publish_with(10, None, None)
    }

    pub(crate) fn publish_many(&mut self, count: u64) {
        for _ in 0..count {
            self.publish();
        }
    }

    pub(crate) fn publish_ttl(&mut self, ttl: u64) -> Vec<Effect> {
        self.publish_with(10, None, Some(ttl))
    }

    pub(crate) fn publish_priority(&mut self, priority: u8) -> Vec<Effect> {
        self.publish_with(10, Some(priority), None)
    }

    pub(crate) fn publish_with(
        &mut self,
        bytes: u32,
        priority: Option<u8>,
        ttl: Option<u64>,
    ) -> Vec<Effect> {
        let seq = Seq(self.next);
        self.next += 1;
        let effects =
            self.apply(Command::Enqueue(Arrival { seq, bytes, priority, ttl: ttl.map(Millis) }));
        assert!(matches!(self.reply, Reply::Enqueued | Reply::Rejected));
        effects
    }

    pub(crate) fn consume(&mut self, terms: Subscription) -> Vec<Effect> {
        self.apply(Command::Consume(terms))
    }

    /// A plain consumer with a prefetch.
    pub(crate) fn consume_prefetch(&mut self, consumer: u64, prefetch: u16) -> Vec<Effect> {
        self.consume(Subscription { prefetch, ..terms(consumer) })
    }

    pub(crate) fn cancel(&mut self, consumer: u64) -> Vec<Effect> {
        self.apply(Command::Cancel { consumer: ConsumerId(consumer) })
    }

    pub(crate) fn gone(&mut self, consumer: u64) -> Vec<Effect> {
        self.apply(Command::Gone { consumer: ConsumerId(consumer) })
    }

    pub(crate) fn unreachable(&mut self, consumer: u64) -> Vec<Effect> {
        self.apply(Command::Unreachable { consumer: ConsumerId(consumer) })
    }

    pub(crate) fn settle(&mut self, consumer: u64, seq: u64, outcome: Outcome) -> Vec<Effect> {
        self.settle_run(consumer, seq, seq, outcome)
    }

    pub(crate) fn settle_run(
        &mut self,
        consumer: u64,
        first: u64,
        last: u64,
        outcome: Outcome,
    ) -> Vec<Effect> {
        self.settle_command(Some(consumer), first, last, outcome, false)
    }

    pub(crate) fn settle_command(
        &mut self,
        consumer: Option<u64>,
        first: u64,
        last: u64,
        outcome: Outcome,
        more: bool,
    ) -> Vec<Effect> {
        self.apply(Command::Settle {
            consumer: consumer.map(ConsumerId),
            first: Seq(first),
            last: Seq(last),
            outcome,
            more,
        })
    }

    pub(crate) fn grant(&mut self, consumer: u64, count: u32) -> Vec<Effect> {
        self.apply(Command::Grant { consumer: ConsumerId(consumer), count })
    }

    /// `basic.get` with manual settlement.
    pub(crate) fn get(&mut self) -> Reply {
        let effects = self.apply(Command::Get { no_ack: false });
        assert_eq!(effects, []);
        self.reply
    }

    /// What `basic.get` would give, one after the other, and at once gives back.
    pub(crate) fn order(&mut self) -> Vec<u64> {
        let mut seqs = Vec::new();
        while let Reply::Got { seq, .. } = self.get() {
            seqs.push(seq.0);
        }
        for seq in &seqs {
            self.settle_command(None, *seq, *seq, Outcome::Return, true);
        }
        self.tick();
        seqs
    }

    pub(crate) fn tick(&mut self) -> Vec<Effect> {
        self.apply(Command::Tick)
    }

    /// Lets time pass up to each deadline in turn, and to the end.
    pub(crate) fn pass(&mut self, ms: u64) -> Vec<Effect> {
        let end = self.now + ms;
        let mut effects = Vec::new();
        while let Some(deadline) = self.queue.next_deadline()
            && deadline.0 <= end
        {
            self.now = self.now.max(deadline.0);
            effects.extend(self.tick());
            assert!(self.queue.next_deadline().is_none_or(|next| next.0 > self.now));
        }
        self.now = end;
        effects
    }

    pub(crate) fn configure(&mut self, settings: Settings) -> Vec<Effect> {
        self.apply(Command::Configure(settings))
    }

    /// The same queue after a restart: everything is ready, nobody consumes.
    pub(crate) fn restart(&mut self) {
        let mut restored = Queue::restore(self.queue.settings().clone(), Timestamp(self.now));
        for seq in 1..self.next {
            if let Some(head) = self.queue.head(Seq(seq)) {
                restored.restore_message(Seq(seq), &head.encode(), false).unwrap();
            }
        }
        self.queue = restored;
    }

    /// Ready and unsettled.
    pub(crate) fn counts(&self) -> (u64, u64) {
        (self.queue.ready(), self.queue.unsettled())
    }
}
