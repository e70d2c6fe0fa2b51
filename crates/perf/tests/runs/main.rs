//! Whole runs against a broker made for the purpose, which keeps or breaks its promises as told.

#![expect(clippy::unwrap_used, reason = "tests: a surprise is to end them")]

mod broker;

use broker::{Broker, Fault};
use clap::Parser as _;
use perf::options::CommandLine;
use perf::report::Report;

fn run(fault: Fault, options: &str) -> Result<Report, String> {
    let broker = Broker::start(fault);
    let line = format!("leveret-perf --quiet --uri {} {options}", broker.uri());
    let options = CommandLine::try_parse_from(line.split_whitespace()).unwrap().options;
    perf::run::run(options)
        .map(|outcome| Report::of(&outcome))
        .map_err(|error| format!("{error:#}"))
}

fn check(fault: Fault, options: &str, found: [u64; 3]) {
    let report = run(fault, options).unwrap();
    let verify = report.verify.as_ref().unwrap();
    assert_eq!([verify.lost, verify.duplicated, verify.reordered], found, "{fault:?}");
    assert_eq!(report.is_good(), found == [0; 3]);
}

#[test]
fn an_honest_broker_passes() {
    check(Fault::None, "--messages 20000 --verify", [0; 3]);
    check(Fault::None, "--messages 20000 --verify --confirms 100 --ack-every 10", [0; 3]);
    check(Fault::None, "--messages 300 --verify --size 300000 --confirms 3", [0; 3]);
    check(
        Fault::None,
        "--messages 20000 --verify --publishers 3 --consumers 3 --queues 3 --confirms 7 --batch 2",
        [0; 3],
    );
}

#[test]
fn counts_and_confirms_are_reported() {
    let report = run(Fault::None, "--messages 1000 --size 20 --confirms 10 --ack-every 3").unwrap();
    assert_eq!((report.published, report.consumed), (1000, 1000));
    let confirms = report.confirms.as_ref().unwrap();
    assert_eq!((confirms.acked, confirms.nacked, confirms.unconfirmed), (1000, 0, 0));
    assert!(report.latency.is_some() && confirms.latency.is_some());
    assert_eq!(report.broker_version, "fake 1");
    assert!(report.to_string().contains("published             1,000"));
}

#[test]
fn broken_promises_are_found() {
    check(Fault::Lose, "--messages 1000 --verify --stall 0.3", [1, 0, 0]);
    check(Fault::Double, "--messages 1000 --verify", [0, 1, 0]);
    check(Fault::Swap, "--messages 1000 --verify --batch 10", [0, 0, 1]);
}

#[test]
fn without_confirms_nothing_is_promised() {
    let options = "--messages 1000 --verify --confirms 1000 --stall 0.3";
    let report = run(Fault::NoConfirm, options).unwrap();
    assert_eq!(report.confirms.as_ref().unwrap().unconfirmed, 1);
    assert_eq!(report.verify.as_ref().unwrap().lost, 0);
    assert!(!report.is_good());
}

#[test]
fn what_cannot_be_written_is_no_success() {
    // more than sockets hold
    let options = "--consumers 0 --messages 2 --size 30000000 --stall 0.3";
    let report = run(Fault::Deaf, options).unwrap();
    assert!(report.published < 2 && report.stalled && !report.is_good(), "{report}");
    // only what was written can be unconfirmed
    let report = run(Fault::Deaf, &format!("{options} --confirms 2")).unwrap();
    assert_eq!(report.confirms.unwrap().unconfirmed, report.published);
}

#[test]
fn errors_of_the_broker_end_the_run() {
    let error = run(Fault::Close, "--messages 1000 --verify").unwrap_err();
    assert_eq!(error, "publisher 1: the broker closed the connection: 541 INTERNAL_ERROR - fake");
    let error = run(Fault::WrongConfirm, "--messages 10 --confirms 5").unwrap_err();
    assert_eq!(error, "publisher 1: the broker confirmed 9999, but only 5 were sent");
}

#[test]
fn a_missing_broker_is_an_error() {
    let line = "leveret-perf --uri amqp://127.0.0.1:1 --messages 1";
    let options = CommandLine::try_parse_from(line.split(' ')).unwrap().options;
    let error = perf::run::run(options).unwrap_err();
    assert!(format!("{error:#}").starts_with("cannot connect to 127.0.0.1:1: "), "{error:#}");
}
