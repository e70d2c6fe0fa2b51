//! The records of a group in the journal: what their heads say.
//!
//! A group is one stream. Positions only grow; what a later record says wins:
//!
//! ```text
//! Entry(index)   an entry of the log, its payload as proposed. Supersedes every earlier Entry
//!                with this index or a higher one: those were truncated.
//! Vote           the newest counts; the one before is released with it.
//! Purged(index)  the log begins after it. Entry records up to it stay, as bodies of messages,
//!                until the member releases them.
//! Committed      a hint, renewed lazily in place. Never beyond what lies before it.
//! Checkpoint     the member's state after an index, and the membership there.
//! Carried(name)  a message's body alone, moved out of an entry by the member.
//! Arrived(name)  the same from another node; counts once a later Checkpoint names its position.
//! ```

use crate::types::{LogId, Vote, vote};
use crate::wire::{Malformed, Reader};
use bytes::{BufMut, Bytes};
use journal::op;

/// What an entry of the log is; its payload depends on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EntryKind {
    /// A leader's first; no payload.
    Blank,
    /// A proposal.
    Normal,
    /// A change of members, encoded.
    Membership,
}

/// The head of a record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Head {
    Entry { kind: EntryKind, id: LogId },
    Vote(Vote),
    Purged(LogId),
    Committed(LogId),
    Checkpoint(LogId),
    Carried { name: u64 },
    Arrived { name: u64 },
}

const BLANK: u8 = 1;
const NORMAL: u8 = 2;
const MEMBERSHIP: u8 = 3;
const VOTE: u8 = 4;
const PURGED: u8 = 5;
const COMMITTED: u8 = 6;
const CHECKPOINT: u8 = 7;
const CARRIED: u8 = 8;
const ARRIVED: u8 = 9;

impl EntryKind {
    pub(crate) fn code(self) -> u8 {
        match self {
            Self::Blank => BLANK,
            Self::Normal => NORMAL,
            Self::Membership => MEMBERSHIP,
        }
    }

    pub(crate) fn from_code(code: u8) -> Result<Self, Malformed> {
        match code {
            BLANK => Ok(Self::Blank),
            NORMAL => Ok(Self::Normal),
            MEMBERSHIP => Ok(Self::Membership),
            _ => Err(Malformed("no such kind of entry")),
        }
    }
}

impl Head {
    pub(crate) fn encode(&self) -> op::Head {
        let mut bytes = Vec::with_capacity(op::Head::MAX);
        let put_id = |bytes: &mut Vec<u8>, code: u8, id: &LogId| {
            bytes.put_u8(code);
            bytes.put_u64_le(id.leader_id.term);
            bytes.put_u64_le(id.index);
        };
        match self {
            Self::Entry { kind, id } => put_id(&mut bytes, kind.code(), id),
            Self::Vote(vote) => {
                bytes.put_u8(VOTE);
                bytes.put_u64_le(vote.leader_id.term);
                bytes.put_u64_le(vote.leader_id.voted_for);
                bytes.put_u8(u8::from(vote.committed));
            }
            Self::Purged(id) => put_id(&mut bytes, PURGED, id),
            Self::Committed(id) => put_id(&mut bytes, COMMITTED, id),
            Self::Checkpoint(id) => put_id(&mut bytes, CHECKPOINT, id),
            Self::Carried { name } => {
                bytes.put_u8(CARRIED);
                bytes.put_u64_le(*name);
            }
            Self::Arrived { name } => {
                bytes.put_u8(ARRIVED);
                bytes.put_u64_le(*name);
            }
        }
        op::Head::new(&bytes)
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(Bytes::copy_from_slice(bytes));
        let head = match reader.u8()? {
            code @ (BLANK | NORMAL | MEMBERSHIP) => {
                Self::Entry { kind: EntryKind::from_code(code)?, id: reader.log_id()? }
            }
            VOTE => Self::Vote(vote(reader.u64()?, reader.u64()?, reader.bool()?)),
            PURGED => Self::Purged(reader.log_id()?),
            COMMITTED => Self::Committed(reader.log_id()?),
            CHECKPOINT => Self::Checkpoint(reader.log_id()?),
            CARRIED => Self::Carried { name: reader.u64()? },
            ARRIVED => Self::Arrived { name: reader.u64()? },
            _ => return Err(Malformed("no such kind of record")),
        };
        reader.end()?;
        Ok(head)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::log_id;

    #[test]
    fn heads_come_back_as_they_were() {
        let id = log_id(u64::MAX, u64::MAX - 1);
        let heads = [
            Head::Entry { kind: EntryKind::Blank, id },
            Head::Entry { kind: EntryKind::Normal, id },
            Head::Entry { kind: EntryKind::Membership, id },
            Head::Vote(vote(7, u64::MAX, true)),
            Head::Vote(vote(0, 0, false)),
            Head::Purged(id),
            Head::Committed(id),
            Head::Checkpoint(id),
            Head::Carried { name: 3 },
            Head::Arrived { name: u64::MAX },
        ];
        for head in heads {
            assert_eq!(Head::decode(head.encode().as_slice()), Ok(head));
        }
    }

    #[test]
    fn damaged_heads_are_refused() {
        let good = Head::Purged(log_id(1, 2)).encode();
        let good = good.as_slice();
        for end in 0..good.len() {
            assert!(Head::decode(&good[..end]).is_err());
        }
        assert!(Head::decode(&[good, &[0]].concat()).is_err());
        assert!(Head::decode(&[99; 17]).is_err());
    }
}
