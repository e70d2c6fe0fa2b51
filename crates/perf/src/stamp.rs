//! What a message says of itself, in the first bytes of its body.
//!
//! ```text
//!  size ≥ 16   [sent: u64, ns since 1970][id: u64]
//!  size ≥ 8    [id: u64]
//!  id          [run: 12 bits][publisher: 12 bits][number: 40 bits]
//! ```

use std::time::SystemTime;

/// Which message it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Id {
    /// Which run sent it, below 4096.
    pub run: u16,
    /// Which publisher, below 4096.
    pub publisher: u16,
    /// Counts from 0, below 2^40.
    pub number: u64,
}

const NUMBER_BITS: u32 = 40;

impl Id {
    /// As eight bytes.
    pub fn pack(self) -> u64 {
        u64::from(self.run) << 52
            | u64::from(self.publisher) << NUMBER_BITS
            | self.number & ((1 << NUMBER_BITS) - 1)
    }

    /// From eight bytes.
    pub fn unpack(packed: u64) -> Self {
        let twelve = |value: u64| u16::try_from(value & 0xfff).expect("twelve bits");
        Self {
            run: twelve(packed >> 52),
            publisher: twelve(packed >> NUMBER_BITS),
            number: packed & ((1 << NUMBER_BITS) - 1),
        }
    }
}

/// Writes as much as fits.
#[inline]
pub fn write(body: &mut [u8], sent: u64, id: u64) {
    if let Some(place) = body.first_chunk_mut::<16>() {
        *place = (u128::from(sent) << 64 | u128::from(id)).to_be_bytes();
    } else if let Some(place) = body.first_chunk_mut::<8>() {
        *place = id.to_be_bytes();
    }
}

/// Reads what [`write()`] wrote: when it was sent, and which message it is.
#[inline]
pub fn read(body: &[u8]) -> (Option<u64>, Option<u64>) {
    if let Some(both) = body.first_chunk::<16>() {
        let both = u128::from_be_bytes(*both);
        let low = u64::try_from(both & u128::from(u64::MAX)).expect("masked");
        (u64::try_from(both >> 64).ok(), Some(low))
    } else {
        (None, body.first_chunk::<8>().map(|id| u64::from_be_bytes(*id)))
    }
}

/// Nanoseconds since 1970, so that publishers and consumers may be different processes.
#[inline]
pub fn now() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0, |since| u64::try_from(since.as_nanos()).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_trip() {
        let id = Id { run: 4095, publisher: 7, number: (1 << 40) - 1 };
        assert_eq!(Id::unpack(id.pack()), id);
        for (size, expected) in [
            (7, (None, None)),
            (8, (None, Some(id.pack()))),
            (15, (None, Some(id.pack()))),
            (16, (Some(99), Some(id.pack()))),
            (1024, (Some(99), Some(id.pack()))),
        ] {
            let mut body = vec![0; size];
            write(&mut body, 99, id.pack());
            assert_eq!(read(&body), expected, "size {size}");
        }
    }
}
