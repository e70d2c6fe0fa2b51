//! The consumers of a queue: how they begin, and the ways in which they end.

use std::sync::atomic::Ordering;

use amqp::request::{ChannelId, Error, Event, Unsettled};
use model::id::{ConnectionId, ConsumerId, Seq};
use queue::command::{Command as QueueCommand, Reply, Subscription};
use tokio::sync::oneshot;

use super::Slot;
use crate::shard::command::{self, Consume, Consumed, Settlement};
use crate::shard::desk::{Chore, Desk};
use crate::shard::outboxes::OutboxId;
use crate::shard::view::ConsumerView;

/// A consumer of this queue.
#[derive(Debug)]
pub(super) struct Consumer {
    pub(super) id: ConsumerId,
    pub(super) outbox: OutboxId,
    pub(super) view: ConsumerView,
    /// It was cancelled, and still gets what was assigned to it.
    pub(super) ending: Option<Ending>,
}

/// Who has to hear that a consumer has got everything.
#[derive(Debug)]
pub(crate) enum Ending {
    /// Its client, which asked for it: whether the queue must be deleted now, since its last
    /// consumer went.
    Asked(oneshot::Sender<bool>),
    /// Its client, which did not.
    Revoked,
}

impl Slot {
    /// A subscription.
    pub(crate) fn consume(&mut self, desk: &mut Desk, consume: Consume) {
        self.used_at = desk.now;
        let (prefetch, granted) = match consume.flow {
            amqp::request::Flow::Prefetch(count) => (count, false),
            amqp::request::Flow::Granted => (0, true),
        };
        let subscription = Subscription {
            consumer: consume.consumer,
            prefetch,
            granted,
            no_ack: consume.no_ack,
            exclusive: consume.exclusive,
            priority: consume.priority,
            timeout: consume.timeout,
            window_bytes: desk.consumer_window,
        };
        let reply =
            self.machine.apply(desk.now, QueueCommand::Consume(subscription), &mut desk.effects);
        if reply == Reply::ExclusiveUse {
            command::answer(consume.answer, Consumed::ExclusiveUse);
            self.perform(desk, None);
            return;
        }
        let timeout = consume.timeout.or(self.machine.settings().consumer_timeout);
        let view = ConsumerView {
            id: consume.consumer,
            connection: consume.origin.id,
            channel: consume.channel,
            tag: consume.tag,
            no_ack: consume.no_ack,
            exclusive: consume.exclusive,
            prefetch,
            arguments: consume.arguments,
            user: consume.user,
            timeout: timeout.map(|timeout| timeout.0),
        };
        let outbox = desk.outboxes.join(&consume.origin);
        let entry = Consumer { id: consume.consumer, outbox, view, ending: None };
        let at = self.consumers.partition_point(|one| one.id < entry.id);
        self.consumers.insert(at, entry);
        desk.consumers.fetch_add(1, Ordering::Relaxed);
        // The answer overtakes the deliveries, which are flushed at the end of the turn.
        if consume.answer.send(Consumed::Done).is_err() {
            self.gone(desk, consume.consumer);
            return;
        }
        self.perform(desk, None);
    }

    /// The consumer's channel is closing; [`Slot::gone`] follows.
    pub(crate) fn end(&mut self, desk: &mut Desk, consumer: ConsumerId) {
        self.apply(desk, QueueCommand::Cancel { consumer });
    }

    /// A consumer is cancelled: it gets nothing more. What was assigned to it and has not left for
    /// its connection goes back, unless it settles on delivery: then it is delivered first, since
    /// for the queue it is gone.
    pub(crate) fn cancel(&mut self, desk: &mut Desk, consumer: ConsumerId, ending: Ending) {
        let Ok(at) = self.consumers.binary_search_by_key(&consumer, |one| one.id) else {
            if let Ending::Asked(answer) = ending {
                command::answer(answer, false);
            }
            return;
        };
        let mut unsent = Vec::new();
        if !self.consumers[at].view.no_ack {
            let queue = self.profile.id;
            unsent.extend(
                self.outgoing.drop_consumer(consumer).into_iter().map(|(seq, _)| Unsettled {
                    queue,
                    seq,
                    consumer: Some(consumer),
                }),
            );
        }
        match (&self.consumers[at].ending, ending) {
            (Some(Ending::Asked(_)), Ending::Asked(answer)) => command::answer(answer, false),
            (Some(_), Ending::Revoked) => {}
            (before, ending) => {
                self.ending += usize::from(before.is_none());
                self.consumers[at].ending = Some(ending);
            }
        }
        self.apply(desk, QueueCommand::Cancel { consumer });
        if !unsent.is_empty() {
            self.settle(desk, &unsent, Settlement::Client(amqp::request::Outcome::Return));
        }
        self.ended.retain(|(ended, _)| self.machine.held_by(*ended) > 0);
        if self.machine.held_by(consumer) > 0 {
            self.ended.push((consumer, self.consumers[at].view.connection));
        }
        self.finish_endings(desk);
    }

    /// The consumer's channel is gone.
    pub(crate) fn gone(&mut self, desk: &mut Desk, consumer: ConsumerId) {
        let unsent = self.outgoing.drop_consumer(consumer);
        self.apply(desk, QueueCommand::Gone { consumer });
        self.finish_endings(desk);
        self.forget_consumer(desk, consumer);
        self.ended.retain(|(ended, _)| *ended != consumer);
        // What settles on delivery is lost with its channel; the journal lets go of it.
        for (seq, _) in unsent.into_iter().filter(|(_, held)| *held) {
            self.release(seq, seq);
        }
    }

    /// Ends the cancelled consumers that have got everything.
    pub(super) fn finish_endings(&mut self, desk: &mut Desk) {
        if self.ending == 0 {
            return;
        }
        let waiting = self.outgoing.consumers();
        while let Some(at) =
            self.consumers.iter().position(|one| one.ending.is_some() && !waiting.contains(&one.id))
        {
            let consumer = self.consumers[at].id;
            self.ending -= 1;
            let delete = self.ending == 0 && std::mem::take(&mut self.last_consumer_gone);
            let ending = self.consumers[at].ending.take();
            let told = if let Some(Ending::Asked(answer)) = ending {
                // What was gathered for the consumer before leaves before the answer.
                desk.outboxes.flush();
                answer.send(delete).is_ok()
            } else {
                let event = |channel| Event::ConsumerCancelled { channel, consumer };
                self.tell(desk, consumer, event);
                false
            };
            if delete && !told {
                self.delete_without_consumers(desk);
            }
            self.forget_consumer(desk, consumer);
        }
    }

    pub(super) fn delete_without_consumers(&self, desk: &Desk) {
        desk.chore(Chore::DeleteQueue { queue: self.profile.id, why: "last consumer gone" });
    }

    /// Whether a connection consumes from this queue, or may hold messages of it.
    pub(crate) fn serves(&self, connection: ConnectionId) -> bool {
        self.consumers.iter().any(|one| one.view.connection == connection)
            || self.ended.iter().any(|(_, whose)| *whose == connection)
            || self.got.values().any(|whose| *whose == connection)
    }

    /// A connection has ended, and nobody will say what becomes of what it held.
    pub(crate) fn connection_gone(&mut self, desk: &mut Desk, connection: ConnectionId) {
        let live = self.consumers.iter().map(|one| (one.id, one.view.connection));
        let mut consumers: Vec<ConsumerId> = live
            .chain(self.ended.iter().copied())
            .filter(|(_, whose)| *whose == connection)
            .map(|(consumer, _)| consumer)
            .collect();
        consumers.sort_unstable();
        // All of them end first, so that nothing goes from one to the next.
        for &consumer in &consumers {
            self.end(desk, consumer);
        }
        let queue = self.profile.id;
        let got: Vec<Unsettled> = self
            .got
            .iter()
            .filter(|(_, whose)| **whose == connection)
            .map(|(&seq, _)| Unsettled { queue, seq: Seq(seq), consumer: None })
            .collect();
        if !got.is_empty() {
            self.settle(desk, &got, Settlement::Lost);
        }
        for consumer in consumers {
            self.gone(desk, consumer);
        }
    }

    pub(super) fn forget_consumer(&mut self, desk: &mut Desk, consumer: ConsumerId) {
        if let Ok(at) = self.consumers.binary_search_by_key(&consumer, |one| one.id) {
            let gone = self.consumers.remove(at);
            desk.consumers.fetch_sub(1, Ordering::Relaxed);
            desk.outboxes.leave(gone.outbox);
        }
    }

    pub(super) fn tell(
        &self,
        desk: &mut Desk,
        consumer: ConsumerId,
        event: impl FnOnce(ChannelId) -> Event,
    ) {
        if let Ok(at) = self.consumers.binary_search_by_key(&consumer, |one| one.id) {
            let to = &self.consumers[at];
            desk.outboxes.push(to.outbox, event(to.view.channel));
        }
    }

    pub(super) fn time_out(&self, desk: &mut Desk, consumer: ConsumerId, returned: u64) {
        let Ok(at) = self.consumers.binary_search_by_key(&consumer, |one| one.id) else { return };
        let to = &self.consumers[at];
        let timeout = to.view.timeout.unwrap_or_default();
        tracing::warn!(
            queue = %self.profile.name, vhost = %self.profile.vhost, consumer = %to.view.tag,
            returned, timeout_ms = timeout, "consumer held messages too long"
        );
        let channel = to.view.channel;
        let text = format!(
            "delivery acknowledgement on channel {channel} timed out. Timeout value used: \
             {timeout} ms. This timeout value can be configured, see consumers doc guide to learn more"
        );
        let error = Error { code: 406, text };
        desk.outboxes.push(to.outbox, Event::ConsumerTimedOut { channel, consumer, error });
    }
}
