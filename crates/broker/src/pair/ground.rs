//! What the shard of a pair stands on: the local journal, the stream to the other copy, and the rule
//! of what may be confirmed.
//!
//! ```text
//!  shard ─ submit ─► position ─┬─► local journal ─ durable ─┐
//!                              └─► sender ─ answered ───────┴─► gate and lease ─► durable() ─► shard
//! ```
//!
//! To the shard a position looks like a place in the journal, and `durable` says how far it may pay.
//! One lock orders what is appended here, what is sent, and what the copy still lacks.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use activation::age::Age;
use activation::gate::Gate;
use bytes::{Bytes, BytesMut};
use journal::error::ReadError;
use journal::op::{Lsn, Op};
use model::id::{QueueId, Seq, StreamId};
use model::time::Millis;
use parking_lot::Mutex;
use quorum::log::{Log, Then};
use replication::confirms::Confirms;
use replication::message::Upward;
use replication::sender::{Effect, Limits, Loss, Sender};
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::watch;

use crate::inbox::Inbox;
use crate::pair::backfill::{Backfill, Survey};
use crate::pair::driver::Input;
use crate::pair::hold::Hold;
use crate::pair::line::{Line, Session};
use crate::pair::works::Store;
use crate::pair::{aside, clock, ops};
use crate::shard::command::{Batch, Command, Surveyed};
use crate::shard::ground::Ground as ShardGround;

/// Bytes of operations in one request, unless one alone has more.
const REQUEST_BYTES: usize = 1 << 20;
/// Bytes of payloads that are read for one part of a copy.
const PART_BYTES: usize = 1 << 20;
/// Records that are asked for at once.
const PART_RECORDS: usize = 1024;
/// Records that one read of the journal fetches.
const READ_RECORDS: usize = 64;

/// See the module head.
#[derive(Debug)]
pub(crate) struct Ground {
    journal: Box<dyn Store>,
    durable: watch::Receiver<Lsn>,
    flow: Mutex<Flow>,
    released: AtomicU64,
    hold: Arc<Hold>,
    inbox: Arc<Inbox>,
    line: Arc<dyn Line>,
    driver: UnboundedSender<Input>,
}

#[derive(Debug)]
struct Flow {
    gate: Gate,
    confirms: Confirms,
    /// Local places and positions that are not durable yet, and since when.
    waiting: VecDeque<(Lsn, u64, Millis)>,
    last: Lsn,
    stream: Option<Stream>,
}

/// The stream to the other copy.
#[derive(Debug)]
struct Stream {
    session: Session,
    sender: Sender,
    backfill: Backfill,
    is_live: bool,
}

/// What the stream tells the driver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum News {
    /// All that was there has been sent.
    CopySent,
    /// The replica is in sync.
    InSync,
    /// It is lost.
    Lost(Loss),
}

/// How the stream is, for operators.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Backlog {
    /// Operations without a confirm.
    pub(crate) held: u64,
    /// Bytes that the replica has not answered.
    pub(crate) unanswered: usize,
    /// Since when the oldest of them has not been answered, on [`clock`].
    pub(crate) unanswered_since: Option<Millis>,
}

impl Ground {
    /// Of a journal that was just opened. Nothing is taken before a gate opens.
    pub(crate) fn new(
        journal: Box<dyn Store>,
        durable: watch::Receiver<Lsn>,
        hold: Arc<Hold>,
        inbox: Arc<Inbox>,
        line: Arc<dyn Line>,
        driver: UnboundedSender<Input>,
    ) -> Self {
        let flow = Flow {
            gate: Gate::Closed,
            confirms: Confirms::new(0),
            waiting: VecDeque::new(),
            last: Lsn::default(),
            stream: None,
        };
        let (flow, released) = (Mutex::new(flow), AtomicU64::new(0));
        Self { journal, durable, flow, released, hold, inbox, line, driver }
    }

    /// The journal, when nobody else has the ground.
    pub(crate) fn into_journal(self) -> Box<dyn Store> {
        self.journal
    }

    /// What may be confirmed changes.
    pub(crate) fn set_gate(&self, gate: Gate) {
        let mut flow = self.flow.lock();
        flow.gate = gate;
        flow.confirms.set_gate(gate);
        if !gate.is_open() {
            flow.waiting.clear();
        }
        self.release(&mut flow);
    }

    /// The lease was looked at again.
    pub(crate) fn look(&self) {
        self.release(&mut self.flow.lock());
    }

    /// The local journal is durable up to here.
    pub(crate) fn on_durable(&self, lsn: Lsn) {
        self.is_durable(&mut self.flow.lock(), lsn);
    }

    fn is_durable(&self, flow: &mut Flow, lsn: Lsn) {
        let mut through = None;
        while let Some((_, position, _)) = flow.waiting.pop_front_if(|(at, ..)| *at <= lsn) {
            through = Some(position);
        }
        if let Some(position) = through {
            flow.confirms.durable(position);
            self.release(flow);
        }
    }

    fn release(&self, flow: &mut Flow) {
        if let Some(released) = flow.confirms.release(self.hold.is_usable(clock::now())) {
            #[cfg(test)]
            crate::pair::sim::eye::released(&released, flow.gate);
            self.released.store(released.through, Ordering::Release);
            self.inbox.wake();
        }
    }

    /// Begins the stream to a replica that was accepted: a copy of these streams, which are named
    /// while nothing can be submitted, and what follows.
    pub(crate) fn attach(
        self: &Arc<Self>,
        session: Session,
        limits: Limits,
        streams: impl FnOnce() -> Vec<StreamId>,
    ) {
        let mut effects = Vec::new();
        let mut flow = self.flow.lock();
        let streams = streams();
        let sender = Sender::new(limits, &mut effects);
        let last = flow.confirms.last();
        flow.confirms.attached(last);
        let backfill = Backfill::new(streams);
        flow.stream = Some(Stream { session, sender, backfill, is_live: false });
        self.perform(&mut flow, effects);
    }

    /// Which replica there is.
    pub(crate) fn session(&self) -> Option<Session> {
        self.flow.lock().stream.as_ref().map(|stream| stream.session)
    }

    /// Says that the copy is whole.
    pub(crate) fn whole(self: &Arc<Self>, age: Age) {
        self.with_sender(|sender, effects| sender.whole(clock::now(), age, effects));
    }

    /// Says that this node begins to stop.
    pub(crate) fn stop_called(self: &Arc<Self>) {
        self.with_sender(Sender::stop_called);
    }

    /// The replica has spoken.
    pub(crate) fn heard(self: &Arc<Self>, message: &Upward) {
        self.with_sender(|sender, effects| sender.heard(message, effects));
    }

    /// The session is over.
    pub(crate) fn closed(self: &Arc<Self>) {
        self.with_sender(Sender::closed);
    }

    /// From now on a request may be unanswered for so long.
    pub(crate) fn set_replica_timeout(self: &Arc<Self>, timeout: Millis) {
        self.with_sender(|sender, _| sender.set_replica_timeout(timeout));
    }

    /// Looks whether the replica is too slow.
    pub(crate) fn tick(self: &Arc<Self>) {
        self.with_sender(|sender, effects| sender.tick(clock::now(), effects));
    }

    /// Since when the own disk has not finished something that is on the replica's.
    pub(crate) fn stalled_since(&self) -> Option<Millis> {
        let flow = self.flow.lock();
        let (_, position, since) = flow.waiting.front()?;
        (flow.gate == Gate::Replica && flow.confirms.is_answered(*position)).then_some(*since)
    }

    /// Ends the stream, and tells the replica.
    pub(crate) fn drop_replica(&self) {
        let stream = self.flow.lock().stream.take();
        if let Some(Stream { session, .. }) = stream {
            self.line.send(session.with, session.end());
        }
    }

    /// How the stream is.
    pub(crate) fn backlog(&self) -> Backlog {
        let flow = self.flow.lock();
        let sender = flow.stream.as_ref().map(|stream| &stream.sender);
        Backlog {
            held: flow.confirms.held(),
            unanswered: sender.map_or(0, Sender::unanswered_bytes),
            unanswered_since: sender.and_then(Sender::unanswered_since),
        }
    }

    fn with_sender(self: &Arc<Self>, work: impl FnOnce(&mut Sender, &mut Vec<Effect>)) {
        let mut flow = self.flow.lock();
        let mut effects = Vec::new();
        if let Some(stream) = &mut flow.stream {
            work(&mut stream.sender, &mut effects);
        }
        self.perform(&mut flow, effects);
    }

    fn perform(self: &Arc<Self>, flow: &mut Flow, effects: Vec<Effect>) {
        let mut effects = VecDeque::from(effects);
        while let Some(effect) = effects.pop_front() {
            let Some(stream) = &mut flow.stream else { return };
            match effect {
                Effect::Send(message) => {
                    let session = stream.session;
                    if !self.line.send(session.with, session.downward(&message)) {
                        let mut more = Vec::new();
                        stream.sender.closed(&mut more);
                        effects.extend(more);
                    }
                }
                Effect::ReadPiece => self.read_piece(stream, &mut effects),
                // Writers are held by their windows, since they get no confirms.
                Effect::Throttle(_) => {}
                Effect::CopySent => self.tell(News::CopySent, stream.session),
                Effect::InSync => self.tell(News::InSync, stream.session),
                Effect::Answered(position) => {
                    flow.confirms.answered(position);
                    self.release(flow);
                }
                Effect::Lost(loss) => self.tell(News::Lost(loss), stream.session),
            }
        }
    }

    fn tell(&self, news: News, session: Session) {
        // The driver outlives the ground, but for the end of the node.
        drop(self.driver.send(Input::News(session, news)));
    }

    /// Asks the shard for the next part, or ends the copy.
    fn read_piece(self: &Arc<Self>, stream: &mut Stream, effects: &mut VecDeque<Effect>) {
        let Some((of, from)) = stream.backfill.next() else {
            stream.is_live = true;
            let mut more = Vec::new();
            stream.sender.piece(clock::now(), None, &mut more);
            effects.extend(more);
            return;
        };
        let (ground, session) = (Arc::clone(self), stream.session);
        let then = Surveyed(Box::new(move |survey| ground.surveyed(session, of, survey)));
        let queue = QueueId(of.0);
        self.inbox.post(Batch::one(Command::Survey { queue, from, most: PART_RECORDS, then }));
    }

    /// The shard has looked, between two submissions.
    fn surveyed(self: Arc<Self>, session: Session, of: StreamId, survey: Survey) {
        let mut flow = self.flow.lock();
        let last = flow.last;
        let Some(stream) = flow.stream.as_mut().filter(|stream| stream.session == session) else {
            return;
        };
        let seqs = stream.backfill.surveyed(of, survey);
        drop(flow);
        let mut durable = self.durable.clone();
        self.journal.hasten();
        aside::spawn(async move {
            if durable.wait_for(|durable| *durable >= last).await.is_err() {
                return;
            }
            let read = aside::blocking(move || {
                let (payloads, upto) = self.read_part(of, &seqs);
                self.send_part(session, of, payloads, upto);
            });
            drop(read.await);
        });
    }

    /// Reads payloads, up to so many bytes; and up to where that came.
    fn read_part(&self, of: StreamId, seqs: &[Seq]) -> (Vec<(Seq, Bytes)>, Option<Seq>) {
        let (mut payloads, mut bytes) = (Vec::new(), 0);
        let mut read = Vec::new();
        for some in seqs.chunks(READ_RECORDS) {
            if bytes >= PART_BYTES {
                break;
            }
            read.clear();
            self.journal.read(of, some, &mut read);
            for (seq, result) in some.iter().zip(read.drain(..)) {
                if bytes >= PART_BYTES {
                    return (payloads, seqs.iter().copied().take_while(|one| one < seq).last());
                }
                match result {
                    Ok(payload) => {
                        bytes += payload.len();
                        payloads.push((*seq, payload));
                    }
                    // Released meanwhile, or never stored.
                    Err(ReadError::Missing) => {}
                    Err(error) => {
                        tracing::error!(stream = of.0, %seq, %error, "a message cannot be read, so the copy lacks it too");
                    }
                }
            }
        }
        let upto = if bytes >= PART_BYTES { payloads.last().map(|(seq, _)| *seq) } else { None };
        (payloads, upto)
    }

    fn send_part(
        self: &Arc<Self>,
        session: Session,
        of: StreamId,
        payloads: Vec<(Seq, Bytes)>,
        upto: Option<Seq>,
    ) {
        let mut flow = self.flow.lock();
        let Some(stream) = flow.stream.as_mut().filter(|stream| stream.session == session) else {
            return;
        };
        let offset = payloads.first().map_or(0, |(seq, _)| seq.0);
        let mut out = BytesMut::new();
        for op in stream.backfill.read(payloads, upto) {
            ops::encode(&op, &mut out);
        }
        let mut effects = Vec::new();
        stream.sender.piece(clock::now(), Some((of.0, offset, out.freeze())), &mut effects);
        self.perform(&mut flow, effects);
    }

    fn take(&self, flow: &mut Flow, ops: Vec<Op>) -> u64 {
        let bytes = match &mut flow.stream {
            None => None,
            Some(stream) if stream.is_live => Some(encoded(ops.iter())),
            Some(stream) => Some(encoded(stream.backfill.live(ops.clone()).iter())),
        };
        let position = flow.confirms.appended();
        #[cfg(test)]
        {
            use crate::pair::sim::{eye, rules};
            eye::took(position, &ops);
            if rules::broken(rules::Rule::AnswerFirst) {
                flow.confirms.answered(position);
            }
        }
        let lsn = self.journal.submit(ops);
        flow.last = lsn;
        flow.waiting.push_back((lsn, position, clock::now()));
        // What brought nothing may be durable already, and nothing more is heard then.
        let durable = *self.durable.borrow();
        if lsn <= durable {
            self.is_durable(flow, durable);
        }
        if let (Some(bytes), Some(stream)) = (bytes, &mut flow.stream) {
            let mut effects = Vec::new();
            stream.sender.batch(clock::now(), position, bytes, &mut effects);
            let mut is_sent = true;
            for effect in effects {
                // A batch makes nothing else than this, and a word on how much waits.
                if let Effect::Send(message) = effect {
                    let session = stream.session;
                    is_sent &= self.line.send(session.with, session.downward(&message));
                }
            }
            if !is_sent {
                let mut more = Vec::new();
                stream.sender.closed(&mut more);
                for effect in more {
                    if let Effect::Lost(loss) = effect {
                        self.tell(News::Lost(loss), stream.session);
                    }
                }
            }
        }
        position
    }
}

fn encoded<'o>(all: impl Iterator<Item = &'o Op> + Clone) -> Bytes {
    let mut out = BytesMut::with_capacity(all.clone().map(ops::weight).sum());
    all.for_each(|op| ops::encode(op, &mut out));
    out.freeze()
}

impl Log for Ground {
    /// Nothing is taken while the gate is closed, and what is never taken is never durable.
    fn submit(&self, ops: Vec<Op>) -> Lsn {
        let mut flow = self.flow.lock();
        if !flow.gate.is_open() {
            return Lsn(u64::MAX);
        }
        if flow.stream.is_none() {
            return Lsn(self.take(&mut flow, ops));
        }
        let mut last = flow.confirms.last();
        let (mut some, mut bytes) = (Vec::new(), 0);
        for op in ops {
            bytes += ops::weight(&op);
            some.push(op);
            if bytes >= REQUEST_BYTES {
                last = self.take(&mut flow, std::mem::take(&mut some));
                bytes = 0;
            }
        }
        if !some.is_empty() {
            last = self.take(&mut flow, some);
        }
        Lsn(last)
    }

    fn read(&self, stream: StreamId, seqs: &[Seq], out: &mut Vec<Result<Bytes, ReadError>>) {
        self.journal.read(stream, seqs, out);
    }

    fn read_later(self: Arc<Self>, stream: StreamId, seqs: Vec<Seq>, then: Then) {
        drop(aside::blocking(move || {
            let mut out = Vec::with_capacity(seqs.len());
            self.read(stream, &seqs, &mut out);
            then(out);
        }));
    }
}

impl ShardGround for Ground {
    fn durable(&self) -> Lsn {
        Lsn(self.released.load(Ordering::Acquire))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A journal to which nothing is new.
    #[derive(Debug)]
    struct Idle;

    impl Store for Idle {
        fn submit(&self, _: Vec<Op>) -> Lsn {
            Lsn(7)
        }

        fn hasten(&self) {}

        fn read(&self, _: StreamId, _: &[Seq], _: &mut Vec<Result<Bytes, ReadError>>) {}

        fn close(self: Box<Self>) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[derive(Debug)]
    struct Silent;

    impl Line for Silent {
        fn send(&self, _: model::id::NodeId, _: Bytes) -> bool {
            true
        }

        fn is_up(&self, _: model::id::NodeId) -> bool {
            false
        }

        fn has_quorum(&self) -> bool {
            true
        }
    }

    /// What brings the journal nothing is durable when it is taken: no sync follows that would say so.
    #[test]
    fn what_is_durable_already_is_not_waited_for() {
        let hold = Arc::<Hold>::default();
        hold.free();
        let (driver, _inputs) = tokio::sync::mpsc::unbounded_channel();
        let durable = watch::channel(Lsn(7)).1;
        let line = Arc::new(Silent);
        let ground = Ground::new(Box::new(Idle), durable, hold, Arc::default(), line, driver);
        ground.set_gate(Gate::Alone);
        let lsn = ground.submit(vec![Op::Drop { stream: StreamId(1) }]);
        assert_eq!(ShardGround::durable(&ground), lsn);
        assert!(ground.flow.lock().waiting.is_empty());
    }
}
