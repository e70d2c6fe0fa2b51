//! The acceptance lines that take too long for a test: `acceptance LINE [ARGUMENT]`.
//!
//! Each prints its figures and exits with 1 if a bound is broken. README.md lists them.

mod backlog;
mod chaos;
mod flow;
mod full_disk;
mod gap;
mod kills;
mod many_queues;
mod membership;
mod no_op_pass;
mod pairs;
mod past_one;
mod restarts;
mod rolling;
mod slow_consumer;

use std::process::ExitCode;

/// What a line measured.
struct Verdict {
    /// The figures, ready to be printed.
    figures: String,
    /// Whether all bounds hold.
    holds: bool,
}

#[allow(clippy::print_stdout, reason = "the figures are what this program is for")]
fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let line = arguments.next().unwrap_or_default();
    let argument: Option<usize> = arguments.next().and_then(|text| text.parse().ok());
    let verdicts = match line.as_str() {
        "A4" => {
            let rounds = argument.unwrap_or(100);
            vec![kills::measure(rounds, false), kills::measure(rounds, true)]
        }
        "A5" => vec![flow::measure(argument.unwrap_or(20))],
        "A6" => {
            let count = argument.unwrap_or(1_000_000);
            vec![
                backlog::measure(count, 1024, 96 << 20),
                backlog::measure(count * 10, 100, 512 << 20),
            ]
        }
        "A8" => vec![slow_consumer::measure(argument.unwrap_or(600)), full_disk::measure()],
        "B2" => {
            let seed = arguments.next().and_then(|text| text.parse().ok()).unwrap_or(1);
            vec![chaos::measure(argument.unwrap_or(30), seed)]
        }
        "B3" => gap::measure(argument),
        "B5" => many_queues::measure(argument.unwrap_or(10_000)),
        "B6" => vec![past_one::measure(argument.unwrap_or(5))],
        "B7" => vec![rolling::measure(argument.unwrap_or(3))],
        "J5" => pairs::measure(argument.unwrap_or(100)),
        "J6" => vec![pairs::cost(argument.unwrap_or(20))],
        "M4" => membership::wiped(argument.unwrap_or(10_000)),
        "M5" => membership::forgotten(argument.unwrap_or(1000)),
        "M9" => no_op_pass::measure(argument.unwrap_or(10_000)),
        "restarts" => vec![restarts::measure(argument.unwrap_or(300))],
        _ => {
            eprintln!(
                "acceptance A4|A5|A6|A8|B2|B3|B5|B6|B7|J5|J6|M4|M5|M9|restarts [ARGUMENT]; see tests/e2e/README.md"
            );
            return ExitCode::from(64);
        }
    };
    let mut holds = true;
    for verdict in verdicts {
        println!(
            "{line}: {} -> {}",
            verdict.figures,
            if verdict.holds { "holds" } else { "FAILS" }
        );
        holds &= verdict.holds;
    }
    if holds { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Bytes as MiB.
fn mib(bytes: u64) -> String {
    format!("{}.{} MiB", bytes >> 20, ((bytes % (1 << 20)) * 10) >> 20)
}
