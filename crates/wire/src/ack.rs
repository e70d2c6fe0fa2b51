//! `basic.ack`, `basic.nack` and `basic.reject`, in both directions.
//!
//! ```text
//!  ack      [60][80][delivery tag: u64][bits: u8]    1 multiple
//!  reject   [60][90][delivery tag: u64][bits: u8]    1 requeue
//!  nack     [60][120][delivery tag: u64][bits: u8]   1 multiple, 2 requeue
//! ```

use crate::frame::{END, HEADER_LEN, Kind, OVERHEAD};
use bytes::{BufMut, BytesMut};

/// A settlement by a consumer, or a confirm by the broker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Settlement {
    /// `basic.ack`
    Ack {
        /// Which message.
        delivery_tag: u64,
        /// And all before it; with tag 0, all there are.
        multiple: bool,
    },
    /// `basic.nack`
    Nack {
        /// Which message.
        delivery_tag: u64,
        /// And all before it; with tag 0, all there are.
        multiple: bool,
        /// Back to the queue.
        requeue: bool,
    },
    /// `basic.reject`
    Reject {
        /// Which message.
        delivery_tag: u64,
        /// Back to the queue.
        requeue: bool,
    },
}

const PAYLOAD: usize = 13;

/// Reads the payload of a method frame; `None` if it is not one of these three, or not exactly as
/// long as they are.
#[inline]
pub fn parse(payload: &[u8]) -> Option<Settlement> {
    let &[0, 60, 0, method, t0, t1, t2, t3, t4, t5, t6, t7, bits] =
        <&[u8; PAYLOAD]>::try_from(payload).ok()?
    else {
        return None;
    };
    let delivery_tag = u64::from_be_bytes([t0, t1, t2, t3, t4, t5, t6, t7]);
    let (first, second) = (bits & 1 != 0, bits & 2 != 0);
    match method {
        80 => Some(Settlement::Ack { delivery_tag, multiple: first }),
        90 => Some(Settlement::Reject { delivery_tag, requeue: first }),
        120 => Some(Settlement::Nack { delivery_tag, multiple: first, requeue: second }),
        _ => None,
    }
}

/// Writes the method frame.
#[inline]
pub fn write(out: &mut BytesMut, channel: u16, settlement: Settlement) {
    let (method, tag, bits) = match settlement {
        Settlement::Ack { delivery_tag, multiple } => (80, delivery_tag, u8::from(multiple)),
        Settlement::Reject { delivery_tag, requeue } => (90, delivery_tag, u8::from(requeue)),
        Settlement::Nack { delivery_tag, multiple, requeue } => {
            (120, delivery_tag, u8::from(multiple) | u8::from(requeue) << 1)
        }
    };
    let [c0, c1] = channel.to_be_bytes();
    let mut frame = [0; PAYLOAD + OVERHEAD];
    frame[..HEADER_LEN + 4].copy_from_slice(&[
        Kind::Method as u8,
        c0,
        c1,
        0,
        0,
        0,
        13,
        0,
        60,
        0,
        method,
    ]);
    frame[HEADER_LEN + 4..HEADER_LEN + 12].copy_from_slice(&tag.to_be_bytes());
    frame[HEADER_LEN + 12] = bits;
    frame[HEADER_LEN + 13] = END;
    out.put_slice(&frame);
}

#[cfg(test)]
mod tests;
