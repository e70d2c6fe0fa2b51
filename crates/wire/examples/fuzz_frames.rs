//! Fuzzes the decoders: `fuzz_frames SECONDS [SEED]`.
//!
//! Takes good byte sequences, breaks them in a few places and decodes what is left, as the broker
//! would. Stops with a panic on a panic, on an input that takes longer than a second, on a fast
//! path that sees something else than the slow path, and on a value that does not survive being
//! written and read again.

use bytes::BytesMut;
use std::time::{Duration, Instant};
use wire::content::{Assembly, ContentHeader};
use wire::frame::{self, Kind};
use wire::properties::Properties;
use wire::{ack, deliver, method, publish, table};

/// Marsaglia's xorshift64*: the same seed gives the same run everywhere.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.next() % bound.max(1) as u64).expect("below a usize")
    }

    fn byte(&mut self) -> u8 {
        self.next().to_be_bytes()[0]
    }
}

/// Bytes that are often special: lengths, tags, ends, frame kinds, method numbers.
const SPECIAL: &[u8] = b"\x00\x01\x02\x03\x08\x0a\x28\x3c\x7f\x80\xff\xceAFSxtlVD";

fn mutate(random: &mut Random, bytes: &mut Vec<u8>, corpus: &[Vec<u8>]) {
    for _ in 0..=random.below(6) {
        let at = random.below(bytes.len());
        match random.below(9) {
            _ if bytes.is_empty() => bytes.push(random.byte()),
            0 => bytes[at] = random.byte(),
            1 => bytes[at] ^= 1 << random.below(8),
            2 => bytes[at] = SPECIAL[random.below(SPECIAL.len())],
            3 => bytes.truncate(at),
            4 => bytes.insert(at, SPECIAL[random.below(SPECIAL.len())]),
            5 => {
                let end = at + random.below(bytes.len() - at);
                bytes.drain(at..end);
            }
            6 => {
                // repeats a part, often many times: nesting and long lists
                let end = at + random.below((bytes.len() - at).min(24));
                let part = bytes[at..end].to_vec();
                for _ in 0..1 << random.below(10) {
                    bytes.splice(at..at, part.iter().copied());
                    if bytes.len() > 100_000 {
                        break;
                    }
                }
            }
            7 => {
                let other = &corpus[random.below(corpus.len())];
                let from = random.below(other.len());
                bytes.splice(at..at, other[from..].iter().copied());
            }
            _ => {
                let number = u32::try_from(random.below(bytes.len() + 2)).unwrap_or(u32::MAX);
                let end = (at + 4).min(bytes.len());
                bytes[at..end].copy_from_slice(&number.to_be_bytes()[..end - at]);
            }
        }
    }
}

/// Reads bytes as a server does: whole publishes first, then frame by frame.
fn read_frames(bytes: &[u8], frame_max: u32) -> u64 {
    let mut buffer = BytesMut::from(bytes);
    let mut pending: Option<(Vec<u8>, Option<Assembly>)> = None;
    let mut found = 0;
    loop {
        if pending.is_none() {
            let before = buffer.clone();
            if let Some(whole) = publish::decode_whole(&mut buffer, frame_max) {
                found += 1;
                let mut slow = before.clone();
                let first = frame::decode(&mut slow, frame_max).expect("seen by the fast path");
                let first = first.expect("whole");
                let parsed = publish::parse(&first.payload).expect("seen by the fast path");
                assert_eq!(parsed.route, whole.message.route());
                let _ = Properties::scan(whole.message.properties());
                continue;
            }
        }
        let frame = match frame::decode(&mut buffer, frame_max) {
            Ok(Some(frame)) => frame,
            Ok(None) => {
                assert!(frame::missing(&buffer) > 0);
                return found;
            }
            Err(error) => {
                assert!(!error.to_string().is_empty());
                return found;
            }
        };
        found += 1;
        match frame.kind {
            Kind::Method => {
                let settled = ack::parse(&frame.payload).is_some();
                let _ = deliver::parse_deliver(&frame.payload);
                match method::parse(&frame.payload) {
                    Ok(class) => {
                        let mut out = BytesMut::new();
                        method::write_method(&mut out, frame.channel, &class);
                        let again = frame::decode(&mut out, 0).expect("just written");
                        let again = again.expect("just written");
                        let read = method::parse(&again.payload).expect("just written");
                        // a number that is not itself is not equal to itself
                        assert_eq!(format!("{read:?}"), format!("{class:?}"));
                    }
                    Err(error) => {
                        assert!(!settled, "{error}");
                        assert!(!error.to_string().is_empty());
                    }
                }
                pending = publish::parse(&frame.payload)
                    .is_ok_and(|_| method::ids(&frame.payload) == Some(publish::IDS))
                    .then(|| (frame.payload.to_vec(), None));
            }
            Kind::Header => {
                let header = ContentHeader::parse(&frame.payload);
                if let (Some((method, assembly)), Ok(header)) = (&mut pending, header) {
                    let _ = Properties::scan(header.properties);
                    let parsed = publish::parse(method).expect("parsed before");
                    *assembly = Some(Assembly::new(&parsed, &header));
                } else {
                    pending = None;
                }
            }
            Kind::Body => {
                if let Some((_, Some(assembly))) = &mut pending
                    && assembly.push(&frame.payload).is_err()
                {
                    pending = None;
                }
            }
            Kind::Heartbeat => {}
        }
        if pending
            .as_ref()
            .is_some_and(|(_, assembly)| assembly.as_ref().is_some_and(Assembly::is_complete))
            && let Some((_, Some(assembly))) = pending.take()
        {
            let message = assembly.finish();
            assert!(message.body().len() <= bytes.len());
        }
    }
}

fn read_table(bytes: &[u8]) -> u64 {
    let names = table::entries(bytes).count();
    drop(table::without(bytes, "k"));
    drop(Properties { headers: Some(bytes), ..Properties::default() }.recipients("CC"));
    match table::parse(bytes) {
        Ok(parsed) => {
            assert!(parsed.inner().len() <= names);
            let again = table::parse(&table::encode(&parsed)[4..]).expect("just written");
            assert_eq!(format!("{again:?}"), format!("{parsed:?}"));
            1
        }
        Err(error) => {
            assert!(!error.to_string().is_empty());
            0
        }
    }
}

fn tables() -> Vec<Vec<u8>> {
    let mut tables: Vec<Vec<u8>> = vec![
        b"\x01kt\x01\x01kb\x01\x01kB\x01\x01ks\x00\x01\x01kU\x00\x01\x01ku\x00\x01".to_vec(),
        b"\x01kI\x00\x00\x00\x01\x01ki\x00\x00\x00\x01\x01kf\x00\x00\x00\x01\x01kV".to_vec(),
        b"\x01kl\x00\x00\x00\x00\x00\x00\x00\x01\x01kL\x00\x00\x00\x00\x00\x00\x00\x01".to_vec(),
        b"\x01kd\x00\x00\x00\x00\x00\x00\x00\x01\x01kT\x00\x00\x00\x00\x00\x00\x00\x01".to_vec(),
        b"\x01kD\x02\x00\x00\x00\x01\x01kS\x00\x00\x00\x02ab\x01kx\x00\x00\x00\x02ab".to_vec(),
        b"\x02CCA\x00\x00\x00\x0cS\x00\x00\x00\x01aS\x00\x00\x00\x01b\x03BCCA\x00\x00\x00\x00"
            .to_vec(),
    ];
    for depth in [3, 20, 63, 64, 65, 400] {
        let mut inner = Vec::new();
        for level in 0..depth {
            let mut outer = vec![1, b'k', b'F'];
            if level % 2 == 1 {
                // an array that holds a table
                let length = u32::try_from(inner.len() + 5).expect("short");
                outer = vec![1, b'k', b'A'];
                outer.extend_from_slice(&length.to_be_bytes());
                outer.push(b'F');
            }
            outer.extend_from_slice(&u32::try_from(inner.len()).expect("short").to_be_bytes());
            outer.extend_from_slice(&inner);
            inner = outer;
        }
        tables.push(inner);
    }
    tables
}

fn frames(tables: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    for table in tables {
        let headers = Properties {
            headers: Some(table),
            delivery_mode: Some(2),
            expiration: Some(b"1000"),
            correlation_id: Some(b"id"),
            ..Properties::default()
        };
        for (properties, body, frame_max) in
            [(headers.encode(), &b"hello"[..], 0), (vec![0, 0], b"a longer body", 12)]
        {
            let mut out = BytesMut::new();
            publish::write(&mut out, 1, "amq.topic", "a.b", true, &properties, body, frame_max);
            publish::write(&mut out, 1, "", "q", false, &[0x10, 0, 2], b"", 0);
            all.push(out.to_vec());
        }
        for start in [
            &b"\x00\x0a\x00\x0b"[..],
            b"\x00\x32\x00\x0a\x00\x00\x01q\x02",
            b"\x00\x28\x00\x0a\x00\x00\x01e\x05topic\x02",
            b"\x00\x3c\x00\x14\x00\x00\x01q\x01t\x00",
            b"\x00\x28\x00\x1e\x00\x00\x01d\x01s\x01k\x00",
        ] {
            let mut payload = start.to_vec();
            payload.extend_from_slice(&u32::try_from(table.len()).expect("short").to_be_bytes());
            payload.extend_from_slice(table);
            if start[1] == 10 {
                payload.extend_from_slice(b"\x05PLAIN\x00\x00\x00\x04\x00a\x00b\x05en_US");
            }
            let mut out = Vec::new();
            frame::write(&mut out, Kind::Method, 1, &payload);
            all.push(out);
        }
    }
    let mut out = BytesMut::new();
    for settlement in [
        ack::Settlement::Ack { delivery_tag: 1, multiple: true },
        ack::Settlement::Nack { delivery_tag: 2, multiple: false, requeue: true },
        ack::Settlement::Reject { delivery_tag: 3, requeue: false },
    ] {
        ack::write(&mut out, 1, settlement);
    }
    out.extend_from_slice(&frame::HEARTBEAT);
    all.push(out.to_vec());
    all
}

#[expect(clippy::print_stdout, reason = "a program for people")]
fn main() {
    let mut arguments = std::env::args().skip(1);
    let mut number = || arguments.next().and_then(|text| text.parse::<u64>().ok());
    let (Some(seconds), seed) = (number(), number()) else {
        println!("usage: fuzz_frames SECONDS [SEED]");
        return;
    };
    let seed = seed.unwrap_or_else(|| {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        now.map_or(1, |now| now.as_secs())
    });
    println!("seed {seed}");
    let mut random = Random(seed.wrapping_mul(2) | 1);
    let tables = tables();
    let frames = frames(&tables);
    let end = Instant::now() + Duration::from_secs(seconds);
    let (mut inputs, mut read, mut slowest) = (0_u64, 0_u64, Duration::ZERO);
    while Instant::now() < end {
        let as_table = random.below(2) == 0;
        let corpus = if as_table { &tables } else { &frames };
        let mut bytes = corpus[random.below(corpus.len())].clone();
        mutate(&mut random, &mut bytes, corpus);
        let start = Instant::now();
        read += if as_table {
            read_table(&bytes)
        } else {
            read_frames(&bytes, [0, 64, 4096, 131_072][random.below(4)])
        };
        let took = start.elapsed();
        assert!(took < Duration::from_secs(1), "an input of {} bytes took {took:?}", bytes.len());
        slowest = slowest.max(took);
        inputs += 1;
    }
    println!("{inputs} inputs, {read} frames or tables read, slowest {slowest:?}: no fault");
}
