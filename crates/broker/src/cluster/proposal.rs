//! Metadata commands on their way to the leader, and as they stand in the group's log.
//!
//! ```text
//!  proposal = version u8 (1) · sender node u64 · sender boot u64 · first number u64 · command*
//!  command  = length u32 · bytes; of length 0: a number whose command was given up
//! ```

use bytes::{Buf, BufMut, Bytes, BytesMut};
use model::id::NodeId;

use crate::replicated::numbered::Sender;

const VERSION: u8 = 1;

/// Numbered commands of one sender, the first with this number, the others following it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Proposal {
    pub(crate) sender: Sender,
    pub(crate) first: u64,
    /// Encoded; empty: given up.
    pub(crate) commands: Vec<Bytes>,
}

/// Bytes that are no proposal of this version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a proposal: {0}")]
pub(crate) struct Malformed(&'static str);

impl Proposal {
    pub(crate) fn encode(&self) -> Bytes {
        let weight: usize = self.commands.iter().map(|command| command.len() + 4).sum();
        let mut out = BytesMut::with_capacity(25 + weight);
        out.put_u8(VERSION);
        out.put_u64_le(self.sender.node.0);
        out.put_u64_le(self.sender.boot);
        out.put_u64_le(self.first);
        for command in &self.commands {
            out.put_u32_le(u32::try_from(command.len()).expect("a command is far below 4 GiB"));
            out.put_slice(command);
        }
        out.freeze()
    }

    /// Reads what [`Proposal::encode`] writes.
    ///
    /// # Errors
    /// If it is something else.
    pub(crate) fn decode(mut bytes: Bytes) -> Result<Self, Malformed> {
        if bytes.try_get_u8() != Ok(VERSION) {
            return Err(Malformed("an unknown version"));
        }
        let mut number = || bytes.try_get_u64_le().map_err(|_| Malformed("its head is cut off"));
        let sender = Sender { node: NodeId(number()?), boot: number()? };
        let first = number()?;
        let mut commands = Vec::new();
        while bytes.has_remaining() {
            let length =
                bytes.try_get_u32_le().map_err(|_| Malformed("a length is cut off"))? as usize;
            if length > bytes.len() {
                return Err(Malformed("a command is cut off"));
            }
            commands.push(bytes.split_to(length));
        }
        Ok(Self { sender, first, commands })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proposals_come_back_and_damage_is_seen() {
        let proposal = Proposal {
            sender: Sender { node: NodeId(7), boot: 3 },
            first: 9,
            commands: vec![Bytes::from_static(b"one"), Bytes::new(), Bytes::from_static(b"three")],
        };
        let bytes = proposal.encode();
        assert_eq!(Proposal::decode(bytes.clone()), Ok(proposal));
        // After the head and after each command a proposal could end.
        let ends = [25, 32, 36, bytes.len()];
        for length in 0..bytes.len() {
            let cut = Proposal::decode(bytes.slice(..length));
            assert_eq!(cut.is_ok(), ends.contains(&length), "{length}: {cut:?}");
        }
        let mut newer = bytes.to_vec();
        newer[0] = 2;
        assert_eq!(Proposal::decode(newer.into()), Err(Malformed("an unknown version")));
    }
}
