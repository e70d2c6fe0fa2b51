//! The program: runs what the command line says and reports it.
//!
//! Exit codes: 0 all well; 1 something was lost, duplicated, reordered or not confirmed, or the run
//! failed; 2 bad usage.

use clap::Parser as _;
use perf::options::{Command, CommandLine};
use perf::report::Report;
use std::io::Write as _;
use std::process::ExitCode;

fn main() -> ExitCode {
    let line = CommandLine::parse();
    let done = match line.command {
        Some(Command::Compare(compare)) => perf::compare::run(&compare).map(|()| true),
        None => {
            if let Err(error) = line.options.check() {
                drop(writeln!(std::io::stderr(), "leveret-perf: {error}"));
                return ExitCode::from(2);
            }
            let json = line.options.json;
            perf::run::run(line.options).map(|outcome| {
                let report = Report::of(&outcome);
                let text = if json {
                    serde_json::to_string_pretty(&report).expect("plain numbers") + "\n"
                } else {
                    report.to_string()
                };
                // a closed pipe is the reader's business
                drop(std::io::stdout().write_all(text.as_bytes()));
                report.is_good()
            })
        }
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            drop(writeln!(std::io::stderr(), "leveret-perf: {error:#}"));
            ExitCode::FAILURE
        }
    }
}
