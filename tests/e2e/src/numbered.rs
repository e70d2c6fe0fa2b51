//! Numbered messages through a cluster in which nodes come and go, and what must be true of them.
//!
//! One publisher and one consumer per queue. Both keep to the node they are given first for as long
//! as it answers, and go on to the next one when it does not. Every message has a number of its own
//! and is published once: what has no answer when a connection ends may be there or not.
//!
//! - *lost*: confirmed and never received.
//! - *reordered*: a message that is not marked redelivered, with a number below an earlier one of
//!   the same connection. What a connection left without an answer may arrive after the first
//!   messages of the next one: order is that of a channel.
//! - *unmarked*: received before, and not marked redelivered.
//! - *answered twice*: a second confirm for one number, or an ack that covers a nack.
//! - *stuck*: what was confirmed was not received in time after the load ended.

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::client::confirms::Confirms;
use crate::client::{Client, Failure, Outcome};
use crate::cluster::channel_within;

/// Publishes in flight.
const WINDOW: usize = 200;
/// A gap between confirms that is worth to be remembered.
const GAP: Duration = Duration::from_millis(50);
/// How long a client looks at the next node after one that fails.
const PAUSE: Duration = Duration::from_millis(20);

/// What a load is.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The queue, which must be there, empty and without consumers.
    pub queue: String,
    /// The publisher's nodes, the one to begin with first.
    pub publisher: Vec<SocketAddr>,
    /// The consumer's; none: nobody consumes until the end.
    pub consumer: Vec<SocketAddr>,
    /// Messages per second at most.
    pub rate: u32,
    /// Bytes of a body.
    pub size: usize,
    /// How long a client waits for a sign of life before it goes to the next node.
    pub patience: Duration,
}

impl Plan {
    /// Small messages, as fast as they are confirmed.
    pub fn new(queue: &str, publisher: &[SocketAddr], consumer: &[SocketAddr]) -> Self {
        Self {
            queue: queue.to_owned(),
            publisher: publisher.to_vec(),
            consumer: consumer.to_vec(),
            rate: 1_000_000,
            size: 100,
            patience: Duration::from_secs(30),
        }
    }

    /// Starts publishing and consuming.
    pub fn start(self) -> Load {
        let shared = Arc::new(Shared::default());
        let publisher = {
            let (plan, shared) = (self.clone(), Arc::clone(&shared));
            thread::spawn(move || publish(&plan, &shared))
        };
        let consumer = (!self.consumer.is_empty()).then(|| {
            let (plan, shared) = (self.clone(), Arc::clone(&shared));
            thread::spawn(move || consume(&plan, &shared))
        });
        Load { plan: self, shared, publisher: Some(publisher), consumer }
    }
}

#[derive(Debug, Default)]
struct Shared {
    over: AtomicBool,
    drained: AtomicBool,
    confirmed: AtomicUsize,
    received: Mutex<Received>,
}

/// What the publisher knows.
#[derive(Debug, Default)]
struct Published {
    /// Of each number, from 0 on.
    fate: Vec<Fate>,
    twice: Vec<usize>,
    sessions: usize,
    gaps: Vec<(Instant, Duration)>,
    ends: Vec<String>,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Fate {
    #[default]
    Unknown,
    Acked,
    Nacked,
}

/// What the consumer knows.
#[derive(Debug, Default)]
struct Received {
    /// How often, by number.
    times: Vec<u8>,
    count: usize,
    /// By the publisher's connection.
    highest: BTreeMap<usize, usize>,
    reordered: Vec<(usize, usize)>,
    unmarked: Vec<usize>,
    sessions: usize,
    last: Option<Instant>,
}

impl Received {
    fn file(&mut self, number: usize, session: usize, redelivered: bool) {
        if self.times.len() <= number {
            self.times.resize(number + 1, 0);
        }
        let times = self.times.get_mut(number).expect("it was made large enough");
        if *times > 0 && !redelivered {
            self.unmarked.push(number);
        }
        *times = times.saturating_add(1);
        if !redelivered {
            let highest = self.highest.entry(session).or_insert(number);
            if number < *highest {
                self.reordered.push((number, *highest));
            }
            *highest = number.max(*highest);
        }
        self.count += 1;
        self.last = Some(Instant::now());
    }
}

/// A load that runs.
#[derive(Debug)]
pub struct Load {
    plan: Plan,
    shared: Arc<Shared>,
    publisher: Option<JoinHandle<Published>>,
    consumer: Option<JoinHandle<()>>,
}

impl Load {
    /// The queue.
    pub fn queue(&self) -> &str {
        &self.plan.queue
    }

    /// Messages confirmed so far.
    pub fn confirmed(&self) -> usize {
        self.shared.confirmed.load(Ordering::Relaxed)
    }

    /// Messages received so far.
    pub fn received(&self) -> usize {
        self.received_now().count
    }

    /// When the last message was received.
    pub fn last_received(&self) -> Option<Instant> {
        self.received_now().last
    }

    fn received_now(&self) -> std::sync::MutexGuard<'_, Received> {
        self.shared.received.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until `count` more messages than now are confirmed.
    pub fn await_more(&self, count: usize) {
        let goal = self.confirmed() + count;
        crate::wait::until("more messages are confirmed", || self.confirmed() >= goal);
    }

    /// Ends the publisher, consumes what is left, for at most `patience`, and gives account.
    pub fn finish(mut self, patience: Duration) -> Report {
        self.shared.over.store(true, Ordering::Relaxed);
        let publisher = self.publisher.take().expect("it was started");
        let published = publisher.join().expect("the publisher does not panic");
        if self.consumer.is_none() {
            let mut plan = self.plan.clone();
            plan.consumer.clone_from(&plan.publisher);
            let shared = Arc::clone(&self.shared);
            self.consumer = Some(thread::spawn(move || consume(&plan, &shared)));
        }
        let deadline = Instant::now() + patience;
        let missing = loop {
            let missing = missing(&published, &self.received_now());
            if missing.is_empty() || Instant::now() > deadline {
                break missing;
            }
            thread::sleep(Duration::from_millis(20));
        };
        self.shared.drained.store(true, Ordering::Relaxed);
        if let Some(consumer) = self.consumer.take() {
            consumer.join().expect("the consumer does not panic");
        }
        let received = self.received_now();
        let tally = |fate| published.fate.iter().filter(|one| **one == fate).count();
        Report {
            queue: self.plan.queue.clone(),
            published: published.fate.len(),
            confirmed: tally(Fate::Acked),
            nacked: tally(Fate::Nacked),
            unknown: tally(Fate::Unknown),
            received: received.count,
            again: received.times.iter().filter(|times| **times > 1).count(),
            nacked_received: published
                .fate
                .iter()
                .zip(&received.times)
                .filter(|(fate, times)| **fate == Fate::Nacked && **times > 0)
                .count(),
            sessions: (published.sessions, received.sessions),
            missing,
            reordered: received.reordered.clone(),
            unmarked: received.unmarked.clone(),
            twice: published.twice,
            gaps: published.gaps,
            ends: published.ends,
        }
    }
}

fn missing(published: &Published, received: &Received) -> Vec<usize> {
    let times = received.times.iter().copied().chain(std::iter::repeat(0));
    published
        .fate
        .iter()
        .zip(times)
        .enumerate()
        .filter(|(_, (fate, times))| **fate == Fate::Acked && *times == 0)
        .map(|(number, _)| number)
        .collect()
}

/// What became of all messages.
#[derive(Debug)]
pub struct Report {
    /// The queue.
    pub queue: String,
    /// Messages sent.
    pub published: usize,
    /// Of these, with an ack.
    pub confirmed: usize,
    /// With a nack.
    pub nacked: usize,
    /// Without an answer when their connection ended.
    pub unknown: usize,
    /// Deliveries.
    pub received: usize,
    /// Messages that were delivered more than once.
    pub again: usize,
    /// Messages that were delivered although they were nacked, which is allowed.
    pub nacked_received: usize,
    /// Connections of the publisher and of the consumer.
    pub sessions: (usize, usize),
    /// Confirmed and not received.
    pub missing: Vec<usize>,
    /// Number, and the higher one before it.
    pub reordered: Vec<(usize, usize)>,
    /// Delivered again without the mark.
    pub unmarked: Vec<usize>,
    /// Answered more than once.
    pub twice: Vec<usize>,
    /// Longer times between two confirms, with their ends.
    pub gaps: Vec<(Instant, Duration)>,
    /// How the publisher's connections ended.
    pub ends: Vec<String>,
}

impl Report {
    /// Whether nothing happened that may not happen.
    pub fn passes(&self) -> bool {
        self.missing.is_empty()
            && self.reordered.is_empty()
            && self.unmarked.is_empty()
            && self.twice.is_empty()
    }

    /// The longest time between two confirms.
    pub fn longest_gap(&self) -> Duration {
        self.gaps.iter().map(|(_, gap)| *gap).max().unwrap_or_default()
    }

    /// The longest time between two confirms that ended after `since`.
    pub fn longest_gap_in(&self, since: Instant, until: Instant) -> Duration {
        let within = self.gaps.iter().filter(|(end, gap)| *end >= since && *end <= until + *gap);
        within.map(|(_, gap)| *gap).max().unwrap_or_default()
    }

    /// # Panics
    /// If anything happened that may not happen.
    pub fn judge(&self) {
        eprintln!("{self}");
        assert!(self.passes(), "{self}");
        assert!(self.confirmed > 0, "nothing was confirmed: {self}");
    }
}

impl fmt::Display for Report {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fn few<T: fmt::Debug>(list: &[T]) -> String {
            let first: Vec<String> = list.iter().take(5).map(|one| format!("{one:?}")).collect();
            if list.is_empty() {
                "0".to_owned()
            } else {
                format!("{} ({})", list.len(), first.join(", "))
            }
        }
        write!(
            formatter,
            "{}: {} published, {} confirmed, {} nacked ({} of these delivered), {} unknown; {} \
             deliveries, {} again; lost {}, reordered {}, unmarked {}, answered twice {}; {} and {} \
             connections, longest gap {:?}",
            self.queue,
            self.published,
            self.confirmed,
            self.nacked,
            self.nacked_received,
            self.unknown,
            self.received,
            self.again,
            few(&self.missing),
            few(&self.reordered),
            few(&self.unmarked),
            few(&self.twice),
            self.sessions.0,
            self.sessions.1,
            self.longest_gap(),
        )
    }
}

/// The nodes in turn, for as long as `over` does not say that it is enough.
fn connect(
    nodes: &[SocketAddr],
    patience: Duration,
    turn: &mut usize,
    over: &AtomicBool,
) -> Option<Client> {
    while !over.load(Ordering::Relaxed) {
        let address = nodes.get(*turn % nodes.len()).copied().expect("there is a node");
        if let Ok(client) = channel_within(address, patience) {
            return Some(client);
        }
        *turn += 1;
        thread::sleep(PAUSE);
    }
    None
}

fn publish(plan: &Plan, shared: &Shared) -> Published {
    let mut record = Published::default();
    let mut turn = 0;
    let begin = Instant::now();
    let mut last = begin;
    while let Some(mut client) = connect(&plan.publisher, plan.patience, &mut turn, &shared.over) {
        record.sessions += 1;
        let base = record.fate.len();
        let mut confirms = Confirms::default();
        let outcome = publish_session(
            plan,
            shared,
            &mut client,
            &mut record,
            &mut confirms,
            &mut last,
            begin,
        );
        if let Err(failure) = outcome {
            record.ends.push(format!("{failure:?}"));
            turn += 1;
        }
        file(&mut record, base, &mut confirms, shared, &mut last);
        for number in confirms.doubled.iter().chain(&confirms.covered) {
            record.twice.push(base + place(*number));
        }
    }
    record
}

fn place(number: u64) -> usize {
    usize::try_from(number).expect("far below the largest") - 1
}

/// Moves answers from the channel's record into ours.
fn file(
    record: &mut Published,
    base: usize,
    confirms: &mut Confirms,
    shared: &Shared,
    last: &mut Instant,
) {
    let mut acked = 0;
    for (number, ack) in &confirms.answers {
        let fate = record.fate.get_mut(base + place(*number)).expect("answered after it was sent");
        if *fate == Fate::Unknown {
            acked += usize::from(*ack);
        }
        *fate = if *ack { Fate::Acked } else { Fate::Nacked };
    }
    confirms.forget();
    if acked > 0 {
        shared.confirmed.fetch_add(acked, Ordering::Relaxed);
        let now = Instant::now();
        let gap = now - *last;
        if gap >= GAP {
            record.gaps.push((now, gap));
        }
        *last = now;
    }
}

fn publish_session(
    plan: &Plan,
    shared: &Shared,
    client: &mut Client,
    record: &mut Published,
    confirms: &mut Confirms,
    last: &mut Instant,
    begin: Instant,
) -> Outcome<()> {
    client.confirm_select(1)?;
    let base = record.fate.len();
    while !shared.over.load(Ordering::Relaxed) {
        let number = record.fate.len();
        let mut body = format!("{number} {} ", record.sessions).into_bytes();
        body.resize(plan.size.max(body.len()), b'x');
        record.fate.push(Fate::Unknown);
        client.put(1, &plan.queue, body)?;
        let sent = number + 1 - base;
        let due = begin + Duration::from_secs(number as u64) / plan.rate;
        let early = due.saturating_duration_since(Instant::now());
        if !early.is_zero() {
            client.flush()?;
            thread::sleep(early);
        }
        if sent.is_multiple_of(WINDOW / 4) || !early.is_zero() {
            client.drain();
            client.take_confirms(1, confirms);
            if sent > WINDOW {
                client.await_confirms(1, confirms, sent - WINDOW)?;
            }
            file(record, base, confirms, shared, last);
        }
    }
    let sent = record.fate.len() - base;
    client.await_confirms(1, confirms, sent)
}

fn consume(plan: &Plan, shared: &Shared) {
    let mut turn = 0;
    while let Some(mut client) = connect(&plan.consumer, plan.patience, &mut turn, &shared.drained)
    {
        shared.received.lock().unwrap_or_else(PoisonError::into_inner).sessions += 1;
        if consume_session(plan, shared, &mut client).is_err() {
            turn += 1;
            thread::sleep(PAUSE);
        }
    }
}

fn consume_session(plan: &Plan, shared: &Shared, client: &mut Client) -> Outcome<()> {
    client.qos(1, 100, false)?;
    client.consume(1, &plan.queue, "c")?;
    let mut held = 0;
    let mut heard = Instant::now();
    loop {
        client.patience = Duration::from_millis(50);
        let message = client.delivery(1);
        client.patience = plan.patience;
        let message = match message {
            Ok(message) => Some(message),
            Err(Failure::Timeout) => None,
            Err(failure) => return Err(failure),
        };
        if let Some(message) = &message {
            heard = Instant::now();
            let text = message.text();
            let mut words = text.split(' ').map(str::parse::<usize>);
            let mut received = shared.received.lock().unwrap_or_else(PoisonError::into_inner);
            if let (Some(Ok(number)), Some(Ok(session))) = (words.next(), words.next()) {
                received.file(number, session, message.redelivered);
            }
            drop(received);
            held += 1;
            client.ack(1, message.tag, false)?;
        }
        let idle = message.is_none();
        if held >= 10 || (idle && held > 0) {
            client.flush()?;
            held = 0;
        }
        if idle && shared.drained.load(Ordering::Relaxed) {
            return client.sync(1);
        }
        // Is the node still there?
        if idle && heard.elapsed() > plan.patience.min(Duration::from_secs(2)) {
            client.sync(1)?;
            heard = Instant::now();
        }
    }
}
