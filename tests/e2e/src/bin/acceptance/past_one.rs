//! B6: one message of a quorum queue stays unacknowledged while gigabytes flow past it.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use e2e::client::confirms::Confirms;
use e2e::client::topology::DURABLE;
use e2e::cluster::{Setup, quorum};
use e2e::node::occupied;

use crate::{Verdict, mib};

/// Confirms in flight.
const WINDOW: usize = 1000;
/// Deliveries in flight.
const PREFETCH: u16 = 2000;
/// The publisher waits when it is so far ahead of the acknowledgements: what waits in the queue is
/// alive, and says nothing about what is not.
const AHEAD: usize = 2 * WINDOW + PREFETCH as usize;
/// Messages per acknowledgement.
const STEP: usize = 100;

pub(crate) fn measure(gibibytes: usize) -> Verdict {
    // The default segment size, in which the bound is stated.
    let segment: u64 = 32 << 20;
    let cluster = Setup::new().set("journal.segment_size", "32MiB").start();
    let total = gibibytes << 20;
    let mut holder = cluster.channel(0);
    holder.queue(1, "q", DURABLE, &quorum()).expect("declares");
    holder.confirm_select(1).expect("confirms");
    holder.put(1, "q", "held for the whole time").expect("publishes");
    holder.confirms(1, 1).expect("confirmed");
    holder.get(1, "q", false).expect("gets").expect("the message");

    let peaks: Vec<AtomicU64> = (0..3).map(|_| AtomicU64::new(0)).collect();
    let over = AtomicBool::new(false);
    let begin = Instant::now();
    std::thread::scope(|scope| {
        let _ended = Ended(&over);
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                for (node, peak) in cluster.nodes.iter().zip(&peaks) {
                    peak.fetch_max(occupied(&node.directory.join("journal")), Ordering::Relaxed);
                }
                std::thread::sleep(Duration::from_millis(50));
            }
        });
        let (acked, acks) = mpsc::channel();
        let consumer = scope.spawn(|| {
            let acked = acked;
            let mut client = cluster.channel(2);
            client.qos(1, PREFETCH, false).expect("qos");
            client.consume(1, "q", "c").expect("consumes");
            for n in 1..=total {
                let message = client.delivery(1).expect("a delivery");
                if n.is_multiple_of(STEP) || n == total {
                    client.ack(1, message.tag, true).expect("acks");
                    client.flush().expect("flushes");
                    // The publisher may have no use for it any more.
                    acked.send(()).ok();
                }
            }
            client.sync(1).expect("the last ack is seen");
        });
        let mut publisher = cluster.channel(1);
        publisher.confirm_select(1).expect("confirms");
        let body = vec![b'x'; 1024];
        let mut confirms = Confirms::default();
        for n in 1..=total {
            publisher.put(1, "q", &body).expect("publishes");
            if n > AHEAD && n.is_multiple_of(STEP) {
                publisher.flush().expect("flushes");
                acks.recv().expect("the consumer goes on");
            }
            if n > WINDOW && n.is_multiple_of(STEP) {
                publisher.await_confirms(1, &mut confirms, n - WINDOW).expect("confirmed");
                confirms.forget();
            }
        }
        publisher.await_confirms(1, &mut confirms, total).expect("confirmed");
        consumer.join().expect("the consumer got everything");
    });
    let took = begin.elapsed();
    let peaks: Vec<u64> = peaks.into_iter().map(AtomicU64::into_inner).collect();
    // Live: the held one, what waits between publisher and consumer, and the tail of the log that is
    // kept for members that lag.
    let live = AHEAD as u64 * 1100 + (8 << 20);
    let bound = 3 * live + 6 * segment;
    let peak = peaks.iter().copied().max().unwrap_or_default();
    let shown: Vec<String> = peaks.iter().map(|peak| mib(*peak)).collect();
    Verdict {
        figures: format!(
            "{gibibytes} GiB in {total} messages past one unacknowledged in {took:?}: the journals \
             took {} at most, {} allowed; resident {} in all",
            shown.join(", "),
            mib(bound),
            mib(cluster.resident()),
        ),
        holds: peak <= bound,
    }
}

/// Says that it is over, however it ends.
struct Ended<'a>(&'a AtomicBool);

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
