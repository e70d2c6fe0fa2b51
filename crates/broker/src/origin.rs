//! Where a publish came from: whom to confirm it to, and how much of theirs is still in flight.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};

use amqp::request::{ChannelId, Event};
use model::id::{ConnectionId, QueueId, Seq};
use tokio::sync::{Notify, oneshot};

use crate::inbox::Inbox;
use crate::outlet::Outlet;
use crate::shard::command::{Batch, Command};
use crate::totals::{Counters, Totals};

/// A connection as the shards know it.
#[derive(Debug)]
pub(crate) struct Origin {
    pub(crate) id: ConnectionId,
    /// Where its events go.
    pub(crate) outlet: Outlet,
    /// Counts what is confirmed to it.
    pub(crate) totals: Arc<Totals>,
    /// Its publishes that are not yet safe.
    pub(crate) in_flight: InFlight,
}

/// Bytes of a connection's publishes that no queue has taken durably yet. The connection reads no
/// more from its socket while they exceed a bound, which is what bounds inboxes and the journal.
#[derive(Debug, Default)]
pub(crate) struct InFlight {
    bytes: AtomicUsize,
    waiting: AtomicBool,
    settled: Notify,
}

impl InFlight {
    /// Counts bytes that were handed to a shard.
    pub(crate) fn add(&self, bytes: usize) {
        self.bytes.fetch_add(bytes, Ordering::AcqRel);
    }

    /// Counts bytes that are safe.
    pub(crate) fn settle(&self, bytes: usize) {
        self.bytes.fetch_sub(bytes, Ordering::SeqCst);
        if self.waiting.swap(false, Ordering::SeqCst) {
            self.settled.notify_one();
        }
    }

    /// Bytes in flight.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Acquire)
    }

    /// Waits until fewer than `bound` bytes are in flight. Safe to drop and call again.
    pub(crate) async fn below(&self, bound: usize) {
        while self.bytes() >= bound {
            // One order of all four: either this sees the lower count, or `settle` sees the flag.
            self.waiting.store(true, Ordering::SeqCst);
            if self.bytes.load(Ordering::SeqCst) < bound {
                return;
            }
            self.settled.notified().await;
        }
    }
}

/// What a message that goes to several queues waits for: the answer of each.
#[derive(Debug)]
pub(crate) struct Group {
    remaining: AtomicU32,
    refused: AtomicBool,
    then: std::sync::Mutex<Option<Then>>,
}

/// What happens when every queue has answered.
#[derive(Debug)]
pub(crate) enum Then {
    /// The publisher is told.
    Confirm { origin: Arc<Origin>, channel: ChannelId, number: u64 },
    /// A waiting task is told: `true` if every queue took it.
    Wake(oneshot::Sender<bool>),
    /// The queue that gave the message up is told: it may forget it, unless it keeps what was not
    /// taken.
    Forget { inbox: Arc<Inbox>, queue: QueueId, seq: Seq },
}

impl Group {
    /// A group of `count` answers. With none there is nothing to wait for.
    pub(crate) fn new(count: u32, then: Then) -> Arc<Self> {
        let group = Arc::new(Self {
            remaining: AtomicU32::new(count),
            refused: AtomicBool::new(false),
            then: std::sync::Mutex::new(Some(then)),
        });
        if count == 0 {
            group.finish();
        }
        group
    }

    /// One queue's answer: it has the message durably (or as durably as asked), or refuses it.
    pub(crate) fn answer(&self, accepted: bool) {
        if !accepted {
            self.refused.store(true, Ordering::Release);
        }
        if self.remaining.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.finish();
        }
    }

    fn finish(&self) {
        let accepted = !self.refused.load(Ordering::Acquire);
        let then = self.then.lock().expect("nobody panics with it").take();
        match then {
            Some(Then::Confirm { origin, channel, number }) => {
                let mut counted = Counters { confirmed: accepted.into(), ..Counters::default() };
                origin.totals.add(&mut counted);
                origin.outlet.post_one(Event::Confirmed { channel, number, accepted });
            }
            // The receiver is gone when its connection is: nobody is left to be told.
            Some(Then::Wake(sender)) => drop(sender.send(accepted)),
            Some(Then::Forget { inbox, queue, seq }) => {
                inbox.post(Batch::one(Command::DeadLettered { queue, seq, accepted }));
            }
            None => {}
        }
    }
}
