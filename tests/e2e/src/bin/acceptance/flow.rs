//! A5: one message stays unacknowledged while gigabytes flow past it.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use e2e::client::confirms::Confirms;
use e2e::client::connect::Options;
use e2e::client::topology::DURABLE;
use e2e::node::{Setup, occupied};
use e2e::table;

use crate::{Verdict, mib};

/// Confirms and deliveries in flight.
const WINDOW: usize = 1000;

pub(crate) fn measure(gibibytes: usize) -> Verdict {
    // The default segment size, in which the bound is stated.
    let segment: u64 = 32 << 20;
    let node = Setup::new().set("journal.segment_size", "32MiB").start();
    let total = gibibytes << 20;
    let mut holder = Options::new(node.amqp).connect().expect("connects");
    holder.open(1).expect("opens");
    holder.queue(1, "q", DURABLE, &table! {}).expect("declares");
    holder.confirm_select(1).expect("confirms");
    holder.put(1, "q", "held for the whole time").expect("publishes");
    holder.confirms(1, 1).expect("confirmed");
    holder.get(1, "q", false).expect("gets").expect("the message");

    let journal = node.directory.join("journal");
    let (peak, over) = (AtomicU64::new(0), AtomicBool::new(false));
    let begin = Instant::now();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                peak.fetch_max(occupied(&journal), Ordering::Relaxed);
                std::thread::sleep(Duration::from_millis(20));
            }
        });
        let address = node.amqp;
        let consumer = scope.spawn(move || {
            let mut client = Options::new(address).connect().expect("connects");
            client.open(1).expect("opens");
            client.qos(1, 2000, false).expect("qos");
            client.consume(1, "q", "c").expect("consumes");
            for n in 1..=total {
                let message = client.delivery(1).expect("a delivery");
                if n % 100 == 0 || n == total {
                    client.ack(1, message.tag, true).expect("acks");
                    client.flush().expect("flushes");
                }
            }
            client.sync(1).expect("the last ack is seen");
        });
        let mut publisher = Options::new(address).connect().expect("connects");
        publisher.open(1).expect("opens");
        publisher.confirm_select(1).expect("confirms");
        let body = vec![b'x'; 1024];
        let mut confirms = Confirms::default();
        for n in 1..=total {
            publisher.put(1, "q", &body).expect("publishes");
            if n > WINDOW && n.is_multiple_of(100) {
                publisher.await_confirms(1, &mut confirms, n - WINDOW).expect("confirmed");
                confirms.forget();
            }
        }
        publisher.await_confirms(1, &mut confirms, total).expect("confirmed");
        consumer.join().expect("the consumer got everything");
        over.store(true, Ordering::Relaxed);
    });
    let peak = peak.into_inner();
    // Live: the held one, and what waits between publisher and consumer.
    let live = (2 * WINDOW as u64 + 2000) * 1100;
    let bound = 3 * live + 6 * segment;
    let after = holder.depth(1, "q").expect("the holder lives").messages;
    Verdict {
        figures: format!(
            "{gibibytes} GiB in {total} messages past one unacknowledged in {:?}: the journal \
             took {} at most, {} allowed; resident {}; {after} left ready",
            begin.elapsed(),
            mib(peak),
            mib(bound),
            mib(node.resident()),
        ),
        holds: peak <= bound && after == 0,
    }
}
