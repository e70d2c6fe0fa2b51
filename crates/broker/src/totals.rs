//! Counters, in RabbitMQ's families.

use std::sync::atomic::{AtomicU64, Ordering};

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => {
        /// Counts since the start of the node, or of the queue.
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
        pub(crate) struct Counters {
            $($(#[$doc])* pub(crate) $name: u64,)*
        }

        impl Counters {
            /// Adds what was counted between two looks at the same counters.
            pub(crate) fn add_difference(&mut self, now: &Self, before: &Self) {
                $(self.$name += now.$name - before.$name;)*
            }
        }

        /// The same for the whole node, shared by everything that counts.
        #[derive(Debug, Default)]
        pub(crate) struct Totals {
            $($name: AtomicU64,)*
        }

        impl Totals {
            /// Adds what somebody counted for himself, and sets that back to nothing.
            pub(crate) fn add(&self, counted: &mut Counters) {
                $(if counted.$name != 0 {
                    self.$name.fetch_add(counted.$name, Ordering::Relaxed);
                })*
                *counted = Counters::default();
            }

            /// All counts as they are now.
            pub(crate) fn get(&self) -> Counters {
                Counters { $($name: self.$name.load(Ordering::Relaxed),)* }
            }
        }
    };
}

counters! {
    /// Messages that clients published.
    published,
    /// Of these, on channels in confirm mode.
    published_confirm,
    /// Messages that reached a queue (each queue counts).
    routed,
    /// Confirms sent.
    confirmed,
    /// Messages that a queue took (each queue counts).
    enqueued,
    /// Publishes that a queue refused.
    refused,
    /// Messages without a queue, dropped.
    unroutable_dropped,
    /// Messages without a queue, returned.
    unroutable_returned,
    /// Deliveries to consumers that settle.
    delivered,
    /// Deliveries to consumers that do not.
    delivered_no_ack,
    /// `basic.get` with settlement.
    got,
    /// `basic.get` without.
    got_no_ack,
    /// `basic.get` that found nothing.
    got_empty,
    /// Deliveries of messages that were handed out before.
    redelivered,
    /// Settlements that accept.
    acknowledged,
    /// Bodies read back from the journal.
    disk_reads,
    /// Messages written to the journal.
    disk_writes,
    /// Dead-lettered because a consumer discarded it.
    dead_rejected,
    /// Dead-lettered because it waited too long.
    dead_expired,
    /// Dead-lettered because of a length limit.
    dead_maxlen,
    /// Dead-lettered because it failed too often.
    dead_delivery_limit,
    /// Bytes of published bodies.
    published_bytes,
    connections_opened,
    connections_closed,
    channels_opened,
    channels_closed,
    queues_declared,
    queues_created,
    queues_deleted,
    auth_attempts,
    auth_failures,
}
