//! One run, from declaring the queues to the outcome.

use crate::client::{CHANNEL, Client};
use crate::consumer::{self, Consumed};
use crate::load::Load;
use crate::options::Options;
use crate::process::Sample;
use crate::publisher::{self, Published};
use crate::{arguments, stamp};
use amq_protocol::protocol::AMQPClass;
use amq_protocol::protocol::queue::{AMQPMethod as Queue, Bind, Declare, Delete, Purge};
use amq_protocol::types::FieldTable;
use anyhow::{Context as _, Result, anyhow};
use std::fmt::Write as _;
use std::io::Write as _;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// What came of a run.
#[derive(Debug)]
pub struct Outcome {
    /// Everything that the threads shared, and the options.
    pub load: Load,
    /// One for each publisher.
    pub published: Vec<Published>,
    /// One for each consumer.
    pub consumed: Vec<Consumed>,
    /// When publishing began.
    pub start: Instant,
    /// When the last thing happened.
    pub end: Instant,
    /// The consumers did not get everything before patience ended.
    pub stalled: bool,
    /// The broker's processes, if they were given; counters are those of the run.
    pub broker: Option<Sample>,
    /// This process; counters are those of the run.
    pub client: Sample,
}

/// Runs the load that the options describe; blocks until it is over.
///
/// # Errors
/// If the options are wrong, a connection fails, or the broker refuses something.
pub fn run(options: Options) -> Result<Outcome> {
    options.check().map_err(anyhow::Error::msg)?;
    let arguments = match &options.queue_args {
        Some(text) => arguments::parse(text).map_err(anyhow::Error::msg)?,
        None => FieldTable::default(),
    };
    // another run id for every millisecond
    let clock = u16::try_from(stamp::now() / 1_000_000 % 4096).unwrap_or_default();
    let run = options.run_id.unwrap_or(clock);
    let load = Load::new(options, arguments, run);
    Sample::take(&load.options.broker_pid).map_err(anyhow::Error::msg)?;
    block_on(set_up(&load))??;
    let outcome = std::thread::scope(|scope| {
        let consumers: Vec<_> = (0..load.options.consumers)
            .map(|index| {
                let load = &load;
                scope.spawn(move || guarded(load, "consumer", index, consumer::run(load, index)))
            })
            .collect();
        wait_ready(&load, consumers.len());
        let publishers: Vec<_> = (0..load.options.publishers)
            .map(|index| {
                let load = &load;
                scope.spawn(move || {
                    let done = guarded(load, "publisher", index, publisher::run(load, index));
                    load.publishers_done.fetch_add(1, Ordering::AcqRel);
                    done
                })
            })
            .collect();
        wait_ready(&load, consumers.len() + publishers.len());
        let watched = watch(&load);
        load.stop();
        let join = |failed| anyhow!("a thread failed: {failed:?}");
        let published: Vec<Option<Published>> = publishers
            .into_iter()
            .map(|thread| thread.join().map_err(join))
            .collect::<Result<_>>()?;
        let consumed: Vec<Option<Consumed>> = consumers
            .into_iter()
            .map(|thread| thread.join().map_err(join))
            .collect::<Result<_>>()?;
        Ok::<_, anyhow::Error>((watched, published, consumed))
    });
    let (watched, published, consumed) = outcome?;
    if let Some(failure) = load.failure() {
        return Err(anyhow!(failure));
    }
    block_on(tear_down(&load))??;
    let Watched { start, end, stalled, broker, client } = watched?;
    Ok(Outcome {
        published: published.into_iter().flatten().collect(),
        consumed: consumed.into_iter().flatten().collect(),
        load,
        start,
        end,
        stalled,
        broker,
        client,
    })
}

fn block_on<F: Future>(future: F) -> Result<F::Output> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start a runtime")?;
    Ok(runtime.block_on(future))
}

/// Ends the run if its thread panics: the others would wait for it for ever.
struct Guard<'a>(&'a Load);

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.fail("a thread panicked".to_owned());
        }
    }
}

/// Runs a thread's work; a failure ends the whole run.
fn guarded<T>(
    load: &Load,
    what: &str,
    index: u16,
    work: impl Future<Output = Result<T>>,
) -> Option<T> {
    let _guard = Guard(load);
    match block_on(work).and_then(|result| result) {
        Ok(done) => Some(done),
        Err(error) => {
            load.fail(format!("{what} {}: {error:#}", index + 1));
            None
        }
    }
}

fn wait_ready(load: &Load, count: usize) {
    while load.ready.load(Ordering::Acquire) < count && load.failure().is_none() {
        std::thread::sleep(Duration::from_millis(1));
    }
}

struct Watched {
    start: Instant,
    end: Instant,
    stalled: bool,
    broker: Option<Sample>,
    client: Sample,
}

/// Lets the publishers go, shows progress, and returns when the run is over.
fn watch(load: &Load) -> Result<Watched> {
    let options = &load.options;
    let sample = || -> Result<Option<Sample>> {
        let pids = &options.broker_pid;
        (!pids.is_empty()).then(|| Sample::take(pids)).transpose().map_err(anyhow::Error::msg)
    };
    let (broker, client) = (sample()?, Sample::own());
    let start = Instant::now();
    load.go.store(true, Ordering::Release);
    let seconds = match (options.duration, options.messages) {
        (None, Some(_)) => None,
        (given, _) => Some(Duration::try_from_secs_f64(given.unwrap_or(10.0))?),
    };
    let stall = Duration::try_from_secs_f64(options.stall)?;
    let mut progress = Progress::new(load);
    let (mut moved, mut last, mut complete, mut stalled) = (Instant::now(), 0, None, false);
    let mut pause = Duration::from_millis(1);
    while load.failure().is_none() {
        std::thread::sleep(pause);
        pause = Duration::from_millis(5);
        progress.show(start);
        let now = Instant::now();
        if seconds.is_some_and(|seconds| now >= start + seconds) {
            load.stop_publishing.store(true, Ordering::Release);
            if options.publishers == 0 {
                break;
            }
        }
        let arrived = if options.verify { &load.distinct } else { &load.consumed };
        let arrived = arrived.load(Ordering::Relaxed);
        let all = load.consumed.load(Ordering::Relaxed) + load.confirmed.load(Ordering::Relaxed);
        if all != last {
            (last, moved) = (all, now);
        }
        if load.publishers_done.load(Ordering::Acquire) < usize::from(options.publishers) {
            moved = now;
            continue;
        }
        let published = load.published.load(Ordering::Relaxed);
        let expected = match options.publishers {
            0 => options.messages.unwrap_or(u64::MAX),
            _ => published.saturating_sub(load.refused.load(Ordering::Relaxed)),
        };
        if !options.drains() {
            break;
        }
        if arrived >= expected {
            // duplicates would come late
            let grace = Duration::from_millis(if options.verify { 200 } else { 0 });
            if now >= *complete.get_or_insert(now) + grace {
                break;
            }
        } else if now > moved + stall {
            stalled = true;
            break;
        }
    }
    let end = complete.unwrap_or_else(Instant::now);
    let broker = match (broker, sample()) {
        (Some(before), Ok(Some(after))) => Some(after - before),
        _ => None,
    };
    Ok(Watched { start, end, stalled, broker, client: Sample::own() - client })
}

struct Progress<'a> {
    load: &'a Load,
    seconds: u64,
    at: Instant,
    before: [u64; 3],
}

impl<'a> Progress<'a> {
    fn new(load: &'a Load) -> Self {
        Self { load, seconds: 0, at: Instant::now(), before: [0; 3] }
    }

    /// Prints a line if a second has passed.
    fn show(&mut self, start: Instant) {
        let seconds = start.elapsed().as_secs();
        if seconds == self.seconds {
            return;
        }
        self.seconds = seconds;
        let load = self.load;
        let after = [&load.published, &load.confirmed, &load.consumed]
            .map(|counter| counter.load(Ordering::Relaxed));
        let passed = self.at.elapsed().as_secs_f64();
        let rate = |at: usize| after[at].saturating_sub(self.before[at]) as f64 / passed;
        let mut line = format!("{seconds:>4} s  published {:>8.0}/s", rate(0));
        if load.options.confirms.is_some() {
            let _ = write!(line, "  confirmed {:>8.0}/s", rate(1));
        }
        if load.options.consumers > 0 {
            let waiting = after[0].saturating_sub(after[2]);
            let _ = write!(line, "  consumed {:>8.0}/s  waiting {waiting:>8}", rate(2));
        }
        load.say(&line);
        (self.before, self.at) = (after, Instant::now());
    }
}

impl Load {
    /// Tells the user something while the run goes on.
    pub fn say(&self, line: &str) {
        if !self.options.quiet {
            // nobody to tell it to is no reason to stop
            drop(writeln!(std::io::stderr(), "{line}"));
        }
    }
}

/// Declares one queue, binds it to the exchange if there is one, and empties it if this run both
/// publishes and consumes.
pub(crate) async fn declare(client: &mut Client, load: &Load, queue: &str) -> Result<()> {
    let options = &load.options;
    let declare = Declare {
        queue: queue.into(),
        passive: false,
        durable: !options.transient && !options.exclusive,
        exclusive: options.exclusive,
        auto_delete: options.auto_delete,
        nowait: false,
        arguments: load.arguments.clone(),
    };
    client.call(CHANNEL, AMQPClass::Queue(Queue::Declare(declare))).await?;
    if !options.exchange.is_empty() {
        let bind = Bind {
            queue: queue.into(),
            exchange: options.exchange.as_str().into(),
            routing_key: options.routing_key.as_deref().unwrap_or(queue).into(),
            nowait: false,
            arguments: FieldTable::default(),
        };
        client.call(CHANNEL, AMQPClass::Queue(Queue::Bind(bind))).await?;
    }
    if options.publishers > 0 && options.consumers > 0 {
        let purge = Purge { queue: queue.into(), nowait: false };
        client.call(CHANNEL, AMQPClass::Queue(Queue::Purge(purge))).await?;
    }
    Ok(())
}

async fn set_up(load: &Load) -> Result<()> {
    let options = &load.options;
    if options.no_declare || options.exclusive {
        return Ok(());
    }
    let name = "leveret-perf control";
    let mut client = Client::connect(&options.uri, name, options.heartbeat).await?;
    for queue in &load.queues {
        declare(&mut client, load, queue).await?;
    }
    client.close().await
}

/// Deletes the queues, unless another run may want to consume what this one published.
async fn tear_down(load: &Load) -> Result<()> {
    let options = &load.options;
    let both = options.publishers > 0 && options.consumers > 0;
    if options.no_declare || options.exclusive || options.keep || !both {
        return Ok(());
    }
    let name = "leveret-perf control";
    let mut client = Client::connect(&options.uri, name, options.heartbeat).await?;
    for queue in &load.queues {
        let delete = Delete {
            queue: queue.as_str().into(),
            if_unused: false,
            if_empty: false,
            nowait: false,
        };
        client.call(CHANNEL, AMQPClass::Queue(Queue::Delete(delete))).await?;
    }
    client.close().await
}
