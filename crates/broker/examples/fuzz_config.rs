//! Fuzzes the configuration: `fuzz_config SECONDS [SEED]`.
//!
//! Breaks the documented file in a few places and reads it, as `leveret` would. Stops with a panic on a panic, on
//! an input that takes longer than a second, on a complaint without its line, and on an accepted file whose
//! effective values do not read back as the same configuration.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use broker::config::complaint::Origin;
use broker::config::{Config, written};

/// Marsaglia's xorshift64*: the same seed gives the same run everywhere.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        let number = self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 11;
        usize::try_from(number).expect("64 bit") % bound.max(1)
    }
}

/// Pieces that mean something to TOML, to our values, or to nobody.
const PIECES: &[&str] = &[
    "\"",
    "'",
    "[",
    "]",
    "{",
    "}",
    "=",
    ".",
    ",",
    "#",
    "\n",
    "\r\n",
    "\\u0000",
    "\"\"\"",
    "[[a]]",
    "[limits]\n",
    "limits.",
    "tls.verify = \"required\"\n",
    "heartbeat = 5\n",
    "-1",
    "0x10",
    "1e400",
    "nan",
    "99999999999999999999",
    "18446744073709551615",
    "%",
    "MiB",
    "1979-05-27T07:32:00Z",
    "true",
    "none",
    "unlimited",
    "\u{feff}",
    "\u{0}",
    "ä",
    "a@b:1",
    "[::1]:1",
    "::",
    ":",
    " ",
];

fn mutate(random: &mut Random, text: &mut String) {
    for _ in 0..=random.below(5) {
        let at = (0..=random.below(text.len() + 1)).rev().find(|at| text.is_char_boundary(*at));
        let at = at.unwrap_or(0);
        match random.below(4) {
            0 => text.insert_str(at, PIECES[random.below(PIECES.len())]),
            1 => {
                let end = (at + random.below(20)).min(text.len());
                let end = (end..=text.len()).find(|end| text.is_char_boundary(*end));
                text.replace_range(at..end.unwrap_or(at), "");
            }
            2 => text.truncate(at),
            _ => {
                let lines: Vec<&str> = text.lines().collect();
                let line =
                    lines.get(random.below(lines.len())).copied().unwrap_or_default().to_owned();
                text.push_str(&line);
            }
        }
    }
}

fn check(text: &str) -> bool {
    let (lines, complaints) = written::file(PathBuf::from("f"), text);
    let last = text.lines().count() + 1;
    let result = Config::read(lines);
    let all = complaints.iter().chain(result.as_ref().err().into_iter().flatten());
    for complaint in all {
        match &complaint.origin {
            Origin::File { line, .. } => assert!((1..=last).contains(line), "{complaint}"),
            // Two defaults may come into conflict with what the file says about a third.
            Origin::Default => {}
            other => panic!("{other} in a file"),
        }
    }
    let Ok((config, effective)) = result else { return false };
    // Secrets are hidden, and too short then for one that is needed.
    let shown = effective.to_string().replace("\"********\"", "\"****************\"");
    let (again, complaints) = written::file(PathBuf::from("g"), &shown);
    assert!(complaints.is_empty(), "{complaints:?}\n{effective}");
    let (mut read, _) = Config::read(again).expect("effective values are valid");
    read.first_start.password.clone_from(&config.first_start.password);
    read.cluster.secret.clone_from(&config.cluster.secret);
    assert_eq!(read, config);
    true
}

fn main() {
    let mut arguments = std::env::args().skip(1).map(|text| text.parse().expect("a number"));
    let seconds: u64 = arguments.next().unwrap_or(10);
    let seed = arguments.next().unwrap_or(0x1EAF);
    let good = include_str!("../../../config/leveret.toml");
    // Without comments an edit hits something that matters.
    let bare: String =
        good.lines().filter(|line| !line.starts_with('#')).flat_map(|line| [line, "\n"]).collect();
    let mut random = Random(seed | 1);
    let end = Instant::now() + Duration::from_secs(seconds);
    let (mut inputs, mut accepted) = (0_u64, 0_u64);
    while Instant::now() < end {
        let mut text = if random.below(10) == 0 { good.to_owned() } else { bare.clone() };
        mutate(&mut random, &mut text);
        let started = Instant::now();
        accepted += u64::from(check(&text));
        inputs += 1;
        assert!(started.elapsed() < Duration::from_secs(1), "a hang on:\n{text}");
    }
    eprintln!("{inputs} inputs from seed {seed}, {accepted} accepted");
}
