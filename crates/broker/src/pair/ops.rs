//! The journal's operations as bytes, for the other copy.
//!
//! ```text
//!  operation*      numbers little-endian
//!    1 put         stream u64 · seq u64 · class u8 · head (length u8 · bytes) · payload (length u32 · bytes)
//!    2 note        stream u64 · seq u64 · head
//!    3 release     stream u64 · first u64 · last u64
//!    4 drop        stream u64
//! ```

use bytes::{Buf, BufMut, Bytes, BytesMut};
use journal::op::{Class, Head, Op, Payload};
use model::id::{Seq, StreamId};

/// Bytes that are no operations of this version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("operations of a journal that this version does not know")]
pub(crate) struct Malformed;

/// The bytes that an operation takes, about.
pub(crate) fn weight(op: &Op) -> usize {
    match op {
        Op::Put { payload, .. } => 48 + payload.len(),
        Op::Note { .. } | Op::Release { .. } | Op::Drop { .. } => 48,
    }
}

/// Writes one.
pub(crate) fn encode(op: &Op, out: &mut BytesMut) {
    match op {
        Op::Put { stream, seq, class, head, payload } => {
            out.put_u8(1);
            out.put_u64_le(stream.0);
            out.put_u64_le(seq.0);
            out.put_u8(match class {
                Class::Bulk => 0,
                Class::Vital => 1,
            });
            put_head(head, out);
            out.put_u32_le(u32::try_from(payload.len()).expect("a payload is below 1 GiB"));
            match payload {
                Payload::Message(message) => message.encode_into(out),
                Payload::Bytes(bytes) => out.put_slice(bytes),
                Payload::Shared(shared) => shared.message().encode_into(out),
            }
        }
        Op::Note { stream, seq, bytes } => {
            out.put_u8(2);
            out.put_u64_le(stream.0);
            out.put_u64_le(seq.0);
            put_head(bytes, out);
        }
        Op::Release { stream, first, last } => {
            out.put_u8(3);
            out.put_u64_le(stream.0);
            out.put_u64_le(first.0);
            out.put_u64_le(last.0);
        }
        Op::Drop { stream } => {
            out.put_u8(4);
            out.put_u64_le(stream.0);
        }
    }
}

/// Reads all that there are. Payloads share the buffer.
///
/// # Errors
/// If they are something else.
pub(crate) fn decode(mut bytes: Bytes) -> Result<Vec<Op>, Malformed> {
    let mut ops = Vec::new();
    while bytes.has_remaining() {
        let kind = bytes.get_u8();
        let stream = StreamId(number(&mut bytes)?);
        ops.push(match kind {
            1 => {
                let seq = Seq(number(&mut bytes)?);
                let class = match bytes.try_get_u8() {
                    Ok(0) => Class::Bulk,
                    Ok(1) => Class::Vital,
                    _ => return Err(Malformed),
                };
                let head = head(&mut bytes)?;
                let length = bytes.try_get_u32_le().map_err(|_| Malformed)? as usize;
                if length > bytes.len() || length >= Op::PAYLOAD_MAX {
                    return Err(Malformed);
                }
                let payload = Payload::Bytes(bytes.split_to(length));
                Op::Put { stream, seq, class, head, payload }
            }
            2 => Op::Note { stream, seq: Seq(number(&mut bytes)?), bytes: head(&mut bytes)? },
            3 => {
                let (first, last) = (Seq(number(&mut bytes)?), Seq(number(&mut bytes)?));
                if first > last {
                    return Err(Malformed);
                }
                Op::Release { stream, first, last }
            }
            4 => Op::Drop { stream },
            _ => return Err(Malformed),
        });
    }
    Ok(ops)
}

fn put_head(head: &Head, out: &mut BytesMut) {
    let bytes = head.as_slice();
    out.put_u8(u8::try_from(bytes.len()).expect("heads are short"));
    out.put_slice(bytes);
}

fn head(bytes: &mut Bytes) -> Result<Head, Malformed> {
    let length = usize::from(bytes.try_get_u8().map_err(|_| Malformed)?);
    if length > Head::MAX || length > bytes.len() {
        return Err(Malformed);
    }
    Ok(Head::new(&bytes.split_to(length)))
}

fn number(bytes: &mut Bytes) -> Result<u64, Malformed> {
    bytes.try_get_u64_le().map_err(|_| Malformed)
}

#[cfg(test)]
mod tests {
    use model::message::Message;
    use proptest::prelude::*;

    use super::*;

    fn written(ops: &[Op]) -> Bytes {
        let mut out = BytesMut::new();
        for op in ops {
            encode(op, &mut out);
        }
        out.freeze()
    }

    fn ops() -> impl Strategy<Value = Op> {
        let bytes = |most| proptest::collection::vec(any::<u8>(), 0..most);
        let put = (any::<u64>(), any::<u64>(), any::<bool>(), bytes(Head::MAX), bytes(60));
        prop_oneof![
            put.prop_map(|(stream, seq, vital, head, payload)| Op::Put {
                stream: StreamId(stream),
                seq: Seq(seq),
                class: if vital { Class::Vital } else { Class::Bulk },
                head: Head::new(&head),
                payload: Payload::Bytes(payload.into()),
            }),
            (any::<u64>(), any::<u64>(), bytes(Head::MAX)).prop_map(|(stream, seq, head)| {
                Op::Note { stream: StreamId(stream), seq: Seq(seq), bytes: Head::new(&head) }
            }),
            (any::<u64>(), any::<u64>(), 0..9_u64).prop_map(|(stream, first, more)| Op::Release {
                stream: StreamId(stream),
                first: Seq(first),
                last: Seq(first.saturating_add(more)),
            }),
            any::<u64>().prop_map(|stream| Op::Drop { stream: StreamId(stream) }),
        ]
    }

    #[test]
    fn messages_come_in_their_storage_form() {
        let message = Message::from_parts("e", "k", &[0, 0], b"body");
        let mut stored = BytesMut::new();
        message.encode_into(&mut stored);
        let (stream, seq, class, head) = (StreamId(7), Seq(3), Class::Bulk, Head::new(b"h"));
        let put = Op::Put { stream, seq, class, head, payload: Payload::Message(message) };
        let [Op::Put { payload: Payload::Bytes(bytes), .. }] =
            &decode(written(&[put])).unwrap()[..]
        else {
            panic!("one put")
        };
        assert_eq!(*bytes, stored);
    }

    proptest! {
        #[test]
        fn every_operation_comes_back(ops in proptest::collection::vec(ops(), 0..9)) {
            let bytes = written(&ops);
            let read = decode(bytes.clone()).unwrap();
            prop_assert_eq!(read.len(), ops.len());
            prop_assert_eq!(written(&read), bytes);
        }

        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
            let _result_does_not_matter = decode(bytes.into());
        }

        /// What is cut off is seen, unless the cut is between two of them.
        #[test]
        fn a_cut_is_seen(op in ops(), cut in 1..40_usize) {
            let bytes = written(&[op]);
            prop_assume!(cut < bytes.len());
            prop_assert_eq!(decode(bytes.slice(..bytes.len() - cut)).map(|_| ()), Err(Malformed));
        }
    }
}
