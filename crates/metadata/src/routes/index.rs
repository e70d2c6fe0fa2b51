//! Persistent indexes by name.

use std::hash::{BuildHasherDefault, Hasher};

use imbl::shared_ptr::DefaultSharedPtr;

use crate::objects::Name;

/// A persistent hash map by name. The hash is fixed, so that runs repeat exactly, and cheap: a
/// lookup happens for every message.
pub(crate) type Index<V> =
    imbl::GenericHashMap<Name, V, BuildHasherDefault<NameHasher>, DefaultSharedPtr>;

/// Multiply and rotate over words of eight bytes, mixed at the end since the map takes the low
/// bits first.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct NameHasher(u64);

const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;

impl Hasher for NameHasher {
    fn finish(&self) -> u64 {
        mix(self.0)
    }

    fn write(&mut self, bytes: &[u8]) {
        let mut words = bytes.chunks_exact(8);
        for word in &mut words {
            let word = u64::from_le_bytes(word.try_into().expect("eight bytes"));
            self.0 = (self.0 ^ word).wrapping_mul(FACTOR).rotate_left(29);
        }
        let rest = words.remainder();
        if !rest.is_empty() {
            let mut word = [0; 8];
            word[..rest.len()].copy_from_slice(rest);
            self.0 = (self.0 ^ u64::from_le_bytes(word)).wrapping_mul(FACTOR).rotate_left(29);
        }
        self.0 = self.0.wrapping_add(bytes.len() as u64);
    }

    fn write_u8(&mut self, byte: u8) {
        self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(FACTOR);
    }
}

/// Spreads every bit over all (the finalizer of splitmix64).
pub(crate) fn mix(mut word: u64) -> u64 {
    word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

/// The hash of a text, the same on every node and in every run.
pub(crate) fn hash(text: &str) -> u64 {
    let mut hasher = NameHasher::default();
    hasher.write(text.as_bytes());
    hasher.finish()
}
