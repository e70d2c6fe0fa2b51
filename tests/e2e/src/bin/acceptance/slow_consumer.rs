//! A8, first half: a publisher that never waits, and a consumer that cannot keep up.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use e2e::client::basic::NO_ACK;
use e2e::client::connect::Options;
use e2e::client::topology::DURABLE;
use e2e::node::Setup;
use e2e::table;

use crate::{Verdict, mib};

/// Memory at which the node's alarm stops publishers.
const LIMIT: u64 = 512 << 20;
/// The publisher may fill this much of the disk before the disk alarm stops it.
const DISK: u64 = 8 << 30;

/// How long the consumer waits for one message: what holds the publisher back may be somebody else
/// who fills the disk.
const PATIENCE: Duration = Duration::from_hours(1);

pub(crate) fn measure(seconds: usize) -> Verdict {
    let free = free_bytes();
    let node = Setup::new()
        .set("journal.segment_size", "32MiB")
        .set("memory.limit", "512MiB")
        .set("disk.free_limit", free.saturating_sub(DISK).to_string())
        .start();
    let mut client = Options::new(node.amqp).connect().expect("connects");
    client.open(1).expect("opens");
    for queue in ["slow", "other"] {
        client.queue(1, queue, DURABLE, &table! {}).expect("declares");
    }
    let duration = Duration::from_secs(seconds as u64);
    // The consumer stops being slow when the time is over and not when the publisher is through:
    // at the end it may be held back by the disk alarm, which only consuming lifts.
    let over = AtomicBool::new(false);
    let total = AtomicU64::new(u64::MAX);
    let (peak, slowest) = (AtomicU64::new(0), AtomicU64::new(0));
    let address = node.amqp;
    let body = vec![b'x'; 1000];
    let (published, consumed, pings) = std::thread::scope(|scope| {
        let (over, total) = (&over, &total);
        let publisher = scope.spawn(|| {
            let mut client = Options::new(address).connect().expect("connects");
            client.open(1).expect("opens");
            let begin = Instant::now();
            let mut published = 0_u64;
            while begin.elapsed() < duration {
                let mut text = format!("{published}-").into_bytes();
                text.extend_from_slice(&body);
                client.put(1, "slow", text).expect("publishes");
                published += 1;
            }
            client.patience = Duration::from_hours(1);
            client.sync(1).expect("everything has arrived");
            total.store(published, Ordering::Relaxed);
            published
        });
        // Reads at most a thousand messages per second.
        let consumer = scope.spawn(move || {
            let mut client = Options::new(address).connect().expect("connects");
            client.open(1).expect("opens");
            client.consume_with(1, "slow", "c", NO_ACK, &table! {}).expect("consumes");
            let mut expected = 0_u64;
            let mut wrong = 0_u64;
            client.patience = PATIENCE;
            while expected < total.load(Ordering::Relaxed) {
                let slow = !over.load(Ordering::Relaxed);
                let Ok(message) = client.delivery(1) else { break };
                let number: u64 =
                    message.text().split('-').next().and_then(|t| t.parse().ok()).unwrap_or(0);
                wrong += u64::from(number != expected);
                expected = number + 1;
                if slow {
                    std::thread::sleep(Duration::from_millis(1));
                }
            }
            (expected, wrong)
        });
        // Somebody else, who wants to be served meanwhile: get and declare, and a small consumer.
        let other = scope.spawn(|| {
            let mut client = Options::new(address).connect().expect("connects");
            client.open(1).expect("opens");
            let mut pings = 0_u64;
            while !over.load(Ordering::Relaxed) {
                let begin = Instant::now();
                client.depth(1, "other").expect("is served");
                client.get(1, "other", true).expect("is served");
                let took = u64::try_from(begin.elapsed().as_micros()).unwrap_or(u64::MAX);
                slowest.fetch_max(took, Ordering::Relaxed);
                peak.fetch_max(node.resident(), Ordering::Relaxed);
                pings += 1;
                std::thread::sleep(Duration::from_millis(20));
            }
            pings
        });
        std::thread::sleep(duration);
        over.store(true, Ordering::Relaxed);
        let published = publisher.join().expect("the publisher is not cut off");
        (published, consumer.join().expect("consumes"), other.join().expect("is served"))
    });
    let (received, wrong) = consumed;
    let peak = peak.into_inner();
    Verdict {
        figures: format!(
            "{seconds} s without waiting: {published} published, {received} received, {wrong} out \
             of order or lost; resident {} at most, {} allowed; {pings} requests of another \
             client, the slowest took {} ms",
            mib(peak),
            mib(LIMIT),
            slowest.into_inner() / 1000
        ),
        holds: received == published && wrong == 0 && peak <= LIMIT,
    }
}

/// Free bytes where temporary directories are made.
fn free_bytes() -> u64 {
    let output = std::process::Command::new("df")
        .args(["--output=avail", "-B1"])
        .arg(std::env::temp_dir())
        .output()
        .expect("df is there");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.lines().nth(1).and_then(|line| line.trim().parse().ok()).expect("df prints a number")
}
