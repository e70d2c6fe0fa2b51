//! Who a node is.

use crate::codec::{Reader, put_bytes, put_text};
use bytes::{BufMut, Bytes, BytesMut};
use model::id::NodeId;
use std::sync::Arc;

/// The longest name of a node or of a cluster, in bytes.
pub const NAME_MAX: usize = 255;
/// The longest address, in bytes.
pub const ADDRESS_MAX: usize = 1024;
/// The most facts, in bytes.
pub const FACTS_MAX: usize = 64 * 1024;

/// What a node tells its peers of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// Its name in the cluster. 1 to [`NAME_MAX`] bytes.
    pub name: Arc<str>,
    /// Its incarnation: another one under the same name has none of its data.
    pub id: NodeId,
    /// Which start of the incarnation this is; higher at each.
    pub boot: u64,
    /// Where it can be dialled, `host:port`. Empty for oneself: the address listened on.
    pub address: String,
    /// What its upper layers want peers to know; at most [`FACTS_MAX`] bytes.
    pub facts: Bytes,
}

/// An identity that was proven, and the process that claims it.
///
/// `instance` is drawn at each start of a process: two processes with one data directory (a copy)
/// have the same identity but not the same instance.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Claim {
    pub(crate) identity: Identity,
    pub(crate) instance: u64,
}

impl Claim {
    /// Whether both are the same process.
    pub(crate) fn same_process(&self, other: &Self) -> bool {
        (self.identity.id, self.identity.boot, self.instance)
            == (other.identity.id, other.identity.boot, other.instance)
    }

    pub(crate) fn encode(&self, out: &mut BytesMut) {
        put_text(out, &self.identity.name);
        out.put_u64(self.identity.id.0);
        out.put_u64(self.identity.boot);
        out.put_u64(self.instance);
        put_text(out, &self.identity.address);
        put_bytes(out, &self.identity.facts);
    }

    pub(crate) fn decode(input: &mut Reader<'_>) -> Option<Self> {
        let name = input.text(NAME_MAX)?;
        if name.is_empty() {
            return None;
        }
        let (id, boot, instance) = (NodeId(input.u64()?), input.u64()?, input.u64()?);
        let address = input.text(ADDRESS_MAX)?.to_owned();
        let facts = Bytes::copy_from_slice(input.bytes(FACTS_MAX)?);
        let identity = Identity { name: name.into(), id, boot, address, facts };
        Some(Self { identity, instance })
    }
}
