//! Messages as bytes.
//!
//! ```text
//!  [version: u8 = 1][kind: u8][fields, big-endian][payload to the end]
//!
//!  kind  message          fields
//!    1   register         journal u128 · 0 u8
//!    2   durable          number u64
//!    3   in sync
//!   16   accepted
//!   17   refused          1 u8: not now
//!   18   piece            number u64 · file u64 · offset u64 · payload
//!   19   batch            number u64 · position u64 · payload
//!   20   whole            number u64 · age u64
//!   21   stop called
//!   22   handed over
//! ```
//!
//! A node that gets another version refuses the connection before anything is stored.

use activation::age::Age;
use activation::file::JournalUid;
use bytes::{Buf, BufMut, Bytes, BytesMut};

use crate::message::{Downward, Number, Request, Upward};

/// The version that is written, and the only one that is read.
pub const VERSION: u8 = 1;

/// Why bytes are no message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotAMessage {
    /// It is of another version: the other node runs another release.
    Version(u8),
    /// A kind that is not known, or that the other side sends.
    Kind(u8),
    /// It ends too early, goes on too long, or a field has no such value.
    Fields,
}

/// Writes a message of the replica.
pub fn encode_upward(message: &Upward, out: &mut BytesMut) {
    out.put_u8(VERSION);
    match message {
        Upward::Register { journal } => {
            out.put_u8(1);
            out.put_u128(journal.0);
            out.put_u8(0);
        }
        Upward::Durable(number) => {
            out.put_u8(2);
            out.put_u64(number.0);
        }
        Upward::InSync => out.put_u8(3),
    }
}

/// Writes a message of the active node. Payloads are copied.
pub fn encode_downward(message: &Downward, out: &mut BytesMut) {
    out.put_u8(VERSION);
    match message {
        Downward::Accepted => out.put_u8(16),
        Downward::Refused => out.put_slice(&[17, 1]),
        Downward::Request(number, Request::Piece { file, offset, bytes }) => {
            out.put_u8(18);
            for field in [number.0, *file, *offset] {
                out.put_u64(field);
            }
            out.put_slice(bytes);
        }
        Downward::Request(number, Request::Batch { position, bytes }) => {
            out.put_u8(19);
            out.put_u64(number.0);
            out.put_u64(*position);
            out.put_slice(bytes);
        }
        Downward::Request(number, Request::Whole { age }) => {
            out.put_u8(20);
            out.put_u64(number.0);
            out.put_u64(age.get());
        }
        Downward::StopCalled => out.put_u8(21),
        Downward::HandedOver => out.put_u8(22),
    }
}

/// Reads a message of the replica.
///
/// # Errors
/// If it is none. The connection has to be closed.
pub fn decode_upward(mut bytes: Bytes) -> Result<Upward, NotAMessage> {
    let message = match head(&mut bytes)? {
        1 => {
            let journal = bytes.try_get_u128().map_err(|_| NotAMessage::Fields)?;
            if bytes.try_get_u8() != Ok(0) {
                return Err(NotAMessage::Fields);
            }
            Upward::Register { journal: JournalUid(journal) }
        }
        2 => Upward::Durable(Number(number(&mut bytes)?)),
        3 => Upward::InSync,
        kind => return Err(NotAMessage::Kind(kind)),
    };
    if bytes.is_empty() { Ok(message) } else { Err(NotAMessage::Fields) }
}

/// Reads a message of the active node. Payloads share the buffer.
///
/// # Errors
/// If it is none. The connection has to be closed.
pub fn decode_downward(mut bytes: Bytes) -> Result<Downward, NotAMessage> {
    let message = match head(&mut bytes)? {
        16 => Downward::Accepted,
        17 if bytes.try_get_u8() == Ok(1) => Downward::Refused,
        17 => return Err(NotAMessage::Fields),
        18 => {
            let (name, file) = (Number(number(&mut bytes)?), number(&mut bytes)?);
            let offset = number(&mut bytes)?;
            let bytes = std::mem::take(&mut bytes);
            Downward::Request(name, Request::Piece { file, offset, bytes })
        }
        19 => {
            let (name, position) = (Number(number(&mut bytes)?), number(&mut bytes)?);
            let bytes = std::mem::take(&mut bytes);
            Downward::Request(name, Request::Batch { position, bytes })
        }
        20 => {
            let (name, age) = (Number(number(&mut bytes)?), number(&mut bytes)?);
            let age = Age::new(age).ok_or(NotAMessage::Fields)?;
            Downward::Request(name, Request::Whole { age })
        }
        21 => Downward::StopCalled,
        22 => Downward::HandedOver,
        kind => return Err(NotAMessage::Kind(kind)),
    };
    if bytes.is_empty() { Ok(message) } else { Err(NotAMessage::Fields) }
}

fn head(bytes: &mut Bytes) -> Result<u8, NotAMessage> {
    match bytes.try_get_u8().map_err(|_| NotAMessage::Fields)? {
        VERSION => bytes.try_get_u8().map_err(|_| NotAMessage::Fields),
        version => Err(NotAMessage::Version(version)),
    }
}

fn number(bytes: &mut Bytes) -> Result<u64, NotAMessage> {
    bytes.try_get_u64().map_err(|_| NotAMessage::Fields)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn upward(message: &Upward) -> Bytes {
        let mut out = BytesMut::new();
        encode_upward(message, &mut out);
        out.freeze()
    }

    fn downward(message: &Downward) -> Bytes {
        let mut out = BytesMut::new();
        encode_downward(message, &mut out);
        out.freeze()
    }

    /// What nodes of this version send, other versions must be able to refuse.
    #[test]
    fn the_format_is_as_it_was() {
        let journal = JournalUid(0x0123_4567_89ab_cdef_0011_2233_4455_6677);
        let register = upward(&Upward::Register { journal });
        assert_eq!(register[..2], [1, 1]);
        assert_eq!(register[2..18], journal.0.to_be_bytes());
        assert_eq!(register[18..], [0]);
        assert_eq!(upward(&Upward::InSync)[..], [1, 3]);
        let bytes = Bytes::from_static(b"xyz");
        let batch = Downward::Request(Number(7), Request::Batch { position: 9, bytes });
        assert_eq!(
            downward(&batch)[..],
            [1, 19, 0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0, 9, b'x', b'y', b'z']
        );
        assert_eq!(downward(&Downward::Refused)[..], [1, 17, 1]);
    }

    #[test]
    fn another_version_is_told_apart() {
        let of = |bytes: &'static [u8]| Bytes::from_static(bytes);
        assert_eq!(decode_upward(of(&[2, 3])), Err(NotAMessage::Version(2)));
        assert_eq!(decode_downward(of(&[0, 16])), Err(NotAMessage::Version(0)));
        assert_eq!(decode_upward(of(&[1, 16])), Err(NotAMessage::Kind(16)));
        assert_eq!(decode_downward(of(&[1, 3])), Err(NotAMessage::Kind(3)));
        assert_eq!(decode_upward(of(&[1, 3, 0])), Err(NotAMessage::Fields));
        assert_eq!(decode_downward(of(&[1, 20, 0])), Err(NotAMessage::Fields));
        assert_eq!(decode_downward(of(&[1, 17, 2])), Err(NotAMessage::Fields));
    }

    fn requests() -> impl Strategy<Value = Request> {
        let bytes = || proptest::collection::vec(any::<u8>(), 0..40).prop_map(Bytes::from);
        prop_oneof![
            (any::<u64>(), any::<u64>(), bytes())
                .prop_map(|(file, offset, bytes)| Request::Piece { file, offset, bytes }),
            (any::<u64>(), bytes())
                .prop_map(|(position, bytes)| Request::Batch { position, bytes }),
            (0..=Age::MAX.get())
                .prop_map(|age| Request::Whole { age: Age::new(age).expect("in range") }),
        ]
    }

    proptest! {
        #[test]
        fn every_request_comes_back(number in any::<u64>(), request in requests()) {
            let message = Downward::Request(Number(number), request);
            prop_assert_eq!(decode_downward(downward(&message)), Ok(message));
        }

        #[test]
        fn every_answer_comes_back(number in any::<u64>(), journal in any::<u128>()) {
            for message in [
                Upward::Durable(Number(number)),
                Upward::Register { journal: JournalUid(journal) },
                Upward::InSync,
            ] {
                prop_assert_eq!(decode_upward(upward(&message)), Ok(message));
            }
        }

        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..60)) {
            let bytes = Bytes::from(bytes);
            let _upward = decode_upward(bytes.clone());
            let _downward = decode_downward(bytes);
        }
    }
}
