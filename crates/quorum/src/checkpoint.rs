//! Checkpoints: a member's state with the log id and the membership that it stands for.

use crate::types::SnapshotMeta;
use crate::wire::{Malformed, Reader, Write};
use bytes::{BufMut, Bytes, BytesMut};
use journal::op::Lsn;
use model::id::Seq;

/// A checkpoint as it lies in the journal.
#[derive(Debug, Clone)]
pub(crate) struct Checkpoint {
    pub(crate) meta: SnapshotMeta,
    pub(crate) state: Bytes,
}

/// A checkpoint on its way through openraft.
#[derive(Debug, Clone)]
pub(crate) enum Image {
    /// Of this node: made here, or found at the start.
    Own { state: Bytes },
    /// From another node; the bodies that it names are stored already.
    Arrived { state: Bytes, bodies: Vec<(u64, Seq)>, stored: Lsn },
}

impl Image {
    pub(crate) fn state(&self) -> &Bytes {
        match self {
            Self::Own { state } | Self::Arrived { state, .. } => state,
        }
    }
}

pub(crate) fn encode(meta: &SnapshotMeta, state: &Bytes) -> Bytes {
    let mut bytes = BytesMut::with_capacity(state.len() + 128);
    put_meta(&mut bytes, meta);
    bytes.put_slice(state);
    bytes.freeze()
}

pub(crate) fn decode(bytes: Bytes) -> Result<Checkpoint, Malformed> {
    let mut reader = Reader::new(bytes);
    let meta = take_meta(&mut reader)?;
    Ok(Checkpoint { meta, state: reader.rest() })
}

pub(crate) fn put_meta(bytes: &mut BytesMut, meta: &SnapshotMeta) {
    bytes.maybe_log_id(meta.last_log_id.as_ref());
    bytes.stored_membership(&meta.last_membership);
}

pub(crate) fn take_meta(reader: &mut Reader) -> Result<SnapshotMeta, Malformed> {
    let last_log_id = reader.maybe_log_id()?;
    let last_membership = reader.stored_membership()?;
    Ok(SnapshotMeta { last_log_id, last_membership })
}
