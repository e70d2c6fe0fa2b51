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
use journal::op::{Head, Lsn, Op};
use model::id::{QueueId, Seq, StreamId};
use model::time::Millis;
use parking_lot::Mutex;
use queue::head::Head as MessageHead;
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
    /// The replica has so much to answer that nothing is confirmed until it has less: nobody else slows
    /// the writers as long as the replica does not count.
    is_throttled: bool,
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
    /// And this is what cannot be read here.
    Unreadable(QueueId, Seq),
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
        let is_throttled = flow.stream.as_ref().is_some_and(|stream| stream.is_throttled);
        if is_throttled && flow.gate == Gate::Alone {
            return;
        }
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
        flow.stream =
            Some(Stream { session, sender, backfill, is_live: false, is_throttled: false });
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
        let mut flow = self.flow.lock();
        if let Some(Stream { session, .. }) = flow.stream.take() {
            self.line.send(session.with, session.end());
            self.release(&mut flow);
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
                Effect::Throttle(on) => {
                    stream.is_throttled = on;
                    self.release(flow);
                }
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
        let wanted = stream.backfill.surveyed(of, survey);
        drop(flow);
        let mut durable = self.durable.clone();
        self.journal.hasten();
        // That may take as long as the journal has no room, and who closes it does not wait for that.
        let ground = Arc::downgrade(&self);
        aside::spawn(async move {
            if durable.wait_for(|durable| *durable >= last).await.is_err() {
                return;
            }
            let read = aside::blocking(move || {
                let Some(ground) = ground.upgrade() else { return };
                match read_part(&*ground.journal, of, &wanted) {
                    Ok((payloads, upto)) => ground.send_part(session, of, payloads, upto),
                    Err((seq, error)) => {
                        tracing::error!(
                            queue = of.0, %seq, %error,
                            "a message cannot be read, so that there is no copy of the journal"
                        );
                        ground.cannot_read(session, of, seq);
                    }
                }
            });
            drop(read.await);
        });
    }

    /// A copy that lacks something is none.
    fn cannot_read(self: &Arc<Self>, session: Session, of: StreamId, seq: Seq) {
        let mut flow = self.flow.lock();
        let Some(stream) = flow.stream.as_mut().filter(|stream| stream.session == session) else {
            return;
        };
        self.tell(News::Unreadable(QueueId(of.0), seq), session);
        let mut effects = Vec::new();
        stream.sender.unreadable(&mut effects);
        self.perform(&mut flow, effects);
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
                match effect {
                    Effect::Send(message) => {
                        let session = stream.session;
                        is_sent &= self.line.send(session.with, session.downward(&message));
                    }
                    Effect::Throttle(on) => stream.is_throttled = on,
                    _ => {}
                }
            }
            if !is_sent {
                let mut more = Vec::new();
                stream.sender.closed(&mut more);
                for effect in more {
                    match effect {
                        Effect::Lost(loss) => self.tell(News::Lost(loss), stream.session),
                        Effect::Throttle(on) => stream.is_throttled = on,
                        _ => {}
                    }
                }
            }
        }
        position
    }
}

/// Payloads that were read, and up to where that came, unless it was all.
type Read = (Vec<(Seq, Bytes)>, Option<Seq>);

/// Reads payloads, about so many bytes as a part of a copy has, or one that is longer. What was
/// released meanwhile, or never stored, is missing.
///
/// # Errors
/// Which one cannot be read, and why.
fn read_part(
    journal: &dyn Store,
    of: StreamId,
    wanted: &[(Seq, Head)],
) -> Result<Read, (Seq, ReadError)> {
    let (mut payloads, mut bytes, mut done) = (Vec::new(), 0, 0);
    let (mut seqs, mut read) = (Vec::new(), Vec::new());
    while done < wanted.len() && bytes < PART_BYTES {
        let next = fitting(&wanted[done..], PART_BYTES - bytes);
        seqs.clear();
        seqs.extend(wanted[done..done + next].iter().map(|(seq, _)| *seq));
        done += next;
        read.clear();
        journal.read(of, &seqs, &mut read);
        for (seq, result) in seqs.iter().zip(read.drain(..)) {
            match result {
                Ok(payload) => {
                    bytes += payload.len();
                    payloads.push((*seq, payload));
                }
                Err(ReadError::Missing) => {}
                Err(error) => return Err((*seq, error)),
            }
        }
    }
    let upto = if done < wanted.len() { seqs.last().copied() } else { None };
    Ok((payloads, upto))
}

/// How many of them are read at once, by what their heads say of their bodies: at least one.
fn fitting(wanted: &[(Seq, Head)], room: usize) -> usize {
    let mut bytes = 0;
    let fits = |(_, head): &&(Seq, Head)| {
        let is_first = bytes == 0;
        let known = head.as_slice().get(..MessageHead::LEN);
        let known = known.and_then(|head| MessageHead::decode(head).ok());
        // What is not known is not little.
        bytes += 1 + known.map_or(PART_BYTES, |head| head.bytes as usize);
        is_first || bytes <= room
    };
    wanted.iter().take(READ_RECORDS).take_while(fits).count()
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
    use std::collections::BTreeMap;
    use std::time::Duration;

    use activation::file::JournalUid;
    use model::id::NodeId;

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

    /// A journal that counts how much is read at once, and fails to read one message.
    #[derive(Debug, Default)]
    struct Readable {
        bodies: BTreeMap<Seq, usize>,
        damaged: Option<Seq>,
        reads: Mutex<Vec<usize>>,
    }

    impl Store for Readable {
        fn submit(&self, _: Vec<Op>) -> Lsn {
            Lsn(7)
        }

        fn hasten(&self) {}

        fn read(&self, _: StreamId, seqs: &[Seq], out: &mut Vec<Result<Bytes, ReadError>>) {
            let mut bytes = 0;
            for seq in seqs {
                out.push(match self.bodies.get(seq) {
                    _ if self.damaged == Some(*seq) => Err(ReadError::Damaged),
                    None => Err(ReadError::Missing),
                    Some(length) => {
                        bytes += length;
                        Ok(Bytes::from(vec![0; *length]))
                    }
                });
            }
            self.reads.lock().push(bytes);
        }

        fn close(self: Box<Self>) -> std::io::Result<()> {
            Ok(())
        }
    }

    fn head(bytes: usize) -> Head {
        let bytes = u32::try_from(bytes).unwrap();
        let head = MessageHead {
            bytes,
            priority: 0,
            expires_at: None,
            delivery_count: 0,
            delivered: false,
        };
        Head::new(&head.encode())
    }

    /// Long messages are not read together.
    #[test]
    fn a_part_is_read_by_bytes() {
        for (length, most) in [(16 << 20, 16 << 20), (600 << 10, 1200 << 10), (100, 6400)] {
            let seqs = (1..=200).map(Seq);
            let bodies: BTreeMap<Seq, usize> = seqs.map(|seq| (seq, length)).collect();
            let wanted: Vec<_> = bodies.keys().map(|seq| (*seq, head(length))).collect();
            let store = Readable { bodies, ..Readable::default() };
            let (mut at, mut got) = (0, Vec::new());
            loop {
                let (payloads, upto) = read_part(&store, StreamId(1), &wanted[at..]).unwrap();
                got.extend(payloads.into_iter().map(|(seq, _)| seq));
                let Some(upto) = upto else { break };
                at = usize::try_from(upto.0).unwrap();
            }
            assert_eq!(got.len(), 200, "each once");
            let reads = store.reads.lock();
            assert!(reads.iter().all(|bytes| *bytes <= most), "{length}: {reads:?}");
        }
    }

    /// What is released meanwhile is no failure; nor is a part of which nothing is left.
    #[test]
    fn a_part_may_have_gaps() {
        let store = Readable { bodies: BTreeMap::from([(Seq(2), 5)]), ..Readable::default() };
        let wanted = [(Seq(1), head(2 << 20)), (Seq(2), head(5)), (Seq(3), head(5))];
        let (payloads, upto) = read_part(&store, StreamId(1), &wanted).unwrap();
        assert_eq!((payloads.len(), upto), (1, None));
        let store = Readable { damaged: Some(Seq(3)), ..store };
        let (seq, error) = read_part(&store, StreamId(1), &wanted).unwrap_err();
        assert!(seq == Seq(3) && matches!(error, ReadError::Damaged));
    }

    /// A ground that is served and copied, where the copy waits for what the queue has.
    struct Scene {
        ground: Arc<Ground>,
        inbox: Arc<Inbox>,
        inputs: tokio::sync::mpsc::UnboundedReceiver<Input>,
        /// How far the journal is durable.
        durable: watch::Sender<Lsn>,
    }

    impl Scene {
        fn new(store: Readable, limits: Limits) -> Self {
            let hold = Arc::<Hold>::default();
            hold.free();
            let inbox = Arc::<Inbox>::default();
            let (driver, inputs) = tokio::sync::mpsc::unbounded_channel();
            let (durable, watched) = watch::channel(Lsn(0));
            let (shared, line) = (Arc::clone(&inbox), Arc::new(Silent));
            let ground = Ground::new(Box::new(store), watched, hold, shared, line, driver);
            let ground = Arc::new(ground);
            ground.set_gate(Gate::Alone);
            ground.submit(vec![Op::Drop { stream: StreamId(9) }]);
            let session = Session { journal: JournalUid(7), with: NodeId(2), id: 1 };
            ground.attach(session, limits, || vec![StreamId(1)]);
            Self { ground, inbox, inputs, durable }
        }

        /// The queue says that it has these.
        fn survey(&self, records: Vec<(Seq, Head)>) {
            let mut batches = Vec::new();
            self.inbox.take(&mut batches);
            let command = batches.into_iter().flat_map(|batch| batch.commands).next();
            let Some(Command::Survey { then, .. }) = command else { panic!("{command:?}") };
            let reached = records.last().map_or(Seq(0), |(seq, _)| *seq);
            (then.0)(Survey { records, reached, ends: true });
        }
    }

    /// A journal without room makes nothing durable, and can be closed all the same.
    #[tokio::test]
    async fn a_copy_does_not_keep_a_journal_open() {
        let Scene { ground, inbox, durable, inputs } = {
            let scene = Scene::new(Readable::default(), Limits::DEFAULT);
            scene.survey(vec![(Seq(1), head(5))]);
            scene
        };
        tokio::task::yield_now().await;
        assert_eq!(Arc::strong_count(&ground), 1);
        Arc::try_unwrap(ground).unwrap().into_journal().close().unwrap();
        drop((inbox, durable, inputs));
    }

    /// What cannot be read is not left out: no copy without it is whole.
    #[tokio::test]
    async fn a_copy_that_lacks_something_is_never_whole() {
        let bodies = BTreeMap::from([(Seq(1), 5), (Seq(2), 5)]);
        let store = Readable { bodies, damaged: Some(Seq(2)), ..Readable::default() };
        let mut scene = Scene::new(store, Limits::DEFAULT);
        scene.survey(vec![(Seq(1), head(5)), (Seq(2), head(5))]);
        scene.durable.send_replace(Lsn(7));
        let mut news = Vec::new();
        while news.len() < 2 {
            let input = tokio::time::timeout(Duration::from_secs(20), scene.inputs.recv());
            if let Input::News(_, one) = input.await.unwrap().unwrap() {
                news.push(one);
            }
        }
        let unreadable = News::Unreadable(QueueId(1), Seq(2));
        assert_eq!(news, [unreadable, News::Lost(Loss::Unreadable)]);
        // Answers that come still make nothing of it.
        scene.ground.heard(&Upward::Durable(replication::message::Number(1)));
        scene.ground.tick();
        assert!(scene.inputs.try_recv().is_err());
    }

    /// A replica that counts for nothing yet slows the writers when it cannot follow, and only then.
    #[tokio::test]
    async fn writers_wait_for_a_replica_that_cannot_follow() {
        let limits = Limits { backlog: 300, ..Limits::DEFAULT };
        let scene = Scene::new(Readable::default(), limits);
        let ground = &scene.ground;
        scene.durable.send_replace(Lsn(7));
        let submit = || {
            // Streams that come later are live from their beginning.
            let last = ground.submit(vec![Op::Drop { stream: StreamId(2) }]);
            (last, ShardGround::durable(&**ground) >= last)
        };
        let mut sent = 0;
        let held = loop {
            sent += 1;
            let (last, is_confirmed) = submit();
            if !is_confirmed {
                break last;
            }
            assert!(sent < 100, "nobody slows the writers");
        };
        assert!(sent > 10, "they wait too soon");
        ground.heard(&Upward::Durable(replication::message::Number(1)));
        assert!(ShardGround::durable(&**ground) < held, "half of it has to be answered");
        ground.heard(&Upward::Durable(replication::message::Number(sent - 2)));
        assert!(ShardGround::durable(&**ground) >= held);
        // Nor does anybody wait for one that is lost.
        while submit().1 {}
        ground.closed();
        ground.drop_replica();
        assert!(submit().1);
    }

    #[derive(Debug)]
    struct Silent;

    impl Line for Silent {
        fn send(&self, _: NodeId, _: Bytes) -> bool {
            true
        }

        fn is_up(&self, _: NodeId) -> bool {
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
