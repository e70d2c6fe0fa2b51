//! A6: many waiting messages: memory, and how long a restart takes.

use std::time::{Duration, Instant};

use e2e::client::confirms::Confirms;
use e2e::client::connect::Options;
use e2e::client::topology::DURABLE;
use e2e::node::Setup;
use e2e::table;
use e2e::wait;

use crate::{Verdict, mib};

pub(crate) fn measure(count: usize, size: usize, bound: u64) -> Verdict {
    let mut node = Setup::new().set("journal.segment_size", "32MiB").start();
    let empty = node.resident();
    let mut client = Options::new(node.amqp).connect().expect("connects");
    client.open(1).expect("opens");
    client.queue(1, "q", DURABLE, &table! {}).expect("declares");
    client.confirm_select(1).expect("confirms");
    let mut confirms = Confirms::default();
    let body = vec![b'x'; size];
    let begin = Instant::now();
    for n in 1..=count {
        client.put(1, "q", &body).expect("publishes");
        if n > 2000 && n.is_multiple_of(200) {
            client.await_confirms(1, &mut confirms, n - 2000).expect("confirmed");
            confirms.forget();
        }
    }
    client.await_confirms(1, &mut confirms, count).expect("confirmed");
    let filled = begin.elapsed();
    drop(confirms);
    let resident = node.resident();
    drop(client);
    let stopped = serving(&mut node, false);
    let after_stop = settled(&node);
    let killed = serving(&mut node, true);
    let after_kill = settled(&node);
    let mut client = Options::new(node.amqp).connect().expect("connects");
    client.open(1).expect("opens");
    let left = client.depth(1, "q").expect("the queue is there").messages as usize;
    let largest = resident.max(after_stop).max(after_kill);
    Verdict {
        figures: format!(
            "{count} waiting messages of {size} B, published in {filled:?}: resident {} (empty \
             {}), {} after a stop, {} after a kill, {} allowed; serving {stopped:?} after a stop, \
             {killed:?} after a kill; {left} there",
            mib(resident),
            mib(empty),
            mib(after_stop),
            mib(after_kill),
            mib(bound),
        ),
        holds: largest <= bound
            && left == count
            && (count > 1_000_000
                || (stopped < Duration::from_millis(500) && killed < Duration::from_secs(3))),
    }
}

/// From the start of the process until a client is through its handshake and sees the queue.
fn serving(node: &mut e2e::node::Node, kill: bool) -> Duration {
    if kill {
        node.kill();
    } else {
        node.stop();
    }
    let begin = Instant::now();
    node.run();
    wait::until_some("AMQP serves", || {
        let mut client = Options::new(node.amqp).connect().ok()?;
        client.open(1).ok()?;
        client.depth(1, "q").ok()
    });
    begin.elapsed()
}

/// Resident memory once it no longer falls.
fn settled(node: &e2e::node::Node) -> u64 {
    let mut last = node.resident();
    let begin = Instant::now();
    wait::until("memory settles", || {
        let now = node.resident();
        let done = now >= last && begin.elapsed() > Duration::from_secs(1);
        last = now;
        done
    });
    last
}
