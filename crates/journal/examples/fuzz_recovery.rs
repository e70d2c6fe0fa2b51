//! Fuzzes the recovery of a journal: `fuzz_recovery SECONDS [SEED]`.
//!
//! Breaks a good segment in a few places, cuts it, repeats parts of it, and opens a journal with
//! what comes out. Stops with a panic on a panic and on an input that takes longer than ten seconds.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use journal::fuzz::{recover_image, seed_image};
use journal::sim::Dice;

/// Each input opens three journals on simulated disks, which takes tens of milliseconds; on a busy
/// machine it may wait for a processor a hundred times as long.
const SLOWEST: Duration = Duration::from_secs(10);

fn main() {
    let mut arguments = std::env::args().skip(1);
    let seconds = arguments.next().and_then(|text| text.parse().ok()).unwrap_or(10);
    let seed = arguments.next().and_then(|text| text.parse().ok()).unwrap_or_else(|| {
        SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |since| since.as_secs())
    });
    eprintln!("seed {seed}");
    let good = seed_image();
    let end = Instant::now() + Duration::from_secs(seconds);
    let mut dice = Dice(seed);
    let (mut inputs, mut slowest) = (0_u64, Duration::ZERO);
    while Instant::now() < end {
        let image = broken(&good, &mut dice);
        let began = Instant::now();
        recover_image(&image);
        let took = began.elapsed();
        assert!(took < SLOWEST, "input {inputs} of seed {seed} took {took:?}");
        slowest = slowest.max(took);
        inputs += 1;
    }
    eprintln!("{inputs} inputs, slowest {slowest:?}: no fault");
}

/// The image with one to eight things wrong with it, where records, index and trailer stand.
fn broken(good: &[u8], dice: &mut Dice) -> Vec<u8> {
    let mut image = good.to_vec();
    for _ in 0..=dice.below(7) {
        let length = image.len() as u64;
        if length == 0 {
            return image;
        }
        let at = match dice.below(4) {
            0 => dice.below(1024),
            1 => length.saturating_sub(512) + dice.below(512),
            _ => 4096 + dice.below(1400),
        };
        let at = usize::try_from(at.min(length - 1)).expect("it is in the image");
        match dice.below(16) {
            0 => image.truncate(at),
            1 => {
                let from = usize::try_from(dice.below(length)).expect("it is in the image");
                let count = 512.min(image.len() - from.max(at));
                image.copy_within(from..from + count, at);
            }
            2 => image[at..].iter_mut().take(64).for_each(|byte| *byte = 0),
            _ => {
                let values = [0, 1, 0x7f, 0x80, 0xff, dice.roll().to_le_bytes()[0]];
                image[at] = values[usize::try_from(dice.below(6)).expect("below six")];
            }
        }
    }
    image
}
