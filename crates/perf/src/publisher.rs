//! A publisher: fills the socket with copies of one template, within the limits of window and rate.

use crate::client::{CHANNEL, Client, Notice};
use crate::confirms::Confirms;
use crate::load::{Load, histogram};
use crate::stamp::{self, Id};
use amq_protocol::protocol::AMQPClass;
use amq_protocol::protocol::confirm::{AMQPMethod as Confirm, Select};
use anyhow::{Result, anyhow, bail};
use bytes::BytesMut;
use hdrhistogram::Histogram;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use wire::frame::{self, Kind};
use wire::{ack, publish};

/// Bytes that are encoded before they are sent: enough to make the system call cheap per message,
/// little enough to stay in the cache.
const BATCH_LEN: usize = 64 * 1024;
/// Messages that share one reading of the clock.
const STAMP_COUNT: u64 = 16;

/// What one publisher did.
#[derive(Debug)]
pub struct Published {
    /// Messages written.
    pub sent: u64,
    /// Confirmed.
    pub acked: u64,
    /// Refused.
    pub nacked: u64,
    /// Numbers of messages that were written, and neither confirmed nor refused at the end.
    pub unconfirmed: Vec<u64>,
    /// Came back as unroutable.
    pub returned: u64,
    /// Time during which the broker blocked it.
    pub blocked: Duration,
    /// When it ended.
    pub end: Instant,
    /// From sending to the confirm, in nanoseconds.
    pub confirm: Histogram<u64>,
    /// Product and version of the broker.
    pub server: String,
}

/// Runs publisher `index` to its end.
///
/// # Errors
/// If the connection fails or the broker closes it.
pub async fn run(load: &Load, index: u16) -> Result<Published> {
    let options = &load.options;
    let name = format!("leveret-perf publisher {}", index + 1);
    let mut client = Client::connect(&options.uri, &name, options.heartbeat).await?;
    if options.confirms.is_some() {
        let select = AMQPClass::Confirm(Confirm::Select(Select { nowait: false }));
        client.call(CHANNEL, select).await?;
    }
    let mut publisher = Publisher::new(load, index, client)?;
    load.ready.fetch_add(1, Ordering::AcqRel);
    while !load.go.load(Ordering::Acquire) && !load.stop_publishing.load(Ordering::Acquire) {
        publisher.client.turn(None).await?;
        publisher.read()?;
    }
    publisher.publish().await
}

struct Publisher<'a> {
    load: &'a Load,
    client: Client,
    template: BytesMut,
    body: usize,
    id: u64,
    sent: u64,
    limit: u64,
    window: Option<u64>,
    confirms: Confirms,
    confirm: Histogram<u64>,
    returned: u64,
    blocked_since: Option<Instant>,
    blocked: Duration,
}

impl<'a> Publisher<'a> {
    fn new(load: &'a Load, index: u16, client: Client) -> Result<Self> {
        let options = &load.options;
        let mut template = BytesMut::new();
        let properties: &[u8] = if options.persistent { &[0x10, 0, 2] } else { &[0, 0] };
        publish::write(
            &mut template,
            CHANNEL,
            &options.exchange,
            options.routing_key.as_deref().unwrap_or(load.queue_of(index)),
            options.mandatory,
            properties,
            &vec![b'x'; options.size as usize],
            client.frame_max,
        );
        let length = |at: usize| -> Result<usize> {
            let frame = frame::peek(&template[at..], 0)?;
            Ok(frame.ok_or_else(|| anyhow!("the template is not whole"))?.len())
        };
        let header = length(0)?;
        let body = header + length(header)? + frame::HEADER_LEN;
        Ok(Self {
            load,
            client,
            template,
            body,
            id: Id { run: load.run, publisher: index, number: 0 }.pack(),
            sent: 0,
            limit: load.share_of(index).unwrap_or(u64::MAX),
            window: options.confirms.map(u64::from),
            confirms: Confirms::default(),
            confirm: histogram()?,
            returned: 0,
            blocked_since: None,
            blocked: Duration::ZERO,
        })
    }

    async fn publish(mut self) -> Result<Published> {
        let start = Instant::now();
        let mut progress = Instant::now();
        let stall = Duration::try_from_secs_f64(self.load.options.stall)?;
        loop {
            let stopped = self.load.stop_publishing.load(Ordering::Acquire);
            let before = (self.sent, self.confirms.open(), self.client.output.len());
            let due = if stopped { None } else { self.fill(start) };
            let finished = stopped || self.sent >= self.limit;
            if finished && self.client.output.is_empty() && self.confirms.open() == 0 {
                break;
            }
            self.client.turn(due).await?;
            self.read()?;
            let after = (self.sent, self.confirms.open(), self.client.output.len());
            if !finished || before != after {
                progress = Instant::now();
            } else if progress.elapsed() > stall || self.load.failure().is_some() {
                break;
            }
        }
        let end = Instant::now();
        // what the broker did not take any more was never published; its beginning may have been
        let unsent = self.client.output.len().div_ceil(self.template.len()) as u64;
        // it may be a heartbeat
        let unsent = unsent.min(self.sent);
        self.sent -= unsent;
        self.load.published.fetch_sub(unsent, Ordering::Relaxed);
        self.blocked += self.blocked_since.map_or(Duration::ZERO, |since| since.elapsed());
        let Self { client, confirms, sent, returned, blocked, confirm, .. } = self;
        let server = client.server.clone();
        let unconfirmed =
            confirms.open_tags().map(|tag| tag - 1).take_while(|number| *number < sent).collect();
        let (acked, nacked) = (confirms.acked, confirms.nacked);
        if unsent == 0 {
            client.close().await?;
        }
        Ok(Published { sent, acked, nacked, unconfirmed, returned, blocked, end, confirm, server })
    }

    /// Appends as many messages as may be sent now; with a rate, says when the next one is due.
    fn fill(&mut self, start: Instant) -> Option<Instant> {
        if self.client.blocked.is_some() {
            return None;
        }
        let mut quota = self.limit - self.sent;
        if let Some(window) = self.window {
            quota = quota.min(window.saturating_sub(self.confirms.open() as u64));
        }
        let mut due = None;
        if let Some(rate) = self.load.options.rate {
            let micros = start.elapsed().as_micros();
            let allowed = u64::try_from(micros * u128::from(rate) / 1_000_000).unwrap_or(u64::MAX);
            quota = quota.min((allowed + 1).saturating_sub(self.sent));
            let next = u128::from(self.sent + quota) * 1_000_000 / u128::from(rate);
            // in the past: it is not the rate that holds it back
            if next > micros {
                let next = Duration::from_micros(u64::try_from(next).unwrap_or(u64::MAX));
                due = start.checked_add(next);
            }
        }
        let output = &mut self.client.output;
        if let Some(batch) = self.load.options.batch {
            quota = if output.is_empty() { quota.min(batch) } else { 0 };
        }
        let before = self.sent;
        while quota > 0 && output.len() < BATCH_LEN {
            let now = stamp::now().max(1);
            let count = quota.min(STAMP_COUNT);
            quota -= count;
            for _ in 0..count {
                let at = output.len() + self.body;
                output.extend_from_slice(&self.template);
                if self.load.options.size >= 8 {
                    stamp::write(&mut output[at..], now, self.id + self.sent);
                }
                self.sent += 1;
                if self.window.is_some() {
                    self.confirms.publish(now);
                }
            }
        }
        self.load.published.fetch_add(self.sent - before, Ordering::Relaxed);
        due
    }

    /// Takes what the broker sent: confirms, returns, alarms.
    fn read(&mut self) -> Result<()> {
        let before = (self.confirms.acked, self.confirms.nacked + self.returned);
        let mut now = 0;
        loop {
            let (input, _) = self.client.input();
            let Some(frame) = frame::peek(input, 0)? else { break };
            let length = frame.len();
            if frame.kind == Kind::Method {
                if let Some(settlement) = ack::parse(frame.payload) {
                    if now == 0 {
                        now = stamp::now();
                    }
                    let confirm = &mut self.confirm;
                    self.confirms
                        .settle(settlement, |sent| {
                            confirm.saturating_record(now.saturating_sub(sent));
                        })
                        .map_err(anyhow::Error::msg)?;
                } else {
                    let payload = frame.payload.to_vec();
                    self.on_method(&payload)?;
                }
            }
            self.client.consumed(length);
        }
        self.load.confirmed.fetch_add(self.confirms.acked - before.0, Ordering::Relaxed);
        let refused = self.confirms.nacked + self.returned - before.1;
        self.load.refused.fetch_add(refused, Ordering::Relaxed);
        Ok(())
    }

    fn on_method(&mut self, payload: &[u8]) -> Result<()> {
        match self.client.on_method(payload)? {
            Notice::Blocked => {
                if let Some(reason) = &self.client.blocked {
                    self.load.say(&format!("blocked by the broker: {reason}"));
                    self.blocked_since = Some(Instant::now());
                } else {
                    let since = self.blocked_since.take();
                    self.blocked += since.map_or(Duration::ZERO, |since| since.elapsed());
                    self.load.say("no longer blocked");
                }
            }
            Notice::Returned(_) => self.returned += 1,
            Notice::Other(other) => bail!("the broker sent {other:?} to a publisher"),
        }
        Ok(())
    }
}
