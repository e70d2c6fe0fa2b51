//! The bytes on disk: segment header, records, index, trailer. Drawn in `docs/journal-format.md`.
//!
//! ```text
//! record   crc u32 · length u32 · kind u8 · head length u8 · flags u16 · extra u32     16 bytes
//!          put      stream u64 · seq u64 · head · payload
//!          body     payload                                (of puts that share it)
//!          ref      stream u64 · seq u64 · length u64 · head     extra: offset of the body
//!          note     stream u64 · seq u64 · head
//!          release  stream u64 · ranges                          extra: how many ranges
//!          drop     stream u64
//!          mark     end u32 · zero u32                           extra: synced up to this offset
//! ```
//!
//! All numbers are little-endian. `length` counts from the record's first byte; the next record
//! begins at the next multiple of eight. The checksum covers everything behind itself and starts
//! from [`seed`], which differs from generation to generation: bytes that a recycled segment holds
//! from an earlier life never pass.

use crate::op::Head;
use model::id::{Seq, StreamId};

/// The version that this program writes; it reads no other yet.
pub(crate) const VERSION: u32 = 1;
/// Where the first record of a segment stands.
pub(crate) const RECORDS_AT: u32 = 4096;
/// Where the second copy of the header stands: a sector of its own.
pub(crate) const SECOND_HEADER_AT: u64 = 512;
/// The trailer stands this far before the end of the file.
pub(crate) const TRAILER_SPACE: u64 = 512;
/// Bytes of an encoded segment header or trailer.
pub(crate) const BLOCK: usize = 64;
/// Bytes before a record's own fields.
pub(crate) const PREFIX: usize = 16;
/// Bytes of a put's record besides head and payload.
pub(crate) const PUT_PREFIX: usize = PREFIX + 16;
/// Bytes of a ref's record besides the head.
pub(crate) const REF_PREFIX: usize = PREFIX + 24;
/// Bytes of a mark's record.
pub(crate) const MARK: usize = PREFIX + 8;
/// Bytes of a release's record besides the ranges.
pub(crate) const RELEASE_PREFIX: usize = PREFIX + 8;

const LAYOUT: u8 = 1 << 4;
const SEGMENT_MAGIC: [u8; 8] = *b"LVTSEGMT";
const TRAILER_MAGIC: [u8; 8] = *b"LVTTRAIL";
const IDENTITY_MAGIC: [u8; 8] = *b"LVTJOURN";

/// A put whose payload was found damaged when it was carried over.
pub(crate) const FLAG_LOST: u16 = 1;

/// What a record is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Put = 1,
    Body = 2,
    Ref = 3,
    Note = 4,
    Release = 5,
    Drop = 6,
    Mark = 7,
}

/// The next multiple of eight.
pub(crate) const fn padded(length: usize) -> usize {
    (length + 7) & !7
}

/// The initial checksum of all records of one generation in one journal.
pub(crate) fn seed(uid: u64, generation: u64) -> u32 {
    ((uid ^ (uid >> 32)) as u32) ^ (generation as u32).wrapping_mul(0x9e37_79b1)
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(bytes[at..at + 2].try_into().expect("two bytes"))
}

pub(crate) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

fn checksum(seed: u32, bytes: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new_with_initial(seed);
    hasher.update(bytes);
    hasher.finalize()
}

// ---- records ------------------------------------------------------------------------------

/// Appends records to a buffer, each padded to eight bytes.
#[derive(Debug)]
pub(crate) struct Encoder<'a> {
    pub(crate) out: &'a mut Vec<u8>,
    pub(crate) seed: u32,
}

impl Encoder<'_> {
    fn begin(&mut self, kind: Kind, head_length: usize, flags: u16, extra: u32) -> usize {
        let start = self.out.len();
        let mut prefix = [0; PREFIX];
        prefix[8] = LAYOUT | kind as u8;
        prefix[9] = head_length as u8;
        prefix[10..12].copy_from_slice(&flags.to_le_bytes());
        prefix[12..16].copy_from_slice(&extra.to_le_bytes());
        self.out.extend_from_slice(&prefix);
        start
    }

    fn end(&mut self, start: usize) {
        let length = self.out.len() - start;
        let length_u32 = u32::try_from(length).expect("records stay below 1 GiB");
        self.out[start + 4..start + 8].copy_from_slice(&length_u32.to_le_bytes());
        let crc = checksum(self.seed, &self.out[start + 4..]);
        self.out[start..start + 4].copy_from_slice(&crc.to_le_bytes());
        self.out.resize(start + padded(length), 0);
    }

    fn named(
        &mut self,
        kind: Kind,
        name: (StreamId, Seq),
        head_length: usize,
        flags: u16,
        extra: u32,
    ) -> usize {
        let start = self.begin(kind, head_length, flags, extra);
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&name.0.0.to_le_bytes());
        bytes[8..].copy_from_slice(&name.1.0.to_le_bytes());
        self.out.extend_from_slice(&bytes);
        start
    }

    pub(crate) fn put(
        &mut self,
        name: (StreamId, Seq),
        head: &Head,
        flags: u16,
        payload: impl FnOnce(&mut Vec<u8>),
    ) {
        let head = head.as_slice();
        let start = self.named(Kind::Put, name, head.len(), flags, 0);
        self.out.extend_from_slice(head);
        payload(self.out);
        self.end(start);
    }

    pub(crate) fn body(&mut self, payload: impl FnOnce(&mut Vec<u8>)) {
        let start = self.begin(Kind::Body, 0, 0, 0);
        payload(self.out);
        self.end(start);
    }

    pub(crate) fn reference(
        &mut self,
        name: (StreamId, Seq),
        head: &Head,
        flags: u16,
        body_at: u32,
        body_length: u64,
    ) {
        let head = head.as_slice();
        let start = self.named(Kind::Ref, name, head.len(), flags, body_at);
        self.out.extend_from_slice(&body_length.to_le_bytes());
        self.out.extend_from_slice(head);
        self.end(start);
    }

    pub(crate) fn note(&mut self, name: (StreamId, Seq), head: &Head) {
        let head = head.as_slice();
        let start = self.named(Kind::Note, name, head.len(), 0, 0);
        self.out.extend_from_slice(head);
        self.end(start);
    }

    pub(crate) fn release(&mut self, stream: StreamId, count: u32, ranges: &[u8]) {
        let start = self.begin(Kind::Release, 0, 0, count);
        self.out.extend_from_slice(&stream.0.to_le_bytes());
        self.out.extend_from_slice(ranges);
        self.end(start);
    }

    pub(crate) fn drop_stream(&mut self, stream: StreamId) {
        let start = self.begin(Kind::Drop, 0, 0, 0);
        self.out.extend_from_slice(&stream.0.to_le_bytes());
        self.end(start);
    }

    pub(crate) fn mark(&mut self, synced: u32, end: u32) {
        let start = self.begin(Kind::Mark, 0, 0, synced);
        self.out.extend_from_slice(&u64::from(end).to_le_bytes());
        self.end(start);
    }
}

/// The fixed part of a record, checked for plausibility only.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Prefix {
    /// The checksum; in an index entry the record's offset.
    pub(crate) crc_or_offset: u32,
    pub(crate) length: u32,
    pub(crate) kind: Kind,
    pub(crate) head_length: u8,
    pub(crate) flags: u16,
    pub(crate) extra: u32,
}

impl Prefix {
    /// `None` if no record of this layout begins so.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let bytes = bytes.get(..PREFIX)?;
        let kind = match bytes[8] ^ LAYOUT {
            1 => Kind::Put,
            2 => Kind::Body,
            3 => Kind::Ref,
            4 => Kind::Note,
            5 => Kind::Release,
            6 => Kind::Drop,
            7 => Kind::Mark,
            _ => return None,
        };
        let prefix = Self {
            crc_or_offset: u32_at(bytes, 0),
            length: u32_at(bytes, 4),
            kind,
            head_length: bytes[9],
            flags: u16_at(bytes, 10),
            extra: u32_at(bytes, 12),
        };
        let head_fits = prefix.head_length as usize <= Head::MAX;
        let length_fits = match kind {
            Kind::Put | Kind::Body => prefix.length as usize >= prefix.index_length(),
            Kind::Ref | Kind::Note | Kind::Drop | Kind::Mark => {
                prefix.length as usize == prefix.index_length()
            }
            Kind::Release => prefix.length as usize >= RELEASE_PREFIX,
        };
        (head_fits && length_fits).then_some(prefix)
    }

    /// How many of the record's bytes its index entry repeats: all but the payload.
    pub(crate) fn index_length(&self) -> usize {
        let head = self.head_length as usize;
        match self.kind {
            Kind::Put => PUT_PREFIX + head,
            Kind::Body => PREFIX,
            Kind::Mark => MARK,
            Kind::Ref => REF_PREFIX + head,
            Kind::Note => PUT_PREFIX + head,
            Kind::Release => self.length as usize,
            Kind::Drop => PREFIX + 8,
        }
    }
}

/// Whether a whole record (without padding) is what was written in this generation.
pub(crate) fn is_intact(seed: u32, record: &[u8]) -> bool {
    record.len() >= PREFIX && u32_at(record, 0) == checksum(seed, &record[4..])
}

/// Gives a record the checksum that its bytes have.
pub(crate) fn mend(seed: u32, record: &mut [u8]) {
    let crc = checksum(seed, &record[4..]);
    record[..4].copy_from_slice(&crc.to_le_bytes());
}

/// A record as recovery and compaction see it: without its payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Entry<'a> {
    /// Where the record stands in its segment.
    pub(crate) offset: u32,
    /// Its length without padding.
    pub(crate) length: u32,
    /// What an index entry repeats; its first four bytes are the offset there.
    pub(crate) raw: &'a [u8],
    pub(crate) what: What<'a>,
}

/// The fields of a record by kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum What<'a> {
    Put { stream: StreamId, seq: Seq, head: &'a [u8], payload: u32, lost: bool },
    Body { payload: u32 },
    Ref { stream: StreamId, seq: Seq, head: &'a [u8], body_at: u32, payload: u32, lost: bool },
    Note { stream: StreamId, seq: Seq, head: &'a [u8] },
    Release { stream: StreamId, ranges: Ranges<'a> },
    Drop { stream: StreamId },
    Mark { synced: u32, end: u32 },
}

impl<'a> Entry<'a> {
    /// Decodes from a whole record or an index entry; both begin with the same fields.
    pub(crate) fn decode(offset: u32, prefix: &Prefix, bytes: &'a [u8]) -> Option<Self> {
        let bytes = bytes.get(..prefix.index_length())?;
        let stream = || StreamId(u64_at(bytes, PREFIX));
        let seq = || Seq(u64_at(bytes, PREFIX + 8));
        let head = &bytes[bytes.len() - prefix.head_length as usize..];
        let payload = prefix.length.saturating_sub(prefix.index_length() as u32);
        let lost = prefix.flags & FLAG_LOST != 0;
        let what = match prefix.kind {
            Kind::Put => What::Put { stream: stream(), seq: seq(), head, payload, lost },
            Kind::Body => What::Body { payload },
            Kind::Ref => What::Ref {
                stream: stream(),
                seq: seq(),
                head,
                body_at: prefix.extra,
                payload: u32::try_from(u64_at(bytes, PREFIX + 16)).ok()?,
                lost,
            },
            Kind::Note => What::Note { stream: stream(), seq: seq(), head },
            Kind::Release => What::Release {
                stream: stream(),
                ranges: Ranges { bytes: &bytes[RELEASE_PREFIX..], left: prefix.extra, end: 0 },
            },
            Kind::Drop => What::Drop { stream: stream() },
            Kind::Mark => What::Mark { synced: prefix.extra, end: u32_at(bytes, PREFIX) },
        };
        Some(Self { offset, length: prefix.length, raw: bytes, what })
    }
}

// ---- ranges of a release ------------------------------------------------------------------

/// The ranges of one release record, inclusive. Ends early if the bytes make no sense.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ranges<'a> {
    bytes: &'a [u8],
    left: u32,
    end: u64,
}

#[expect(
    clippy::copy_iterator,
    reason = "an entry is copied with its ranges, before they are used"
)]
impl Iterator for Ranges<'_> {
    type Item = (Seq, Seq);

    fn next(&mut self) -> Option<(Seq, Seq)> {
        if self.left == 0 {
            return None;
        }
        self.left -= 1;
        let gap = unzigzag(read_varint(&mut self.bytes)?);
        let more = read_varint(&mut self.bytes)?;
        let first = self.end.wrapping_add(gap as u64);
        let last = first.checked_add(more)?;
        self.end = last;
        Some((Seq(first), Seq(last)))
    }
}

/// Appends one range; `end` is the end of the range before (0 at first).
pub(crate) fn push_range(out: &mut Vec<u8>, end: u64, first: u64, last: u64) {
    push_varint(out, zigzag(first.wrapping_sub(end) as i64));
    push_varint(out, last - first);
}

/// The most bytes that [`push_range`] appends.
pub(crate) const RANGE_MAX: usize = 20;

fn zigzag(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)) as u64
}

fn unzigzag(value: u64) -> i64 {
    ((value >> 1) as i64) ^ -((value & 1) as i64)
}

fn push_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

fn read_varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (&byte, rest) = bytes.split_first()?;
        *bytes = rest;
        value |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Some(value);
        }
    }
    None
}

// ---- blocks -------------------------------------------------------------------------------

/// The header of a segment file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SegmentHeader {
    /// Whether it holds nothing that counts.
    pub(crate) free: bool,
    /// Its life: grows by one with each segment that becomes current, in log order.
    pub(crate) generation: u64,
    /// Length of the file.
    pub(crate) bytes: u64,
    /// Of the journal that it belongs to.
    pub(crate) uid: u64,
}

fn sealed_block(magic: [u8; 8], fields: impl FnOnce(&mut [u8])) -> [u8; BLOCK] {
    let mut block = [0; BLOCK];
    block[..8].copy_from_slice(&magic);
    block[8..12].copy_from_slice(&VERSION.to_le_bytes());
    fields(&mut block[12..BLOCK - 4]);
    let crc = checksum(0, &block[..BLOCK - 4]);
    block[BLOCK - 4..].copy_from_slice(&crc.to_le_bytes());
    block
}

/// The version of an intact block, whatever it is.
fn block_version(magic: [u8; 8], block: &[u8]) -> Option<u32> {
    let block = block.get(..BLOCK)?;
    let intact =
        block[..8] == magic && u32_at(block, BLOCK - 4) == checksum(0, &block[..BLOCK - 4]);
    intact.then(|| u32_at(block, 8))
}

/// Why a block cannot be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BadBlock {
    Damaged,
    /// It is intact and of a version that this program does not know.
    Version(u32),
}

impl SegmentHeader {
    pub(crate) fn encode(&self) -> [u8; BLOCK] {
        sealed_block(SEGMENT_MAGIC, |fields| {
            fields[0..4].copy_from_slice(&u32::from(self.free).to_le_bytes());
            fields[4..12].copy_from_slice(&self.generation.to_le_bytes());
            fields[12..20].copy_from_slice(&self.bytes.to_le_bytes());
            fields[20..28].copy_from_slice(&self.uid.to_le_bytes());
        })
    }

    pub(crate) fn decode(block: &[u8]) -> Option<Self> {
        if block_version(SEGMENT_MAGIC, block)? != VERSION {
            return None;
        }
        let header = Self {
            free: u32_at(block, 12) != 0,
            generation: u64_at(block, 16),
            bytes: u64_at(block, 24),
            uid: u64_at(block, 32),
        };
        (header.bytes >= u64::from(RECORDS_AT) + TRAILER_SPACE).then_some(header)
    }

    /// The newest of both copies; a segment that was freed in a life is newer than in use in it.
    pub(crate) fn newest(first: &[u8], second: &[u8]) -> Result<Self, BadBlock> {
        for copy in [first, second] {
            if let Some(version) = block_version(SEGMENT_MAGIC, copy)
                && version > VERSION
            {
                return Err(BadBlock::Version(version));
            }
        }
        let copies = [Self::decode(first), Self::decode(second)];
        let newest =
            copies.into_iter().flatten().max_by_key(|header| (header.generation, header.free));
        newest.ok_or(BadBlock::Damaged)
    }
}

/// The last block of a sealed segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Trailer {
    pub(crate) generation: u64,
    /// Where the records end.
    pub(crate) records_end: u32,
    /// Bytes of the index, which stands right behind the records; 0 if there is none.
    pub(crate) index_bytes: u32,
    pub(crate) index_crc: u32,
    /// Entries of the index.
    pub(crate) entries: u32,
    /// Whether the journal was closed properly with this segment.
    pub(crate) clean: bool,
}

impl Trailer {
    pub(crate) fn encode(&self) -> [u8; BLOCK] {
        sealed_block(TRAILER_MAGIC, |fields| {
            fields[0..4].copy_from_slice(&u32::from(self.clean).to_le_bytes());
            fields[4..12].copy_from_slice(&self.generation.to_le_bytes());
            fields[12..16].copy_from_slice(&self.records_end.to_le_bytes());
            fields[16..20].copy_from_slice(&self.index_bytes.to_le_bytes());
            fields[20..24].copy_from_slice(&self.index_crc.to_le_bytes());
            fields[24..28].copy_from_slice(&self.entries.to_le_bytes());
        })
    }

    pub(crate) fn decode(block: &[u8]) -> Option<Self> {
        if block_version(TRAILER_MAGIC, block)? != VERSION {
            return None;
        }
        Some(Self {
            clean: u32_at(block, 12) != 0,
            generation: u64_at(block, 16),
            records_end: u32_at(block, 24),
            index_bytes: u32_at(block, 28),
            index_crc: u32_at(block, 32),
            entries: u32_at(block, 36),
        })
    }
}

/// The checksum of a segment's index.
pub(crate) fn index_crc(seed: u32, bytes: &[u8]) -> u32 {
    checksum(seed, bytes)
}

/// Who a journal is: the file `JOURNAL`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Identity {
    /// Random, so that a segment file of another journal is not taken for one of this.
    pub(crate) uid: u64,
}

impl Identity {
    pub(crate) fn encode(self) -> [u8; BLOCK] {
        sealed_block(IDENTITY_MAGIC, |fields| fields[0..8].copy_from_slice(&self.uid.to_le_bytes()))
    }

    pub(crate) fn decode(block: &[u8]) -> Result<Self, BadBlock> {
        match block_version(IDENTITY_MAGIC, block) {
            Some(VERSION) => Ok(Self { uid: u64_at(block, 12) }),
            Some(version) => Err(BadBlock::Version(version)),
            None => Err(BadBlock::Damaged),
        }
    }
}
