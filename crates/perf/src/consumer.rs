//! A consumer: reads deliveries where they lie, checks them, acknowledges in batches.

use crate::client::{CHANNEL, Client, Notice};
use crate::ledger::Last;
use crate::load::{Load, histogram};
use crate::stamp::{self, Id};
use amq_protocol::protocol::AMQPClass;
use amq_protocol::protocol::basic::{AMQPMethod as Basic, Consume, Qos};
use amq_protocol::types::FieldTable;
use anyhow::{Result, bail};
use hdrhistogram::Histogram;
use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::time::Instant;
use wire::ack::{self, Settlement};
use wire::content::ContentHeader;
use wire::deliver;
use wire::frame::{self, FrameRef, Kind};

/// What one consumer did.
#[derive(Debug)]
pub struct Consumed {
    /// Deliveries.
    pub count: u64,
    /// Bytes of body.
    pub bytes: u64,
    /// Deliveries marked as redelivered.
    pub redelivered: u64,
    /// Messages that are not of this run; not verified.
    pub foreign: u64,
    /// When the last delivery came.
    pub last: Option<Instant>,
    /// From sending to here, in nanoseconds.
    pub latency: Histogram<u64>,
}

/// Runs consumer `index` until the run stops it.
///
/// # Errors
/// If the connection fails or the broker closes it.
pub async fn run(load: &Load, index: u16) -> Result<Consumed> {
    let options = &load.options;
    let name = format!("leveret-perf consumer {}", index + 1);
    let mut client = Client::connect(&options.uri, &name, options.heartbeat).await?;
    let queue = load.queue_of(index);
    if options.exclusive {
        crate::run::declare(&mut client, load, queue).await?;
    }
    if let Some(prefetch) = options.prefetch()
        && prefetch > 0
    {
        let qos = Qos { prefetch_count: prefetch, global: false };
        client.call(CHANNEL, AMQPClass::Basic(Basic::Qos(qos))).await?;
    }
    let consume = Consume {
        queue: queue.into(),
        consumer_tag: "perf".into(),
        no_local: false,
        no_ack: options.ack_every.is_none(),
        exclusive: false,
        nowait: false,
        arguments: FieldTable::default(),
    };
    client.call(CHANNEL, AMQPClass::Basic(Basic::Consume(consume))).await?;
    load.ready.fetch_add(1, Ordering::AcqRel);
    let mut consumer = Consumer {
        load,
        pending: None,
        batch: Vec::new(),
        lasts: BTreeMap::new(),
        tag: 0,
        acked: 0,
        consumed: Consumed {
            count: 0,
            bytes: 0,
            redelivered: 0,
            foreign: 0,
            last: None,
            latency: histogram()?,
        },
    };
    while !load.stop_consuming.load(Ordering::Acquire) {
        client.turn(None).await?;
        consumer.read(&mut client)?;
    }
    if options.ack_every.is_some() && consumer.tag > consumer.acked {
        let all = Settlement::Ack { delivery_tag: consumer.tag, multiple: true };
        ack::write(&mut client.output, CHANNEL, all);
    }
    if load.failure().is_none() {
        client.close().await?;
    }
    Ok(consumer.consumed)
}

/// A delivery of which not everything has come.
#[derive(Debug, Clone, Copy)]
struct Pending {
    redelivered: bool,
    sent: Option<u64>,
    id: Option<u64>,
    /// `None` until the header has come.
    missing: Option<u64>,
}

struct Consumer<'a> {
    load: &'a Load,
    pending: Option<Pending>,
    /// Messages of one reading, for the ledgers.
    batch: Vec<(u64, bool)>,
    lasts: BTreeMap<u16, Last>,
    tag: u64,
    acked: u64,
    consumed: Consumed,
}

impl Consumer<'_> {
    fn read(&mut self, client: &mut Client) -> Result<()> {
        let before = self.consumed.count;
        let now = stamp::now();
        let ack_every = self.load.options.ack_every.map(u64::from);
        let mut at = 0;
        let mut other = None;
        let (input, output) = client.input();
        while let Some(frame) = frame::peek(&input[at..], 0)? {
            at += frame.len();
            if !self.on_frame(frame, now)? {
                other = Some(frame.payload.to_vec());
                break;
            }
            if let Some(ack_every) = ack_every
                && self.pending.is_none()
                && self.tag - self.acked >= ack_every
            {
                let settlement = Settlement::Ack { delivery_tag: self.tag, multiple: true };
                ack::write(output, CHANNEL, settlement);
                self.acked = self.tag;
            }
        }
        client.consumed(at);
        if self.consumed.count > before {
            self.verify();
            self.consumed.last = Some(Instant::now());
            self.load.consumed.fetch_add(self.consumed.count - before, Ordering::Relaxed);
        }
        if let Some(payload) = other {
            match client.on_method(&payload)? {
                Notice::Other(other) => bail!("the broker sent {other:?} to a consumer"),
                Notice::Blocked | Notice::Returned(_) => self.read(client)?,
            }
        }
        Ok(())
    }

    /// Takes a frame; false if it is a method that has nothing to do with deliveries.
    #[inline]
    fn on_frame(&mut self, frame: FrameRef<'_>, now: u64) -> Result<bool> {
        match (frame.kind, &mut self.pending) {
            (Kind::Method, None) => {
                let Some((deliver, _)) = deliver::parse_deliver(frame.payload) else {
                    return Ok(false);
                };
                if deliver.delivery_tag != self.tag + 1 {
                    bail!("delivery tag {} follows {}", deliver.delivery_tag, self.tag);
                }
                self.tag = deliver.delivery_tag;
                let redelivered = deliver.redelivered;
                self.pending = Some(Pending { redelivered, sent: None, id: None, missing: None });
            }
            (Kind::Header, Some(pending @ Pending { missing: None, .. })) => {
                let Ok(header) = ContentHeader::parse(frame.payload) else {
                    bail!("a content header of {} bytes", frame.payload.len());
                };
                pending.missing = Some(header.body_size);
                self.consumed.bytes += header.body_size;
                if header.body_size == 0 {
                    self.finish(now);
                }
            }
            (Kind::Body, Some(pending @ Pending { missing: Some(_), .. })) => {
                let missing = pending.missing.unwrap_or_default();
                let Some(missing) = missing.checked_sub(frame.payload.len() as u64) else {
                    bail!("{} bytes of body where {missing} are missing", frame.payload.len());
                };
                if pending.id.is_none() {
                    (pending.sent, pending.id) = stamp::read(frame.payload);
                }
                pending.missing = Some(missing);
                if missing == 0 {
                    self.finish(now);
                }
            }
            (Kind::Heartbeat, _) => {}
            (kind, pending) => bail!("a {kind:?} frame after {pending:?}"),
        }
        Ok(true)
    }

    #[inline]
    fn finish(&mut self, now: u64) {
        let Some(pending) = self.pending.take() else { return };
        self.consumed.count += 1;
        self.consumed.redelivered += u64::from(pending.redelivered);
        if let Some(sent) = pending.sent {
            self.consumed.latency.saturating_record(now.saturating_sub(sent));
        }
        if self.load.options.verify {
            match pending.id {
                Some(id) => self.batch.push((id, pending.redelivered)),
                None => self.consumed.foreign += 1,
            }
        }
    }

    /// Enters a batch into the ledgers, taking each lock once per run of the same publisher.
    fn verify(&mut self) {
        let mut distinct = 0;
        let mut rest = &self.batch[..];
        while let Some(&(first, _)) = rest.first() {
            let Id { run, publisher, .. } = Id::unpack(first);
            let same = |id: u64| {
                let id = Id::unpack(id);
                (id.run, id.publisher) == (run, publisher)
            };
            let count = rest.iter().take_while(|(id, _)| same(*id)).count();
            let (group, others) = rest.split_at(count);
            rest = others;
            let ledger = self.load.ledgers.get(usize::from(publisher));
            let Some(ledger) = ledger.filter(|_| run == self.load.run) else {
                self.consumed.foreign += count as u64;
                continue;
            };
            let mut ledger = ledger.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            let last = self.lasts.entry(publisher).or_default();
            let before = ledger.distinct;
            for &(id, redelivered) in group {
                ledger.note(last, Id::unpack(id).number, redelivered);
            }
            distinct += ledger.distinct - before;
        }
        self.batch.clear();
        self.load.distinct.fetch_add(distinct, Ordering::Relaxed);
    }
}
