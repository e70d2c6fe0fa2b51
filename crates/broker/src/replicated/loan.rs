//! Bodies that one member of a quorum queue asks another one for, because its own disk does not give
//! them back any more. Members name messages alike, wherever they keep them.
//!
//! ```text
//!  question = 1 · queue u64 · (name u64)*
//!  answer   = 2 · queue u64 · (name u64 · what u8 · [length u32 · message])*
//! ```

use bytes::{Buf, BufMut, Bytes, BytesMut};
use model::id::{QueueId, Seq};
use model::message::Message;

/// An answer has no more bytes than that, but for its first message.
const ANSWER_BYTES: usize = 4 << 20;

const QUESTION: u8 = 1;
const ANSWER: u8 = 2;
const NONE: u8 = 0;
const BODY: u8 = 1;
const LATER: u8 = 2;

/// What a member has of a message.
#[derive(Debug, Clone)]
pub(crate) enum Lent {
    /// The message.
    Body(Message),
    /// Nothing: it cannot be read here either.
    None,
    /// It was too much for one answer, or this member does not know yet whether it has it: ask again.
    Later,
}

/// What goes from one member to another.
#[derive(Debug, Clone)]
pub(crate) enum Loan {
    /// These are wanted.
    Question(QueueId, Vec<Seq>),
    /// This is there.
    Answer(QueueId, Vec<(Seq, Lent)>),
}

/// Bytes that are no loan of this version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a loan: {0}")]
pub(crate) struct Malformed(&'static str);

impl Loan {
    pub(crate) fn encode(&self) -> Bytes {
        let mut out = BytesMut::new();
        match self {
            Self::Question(queue, names) => {
                out.put_u8(QUESTION);
                out.put_u64_le(queue.0);
                for name in names {
                    out.put_u64_le(name.0);
                }
            }
            Self::Answer(queue, bodies) => {
                out.put_u8(ANSWER);
                out.put_u64_le(queue.0);
                for (name, lent) in bodies {
                    out.put_u64_le(name.0);
                    match lent {
                        Lent::None => out.put_u8(NONE),
                        Lent::Later => out.put_u8(LATER),
                        Lent::Body(message) => {
                            out.put_u8(BODY);
                            let length = message.encoded_len();
                            out.put_u32_le(u32::try_from(length).expect("messages are bounded"));
                            message.encode_into(&mut out);
                        }
                    }
                }
            }
        }
        out.freeze()
    }

    /// Reads what [`Loan::encode`] writes.
    ///
    /// # Errors
    /// If it is something else.
    pub(crate) fn decode(mut bytes: Bytes) -> Result<Self, Malformed> {
        let cut = |_: bytes::TryGetError| Malformed("it is cut off");
        let kind = bytes.try_get_u8().map_err(cut)?;
        let queue = QueueId(bytes.try_get_u64_le().map_err(cut)?);
        match kind {
            QUESTION => {
                let mut names = Vec::new();
                while bytes.has_remaining() {
                    names.push(Seq(bytes.try_get_u64_le().map_err(cut)?));
                }
                Ok(Self::Question(queue, names))
            }
            ANSWER => {
                let mut bodies = Vec::new();
                while bytes.has_remaining() {
                    let name = Seq(bytes.try_get_u64_le().map_err(cut)?);
                    let lent = match bytes.try_get_u8().map_err(cut)? {
                        NONE => Lent::None,
                        LATER => Lent::Later,
                        BODY => {
                            let length = bytes.try_get_u32_le().map_err(cut)? as usize;
                            if length > bytes.len() {
                                return Err(Malformed("a message is cut off"));
                            }
                            let message = Message::decode(bytes.split_to(length));
                            Lent::Body(message.map_err(|_| Malformed("no message"))?)
                        }
                        _ => return Err(Malformed("an unknown word")),
                    };
                    bodies.push((name, lent));
                }
                Ok(Self::Answer(queue, bodies))
            }
            _ => Err(Malformed("an unknown kind")),
        }
    }
}

/// What of these fits into one answer; of the rest it says so. `denies`: what is not among them this
/// member does not have, and never will.
pub(crate) fn fitting(bodies: Vec<(Seq, Option<Message>)>, denies: bool) -> Vec<(Seq, Lent)> {
    let mut bytes = 0;
    let lend = |(name, message): (Seq, Option<Message>)| {
        let Some(message) = message else {
            return (name, if denies { Lent::None } else { Lent::Later });
        };
        let first = bytes == 0;
        bytes += message.encoded_len();
        let fits = first || bytes <= ANSWER_BYTES;
        (name, if fits { Lent::Body(message) } else { Lent::Later })
    };
    bodies.into_iter().map(lend).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(body: &[u8]) -> Message {
        Message::from_parts("exchange", "key", &[0, 0], body)
    }

    #[test]
    fn loans_come_back_and_damage_is_seen() {
        let bodies = vec![
            (Seq(1), Lent::Body(message(b"one"))),
            (Seq(2), Lent::None),
            (Seq(u64::MAX), Lent::Later),
        ];
        for loan in
            [Loan::Question(QueueId(9), vec![Seq(1), Seq(5)]), Loan::Answer(QueueId(9), bodies)]
        {
            let bytes = loan.encode();
            for length in 0..bytes.len() {
                // Fewer names are no damage, and no other loan either.
                if let Ok(shorter) = Loan::decode(bytes.slice(..length)) {
                    assert_eq!(shorter.encode(), bytes.slice(..length));
                }
            }
            let back = Loan::decode(bytes.clone()).expect("it is whole");
            assert_eq!(back.encode(), bytes);
        }
        assert!(Loan::decode(Bytes::from_static(&[3; 9])).is_err());
    }

    #[test]
    fn an_answer_has_a_bound_and_at_least_one_body() {
        let large = message(&vec![0; ANSWER_BYTES]);
        let bodies = vec![
            (Seq(1), Some(large.clone())),
            (Seq(2), None),
            (Seq(3), Some(large)),
            (Seq(4), Some(message(b"small"))),
        ];
        let unsure = fitting(bodies.clone(), false);
        assert!(matches!(unsure[1].1, Lent::Later));
        let fitting = fitting(bodies, true);
        let [(_, first), (_, second), (_, third), (_, fourth)] = &fitting[..] else {
            panic!("one for each");
        };
        assert!(matches!(first, Lent::Body(_)) && matches!(second, Lent::None));
        assert!(matches!(third, Lent::Later) && matches!(fourth, Lent::Later));
    }
}
