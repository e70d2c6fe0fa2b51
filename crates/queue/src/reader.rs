//! Numbers as bytes: seven bits in each byte, the lowest first, the top bit set if more follow.

use model::time::{Millis, Timestamp};

use crate::malformed::Malformed;

/// Writes a number.
pub(crate) fn put(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value.to_le_bytes()[0] | 0x80);
        value >>= 7;
    }
    out.push(value.to_le_bytes()[0]);
}

/// Writes how far a number is from another one, in few bytes if that is not far.
pub(crate) fn put_from(out: &mut Vec<u8>, from: u64, value: u64) {
    let distance = value.wrapping_sub(from).cast_signed();
    put(out, ((distance << 1) ^ (distance >> 63)).cast_unsigned());
}

/// Writes a number that is mostly not far from zero.
pub(crate) fn put_signed(out: &mut Vec<u8>, value: i64) {
    put_from(out, 0, value.cast_unsigned());
}

/// Writes a count.
pub(crate) fn put_len(out: &mut Vec<u8>, len: usize) {
    put(out, len as u64);
}

/// Takes numbers from the front of bytes.
pub(crate) struct Reader<'a> {
    left: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { left: bytes }
    }

    pub(crate) fn byte(&mut self) -> Result<u8, Malformed> {
        let (byte, left) = self.left.split_first().ok_or(Malformed::Ended)?;
        self.left = left;
        Ok(*byte)
    }

    /// A byte in which only `known` bits may be set.
    pub(crate) fn flags(&mut self, known: u8) -> Result<u8, Malformed> {
        let flags = self.byte()?;
        if flags & !known == 0 { Ok(flags) } else { Err(Malformed::Flags(flags)) }
    }

    pub(crate) fn bytes(&mut self, len: usize) -> Result<&'a [u8], Malformed> {
        let (bytes, left) = self.left.split_at_checked(len).ok_or(Malformed::Ended)?;
        self.left = left;
        Ok(bytes)
    }

    pub(crate) fn take(&mut self) -> Result<u64, Malformed> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            if bits << shift >> shift != bits {
                break;
            }
            value |= bits << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(Malformed::Value("a number is too large"))
    }

    /// What [`put_from`] wrote.
    pub(crate) fn take_from(&mut self, from: u64) -> Result<u64, Malformed> {
        let folded = self.take()?;
        Ok(from.wrapping_add((folded >> 1) ^ (folded & 1).wrapping_neg()))
    }

    pub(crate) fn signed(&mut self) -> Result<i64, Malformed> {
        Ok(self.take_from(0)?.cast_signed())
    }

    /// A number of a smaller type.
    pub(crate) fn small<T: TryFrom<u64>>(&mut self) -> Result<T, Malformed> {
        T::try_from(self.take()?).map_err(|_| Malformed::Value("a number is too large"))
    }

    pub(crate) fn timestamp(&mut self) -> Result<Timestamp, Malformed> {
        self.take().map(Timestamp)
    }

    pub(crate) fn millis(&mut self) -> Result<Millis, Malformed> {
        self.take().map(Millis)
    }

    /// Nothing may be left.
    pub(crate) fn end(&self) -> Result<(), Malformed> {
        if self.left.is_empty() { Ok(()) } else { Err(Malformed::Length(self.left.len())) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_come_back() {
        let mut numbers = vec![0, u64::MAX];
        for shift in 0..64 {
            numbers.extend([(1 << shift) - 1, 1 << shift, (1 << shift) + 1]);
        }
        let mut out = Vec::new();
        for &number in &numbers {
            put(&mut out, number);
            put_from(&mut out, 1 << 40, number);
            put_signed(&mut out, number.cast_signed());
        }
        let mut reader = Reader::new(&out);
        for &number in &numbers {
            assert_eq!(reader.take(), Ok(number));
            assert_eq!(reader.take_from(1 << 40), Ok(number));
            assert_eq!(reader.signed(), Ok(number.cast_signed()));
        }
        assert_eq!(reader.end(), Ok(()));
        assert_eq!(reader.take(), Err(Malformed::Ended));
    }

    #[test]
    fn near_numbers_take_one_byte() {
        for number in 1_000_000 - 64..1_000_000 + 64 {
            let mut out = Vec::new();
            put_from(&mut out, 1_000_000, number);
            assert_eq!(out.len(), 1);
        }
    }

    #[test]
    fn more_than_64_bits_are_refused() {
        let mut bytes = [0xff; 10];
        bytes[9] = 2;
        assert_eq!(Reader::new(&bytes).take(), Err(Malformed::Value("a number is too large")));
        assert!(Reader::new(&[0x80; 11]).take().is_err());
        assert_eq!(Reader::new(&[0x80; 9]).take(), Err(Malformed::Ended));
        assert_eq!(Reader::new(&[1, 2]).end(), Err(Malformed::Length(2)));
    }
}
