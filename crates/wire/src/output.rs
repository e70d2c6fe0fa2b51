//! What is waiting to be sent: small pieces gathered in one buffer, large bodies as shared chunks.
//!
//! ```text
//!  chunks   [heads …][body, shared][end, heads …][body, shared]   tail [still being written]
//! ```

use bytes::{Buf, Bytes, BytesMut};
use std::collections::VecDeque;
use std::io::IoSlice;

/// Bodies up to this length are copied: below it the copy is cheaper than one more element in a
/// vectored write.
pub const COPY_MAX: usize = 8 * 1024;

/// An output queue. Read it as a [`Buf`]; vectored writes see every chunk.
#[derive(Debug, Default)]
pub struct Output {
    chunks: VecDeque<Bytes>,
    chunks_len: usize,
    tail: BytesMut,
}

impl Output {
    /// An empty output.
    pub fn new() -> Self {
        Self::default()
    }

    /// Bytes that are waiting.
    pub fn len(&self) -> usize {
        self.chunks_len + self.tail.len()
    }

    /// Whether nothing is waiting.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Where small things are appended.
    #[inline]
    pub fn tail(&mut self) -> &mut BytesMut {
        &mut self.tail
    }

    /// Appends bytes: copied if short, shared if long.
    #[inline]
    pub fn push(&mut self, bytes: Bytes) {
        if bytes.len() <= COPY_MAX {
            self.tail.extend_from_slice(&bytes);
        } else {
            self.push_shared(bytes);
        }
    }

    fn push_shared(&mut self, bytes: Bytes) {
        if !self.tail.is_empty() {
            let tail = self.tail.split().freeze();
            self.chunks_len += tail.len();
            self.chunks.push_back(tail);
        }
        self.chunks_len += bytes.len();
        self.chunks.push_back(bytes);
    }

    /// Forgets everything that is waiting.
    pub fn clear(&mut self) {
        self.chunks.clear();
        self.chunks_len = 0;
        self.tail.clear();
    }
}

impl Buf for Output {
    fn remaining(&self) -> usize {
        self.len()
    }

    fn chunk(&self) -> &[u8] {
        self.chunks.front().map_or(&self.tail[..], |chunk| &chunk[..])
    }

    fn chunks_vectored<'a>(&'a self, slices: &mut [IoSlice<'a>]) -> usize {
        let tail = (!self.tail.is_empty()).then_some(&self.tail[..]);
        let all = self.chunks.iter().map(|chunk| &chunk[..]).chain(tail);
        let mut count = 0;
        for (slot, chunk) in slices.iter_mut().zip(all) {
            *slot = IoSlice::new(chunk);
            count += 1;
        }
        count
    }

    fn advance(&mut self, mut count: usize) {
        assert!(count <= self.len(), "more was sent than was waiting");
        while let Some(front) = self.chunks.front_mut() {
            if count < front.len() {
                front.advance(count);
                self.chunks_len -= count;
                return;
            }
            count -= front.len();
            self.chunks_len -= front.len();
            self.chunks.pop_front();
        }
        if count == self.tail.len() {
            // keeps the buffer from its beginning, which `advance` would not
            self.tail.clear();
        } else {
            self.tail.advance(count);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Whatever the pieces and however they are sent, the bytes come out in order.
        #[test]
        fn bytes_come_out_in_order(
            pieces in prop::collection::vec((0..3 * COPY_MAX, any::<bool>()), 0..12),
            steps in prop::collection::vec(1..40_000_usize, 1..8),
        ) {
            let mut output = Output::new();
            let mut expected = Vec::new();
            let mut next = 0_u8;
            for (length, small) in pieces {
                let piece: Vec<u8> = (0..length).map(|_| { next = next.wrapping_add(31); next }).collect();
                expected.extend_from_slice(&piece);
                if small {
                    output.tail().extend_from_slice(&piece);
                } else {
                    output.push(piece.into());
                }
            }
            prop_assert_eq!(output.len(), expected.len());
            let mut sent = Vec::new();
            for step in steps.iter().cycle() {
                let mut slices = [IoSlice::new(&[]); 4];
                let count = output.chunks_vectored(&mut slices);
                let front: Vec<u8> =
                    slices[..count].iter().flat_map(|slice| slice.iter().copied()).collect();
                let step = (*step).min(front.len());
                sent.extend_from_slice(&front[..step]);
                output.advance(step);
                if output.is_empty() {
                    break;
                }
            }
            prop_assert_eq!(sent, expected);
        }
    }
}
