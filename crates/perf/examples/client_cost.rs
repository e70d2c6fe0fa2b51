//! What the client itself costs: runs against the broker of the tests, which does next to nothing.
//! The figures of "client" include that broker.

#[path = "../tests/runs/broker.rs"]
#[expect(clippy::unwrap_used, reason = "a broker for tests")]
#[allow(dead_code, reason = "faults are for the tests")]
mod broker;

use broker::{Broker, Fault};
use clap::Parser as _;
use perf::options::CommandLine;
use perf::report::Report;

#[expect(clippy::print_stdout, reason = "a program for people")]
fn main() -> anyhow::Result<()> {
    for options in [
        "--messages 2000000",
        "--messages 1000000 --size 1024",
        "--messages 2000000 --confirms 1000 --persistent --ack-every 10",
        "--messages 2000000 --verify",
    ] {
        let broker = Broker::start(Fault::None);
        let line = format!("leveret-perf --quiet --uri {} {options}", broker.uri());
        let options = CommandLine::try_parse_from(line.split_whitespace())?.options;
        println!("{line}\n{}", Report::of(&perf::run::run(options)?));
    }
    Ok(())
}
