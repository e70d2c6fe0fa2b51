//! What the fuzzers share: seeded mutations of good inputs, and the loop that runs them.

use std::time::{Duration, Instant};

/// Marsaglia's xorshift64*: the same seed gives the same run everywhere.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    pub(crate) fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.next() % bound.max(1) as u64).expect("below a usize")
    }

    pub(crate) fn byte(&mut self) -> u8 {
        self.next().to_be_bytes()[0]
    }
}

/// Bytes that are often special: lengths, tags, ends, frame kinds, method numbers.
const SPECIAL: &[u8] = b"\x00\x01\x02\x03\x08\x0a\x28\x3c\x7f\x80\xff\xceAFSxtlVD";

pub(crate) fn mutate(random: &mut Random, bytes: &mut Vec<u8>, corpus: &[Vec<u8>]) {
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

pub(crate) fn tables() -> Vec<Vec<u8>> {
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

/// Longer than this for an input is a fault.
const LIMIT: Duration = Duration::from_millis(200);

/// Reads `SECONDS [SEED]` from the command line and feeds broken copies of `corpus` to `read`, which
/// returns how many things it found in them; the number that it gets chooses a variant.
#[expect(clippy::print_stdout, reason = "a program for people")]
pub(crate) fn run(corpus: &[Vec<u8>], read: impl Fn(usize, &[u8]) -> u64) {
    let mut arguments = std::env::args().skip(1);
    let mut number = || arguments.next().and_then(|text| text.parse::<u64>().ok());
    let (Some(seconds), seed) = (number(), number()) else {
        println!("arguments: SECONDS [SEED]");
        return;
    };
    let seed = seed.unwrap_or_else(|| {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        now.map_or(1, |now| now.as_secs())
    });
    println!("seed {seed}");
    let mut random = Random(seed.wrapping_mul(2) | 1);
    let end = Instant::now() + Duration::from_secs(seconds);
    let (mut inputs, mut found, mut slowest) = (0_u64, 0_u64, Duration::ZERO);
    while Instant::now() < end {
        let mut bytes = corpus[random.below(corpus.len())].clone();
        mutate(&mut random, &mut bytes, corpus);
        let choice = random.below(1024);
        let timed = || {
            let start = Instant::now();
            (read(choice, &bytes), start.elapsed())
        };
        let (count, mut took) = timed();
        found += count;
        // a busy machine may have taken the processor away, but not time after time
        for _ in 0..10 {
            if took > LIMIT {
                took = took.min(timed().1);
            }
        }
        assert!(took < LIMIT, "an input of {} bytes takes {took:?}", bytes.len());
        slowest = slowest.max(took);
        inputs += 1;
    }
    println!(
        "{inputs} inputs, {found} of them or of their parts read, slowest {slowest:?}: no fault"
    );
}
