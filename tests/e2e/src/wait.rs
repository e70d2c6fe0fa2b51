//! Waiting for conditions, never for time.

use std::fmt::Debug;
use std::thread;
use std::time::{Duration, Instant};

/// How long a condition may take before the test fails.
///
/// Generous, because the whole suite may share two cores with a compiler; a passing test never
/// waits for it.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// Polls `probe` until it gives `Some`, for at most [`PATIENCE`].
///
/// # Panics
/// If it never does; `what` says what was awaited.
pub fn until_some<T>(what: &str, probe: impl FnMut() -> Option<T>) -> T {
    until_some_for(PATIENCE, what, probe)
}

/// As [`until_some`], with a deadline of its own.
pub fn until_some_for<T>(
    patience: Duration,
    what: &str,
    mut probe: impl FnMut() -> Option<T>,
) -> T {
    let deadline = Instant::now() + patience;
    loop {
        if let Some(value) = probe() {
            return value;
        }
        assert!(Instant::now() < deadline, "waited {patience:?} in vain until {what}");
        thread::sleep(Duration::from_millis(5));
    }
}

/// Polls `probe` until it is true, for at most [`PATIENCE`].
pub fn until(what: &str, mut probe: impl FnMut() -> bool) {
    until_some(what, || probe().then_some(()));
}

/// Polls `probe` until it gives `wanted`; the failure shows the last value seen.
pub fn until_equal<T: PartialEq + Debug>(what: &str, wanted: &T, mut probe: impl FnMut() -> T) {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let seen = probe();
        if seen == *wanted {
            return;
        }
        assert!(
            Instant::now() < deadline,
            "waited {PATIENCE:?} in vain until {what}: wanted {wanted:?}, last seen {seen:?}"
        );
        thread::sleep(Duration::from_millis(5));
    }
}

/// Whether the full counts are asked for (`CASES=full`).
pub fn full() -> bool {
    std::env::var("CASES").is_ok_and(|value| value == "full")
}

/// The count to run with: the first by default, the second with `CASES=full`.
pub fn count(reduced: usize, at_full: usize) -> usize {
    if full() { at_full } else { reduced }
}
