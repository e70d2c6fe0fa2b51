//! Bodies that this node's disk does not give back although the state names them: other members have
//! them.
//!
//! ```text
//!  a read fails ─► wanted ─► asked of a member ─► lent: in memory as long as the message is alive
//!                    ▲             │ it has none: the next one ─► nobody has it: it is dropped
//!                    └── later ◄───┘ it cannot be asked now
//! ```
//!
//! Only when every other member has said that it has nothing is a message given up. As long as one of
//! them is away the message waits for it, and what is behind it waits too.

use std::collections::{BTreeMap, BTreeSet};

use model::id::{NodeId, Seq};
use model::message::Message;
use model::time::Timestamp;

use super::{Kept, Outgoing, READ_MESSAGES, Replica};
use crate::replicated::containers::Place;
use crate::replicated::loan::Lent;
use crate::replicated::order::{Order, Run};
use crate::shard::command::Settlement;
use crate::shard::desk::Desk;
use crate::shard::profile::Profile;

/// After so many milliseconds another member is asked, or the same once more.
const AGAIN: u64 = 1_000;
/// An answer may take so many.
const PATIENCE: u64 = 10_000;

/// What a leader wants of other members.
#[derive(Debug, Default)]
pub(super) struct Wanted {
    /// For each body, who has said that it has none.
    bodies: BTreeMap<Seq, BTreeSet<NodeId>>,
    /// Who is being asked.
    asking: Option<NodeId>,
    /// Who was asked last: then it is another one's turn.
    last: Option<NodeId>,
    /// When somebody is asked again.
    due: Option<Timestamp>,
}

impl Wanted {
    pub(super) fn has(&self, seq: Seq) -> bool {
        self.bodies.contains_key(&seq)
    }

    pub(super) fn due(&self) -> Option<Timestamp> {
        self.due
    }
}

impl Replica {
    /// These cannot be read here.
    pub(super) fn want(&mut self, desk: &mut Desk, profile: &Profile, unreadable: BTreeSet<Seq>) {
        if unreadable.is_empty() {
            return;
        }
        tracing::error!(
            queue = %profile.name, vhost = %profile.vhost, count = unreadable.len(),
            "stored messages cannot be read back; other members are asked for them"
        );
        for seq in unreadable {
            self.wanted.bodies.entry(seq).or_default();
        }
        self.ask_others(desk, profile);
    }

    /// The time has come to ask again.
    pub(super) fn ask_again(&mut self, now: Timestamp) {
        if self.wanted.due.is_some_and(|due| due <= now) {
            self.wanted.due = None;
            self.wanted.asking = None;
        }
    }

    /// Asks a member for what it has not been asked for.
    pub(super) fn ask_others(&mut self, desk: &mut Desk, profile: &Profile) {
        let Some(leading) = &self.leading else { return };
        if self.wanted.bodies.is_empty() {
            return;
        }
        // What is gone meanwhile is not wanted any more.
        let (machine, wanted) = (&self.machine, &mut self.wanted);
        wanted.bodies.retain(|seq, _| {
            machine.queue().head(*seq).is_some()
                || leading.held.contains(seq)
                || leading.dead.iter().any(|(dead, _)| dead == seq)
        });
        let me = desk.fabric.me().node;
        let members = profile.quorum.iter().flatten().map(|member| member.node);
        let others: BTreeSet<NodeId> = members.filter(|node| *node != me).collect();
        let lost: BTreeSet<Seq> = wanted
            .bodies
            .iter()
            .filter(|(_, denied)| denied.is_superset(&others))
            .map(|(seq, _)| *seq)
            .collect();
        if !lost.is_empty() {
            wanted.bodies.retain(|seq, _| !lost.contains(seq));
            self.give_up(profile, &lost);
        }
        let wanted = &mut self.wanted;
        if wanted.asking.is_some() || wanted.due.is_some() || wanted.bodies.is_empty() {
            return;
        }
        let open = |node: NodeId| {
            let open = wanted.bodies.iter().filter(move |(_, denied)| !denied.contains(&node));
            open.map(|(seq, _)| *seq).take(READ_MESSAGES).collect::<Vec<Seq>>()
        };
        let there = others.into_iter().filter(|node| desk.fabric.start_of(*node).is_some());
        let asked = there.map(|node| (node, open(node))).filter(|(_, seqs)| !seqs.is_empty());
        // In turn, from the one behind the last.
        let last = wanted.last;
        match asked.min_by_key(|(node, _)| (Some(*node) <= last, *node)) {
            Some((node, seqs)) => {
                (wanted.asking, wanted.last) = (Some(node), Some(node));
                wanted.due = Some(Timestamp(desk.now.0 + PATIENCE));
                desk.fabric.borrow_bodies(node, profile.id, seqs);
            }
            None => wanted.due = Some(Timestamp(desk.now.0 + AGAIN)),
        }
    }

    /// Another member has answered.
    pub(crate) fn lent(
        &mut self,
        desk: &mut Desk,
        profile: &Profile,
        from: NodeId,
        bodies: Vec<(Seq, Lent)>,
    ) {
        if self.wanted.asking != Some(from) {
            return;
        }
        (self.wanted.asking, self.wanted.due) = (None, None);
        let is_news = bodies.iter().any(|(_, lent)| !matches!(lent, Lent::Later));
        if !is_news {
            // It knows no more in this moment.
            self.wanted.due = Some(Timestamp(desk.now.0 + AGAIN));
        }
        for (seq, lent) in bodies {
            let Some(denied) = self.wanted.bodies.get_mut(&seq) else { continue };
            match lent {
                Lent::Body(message) => {
                    self.wanted.bodies.remove(&seq);
                    // It is nowhere else here: it stays until the message is gone.
                    self.bodies.insert(seq, Kept { message, journalled: false });
                }
                Lent::None => {
                    denied.insert(from);
                }
                Lent::Later => {}
            }
        }
        self.go_on(desk, profile);
    }

    /// Another member, which leads, wants these.
    pub(crate) fn lend(&mut self, desk: &Desk, profile: &Profile, to: NodeId, seqs: Vec<Seq>) {
        // What is to come, and what is not on this disk yet, it will have.
        let is_behind = seqs.iter().any(|seq| *seq > self.machine.last())
            || desk.journal.durable() < self.applied;
        let mut here: Vec<(Seq, Option<Message>)> = Vec::new();
        let mut places: Vec<(Seq, Place)> = Vec::new();
        let containers = self.containers.lock();
        for seq in seqs {
            match (self.bodies.get(seq), containers.place(seq)) {
                (Some(body), _) => here.push((seq, Some(body.message.clone()))),
                (None, Some(place)) => places.push((seq, place)),
                (None, None) => here.push((seq, None)),
            }
        }
        drop(containers);
        places.sort_unstable_by_key(|(_, place)| *place);
        desk.lend_places(profile.id, self.stream, to, here, places, !is_behind);
    }

    /// No member has these.
    fn give_up(&mut self, profile: &Profile, lost: &BTreeSet<Seq>) {
        let Some(leading) = &mut self.leading else { return };
        let mut runs = Vec::new();
        leading.outgoing.retain(|one| match one.seq() {
            Some(seq) if lost.contains(&seq) => {
                if let Outgoing::Deliver { consumer, .. } = one {
                    runs.push(Run { holder: Some(*consumer), first: seq, last: seq });
                }
                false
            }
            _ => true,
        });
        tracing::error!(
            queue = %profile.name, vhost = %profile.vhost, count = lost.len(),
            "stored messages cannot be read back on any member and are dropped"
        );
        if !runs.is_empty() {
            let outcome = Settlement::Client(amqp::request::Outcome::Accept);
            leading.own.push(Order::Settle { runs, outcome });
        }
        self.lose_dead(|seq| lost.contains(&seq));
    }
}
