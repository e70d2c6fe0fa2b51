//! What a queue has in the journal: what a turn adds to it, and what is let go of again.

use journal::op::{Class, Head, Lsn, Op};
use model::id::Seq;

use super::Slot;
use crate::pair::backfill::Survey;

/// What is written behind the machine's head of a message: whether it is only spilled, so that a
/// restart drops it.
const STORED_HEAD_LEN: usize = queue::head::Head::LEN + 1;

/// Positions that one look passes over at most.
const SURVEY_SPAN: u64 = 100_000;

impl Slot {
    /// Messages are gone: from memory, from this turn's puts, from the journal.
    pub(super) fn release(&mut self, first: Seq, last: Seq) {
        if !self.outgoing.holds_any() {
            return self.let_go(first, last);
        }
        // Those that are held for a delivery that waits for its body are released when it is sent.
        for (first, last) in self.outgoing.not_held(first, last) {
            self.let_go(first, last);
        }
    }

    fn let_go(&mut self, first: Seq, last: Seq) {
        self.spilled.remove(first, last);
        let stored = self.bodies.remove_range(first, last);
        let mut put = 0;
        while let Some((seq, ..)) = self.puts.last()
            && first <= *seq
            && *seq <= last
        {
            self.puts.pop();
            put += 1;
        }
        if put == 0 && !self.puts.is_empty() {
            let from = self.puts.partition_point(|(seq, ..)| *seq < first);
            let to = self.puts.partition_point(|(seq, ..)| *seq <= last);
            put += (to - from) as u64;
            self.puts.drain(from..to);
        }
        if !stored || !self.in_journal || put == last.0 - first.0 + 1 {
            return;
        }
        tracing::trace!(target: "walk", "release");
        match self.releases.last_mut() {
            Some((_, end)) if end.next() == first => *end = last,
            _ => self.releases.push((first, last)),
        }
    }

    /// Adds this turn's operations to the journal's batch; returns whether there are puts.
    pub(crate) fn hand_over(&mut self, ops: &mut Vec<Op>) -> bool {
        let stream = self.stream();
        let any = !self.puts.is_empty();
        self.handing = any;
        self.counters.disk_writes += self.puts.len() as u64;
        self.in_journal |= any;
        for (seq, head, payload) in self.puts.drain(..) {
            let class = Class::Bulk;
            ops.push(Op::Put { stream, seq, class, head, payload });
        }
        for seq in self.notes.drain(..) {
            // Transient messages have nothing to note; the journal passes over what it does not have.
            if self.in_journal
                && let Some(head) = self.machine.head(seq)
            {
                let bytes = stored_head(head, self.spilled.contains(seq));
                ops.push(Op::Note { stream, seq, bytes });
            }
        }
        for (first, last) in self.releases.drain(..) {
            ops.push(Op::Release { stream, first, last });
        }
        any
    }

    /// The turn's operations were handed to the journal under `lsn`, which has synced `durable`.
    pub(crate) fn handed(&mut self, lsn: Lsn, durable: Lsn) {
        if std::mem::take(&mut self.handing) {
            self.bodies.synced(durable);
            self.bodies.handed(lsn, Seq(self.next_seq.0 - 1));
        }
    }

    /// Its stored messages from a position on, at most so many; dead ones too that are not where they
    /// go. Only between turns, when everything was handed over. Messages that are nowhere but in
    /// memory may be among them.
    pub(crate) fn survey(&self, from: Seq, most: usize) -> Survey {
        let last = self.next_seq.0 - 1;
        let mut records = Vec::new();
        let mut at = from.0;
        let mut looks = 0;
        while at <= last && looks <= SURVEY_SPAN && records.len() < most {
            if let Some(behind) = self.gaps.behind(at) {
                at = behind;
                continue;
            }
            looks += 1;
            if let Some(head) = self.machine.head(Seq(at)) {
                records.push((Seq(at), stored_head(head, self.spilled.contains(Seq(at)))));
            }
            at += 1;
        }
        Survey { records, reached: Seq(at - 1), ends: at > last }
    }

    /// The journal has synced up to `lsn`: bodies up to there may be dropped.
    pub(crate) fn synced(&mut self, lsn: Lsn, keep: u64) {
        self.bodies.synced(lsn);
        self.bodies.evict(keep, self.machine.oldest_ready().unwrap_or(Seq(u64::MAX)));
    }

    /// Bodies that have stayed for long let go of their buffer.
    pub(crate) fn detach_oldest(&mut self) {
        self.bodies.detach_oldest();
    }
}

/// The head of a message as it is stored.
pub(super) fn stored_head(head: queue::head::Head, spilled: bool) -> Head {
    let mut bytes = [0; STORED_HEAD_LEN];
    bytes[..queue::head::Head::LEN].copy_from_slice(&head.encode());
    bytes[queue::head::Head::LEN] = u8::from(spilled);
    Head::new(&bytes)
}

#[cfg(test)]
mod tests {
    use model::id::{ConsumerId, NodeId, QueueId};
    use model::time::Timestamp;
    use queue::settings::{Settings, Style};

    use super::*;
    use crate::shard::profile::Profile;
    use crate::shard::slot::outgoing::Going;

    /// More than a stack has room for, if each took a frame.
    const MANY: u64 = 200_000;

    #[test]
    fn however_many_are_held_a_range_is_released_around_them() {
        let profile = Profile {
            id: QueueId(1),
            vhost: "/".into(),
            name: "q".into(),
            durable: true,
            home: NodeId(0),
            journal: None,
            settings: Settings::new(Style::Classic),
            dead_letter: None,
            quorum: None,
            led_by: None,
        };
        let mut slot = Slot::new(profile, Timestamp(1));
        slot.in_journal = true;
        let consumer = ConsumerId(1);
        for seq in (1..=MANY).map(Seq).filter(|seq| !seq.0.is_multiple_of(1000)) {
            let going = Going::Deliver { consumer, seq, redelivered: false, delivery_count: 0 };
            slot.outgoing.push(going, true);
        }
        slot.bodies.restored(Seq(MANY));
        slot.release(Seq(1), Seq(MANY));
        let released: Vec<u64> = slot.releases.iter().map(|(first, _)| first.0).collect();
        assert_eq!(released, (1..=MANY / 1000).map(|at| at * 1000).collect::<Vec<_>>());
        assert!(slot.releases.iter().all(|(first, last)| first == last));
    }
}
