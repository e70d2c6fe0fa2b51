//! The bodies of one queue that are in memory.
//!
//! A message that is in the journal may be dropped from here as soon as it is durable there, and is
//! read back when it is needed. One that is not (transient) stays until it is gone.
//!
//! A journalled body lies in the buffer that it was read into, among others that may be gone long
//! since: copying all of them would cost more than most are worth, since they leave soon. Those that
//! do not are copied out: who owns the queues lets only so many buffers be held on to
//! ([`Bodies::take_begun`]), and then calls [`Bodies::detach_oldest`].

use std::collections::VecDeque;

use journal::op::Lsn;
use model::id::Seq;
use model::message::Message;

use crate::slots::Slots;

/// A body with what its owner needs to know of it.
#[derive(Debug)]
pub(crate) struct Body {
    pub(crate) message: Message,
    /// It is in the journal, or in the batch that is being gathered for it.
    pub(crate) journalled: bool,
}

impl Body {
    /// What it costs to keep.
    fn cost(&self) -> u64 {
        (self.message.encoded_len() + size_of::<Body>()) as u64
    }
}

/// The size of most buffers that bodies come in. A body of half of it is not worth a copy.
pub(crate) const BUFFER: usize = 128 * 1024;

/// Bodies that came one after another out of one buffer, or of two that lie side by side.
#[derive(Debug)]
struct Neighbours {
    /// Where the first of them lies in memory.
    address: usize,
    first: u64,
    last: u64,
}

/// Bytes of bodies in memory.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Weight {
    /// Of those that the journal has too: a cache.
    pub(crate) cached: u64,
    /// Of those that are nowhere else.
    pub(crate) only: u64,
}

impl Weight {
    fn part(&mut self, journalled: bool) -> &mut u64 {
        if journalled { &mut self.cached } else { &mut self.only }
    }

    /// All of them.
    pub(crate) fn total(self) -> u64 {
        self.cached + self.only
    }

    /// Follows what somebody reported `before` and reports `now`.
    pub(crate) fn follow(&mut self, before: Self, now: Self) {
        self.cached = self.cached + now.cached - before.cached;
        self.only = self.only + now.only - before.only;
    }
}

/// See the module head.
#[derive(Debug, Default)]
pub(crate) struct Bodies {
    slots: Slots<Body>,
    weight: Weight,
    /// Everything up to the position is durable when the journal has synced the number.
    marks: VecDeque<(Lsn, u64)>,
    /// Journalled bodies at or below this position may go.
    durable: u64,
    /// There is no journalled body at or below this position: what is there must stay.
    kept: u64,
    /// Bodies that hold on to larger buffers, oldest first.
    attached: VecDeque<Neighbours>,
    /// How many of these groups have begun since somebody asked.
    begun: usize,
}

impl Bodies {
    pub(crate) fn len(&self) -> usize {
        self.slots.len()
    }

    /// Bytes in memory.
    pub(crate) fn weight(&self) -> Weight {
        self.weight
    }

    /// Adds one.
    pub(crate) fn insert(&mut self, seq: Seq, body: Body) {
        *self.weight.part(body.journalled) += body.cost();
        if body.journalled {
            self.kept = self.kept.min(seq.0.saturating_sub(1));
            if is_attached(&body.message) {
                self.attach(seq, &body.message);
            }
        }
        if let Some(old) = self.slots.insert(seq.0, body) {
            *self.weight.part(old.journalled) -= old.cost();
        }
    }

    /// Notes that a body holds on to its buffer.
    fn attach(&mut self, seq: Seq, message: &Message) {
        let address = message.route().as_ptr().addr();
        if let Some(group) = self.attached.back_mut()
            && group.last < seq.0
            && (group.address..group.address.saturating_add(BUFFER)).contains(&address)
        {
            group.last = seq.0;
            return;
        }
        self.attached.push_back(Neighbours { address, first: seq.0, last: seq.0 });
        self.begun += 1;
    }

    /// How many more buffers bodies hold on to than when this was last asked. For each of them
    /// [`Bodies::detach_oldest`] is called once, in the end.
    pub(crate) fn take_begun(&mut self) -> usize {
        std::mem::take(&mut self.begun)
    }

    /// Copies what is left of the oldest group out of its buffer.
    pub(crate) fn detach_oldest(&mut self) {
        let Some(Neighbours { first, last, .. }) = self.attached.pop_front() else { return };
        self.slots.each_mut(first, last, |body| {
            if body.journalled && is_attached(&body.message) {
                body.message = body.message.detach();
            }
        });
    }

    /// Looks at one.
    pub(crate) fn get(&self, seq: Seq) -> Option<&Body> {
        self.slots.get(seq.0)
    }

    /// Forgets one that is gone; returns whether the journal has to forget it too.
    pub(crate) fn remove(&mut self, seq: Seq) -> bool {
        let Some(body) = self.slots.take(seq.0) else { return true };
        *self.weight.part(body.journalled) -= body.cost();
        body.journalled
    }

    /// Forgets a range; returns whether the journal has to forget any of it.
    pub(crate) fn remove_range(&mut self, first: Seq, last: Seq) -> bool {
        if first == last {
            return self.remove(first);
        }
        let Self { slots, weight, .. } = self;
        let mut transient = 0;
        slots.take_range(first.0, last.0, |_, body| {
            *weight.part(body.journalled) -= body.cost();
            transient += u64::from(!body.journalled);
        });
        transient <= last.0 - first.0
    }

    /// Positions up to `last` were handed to the journal under `lsn`.
    pub(crate) fn handed(&mut self, lsn: Lsn, last: Seq) {
        self.marks.push_back((lsn, last.0));
    }

    /// The journal has synced up to `lsn`.
    pub(crate) fn synced(&mut self, lsn: Lsn) {
        while self.marks.front().is_some_and(|(mark, _)| *mark <= lsn) {
            if let Some((_, position)) = self.marks.pop_front() {
                self.durable = self.durable.max(position);
            }
        }
    }

    /// Everything up to `last` is durable already (after recovery).
    pub(crate) fn restored(&mut self, last: Seq) {
        self.durable = self.durable.max(last.0);
    }

    /// Drops durable journalled bodies until at most `keep` bytes of them are left or nothing more
    /// can go. First those before `next`, the oldest message that waits: they are handed out and
    /// only needed if they come back. Then those that will be needed last.
    pub(crate) fn evict(&mut self, keep: u64, next: Seq) {
        if self.weight.cached <= keep || self.durable <= self.kept {
            return;
        }
        let mut excess = self.weight.cached - keep;
        let mut going = Vec::new();
        let handed_out = next.0.saturating_sub(1).clamp(self.kept, self.durable);
        let positions = self.slots.positions_between(self.kept, handed_out);
        for position in positions.chain(self.slots.positions_between(handed_out, self.durable)) {
            if excess == 0 {
                break;
            }
            if let Some(body) = self.slots.get(position)
                && body.journalled
            {
                excess = excess.saturating_sub(body.cost());
                going.push(position);
            }
        }
        if excess > 0 {
            self.kept = self.durable;
        }
        for position in going {
            self.remove(Seq(position));
        }
    }
}

/// Whether a message keeps much more in memory than itself alive.
fn is_attached(message: &Message) -> bool {
    let length = message.encoded_len();
    message.buffer_len() > length - Message::OVERHEAD && length < BUFFER / 2
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    fn body(journalled: bool) -> Body {
        Body { message: Message::from_parts("", "q", &[0, 0], &[0; 1000]), journalled }
    }

    fn in_memory(bodies: &Bodies) -> Vec<u64> {
        (0..100).filter(|position| bodies.get(Seq(*position)).is_some()).collect()
    }

    #[test]
    fn only_durable_journalled_bodies_go_and_the_last_first() {
        let mut bodies = Bodies::default();
        for position in 1..=8 {
            bodies.insert(Seq(position), body(position > 3));
        }
        bodies.handed(Lsn(5), Seq(6));
        bodies.evict(0, Seq(1));
        assert_eq!(in_memory(&bodies), [1, 2, 3, 4, 5, 6, 7, 8], "nothing is durable");
        bodies.synced(Lsn(5));
        let one_less = bodies.weight().cached - 1;
        bodies.evict(one_less, Seq(1));
        assert_eq!(in_memory(&bodies), [1, 2, 3, 4, 5, 7, 8]);
        bodies.evict(0, Seq(1));
        assert_eq!(in_memory(&bodies), [1, 2, 3, 7, 8], "transient ones stay");
        // One that was read back lies below what was searched before.
        bodies.insert(Seq(4), body(true));
        bodies.evict(0, Seq(1));
        assert_eq!(in_memory(&bodies), [1, 2, 3, 7, 8]);
    }

    #[test]
    fn what_is_handed_out_goes_before_what_waits() {
        let mut bodies = Bodies::default();
        for position in 1..=6 {
            bodies.insert(Seq(position), body(true));
        }
        bodies.restored(Seq(6));
        let each = bodies.weight().cached / 6;
        bodies.evict(each * 5, Seq(4));
        assert_eq!(in_memory(&bodies), [1, 2, 4, 5, 6]);
        bodies.evict(each * 2, Seq(4));
        assert_eq!(in_memory(&bodies), [4, 5]);
        bodies.insert(Seq(1), body(true));
        bodies.evict(0, Seq(u64::MAX));
        assert!(in_memory(&bodies).is_empty(), "all of it is handed out");
    }

    #[test]
    fn ranges_say_whether_the_journal_must_hear_of_them() {
        let mut bodies = Bodies::default();
        bodies.insert(Seq(1), body(false));
        bodies.insert(Seq(2), body(false));
        assert!(!bodies.remove_range(Seq(1), Seq(2)), "both were in memory alone");
        bodies.insert(Seq(3), body(false));
        assert!(bodies.remove_range(Seq(3), Seq(4)), "the other one is on disk");
        assert_eq!((bodies.len(), bodies.weight()), (0, Weight::default()));
    }

    /// So many messages of 16 bytes out of one buffer, with something between them.
    fn read(buffer: &Bytes, count: usize) -> impl Iterator<Item = Body> {
        let each = BUFFER / count;
        (0..count).map(move |index| {
            let at = buffer.slice(index * each..(index + 1) * each);
            let message = Message::from_spans(at, 0..2, 2..4, 8..20).expect("zeros are a message");
            Body { message, journalled: true }
        })
    }

    #[test]
    fn what_stays_does_not_pin_the_buffers_that_it_came_in() {
        let buffers: Vec<Bytes> = (0..10).map(|_| Bytes::from(vec![0; BUFFER])).collect();
        let mut bodies = Bodies::default();
        let mut begun = 0;
        let mut next = 0;
        for buffer in &buffers {
            // One is gone again, which leaves the other.
            for body in read(buffer, 2) {
                next += 1;
                bodies.insert(Seq(next), body);
            }
            bodies.remove(Seq(next));
            begun += bodies.take_begun();
            while begun > 3 {
                bodies.detach_oldest();
                begun -= 1;
            }
        }
        let weight = bodies.weight();
        let pinned = buffers.iter().filter(|buffer| !buffer.is_unique()).count();
        assert!((1..=6).contains(&pinned), "each group lies in one buffer or two: {pinned}");
        for _ in 0..begun {
            bodies.detach_oldest();
        }
        assert!(buffers.iter().all(Bytes::is_unique));
        assert_eq!((bodies.len(), bodies.weight()), (10, weight));
        assert_eq!(bodies.get(Seq(1)).expect("it stayed").message.body(), [0; 12]);
        assert!(bodies.attached.is_empty());
    }

    #[test]
    fn a_buffer_is_one_group_whoever_else_is_in_it() {
        let buffer = Bytes::from(vec![0; BUFFER]);
        let mut bodies = Bodies::default();
        for (body, position) in read(&buffer, 100).zip(1..) {
            bodies.insert(Seq(position), body);
        }
        assert_eq!(bodies.take_begun(), 1);
        // Nothing is gained by a copy of what is alone in its buffer, or nearly so.
        bodies.insert(Seq(101), body(true));
        let large = Message::from_spans(buffer.slice(..), 0..2, 2..4, 8..BUFFER);
        let large = large.expect("zeros are a message");
        bodies.insert(Seq(102), Body { message: large, journalled: true });
        assert_eq!(bodies.take_begun(), 0);
    }
}
