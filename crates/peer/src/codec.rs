//! Reading and writing the fields of a handshake.

use bytes::{BufMut, BytesMut};

pub(crate) fn put_text(out: &mut BytesMut, text: &str) {
    put_bytes(out, text.as_bytes());
}

pub(crate) fn put_bytes(out: &mut BytesMut, bytes: &[u8]) {
    out.put_u32(u32::try_from(bytes.len()).expect("fields are bounded when they are made"));
    out.put_slice(bytes);
}

/// Reads fields one after the other; `None` once something is missing or too long.
#[derive(Debug)]
pub(crate) struct Reader<'a>(pub(crate) &'a [u8]);

impl<'a> Reader<'a> {
    pub(crate) fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }

    pub(crate) fn u8(&mut self) -> Option<u8> {
        self.array().map(u8::from_be_bytes)
    }

    pub(crate) fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_be_bytes)
    }

    pub(crate) fn bytes(&mut self, max: usize) -> Option<&'a [u8]> {
        let count = usize::try_from(u32::from_be_bytes(self.array()?)).ok()?;
        if count > max { None } else { self.take(count) }
    }

    pub(crate) fn text(&mut self, max: usize) -> Option<&'a str> {
        std::str::from_utf8(self.bytes(max)?).ok()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
