//! What the queues of a shard share during a turn: outgoing events, the journal's next batch, and
//! the ways to other parts of the node.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use bytes::Bytes;
use journal::error::ReadError;
use journal::op::Op;
use model::id::{NodeId, QueueId, Seq, StreamId};
use model::message::Message;
use model::time::Timestamp;
use queue::effect::{Effect, Reason};
use tokio::sync::mpsc::UnboundedSender;

use crate::death::{self, Death};
use crate::inbox::Inbox;
use crate::origin::{Group, Then};
use crate::replicated::containers::Place;
use crate::replicated::fabric::Fabric;
use crate::replicated::{loan, order};
use crate::router::Router;
use crate::shard::bodies::{self, Weight};
use crate::shard::command::{Arrival, Batch, Command, Content, Done};
use crate::shard::ground::Ground;
use crate::shard::outboxes::Outboxes;
use crate::shard::profile::Profile;
use crate::shards::Shards;
use crate::totals::Counters;

/// So many buffers may be held on to in any case, for messages that leave soon.
const ATTACHED_MIN: u64 = 16;

/// Something that a shard cannot do itself.
#[derive(Debug)]
pub(crate) enum Chore {
    /// Delete a queue, if it still is this one.
    DeleteQueue { queue: QueueId, why: &'static str },
}

/// See the module head.
#[derive(Debug)]
pub(crate) struct Desk {
    /// The time of this turn.
    pub(crate) now: Timestamp,
    pub(crate) outboxes: Outboxes,
    /// The journal's next batch.
    pub(crate) ops: Vec<Op>,
    /// The buffer that machines fill; empty between commands.
    pub(crate) effects: Vec<Effect>,
    /// Counted since the last report to the node's totals.
    pub(crate) counted: Counters,
    /// Bytes of bodies in memory.
    pub(crate) weight: Weight,
    /// What they may come to.
    pub(crate) budget: Weight,
    /// For each buffer that bodies hold on to, oldest first, the queue that has them.
    pub(crate) attached: VecDeque<QueueId>,
    /// How far deliveries to one consumer may be ahead of its socket, in bytes.
    pub(crate) consumer_window: u32,
    pub(crate) journal: Arc<dyn Ground>,
    pub(crate) inbox: Arc<Inbox>,
    pub(crate) shards: Arc<Shards>,
    pub(crate) router: Arc<Router>,
    pub(crate) fabric: Arc<dyn Fabric>,
    /// How long a publish may wait for the leader of a quorum queue.
    pub(crate) publish_timeout: model::time::Millis,
    pub(crate) chores: UnboundedSender<Chore>,
    /// Subscriptions of the node.
    pub(crate) consumers: Arc<AtomicU64>,
}

impl Desk {
    /// Whether bodies that are nowhere else fill their budget, so that more of them have to go to
    /// disk too.
    pub(crate) fn must_spill(&self) -> bool {
        self.weight.only > self.budget.only
    }

    /// Whether the cache of what the journal has is too large.
    pub(crate) fn must_evict(&self) -> bool {
        self.weight.cached > self.budget.cached
    }

    /// The queue whose oldest bodies have to be copied out of their buffer, if too many buffers are
    /// held on to: those that serve no other purpose may come to as much as the cache.
    pub(crate) fn must_detach(&mut self) -> Option<QueueId> {
        let most = (self.budget.cached / bodies::BUFFER as u64).max(ATTACHED_MIN);
        if self.attached.len() as u64 <= most {
            return None;
        }
        self.attached.pop_front()
    }

    /// Hands something on.
    pub(crate) fn chore(&self, chore: Chore) {
        // Nobody is there any more when the node stops, and then it does not matter.
        drop(self.chores.send(chore));
    }

    /// Reads bodies where it may block, and posts them back.
    pub(crate) fn read(&self, queue: QueueId, seqs: Vec<Seq>) {
        let inbox = Arc::clone(&self.inbox);
        let asked = seqs.clone();
        let then = Box::new(move |read: Vec<Result<Bytes, ReadError>>| {
            let bodies = asked
                .into_iter()
                .zip(read)
                .map(|(seq, result)| match result {
                    Ok(bytes) => (seq, Some(bytes)),
                    Err(error) => {
                        tracing::debug!(%queue, %seq, %error, "cannot read back a message");
                        (seq, None)
                    }
                })
                .collect();
            inbox.post(Batch::one(Command::Read { queue, bodies }));
        });
        Arc::clone(&self.journal).read_later(queue.into(), seqs, then);
    }

    /// Reads bodies of a quorum queue from the records of its member's log where it may block, and
    /// posts them back. `places` are sorted by place.
    pub(crate) fn read_places(
        &self,
        queue: QueueId,
        stream: StreamId,
        places: Vec<(Seq, Place)>,
        carry: bool,
    ) {
        let inbox = Arc::clone(&self.inbox);
        let mut positions: Vec<Seq> = places.iter().map(|(_, place)| place.position).collect();
        positions.dedup();
        let asked = positions.clone();
        let then = Box::new(move |read: Vec<Result<Bytes, ReadError>>| {
            let bodies = bodies_of(&positions, read, &places, queue);
            inbox.post(Batch::one(Command::Bodies { queue, stream, bodies, carry }));
        });
        Arc::clone(&self.journal).read_later(stream, asked, then);
    }

    /// Reads one body where it may block, and gives it to `then`.
    pub(crate) fn read_place(
        &self,
        queue: QueueId,
        stream: StreamId,
        place: (Seq, Place),
        then: impl FnOnce(Option<Message>) + Send + 'static,
    ) {
        let positions = vec![place.1.position];
        let asked = positions.clone();
        let then = Box::new(move |read: Vec<Result<Bytes, ReadError>>| {
            let mut bodies = bodies_of(&positions, read, &[place], queue);
            then(bodies.pop().and_then(|(_, body)| body));
        });
        Arc::clone(&self.journal).read_later(stream, asked, then);
    }

    /// Reads bodies where it may block, and lends them, with those that are here, to another member;
    /// see [`loan::fitting`].
    pub(crate) fn lend_places(
        &self,
        queue: QueueId,
        stream: StreamId,
        to: NodeId,
        mut here: Vec<(Seq, Option<Message>)>,
        places: Vec<(Seq, Place)>,
        denies: bool,
    ) {
        let fabric = Arc::clone(&self.fabric);
        let lend = move |bodies| fabric.lend_bodies(to, queue, loan::fitting(bodies, denies));
        if places.is_empty() {
            return lend(here);
        }
        let mut positions: Vec<Seq> = places.iter().map(|(_, place)| place.position).collect();
        positions.dedup();
        let asked = positions.clone();
        let then = Box::new(move |read: Vec<Result<Bytes, ReadError>>| {
            here.extend(bodies_of(&positions, read, &places, queue));
            lend(here);
        });
        Arc::clone(&self.journal).read_later(stream, asked, then);
    }

    /// Sends a dead message on. Returns whether it is under way: then
    /// [`Command::DeadLettered`] follows. Otherwise it had no target and is gone.
    pub(crate) fn dead_letter(
        &self,
        profile: &Profile,
        message: &Message,
        reason: Reason,
        seq: Option<Seq>,
    ) -> bool {
        let Some(target) = &profile.dead_letter else { return false };
        let death = Death {
            queue: &profile.name,
            reason,
            time: self.now.0 / 1000,
            routing_key: target.routing_key.as_deref(),
        };
        let dead = death::dead_letter(message, &target.exchange, death);
        let mut targets = self.router.dead_letter_targets(&profile.vhost, &target.exchange, &dead);
        targets.retain(|(_, name)| !death::is_cycle(&dead.message, name, reason));
        if targets.is_empty() {
            return false;
        }
        let facts = Router::facts(&dead.message);
        let group = seq.map(|seq| {
            let then = Then::Forget { inbox: Arc::clone(&self.inbox), queue: profile.id, seq };
            Group::new(u32::try_from(targets.len()).unwrap_or(u32::MAX), then)
        });
        let content = Content::for_targets(dead.message, targets.len());
        for (queue, _) in targets {
            let arrival = Arrival {
                queue,
                content: content.clone(),
                persistent: facts.persistent,
                priority: facts.priority,
                ttl: None,
                done: group.as_ref().map_or(Done::Nothing, |group| Done::Group(Arc::clone(group))),
            };
            self.shards.post(queue, Batch::one(Command::Publish(arrival)));
        }
        true
    }
}

/// The bodies at these places, which are sorted, of records that were read.
fn bodies_of(
    positions: &[Seq],
    read: Vec<Result<Bytes, ReadError>>,
    places: &[(Seq, Place)],
    queue: QueueId,
) -> Vec<(Seq, Option<Message>)> {
    let mut bodies = Vec::with_capacity(places.len());
    let mut rest = places;
    for (position, record) in positions.iter().zip(read) {
        let count = rest.iter().take_while(|(_, at)| at.position == *position).count();
        let (here, behind) = rest.split_at(count);
        rest = behind;
        let messages = record.ok().and_then(|bytes| messages_of(bytes, here));
        if messages.is_none() {
            tracing::debug!(%queue, %position, "cannot read back a record of messages");
        }
        let mut messages = messages.into_iter().flatten();
        bodies.extend(here.iter().map(|(seq, _)| (*seq, messages.next())));
    }
    bodies
}

/// The messages at these places of one record.
fn messages_of(record: Bytes, places: &[(Seq, Place)]) -> Option<Vec<Message>> {
    let ordinals: Option<Vec<u32>> = places.iter().map(|(_, place)| place.ordinal).collect();
    match ordinals {
        Some(ordinals) => order::message_at(record, &ordinals).ok(),
        None => Message::decode(record).ok().map(|message| vec![message]),
    }
}
