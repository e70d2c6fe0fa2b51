//! Bytes of numbers, log ids, votes and memberships: what the records of the journal and the
//! messages between nodes are made of. Numbers are little endian; nothing is compressed.

use crate::types::{LogId, Membership, StoredMembership, Vote, log_id, vote};
use bytes::{Buf, BufMut, Bytes, BytesMut};
use std::collections::BTreeMap;
use std::collections::BTreeSet;

/// Bytes that are not what a node of this version writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("malformed bytes: {0}")]
pub struct Malformed(pub &'static str);

/// The most nodes that a membership may name; a larger number is damage.
const NODES_MAX: usize = 1024;

/// Takes what was written from the front of some bytes.
#[derive(Debug)]
pub(crate) struct Reader {
    bytes: Bytes,
}

impl Reader {
    pub(crate) fn new(bytes: Bytes) -> Self {
        Self { bytes }
    }

    /// Everything that is left.
    pub(crate) fn rest(self) -> Bytes {
        self.bytes
    }

    /// Refuses bytes that nobody asked for.
    pub(crate) fn end(self) -> Result<(), Malformed> {
        if self.bytes.is_empty() { Ok(()) } else { Err(Malformed("bytes are left over")) }
    }

    pub(crate) fn u8(&mut self) -> Result<u8, Malformed> {
        self.bytes.try_get_u8().map_err(|_| Malformed("a byte is missing"))
    }

    pub(crate) fn bool(&mut self) -> Result<bool, Malformed> {
        match self.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(Malformed("neither yes nor no")),
        }
    }

    pub(crate) fn u32(&mut self) -> Result<u32, Malformed> {
        self.bytes.try_get_u32_le().map_err(|_| Malformed("a number is missing"))
    }

    pub(crate) fn u64(&mut self) -> Result<u64, Malformed> {
        self.bytes.try_get_u64_le().map_err(|_| Malformed("a number is missing"))
    }

    /// A number of things of which each takes at least `each` bytes, so that a damaged number
    /// cannot ask for more memory than the message has.
    pub(crate) fn count(&mut self, each: usize) -> Result<usize, Malformed> {
        let count = self.u32()? as usize;
        if count.saturating_mul(each) > self.bytes.len() {
            return Err(Malformed("a count exceeds what follows"));
        }
        Ok(count)
    }

    /// Bytes with their length before them; a slice of what was read, not a copy.
    pub(crate) fn slice(&mut self) -> Result<Bytes, Malformed> {
        let length = self.count(1)?;
        Ok(self.bytes.split_to(length))
    }

    pub(crate) fn log_id(&mut self) -> Result<LogId, Malformed> {
        Ok(log_id(self.u64()?, self.u64()?))
    }

    pub(crate) fn maybe_log_id(&mut self) -> Result<Option<LogId>, Malformed> {
        Ok(if self.bool()? { Some(self.log_id()?) } else { None })
    }

    pub(crate) fn vote(&mut self) -> Result<Vote, Malformed> {
        Ok(vote(self.u64()?, self.u64()?, self.bool()?))
    }

    pub(crate) fn membership(&mut self) -> Result<Membership, Malformed> {
        let mut configs = Vec::new();
        for _ in 0..self.count(4)? {
            configs.push(self.nodes()?);
        }
        let nodes: BTreeMap<u64, ()> = self.nodes()?.into_iter().map(|node| (node, ())).collect();
        Membership::new(configs, nodes).map_err(|_| Malformed("a voter is not a member"))
    }

    fn nodes(&mut self) -> Result<BTreeSet<u64>, Malformed> {
        let count = self.count(8)?;
        if count > NODES_MAX {
            return Err(Malformed("too many nodes"));
        }
        (0..count).map(|_| self.u64()).collect()
    }

    pub(crate) fn stored_membership(&mut self) -> Result<StoredMembership, Malformed> {
        let at = self.maybe_log_id()?;
        Ok(StoredMembership::new(at, self.membership()?))
    }
}

/// Puts behind each other what a [`Reader`] takes.
pub(crate) trait Write {
    fn bool(&mut self, value: bool);
    fn count(&mut self, count: usize);
    fn slice(&mut self, bytes: &[u8]);
    fn log_id(&mut self, id: &LogId);
    fn maybe_log_id(&mut self, id: Option<&LogId>);
    fn vote(&mut self, vote: &Vote);
    fn membership(&mut self, membership: &Membership);
    fn stored_membership(&mut self, membership: &StoredMembership);
}

impl Write for BytesMut {
    fn bool(&mut self, value: bool) {
        self.put_u8(u8::from(value));
    }

    fn count(&mut self, count: usize) {
        self.put_u32_le(u32::try_from(count).expect("counts and lengths stay below 4 Gi"));
    }

    fn slice(&mut self, bytes: &[u8]) {
        self.count(bytes.len());
        self.put_slice(bytes);
    }

    fn log_id(&mut self, id: &LogId) {
        self.put_u64_le(id.leader_id.term);
        self.put_u64_le(id.index);
    }

    fn maybe_log_id(&mut self, id: Option<&LogId>) {
        self.bool(id.is_some());
        if let Some(id) = id {
            self.log_id(id);
        }
    }

    fn vote(&mut self, vote: &Vote) {
        self.put_u64_le(vote.leader_id.term);
        self.put_u64_le(vote.leader_id.voted_for);
        self.bool(vote.committed);
    }

    fn membership(&mut self, membership: &Membership) {
        let configs = membership.get_joint_config();
        self.count(configs.len());
        for config in configs {
            self.count(config.len());
            for node in config {
                self.put_u64_le(*node);
            }
        }
        let nodes: Vec<u64> = membership.nodes().map(|(node, ())| *node).collect();
        self.count(nodes.len());
        for node in nodes {
            self.put_u64_le(node);
        }
    }

    fn stored_membership(&mut self, membership: &StoredMembership) {
        self.maybe_log_id(membership.log_id().as_ref());
        self.membership(membership.membership());
    }
}
