//! What a message costs between two nodes on loopback, both in this process.
//!
//! `cargo run --release -p peer --example link_bench [MILLIONS]`
//!
//! CPU is that of both nodes together. The sender fills the queue whenever there is room.

#![expect(clippy::print_stdout, reason = "its purpose")]
#![expect(clippy::cast_precision_loss, reason = "figures for people")]

use bytes::Bytes;
use model::id::NodeId;
use peer::answer::Answer;
use peer::handler::{Handler, Loss};
use peer::identity::Identity;
use peer::links::Links;
use peer::options::{Options, QUEUE_BYTES_MAX, SILENCE_TIMEOUT};
use peer::secret::Secret;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::sync::Notify;
use tokio::task::JoinSet;

const B: NodeId = NodeId(2);

#[derive(Default)]
struct Counter {
    messages: AtomicU64,
    calls: AtomicU64,
    up: Notify,
    more: Notify,
}

impl Handler for Counter {
    fn up(&self, _: &Identity) {
        self.up.notify_one();
    }

    fn down(&self, peer: &Identity, why: Loss) {
        println!("{} is down: {why}", peer.name);
    }

    fn messages(&self, _: NodeId, _: u8, messages: &mut Vec<Bytes>) {
        self.messages.fetch_add(messages.len() as u64, Ordering::Relaxed);
        self.calls.fetch_add(1, Ordering::Relaxed);
        self.more.notify_one();
    }

    fn request(&self, _: NodeId, _: u8, payload: Bytes, answer: Answer) {
        answer.send(payload);
    }
}

fn options(name: &str, id: u64) -> Options {
    let (name, address) = (name.into(), String::new());
    Options {
        me: Identity { name, id: NodeId(id), boot: 1, address, facts: Bytes::new() },
        cluster: "bench".into(),
        secret: Secret::new(b"secret"),
        listen: ([127, 0, 0, 1], 0).into(),
        peers: Vec::new(),
        silence_timeout: SILENCE_TIMEOUT,
        queue_bytes_max: QUEUE_BYTES_MAX,
        tls: None,
    }
}

/// User and system time of the process so far.
fn cpu() -> Duration {
    let stat = std::fs::read_to_string("/proc/self/stat").expect("proc is there");
    let fields: Vec<_> = stat.rsplit(") ").next().expect("a tail").split(' ').collect();
    let ticks: u64 =
        fields[11].parse::<u64>().expect("utime") + fields[12].parse::<u64>().expect("stime");
    Duration::from_millis(ticks * 10)
}

struct Mark(Instant, Duration);

impl Mark {
    fn new() -> Self {
        Self(Instant::now(), cpu())
    }

    fn report(&self, what: &str, count: u64) {
        let (time, cpu) = (self.0.elapsed(), cpu().saturating_sub(self.1));
        println!(
            "{what:<40} {:>10.0}/s {:>8.3} µs CPU each",
            count as f64 / time.as_secs_f64(),
            cpu.as_secs_f64() * 1e6 / count as f64
        );
    }
}

async fn messages(a: &Links, counter: &Counter, count: u64, bytes: usize) {
    let payload = Bytes::from(vec![7; bytes]);
    counter.messages.store(0, Ordering::Relaxed);
    counter.calls.store(0, Ordering::Relaxed);
    let mark = Mark::new();
    for _ in 0..count {
        while a.send(B, 1, payload.clone()).is_err() {
            a.room(B).await;
        }
    }
    while counter.messages.load(Ordering::Relaxed) < count {
        counter.more.notified().await;
    }
    mark.report(&format!("messages of {bytes} B"), count);
    let calls = counter.calls.load(Ordering::Relaxed);
    println!("{:<40} {:>10.1}", "  messages in a call", count as f64 / calls as f64);
}

async fn requests(a: &Arc<Links>, count: u64, depth: u64, bytes: usize) {
    let payload = Bytes::from(vec![7; bytes]);
    let mark = Mark::new();
    let mut tasks = JoinSet::new();
    for _ in 0..depth {
        let (links, payload) = (Arc::clone(a), payload.clone());
        tasks.spawn(async move {
            for _ in 0..count / depth {
                let within = Duration::from_secs(10);
                links.request(B, 2, payload.clone(), within).await.expect("it is answered");
            }
        });
    }
    tasks.join_all().await;
    mark.report(&format!("requests of {bytes} B, {depth} at once"), count);
}

#[tokio::main]
async fn main() {
    let millions: u64 = std::env::args().nth(1).map_or(4, |text| text.parse().expect("a number"));
    let (one, two) = (Arc::new(Counter::default()), Arc::new(Counter::default()));
    let handler = Arc::clone(&one) as Arc<dyn Handler>;
    let a = Links::start(options("a", 1), handler).await.expect("it starts");
    let mut options = options("b", 2);
    options.peers.push(("a".into(), a.local_addr().to_string()));
    let handler = Arc::clone(&two) as Arc<dyn Handler>;
    let b = Links::start(options, handler).await.expect("it starts");
    one.up.notified().await;
    two.up.notified().await;
    for bytes in [16, 100, 1024, 16 * 1024] {
        let share = if bytes > 1024 { 20 } else { 1 };
        messages(&a, &two, millions * 1_000_000 / share, bytes).await;
    }
    for (count, depth) in [(20_000, 1), (200_000, 100)] {
        requests(&a, count * millions / 4, depth, 100).await;
    }
    a.stop().await;
    b.stop().await;
}
