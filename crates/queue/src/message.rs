//! A message as the machine moves it about.

use model::id::Seq;
use model::time::Timestamp;

use crate::head::Head;

/// A moment that never comes.
pub(crate) const NEVER: Timestamp = Timestamp(u64::MAX);

/// One message: its name and everything that the rules need to know. Cheap to copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Message {
    pub(crate) seq: Seq,
    /// [`NEVER`] if it has no limit.
    pub(crate) expires_at: Timestamp,
    pub(crate) bytes: u32,
    pub(crate) delivery_count: u32,
    pub(crate) priority: u8,
    /// It was handed out before; if it is handed out now, before that.
    pub(crate) delivered: bool,
}

// Moved by value on the hot path: it should stay within half a cache line.
const _: () = assert!(size_of::<Message>() == 32);

impl Message {
    pub(crate) fn from_head(seq: Seq, head: &Head) -> Self {
        Self {
            seq,
            expires_at: head.expires_at.unwrap_or(NEVER),
            bytes: head.bytes,
            delivery_count: head.delivery_count,
            priority: head.priority,
            delivered: head.delivered,
        }
    }

    pub(crate) fn head(&self) -> Head {
        Head {
            bytes: self.bytes,
            priority: self.priority,
            expires_at: (self.expires_at != NEVER).then_some(self.expires_at),
            delivery_count: self.delivery_count,
            delivered: self.delivered,
        }
    }
}
