//! Messages that are dead and stay until their targets have them.
//!
//! In a quorum queue that is at-least-once dead-lettering, and they count as long as they are here: a
//! queue whose targets take nothing fills up to its limits and then refuses publishes. In a classic
//! queue they are out of the way, and only their heads are still asked for.

use std::collections::BTreeMap;

use model::id::Seq;
use model::time::Timestamp;

use crate::effect::Reason;
use crate::malformed::Malformed;
use crate::message::Message;
use crate::reader::{self, Reader};
use crate::runs;

/// See the module head.
#[derive(Debug, Clone, Default)]
pub(crate) struct Dead {
    by_seq: BTreeMap<Seq, (Message, Reason)>,
    bytes: u64,
}

impl Dead {
    pub(crate) fn len(&self) -> u64 {
        self.by_seq.len() as u64
    }

    /// Bytes of their bodies.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(crate) fn push(&mut self, message: Message, reason: Reason) {
        self.bytes += u64::from(message.bytes);
        let before = self.by_seq.insert(message.seq, (message, reason));
        debug_assert!(before.is_none(), "a message dies once");
    }

    /// Takes one out whose targets have it; tells whether it was here.
    pub(crate) fn remove(&mut self, seq: Seq) -> bool {
        let Some((message, _)) = self.by_seq.remove(&seq) else { return false };
        self.bytes -= u64::from(message.bytes);
        true
    }

    pub(crate) fn find(&self, seq: Seq) -> Option<Message> {
        self.by_seq.get(&seq).map(|(message, _)| *message)
    }

    pub(crate) fn death(&self, seq: Seq) -> Option<Reason> {
        self.by_seq.get(&seq).map(|(_, reason)| *reason)
    }

    /// All, and why they died, by name.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Message, Reason)> + '_ {
        self.by_seq.values().copied()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.by_seq.is_empty()
    }

    /// Writes all, those of one reason together.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        for wanted in REASONS {
            let of_reason = || self.iter().filter(|(_, reason)| *reason == wanted);
            reader::put(out, of_reason().count() as u64);
            runs::put(out, 0, of_reason().map(|(message, _)| (message, Timestamp(0))));
        }
    }

    /// Reads what [`Dead::encode`] wrote.
    pub(crate) fn decode(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        let mut dead = Self::default();
        for reason in REASONS {
            let count = reader.take()?;
            runs::take(reader, 0, count, |(message, _)| {
                if dead.find(message.seq).is_some() {
                    return Err(Malformed::Value("a message is dead twice"));
                }
                dead.push(message, reason);
                Ok(())
            })?;
        }
        Ok(dead)
    }
}

/// In the order of the stored form.
const REASONS: [Reason; 4] =
    [Reason::Rejected, Reason::Expired, Reason::MaxLen, Reason::DeliveryLimit];
