//! The state file of a journal, as bytes.
//!
//! ```text
//!  offset  bytes
//!       0      4  "LVAS"
//!       4      1  version: 1
//!       5      1  standing: 0 none, 1 valid, 2 syncing, 3 marked
//!       6      1  mark: 0 none, 1 reincarnated, 2 damaged, 3 by an operator
//!       7      1  1 if there is an age
//!       8     16  the journal's uid
//!      24      8  the age, big-endian
//!      32      8  1 if there is an incarnation
//!      40      8  the incarnation of the register's data set
//!      48      4  CRC-32 of all before it
//! ```
//!
//! The file is replaced as a whole and never changed in place, so that it has one of two contents
//! at any time. What is not exactly such a file is damaged, which is an operator's business; it is
//! never taken for a file that is not there.

use std::fmt;

use crate::age::Age;
use crate::register::Incarnation;
use crate::standing::{Mark, Record, Standing};

/// The length of a state file of this version.
pub const LENGTH: usize = 52;

const MAGIC: [u8; 4] = *b"LVAS";
const VERSION: u8 = 1;

/// Names a journal for ever: drawn at random when it is created.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct JournalUid(pub u128);

/// Why bytes are not a state file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotAStateFile {
    /// It has another length.
    Length(usize),
    /// It does not begin as one.
    Magic,
    /// It was written by another version.
    Version(u8),
    /// Its checksum is wrong.
    Checksum,
    /// Its checksum is right and its fields make no sense.
    Fields,
    /// It is another journal's.
    Journal(JournalUid),
}

/// Writes a state file.
pub fn encode(journal: JournalUid, record: &Record) -> [u8; LENGTH] {
    let (standing, mark, age) = match record.standing {
        Standing::Empty => (0, 0, None),
        Standing::Valid(age) => (1, 0, Some(age)),
        Standing::Syncing => (2, 0, None),
        Standing::Marked(mark, age) => (3, mark_number(mark), age),
    };
    let incarnation = record.incarnation;
    let mut out = [0; LENGTH];
    out[..4].copy_from_slice(&MAGIC);
    out[4..8].copy_from_slice(&[VERSION, standing, mark, u8::from(age.is_some())]);
    out[8..24].copy_from_slice(&journal.0.to_be_bytes());
    out[24..32].copy_from_slice(&age.map_or(0, Age::get).to_be_bytes());
    out[32..40].copy_from_slice(&u64::from(incarnation.is_some()).to_be_bytes());
    out[40..48].copy_from_slice(&incarnation.map_or(0, |one| one.0).to_be_bytes());
    let checksum = crc32fast::hash(&out[..48]);
    out[48..].copy_from_slice(&checksum.to_be_bytes());
    out
}

/// Reads a state file of the journal.
///
/// # Errors
/// If it is anything else. The copy beside it is held until an operator decides.
pub fn decode(journal: JournalUid, bytes: &[u8]) -> Result<Record, NotAStateFile> {
    let (found, record) = decode_any(bytes)?;
    if found == journal { Ok(record) } else { Err(NotAStateFile::Journal(found)) }
}

/// Reads a state file of any journal.
///
/// # Errors
/// If it is anything else.
pub fn decode_any(bytes: &[u8]) -> Result<(JournalUid, Record), NotAStateFile> {
    if bytes.get(..4) != Some(&MAGIC[..]) {
        return Err(if bytes.len() < 4 {
            NotAStateFile::Length(bytes.len())
        } else {
            NotAStateFile::Magic
        });
    }
    if let Some(version) = bytes.get(4).filter(|version| **version != VERSION) {
        return Err(NotAStateFile::Version(*version));
    }
    let bytes: &[u8; LENGTH] = bytes.try_into().map_err(|_| NotAStateFile::Length(bytes.len()))?;
    let number = |from: usize| {
        u64::from_be_bytes(*bytes[from..].first_chunk().expect("the offsets lie within"))
    };
    let checksum = u32::from_be_bytes(*bytes.last_chunk().expect("it is long enough"));
    if checksum != crc32fast::hash(&bytes[..48]) {
        return Err(NotAStateFile::Checksum);
    }
    let fields = NotAStateFile::Fields;
    let age = match (bytes[7], number(24)) {
        (0, 0) => None,
        (1, age) => Some(Age::new(age).ok_or(fields)?),
        _ => return Err(fields),
    };
    let standing = match (bytes[5], bytes[6], age) {
        (0, 0, None) => Standing::Empty,
        (1, 0, Some(age)) => Standing::Valid(age),
        (2, 0, None) => Standing::Syncing,
        (3, mark, age) => Standing::Marked(mark_of(mark).ok_or(fields)?, age),
        _ => return Err(fields),
    };
    let incarnation = match (number(32), number(40)) {
        (0, 0) => None,
        (1, incarnation) => Some(Incarnation(incarnation)),
        _ => return Err(fields),
    };
    let journal = u128::from_be_bytes(*bytes[8..].first_chunk().expect("the offsets lie within"));
    Ok((JournalUid(journal), Record { standing, incarnation }))
}

fn mark_number(mark: Mark) -> u8 {
    match mark {
        Mark::Reincarnated => 1,
        Mark::Damaged => 2,
        Mark::Operator => 3,
    }
}

fn mark_of(number: u8) -> Option<Mark> {
    match number {
        1 => Some(Mark::Reincarnated),
        2 => Some(Mark::Damaged),
        3 => Some(Mark::Operator),
        _ => None,
    }
}

impl fmt::Display for JournalUid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl fmt::Display for NotAStateFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Length(bytes) => {
                write!(f, "the state file has {bytes} bytes, and one of this version has {LENGTH}")
            }
            Self::Magic => f.write_str("the file does not begin as a state file does"),
            Self::Version(version) => {
                write!(f, "the state file has version {version}, and this node knows {VERSION}")
            }
            Self::Checksum => f.write_str("the checksum of the state file is wrong"),
            Self::Fields => f.write_str("the state file says what none can say"),
            Self::Journal(journal) => write!(f, "the state file is that of journal {journal}"),
        }
    }
}

impl std::error::Error for NotAStateFile {}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const JOURNAL: JournalUid = JournalUid(0x0123_4567_89ab_cdef_0011_2233_4455_6677);

    fn records() -> impl Strategy<Value = Record> {
        let age = (0..=Age::MAX.get()).prop_map(|age| Age::new(age).expect("it is in range"));
        let mark = prop_oneof![Just(Mark::Reincarnated), Just(Mark::Damaged), Just(Mark::Operator)];
        let standing = prop_oneof![
            Just(Standing::Empty),
            age.clone().prop_map(Standing::Valid),
            Just(Standing::Syncing),
            (mark, proptest::option::of(age)).prop_map(|(mark, age)| Standing::Marked(mark, age)),
        ];
        let incarnation = proptest::option::of(any::<u64>().prop_map(Incarnation));
        (standing, incarnation).prop_map(|(standing, incarnation)| Record { standing, incarnation })
    }

    /// Files of this version stay readable.
    #[test]
    fn the_format_is_as_it_was() {
        let standing = Standing::Valid(Age::new(5).unwrap());
        let record = Record { standing, incarnation: Some(Incarnation(9)) };
        let bytes: Vec<_> =
            encode(JOURNAL, &record).iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(
            bytes.concat(),
            "4c56415301010001\
             0123456789abcdef0011223344556677\
             0000000000000005\
             00000000000000010000000000000009\
             9c754d44"
        );
    }

    #[test]
    fn what_is_no_state_file_is_named() {
        let good = encode(JOURNAL, &Record::NONE);
        let damaged = |at: usize, byte: u8| {
            let mut bytes = good;
            bytes[at] = byte;
            decode(JOURNAL, &bytes)
        };
        assert_eq!(decode(JOURNAL, &[]), Err(NotAStateFile::Length(0)));
        assert_eq!(decode(JOURNAL, &good[..20]), Err(NotAStateFile::Length(20)));
        assert_eq!(damaged(0, b'X'), Err(NotAStateFile::Magic));
        assert_eq!(damaged(4, 2), Err(NotAStateFile::Version(2)));
        assert_eq!(damaged(30, 1), Err(NotAStateFile::Checksum));
        assert_eq!(decode(JournalUid(1), &good), Err(NotAStateFile::Journal(JOURNAL)));
        let mut senseless = good;
        senseless[5] = 9;
        let checksum = crc32fast::hash(&senseless[..48]);
        senseless[48..].copy_from_slice(&checksum.to_be_bytes());
        assert_eq!(decode(JOURNAL, &senseless), Err(NotAStateFile::Fields));
    }

    proptest! {
        #[test]
        fn every_record_comes_back(record in records()) {
            prop_assert_eq!(decode(JOURNAL, &encode(JOURNAL, &record)), Ok(record));
        }

        /// Cut anywhere or with any bit turned, it is an error and never another record.
        #[test]
        fn damage_is_seen(record in records(), at in 0..LENGTH, bit in 0..8, cut in 0..LENGTH) {
            let mut bytes = encode(JOURNAL, &record);
            bytes[at] ^= 1_u8 << bit;
            prop_assert!(decode(JOURNAL, &bytes).is_err());
            prop_assert!(decode(JOURNAL, &encode(JOURNAL, &record)[..cut]).is_err());
        }

        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
            let _result_does_not_matter = decode_any(&bytes);
        }
    }
}
