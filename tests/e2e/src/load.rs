//! Persistent confirmed load, a SIGKILL at a random moment, and what must be true afterwards.
//!
//! Two queues, each with one consumer, and two publishers: each with a queue of its own, or both
//! through a fanout exchange to both queues (one body for two queues). Bodies carry round, number
//! and publisher, so after the restart every message can be accounted for:
//!
//! - *lost*: confirmed, no ack sent, and not there. Never.
//! - *reordered*: numbers of one publisher in one queue that do not rise. Never.
//! - *twice*: one number in the queue more than once. Never.
//! - *again*: received before and there again. Allowed without an ack; with an ack only if no later
//!   publish to the same queue was confirmed, since that confirm's group commit covers the ack.
//! - *unmarked*: received before, there again, but not `redelivered`. Never.
//! - *risen*: a message of an earlier round, settled and covered by a confirm. Never.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Write as _};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::client::confirms::Confirms;
use crate::client::connect::Options;
use crate::client::topology::DURABLE;
use crate::client::{Client, Outcome};
use crate::content::{Delivery, Properties};
use crate::node::Node;
use crate::table;

/// Publishes in flight per publisher.
const WINDOW: usize = 300;
/// Queues, and publishers.
const QUEUES: usize = 2;
/// The fanout exchange.
const EXCHANGE: &str = "load";

/// A small generator, so that a run can be repeated by its seed.
#[derive(Debug, Clone)]
pub struct Dice(u64);

impl Dice {
    /// From a seed.
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    /// A number below `bound`, which must not be 0.
    pub fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as usize % bound
    }
}

/// Publisher and number.
type Name = (usize, usize);

/// What one publisher knows at the end.
#[derive(Debug, Default)]
struct Published {
    /// When each number, from 1 on, was sent.
    sent: Vec<Instant>,
    confirms: Confirms,
}

/// What the consumer of one queue knows at the end.
#[derive(Debug, Default)]
struct Consumed {
    received: BTreeSet<Name>,
    /// Messages whose ack was sent; since when the broker is known to have it, if it is.
    acked: BTreeMap<Name, Option<Instant>>,
}

/// Figures over all rounds.
#[derive(Debug)]
pub struct Round {
    dice: Dice,
    fanout: bool,
    rounds: usize,
    kept: usize,
    published: usize,
    confirmed: usize,
    received: usize,
    lost: Vec<String>,
    reordered: Vec<String>,
    twice: Vec<String>,
    again_unacked: usize,
    again_acked: usize,
    again_covered: Vec<String>,
    unmarked: Vec<String>,
    risen: Vec<String>,
    slowest: Duration,
}

impl Round {
    /// Nothing has happened yet. With `fanout` both publishers reach both queues.
    pub fn new(seed: u64, fanout: bool) -> Self {
        Self {
            dice: Dice::new(seed),
            fanout,
            rounds: 0,
            kept: 0,
            published: 0,
            confirmed: 0,
            received: 0,
            lost: Vec::new(),
            reordered: Vec::new(),
            twice: Vec::new(),
            again_unacked: 0,
            again_acked: 0,
            again_covered: Vec::new(),
            unmarked: Vec::new(),
            risen: Vec::new(),
            slowest: Duration::ZERO,
        }
    }

    /// One round: load, SIGKILL, restart, account.
    ///
    /// # Panics
    /// If the node does not come back; what is wrong with messages is only written down.
    pub fn run(&mut self, node: &mut Node) {
        self.rounds += 1;
        let round = self.rounds;
        let mut client = connect(node.amqp).expect("the node serves");
        for queue in 0..QUEUES {
            client.queue(1, name(queue), DURABLE, &table! {}).expect("queues can be declared");
        }
        if self.fanout {
            client.exchange(1, EXCHANGE, "fanout", DURABLE, &table! {}).expect("declared");
            for queue in 0..QUEUES {
                client.bind(1, &name(queue), EXCHANGE, "", &table! {}).expect("bound");
            }
        }
        // One message per round stays for good, so that the journal has to carry it along.
        client.queue(1, "kept", DURABLE, &table! {}).expect("queues can be declared");
        client.confirm_select(1).expect("confirms work");
        client.put(1, "kept", round.to_string()).expect("publishing works");
        client.confirms(1, 1).expect("confirms work");
        self.kept += 1;
        drop(client);

        let goal = 50 + self.dice.below(4000);
        let confirmed = AtomicUsize::new(0);
        let over = AtomicBool::new(false);
        let address = node.amqp;
        let fanout = self.fanout;
        let seeds: Vec<u64> = (0..QUEUES * 2).map(|_| self.dice.below(1 << 30) as u64).collect();
        let records = std::thread::scope(|scope| {
            let pairs: Vec<_> = (0..QUEUES)
                .map(|queue| {
                    let (counter, over) = (&confirmed, &over);
                    let dice = Dice::new(seeds.get(queue * 2).copied().unwrap_or(1));
                    let target = if fanout {
                        (EXCHANGE.to_owned(), String::new())
                    } else {
                        (String::new(), name(queue))
                    };
                    let publisher = scope.spawn(move || {
                        publish(address, (round, queue), &target, dice, counter, over)
                    });
                    let dice = Dice::new(seeds.get(queue * 2 + 1).copied().unwrap_or(2));
                    let consumer = scope.spawn(move || consume(address, queue, dice));
                    (publisher, consumer)
                })
                .collect();
            let deadline = Instant::now() + Duration::from_secs(30);
            while confirmed.load(Ordering::Relaxed) < goal && Instant::now() < deadline {
                std::thread::yield_now();
            }
            node.kill();
            over.store(true, Ordering::Relaxed);
            pairs
                .into_iter()
                .map(|(publisher, consumer)| {
                    let published = publisher.join().expect("the publisher does not panic");
                    (published, consumer.join().expect("the consumer does not panic"))
                })
                .collect::<Vec<_>>()
        });

        self.slowest = self.slowest.max(node.start_again());
        let mut client = connect(node.amqp).expect("the node serves again");
        client.confirm_select(1).expect("confirms work");
        let kept = client.depth(1, "kept").map(|queue| queue.messages as usize);
        if kept.as_ref() != Ok(&self.kept) {
            self.lost.push(format!("round {round}: {kept:?} of {} kept ones", self.kept));
        }
        for (published, consumed) in &records {
            self.published += published.sent.len();
            self.confirmed += published.confirms.acked().len();
            self.received += consumed.received.len();
        }
        for (queue, (_, consumed)) in records.iter().enumerate() {
            let publishers: BTreeMap<usize, &Published> = records
                .iter()
                .enumerate()
                .filter(|(publisher, _)| fanout || *publisher == queue)
                .map(|(publisher, (published, _))| (publisher, published))
                .collect();
            let found = client.take_ready(1, &name(queue)).expect("the queue can be read");
            self.account(queue, &publishers, consumed, &found);
            // A confirm after this settles the reading: nothing of it may rise again.
            client.sync(1).expect("the channel lives");
            client.put(1, &name(queue), "barrier").expect("publishing works");
        }
        client.confirms(1, QUEUES).expect("confirms work");
    }

    fn account(
        &mut self,
        queue: usize,
        publishers: &BTreeMap<usize, &Published>,
        consumed: &Consumed,
        found: &[Delivery],
    ) {
        let round = self.rounds;
        // The latest send whose confirm came: its group commit covers all that went before.
        let covered = publishers
            .values()
            .flat_map(|published| {
                let acked = published.confirms.acked();
                acked.into_iter().filter_map(|number| published.sent.get(place(number) - 1))
            })
            .max()
            .copied();
        let mut there = BTreeSet::new();
        let mut before: BTreeMap<usize, usize> = BTreeMap::new();
        for message in found {
            let text = message.text();
            let mut words = text.split('-');
            let mut number =
                || words.next().and_then(|word| word.parse::<usize>().ok()).unwrap_or_default();
            let (of_round, number, publisher) = (number(), number(), number());
            let key = (publisher, number);
            let what = format!("round {round}, queue {queue}, message {key:?}");
            if of_round == 0 {
                continue; // A barrier of the round before.
            }
            if of_round != round {
                self.risen.push(format!("{what} of round {of_round}"));
                continue;
            }
            if !there.insert(key) {
                self.twice.push(what.clone());
            }
            let before = before.entry(publisher).or_default();
            if number < *before {
                self.reordered.push(format!("{what} after {before}"));
            }
            *before = number;
            if consumed.received.contains(&key) {
                if !message.redelivered {
                    self.unmarked.push(what.clone());
                }
                match consumed.acked.get(&key) {
                    None => self.again_unacked += 1,
                    Some(known) => {
                        self.again_acked += 1;
                        if known.is_some_and(|known| covered.is_some_and(|sent| sent > known)) {
                            self.again_covered.push(what);
                        }
                    }
                }
            }
        }
        for (publisher, published) in publishers {
            for number in published.confirms.acked() {
                let key = (*publisher, place(number));
                if !there.contains(&key) && !consumed.acked.contains_key(&key) {
                    self.lost.push(format!("round {round}, queue {queue}, message {key:?}"));
                }
            }
        }
    }

    /// # Panics
    /// If anything happened that may never happen.
    pub fn judge(&self) {
        assert!(self.passes(), "{self}{}", self.details());
    }

    /// The first few messages of each kind that may not happen.
    pub fn details(&self) -> String {
        let mut text = String::new();
        for (what, list) in [
            ("lost", &self.lost),
            ("reordered", &self.reordered),
            ("twice", &self.twice),
            ("again although covered", &self.again_covered),
            ("unmarked", &self.unmarked),
            ("risen", &self.risen),
        ] {
            if !list.is_empty() {
                let first: Vec<_> = list.iter().take(5).collect();
                write!(text, "\n  {what}: {first:?}").expect("writing to a string works");
            }
        }
        text
    }

    /// Whether [`judge`](Self::judge) would pass.
    pub fn passes(&self) -> bool {
        self.lost.is_empty()
            && self.reordered.is_empty()
            && self.twice.is_empty()
            && self.again_covered.is_empty()
            && self.unmarked.is_empty()
            && self.risen.is_empty()
    }
}

impl fmt::Display for Round {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            formatter,
            "{} rounds: {} published, {} confirmed, {} received; lost {}, reordered {}, twice {}, \
             again without ack {}, again with an ack later than the last group commit {}, again \
             although covered {}, not marked redelivered {}, risen {}; slowest restart {:?}",
            self.rounds,
            self.published,
            self.confirmed,
            self.received,
            self.lost.len(),
            self.reordered.len(),
            self.twice.len(),
            self.again_unacked,
            self.again_acked - self.again_covered.len(),
            self.again_covered.len(),
            self.unmarked.len(),
            self.risen.len(),
            self.slowest,
        )
    }
}

fn place(number: u64) -> usize {
    usize::try_from(number).expect("far below the largest")
}

fn name(queue: usize) -> String {
    format!("load-{queue}")
}

fn connect(address: SocketAddr) -> Outcome<Client> {
    let mut client = Options::new(address).connect()?;
    client.open(1)?;
    Ok(client)
}

/// Mostly small, some larger than a frame.
fn size(dice: &mut Dice) -> usize {
    match dice.below(200) {
        0 => 100_000 + dice.below(900_000),
        1..20 => 4_000 + dice.below(60_000),
        _ => 20 + dice.below(2_000),
    }
}

fn publish(
    address: SocketAddr,
    (round, publisher): (usize, usize),
    (exchange, key): &(String, String),
    mut dice: Dice,
    counter: &AtomicUsize,
    over: &AtomicBool,
) -> Published {
    let mut record = Published::default();
    let filler = vec![b'x'; 1_000_000];
    let mut run = || -> Outcome<()> {
        let mut client = connect(address)?;
        client.confirm_select(1)?;
        let mut answered = 0;
        let mut outcome = Ok(());
        while outcome.is_ok() && !over.load(Ordering::Relaxed) {
            let number = record.sent.len() + 1;
            let mut body = format!("{round}-{number}-{publisher}-").into_bytes();
            body.extend_from_slice(filler.get(..size(&mut dice)).unwrap_or_default());
            record.sent.push(Instant::now());
            outcome = client.publish(1, exchange, key, &Properties::persistent(), body);
            if outcome.is_ok() && number > WINDOW {
                outcome = client.await_confirms(1, &mut record.confirms, number - WINDOW);
            } else if number.is_multiple_of(32) {
                client.drain();
                client.take_confirms(1, &mut record.confirms);
            }
            let now = record.confirms.answers.len();
            counter.fetch_add(now - answered, Ordering::Relaxed);
            answered = now;
        }
        // What the broker had sent before it died.
        let all = record.sent.len();
        client.await_confirms(1, &mut record.confirms, all)
    };
    // The end of the connection is how this always ends.
    run().err();
    record
}

fn consume(address: SocketAddr, queue: usize, mut dice: Dice) -> Consumed {
    let mut record = Consumed::default();
    let mut run = || -> Outcome<()> {
        let mut client = connect(address)?;
        client.qos(1, 200, false)?;
        client.consume(1, &name(queue), "c")?;
        let mut batch = Vec::new();
        let mut limit = 10;
        loop {
            let message = client.delivery(1)?;
            let text = message.text();
            let mut words = text.split('-').skip(1).map_while(|word| word.parse().ok());
            let (Some(number), Some(publisher)) = (words.next(), words.next()) else {
                client.ack(1, message.tag, false)?;
                continue;
            };
            let key: Name = (publisher, number);
            record.received.insert(key);
            // Some are held until the end.
            if !number.is_multiple_of(50) {
                batch.push((key, message.tag));
            }
            if batch.len() >= limit {
                limit = 1 + dice.below(40);
                for (key, tag) in &batch {
                    record.acked.insert(*key, None);
                    client.ack(1, *tag, false)?;
                }
                client.sync(1)?;
                let now = Instant::now();
                for (key, _) in batch.drain(..) {
                    record.acked.insert(key, Some(now));
                }
            }
        }
    };
    run().err();
    record
}
