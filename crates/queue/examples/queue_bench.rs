//! Prints what the queue machine costs: nanoseconds per message and bytes per waiting message.
//!
//! `cargo run --release -p queue --example queue_bench [MESSAGES]`, 10 million by default.

#![expect(clippy::print_stdout, reason = "printing is all that it is for")]
#![expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    reason = "figures are rounded and counts are small"
)]
#![expect(clippy::disallowed_methods, reason = "a benchmark reads the clock")]

use std::time::Instant;

use model::id::{ConsumerId, Seq};
use model::time::{Millis, Timestamp};
use queue::command::{Arrival, Command, Outcome, Subscription};
use queue::effect::Effect;
use queue::queue::Queue;
use queue::settings::{Settings, Style};

const NOW: Timestamp = Timestamp(1_000_000);

fn main() {
    let mut arguments = std::env::args().skip(1);
    let messages = arguments.next().map_or(10_000_000, |count| {
        count.parse().expect("the first argument is a number of messages")
    });
    if let Some(what) = arguments.next() {
        return backlog(&what, messages);
    }
    flow("one consumer, ack each", messages, 1, 1, |_| {});
    flow("one consumer, ack every 10", messages, 1, 10, |_| {});
    flow("one consumer, ack every 1000", messages, 1, 1000, |_| {});
    flow("one consumer, no ack", messages, 1, 10, |terms| terms.no_ack = true);
    flow("one consumer, window and timeout", messages, 1, 10, |terms| {
        terms.window_bytes = 1 << 20;
        terms.timeout = Some(Millis(1_800_000));
    });
    flow("ten consumers, ack each run", messages, 10, 10, |terms| terms.prefetch = 100);
    requeue(messages / 10);
    println!("{:<48} {:>7} bytes", "an empty queue", size_of::<Queue>());
    for what in ["ordinary", "deadline", "priorities"] {
        // Each in a process of its own, or it would fill the room that the last one left.
        let program = std::env::current_exe().expect("a running program has a path");
        let status =
            std::process::Command::new(program).args([&messages.to_string(), what]).status();
        assert!(status.is_ok_and(|status| status.success()), "backlog of {what}");
    }
}

fn arrival(seq: u64) -> Command {
    let priority = Some((seq % 10) as u8);
    Command::Enqueue(Arrival { seq: Seq(seq), bytes: 1024, priority, ttl: None })
}

fn report(what: &str, messages: u64, start: Instant) {
    let elapsed = start.elapsed().as_nanos() as f64;
    println!("{what:<48} {:>7.1} ns/message", elapsed / messages as f64);
}

/// Each message is enqueued, delivered at once and settled, as a driver would do it.
fn flow(
    what: &str,
    messages: u64,
    consumers: u64,
    acks_every: usize,
    set: impl Fn(&mut Subscription),
) {
    let mut queue = Queue::new(Settings::new(Style::Classic), NOW);
    let mut effects = Vec::new();
    let mut terms = Subscription::new(ConsumerId(0));
    for consumer in 0..consumers {
        terms = Subscription::new(ConsumerId(consumer));
        set(&mut terms);
        queue.apply(NOW, Command::Consume(terms), &mut effects);
    }
    effects.clear();
    let mut delivered: Vec<(ConsumerId, Seq)> = Vec::new();
    let start = Instant::now();
    for seq in 0..messages {
        queue.apply(NOW, arrival(seq), &mut effects);
        for effect in effects.drain(..) {
            if let Effect::Deliver { consumer, seq, .. } = effect {
                delivered.push((consumer, seq));
            }
        }
        if delivered.len() < acks_every {
            continue;
        }
        if terms.window_bytes > 0 {
            let messages = delivered.len() as u32;
            let bytes = u64::from(messages) * 1024;
            queue.apply(
                NOW,
                Command::Sent { consumer: ConsumerId(0), messages, bytes },
                &mut effects,
            );
        }
        if terms.no_ack {
            delivered.clear();
        }
        let mut runs = delivered.drain(..);
        let mut next = runs.next();
        while let Some((consumer, first)) = next {
            let mut last = first;
            next = runs.next();
            while let Some((same, seq)) = next
                && same == consumer
                && seq == last.next()
            {
                last = seq;
                next = runs.next();
            }
            let consumer = Some(consumer);
            let settle =
                Command::Settle { consumer, first, last, outcome: Outcome::Accept, more: false };
            queue.apply(NOW, settle, &mut effects);
        }
        effects.clear();
    }
    report(what, messages, start);
    assert_eq!(queue.ready(), 0);
}

/// A thousand messages are held, and all come back and go out again, over and over.
fn requeue(messages: u64) {
    let mut queue = Queue::new(Settings::new(Style::Classic), NOW);
    let mut effects = Vec::new();
    for seq in 0..1_000 {
        queue.apply(NOW, arrival(seq), &mut effects);
    }
    let consumer = ConsumerId(0);
    queue.apply(NOW, Command::Consume(Subscription::new(consumer)), &mut effects);
    let start = Instant::now();
    for _ in 0..messages / 1_000 {
        effects.clear();
        let settle = Command::Settle {
            consumer: Some(consumer),
            first: Seq(0),
            last: Seq(999),
            outcome: Outcome::Return,
            more: false,
        };
        queue.apply(NOW, settle, &mut effects);
    }
    report("returned and delivered again", messages, start);
    assert_eq!(queue.unsettled(), 1_000);
}

/// All messages wait first, then they are delivered and settled.
fn backlog(what: &str, messages: u64) {
    let plain = Settings::new(Style::Classic);
    let settings = match what {
        "ordinary" => plain,
        "deadline" => Settings { message_ttl: Some(Millis(60_000)), ..plain },
        "priorities" => Settings { max_priority: Some(9), ..plain },
        _ => panic!("no backlog of that kind"),
    };
    let mut effects = Vec::new();
    let before = resident();
    let mut queue = Queue::new(settings.clone(), NOW);
    let start = Instant::now();
    for seq in 0..messages {
        queue.apply(NOW, arrival(seq), &mut effects);
    }
    report(&format!("backlog of {what}: fill"), messages, start);
    assert_eq!(queue.ready(), messages);
    let bytes = resident().saturating_sub(before);
    println!(
        "{:<48} {:>7.1} bytes/message, {} MiB",
        format!("backlog of {what}: memory"),
        bytes as f64 / messages as f64,
        bytes >> 20
    );
    let mut snapshot = Vec::new();
    let start = Instant::now();
    queue.encode(&mut snapshot);
    report(&format!("backlog of {what}: encode"), messages, start);
    println!(
        "{:<48} {:>7.1} bytes/message",
        format!("backlog of {what}: snapshot"),
        snapshot.len() as f64 / messages as f64
    );
    let start = Instant::now();
    drop(Queue::decode(&snapshot).expect("it was just encoded"));
    report(&format!("backlog of {what}: decode"), messages, start);
    drop(snapshot);
    let consumer = ConsumerId(0);
    let terms = Subscription { prefetch: 100, ..Subscription::new(consumer) };
    let start = Instant::now();
    queue.apply(NOW, Command::Consume(terms), &mut effects);
    let mut rounds = Vec::new();
    while !effects.is_empty() {
        std::mem::swap(&mut rounds, &mut effects);
        for effect in rounds.drain(..) {
            if let Effect::Deliver { seq, .. } = effect {
                let settle = Command::Settle {
                    consumer: Some(consumer),
                    first: seq,
                    last: seq,
                    outcome: Outcome::Accept,
                    more: false,
                };
                queue.apply(NOW, settle, &mut effects);
            }
        }
    }
    report(&format!("backlog of {what}: drain, ack each"), messages, start);
    assert_eq!((queue.ready(), queue.unsettled()), (0, 0));

    let mut restored = Queue::restore(settings, NOW);
    let Command::Enqueue(one) = arrival(0) else { return };
    let head = restored.arrival_head(NOW, &one).encode();
    let start = Instant::now();
    for seq in 0..messages {
        restored.restore_message(Seq(seq), &head, true).expect("the head was just encoded");
    }
    report(&format!("backlog of {what}: restore"), messages, start);
    let start = Instant::now();
    restored.apply(NOW, Command::Purge, &mut effects);
    report(&format!("backlog of {what}: purge"), messages, start);
}

/// Resident bytes of this process.
fn resident() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").expect("runs on Linux");
    let pages: u64 = statm
        .split(' ')
        .nth(1)
        .and_then(|pages| pages.parse().ok())
        .expect("the second field is the resident set");
    pages * 4096
}
