//! The driver of one journal on this node: it performs what the activation machine wants, and tells
//! it what has happened.
//!
//! Everything comes through one channel and is taken one by one. What may block or wait runs beside
//! it and comes back as an input. A question to the quorum that was superseded has no answer any
//! more, but a lock that is granted too late is given back.

mod amend;
mod handing;
mod perform;
mod report;
mod standing;
mod work;

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use activation::class::Class;
use activation::event::{Event, Timer};
use activation::file::JournalUid;
use activation::lease::Lease;
use activation::machine::{Machine, Mode, Passive, Phase, Settings};
use activation::notice::Notice;
use activation::register::Token;
use activation::standing::{Own, Record};
use bytes::Bytes;
use journal::op::Lsn;
use management::view::copy::{Amendment, CopyCounts, SavedCopy};
use metadata::objects::Name;
use metadata::objects::journal::Journal as JournalEntry;
use model::id::{NodeId, QueueId, Seq};
use model::time::Millis;
use replication::message::{Downward, Upward};
use replication::sender::Limits;
use replication::wire;
use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::MissedTickBehavior;

use crate::config;
use crate::pair::driver::handing::Declared;
use crate::pair::driver::standing::Emptied;
use crate::pair::driver::work::Work;
use crate::pair::ear::Ear;
use crate::pair::folder::Found;
use crate::pair::ground::News;
use crate::pair::hold::Hold;
use crate::pair::line::{Line, Session};
use crate::pair::pulse::Pulse;
use crate::pair::quorum::Quorum;
use crate::pair::stage::{Stage, Yard};
use crate::pair::standby::Standby;
use crate::pair::works::{Shelf, Unopened};
use crate::pair::{aside, clock, works};
use crate::shard::command;

pub(crate) use amend::Amended;
pub(crate) use handing::HandedOver;
pub(crate) use report::Report;

/// How often clocks are looked at.
const TICK: Duration = Duration::from_millis(50);
/// How long a node that was asked to accept this one as its replica may take to answer.
const SEEK_WAIT: Millis = Millis(2000);

/// How long nobody is accepted as the replica when something could not be read for a copy.
const READ_AGAIN: Millis = Millis(10_000);

/// How soon something is written again for which there was no room.
const WRITE_AGAIN: Millis = Millis(1000);

/// How long a node that stops waits for its lock to be taken back.
const RELEASE_WAIT: Duration = Duration::from_secs(1);

/// What a driver is told.
#[derive(Debug)]
pub(crate) enum Input {
    /// Something for the machine.
    Event(Event),
    /// The answer to a question to the quorum.
    Answer(u64, Event),
    /// The answer to the question for the lock, and when it was asked.
    Granted(u64, Event, Millis),
    /// The answer to a renewal that was sent then; `None`: there is none.
    Renewed(Token, Millis, Option<bool>),
    /// The metadata knows that this node serves the journal, by this number; or why it does not.
    Served(u64, Result<u64, String>),
    /// The journal is open, or not; see `Driver::loading`.
    Loaded(u64),
    /// An empty journal is open for a copy, or not; see `Driver::emptying`.
    Emptied(u64),
    /// The copy is durable up to here.
    Durable(u64, Lsn),
    /// The other node says something; nothing: the session is over.
    Word(Session, Bytes),
    /// The stream to the replica has come to something.
    News(Session, News),
    /// A node is connected.
    Up,
    /// A node is lost.
    Down(NodeId),
    /// A timer that was armed with this number has run out.
    Timer(Timer, u64),
    /// The metadata says something else of the journal.
    Changed,
    /// An operator changes the copy.
    Amend(Amendment, oneshot::Sender<Amended>),
    /// The node shall serve the journal no more, if another one can.
    HandOver(oneshot::Sender<HandedOver>),
    /// These copies are put aside now.
    Saved(Vec<SavedCopy>),
    /// The configuration was read again.
    Reloaded(config::Journal),
    /// Queues of journals, or their bindings, have changed.
    Redeclared,
    /// This was written down, or not.
    Declared(io::Result<String>),
    /// There was no room for this state file.
    Unwritten(Record),
    /// That was tried, and this is what there is now.
    Amended(Result<Found, String>),
    /// The node stops, or the journal is not on it any more. Answered when the journal is closed.
    Stop(oneshot::Sender<()>),
}

/// What makes a driver.
pub(crate) struct Parts {
    pub(crate) yard: Yard,
    pub(crate) line: Arc<dyn Line>,
    pub(crate) folder: Arc<dyn Shelf>,
    pub(crate) entry: Arc<JournalEntry>,
    pub(crate) uid: JournalUid,
    pub(crate) own: Own,
    /// Why the state file says nothing.
    pub(crate) damage: Option<String>,
    /// Copies that were put aside.
    pub(crate) saved: Vec<SavedCopy>,
}

/// See the module head.
pub(crate) struct Driver {
    yard: Yard,
    line: Arc<dyn Line>,
    name: Name,
    uid: JournalUid,
    me: NodeId,
    folder: Arc<dyn Shelf>,
    damage: Option<String>,
    quorum: Arc<Quorum>,
    machine: Machine,
    limits: Limits,
    lease_length: Millis,
    /// The lease of the grant that the machine has.
    lease: Option<(Token, Lease)>,
    /// Those who confirm have been told of it.
    is_leased: bool,
    renewal_sent: Millis,
    hold: Arc<Hold>,
    sender: UnboundedSender<Input>,
    /// The question to the quorum that counts.
    asked: u64,
    /// Numbers what is opened, so that late words of something older are known.
    opened: u64,
    loading: Option<JoinHandle<Result<Stage, Unopened>>>,
    /// The old copy is being put aside, and an empty one opened.
    emptying: Option<JoinHandle<Emptied>>,
    stage: Option<Stage>,
    serving: Option<JoinHandle<()>>,
    standby: Option<Standby>,
    seek_until: Option<Millis>,
    /// Watches how far the copy is durable.
    follower: Option<JoinHandle<()>>,
    /// Something that was open is being closed; what is opened next waits for it.
    closing: Option<JoinHandle<()>>,
    /// What the state file said before the copy was given up.
    before: Record,
    /// A node that has asked to be the replica.
    asking: Option<Session>,
    /// The replica that the journal is handed over to.
    heir: Option<Session>,
    /// The same, when only the lock is still to be given back.
    passing: Option<Session>,
    timers: BTreeMap<Timer, u64>,
    /// Numbers timers.
    armed: u64,
    /// The lock is being given back.
    releasing: Option<JoinHandle<()>>,
    no_quorum_since: Option<Millis>,
    /// What could not be read for a copy, and until when that is not tried again.
    unreadable: Option<(Millis, String)>,
    /// Until when no copy is asked for, because the disk had no room for one.
    no_room_until: Option<Millis>,
    /// The copy that is being received.
    copy: Option<Arc<Ear>>,
    /// A state file for which there was no room, and when it is written again.
    unwritten: Option<(Record, Millis)>,
    /// What the disk has to do now, for which the lock is held.
    work: Work,
    /// Counts what the disk does while a journal is opened.
    pulse: Pulse,
    /// Why the node stops, if it is not the state file.
    failure: Option<String>,
    stopping: Vec<oneshot::Sender<()>>,
    told: Option<Report>,
    /// What was logged last.
    noticed: Option<Notice>,
    /// What the copy was worth when it became a candidate.
    candidate: Option<Class>,
    counts: CopyCounts,
    saved: Vec<SavedCopy>,
    /// Those who wait until the journal is handed over.
    handing: Vec<oneshot::Sender<HandedOver>>,
    /// Since when the preferred node could have it back.
    failback_since: Option<Millis>,
    declared: Declared,
}

impl Driver {
    /// A driver that has not begun, and where its inputs go.
    pub(crate) fn new(parts: Parts) -> (Self, UnboundedReceiver<Input>) {
        let Parts { yard, line, folder, entry, uid, own, damage, saved } = parts;
        let (sender, inputs) = mpsc::unbounded_channel();
        let me = yard.me;
        let lease_length = millis(yard.settings.lease);
        let limits =
            Limits { replica_timeout: millis(yard.settings.replica_timeout), ..Limits::DEFAULT };
        let id = Name::clone(&entry.uid);
        let quorum = Arc::new(Quorum::new(Arc::clone(&yard.topology), id, me, lease_length));
        let settings = settings(&yard, &entry);
        let driver = Self {
            yard,
            line,
            name: Name::clone(&entry.name),
            uid,
            me: me.node,
            folder,
            damage,
            quorum,
            machine: Machine::new(settings, own),
            limits,
            lease_length,
            lease: None,
            is_leased: false,
            renewal_sent: Millis(0),
            hold: Arc::default(),
            sender,
            asked: 0,
            opened: 0,
            loading: None,
            emptying: None,
            stage: None,
            serving: None,
            standby: None,
            seek_until: None,
            follower: None,
            closing: None,
            before: own.record,
            asking: None,
            heir: None,
            passing: None,
            timers: BTreeMap::new(),
            armed: 0,
            releasing: None,
            no_quorum_since: None,
            unreadable: None,
            no_room_until: None,
            copy: None,
            unwritten: None,
            work: Work::default(),
            pulse: Pulse::default(),
            failure: None,
            stopping: Vec::new(),
            told: None,
            noticed: None,
            candidate: None,
            counts: CopyCounts::default(),
            saved,
            handing: Vec::new(),
            failback_since: None,
            declared: Declared::default(),
        };
        (driver, inputs)
    }

    /// Where its inputs go.
    pub(crate) fn sender(&self) -> UnboundedSender<Input> {
        self.sender.clone()
    }

    /// Drives until it is told to stop.
    pub(crate) async fn run(mut self, mut inputs: UnboundedReceiver<Input>) {
        self.declared.changed();
        self.begin();
        let mut tick = tokio::time::interval(TICK);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                biased;
                _ = tick.tick() => self.tick(),
                input = inputs.recv() => match input {
                    Some(input) => self.input(input).await,
                    None => return,
                },
            }
            if !self.stopping.is_empty() && self.is_over() {
                break;
            }
        }
        if let Some(closing) = self.closing.take() {
            drop(closing.await);
        }
        if let Some(releasing) = self.releasing.take() {
            // If nobody takes it the lease ends by itself.
            drop(tokio::time::timeout(RELEASE_WAIT, releasing).await);
        }
        self.declare_at_last().await;
        self.yard.pairs.leave(self.uid);
        for answer in self.stopping {
            command::answer(answer, ());
        }
    }

    /// What was declared last is written down too.
    async fn declare_at_last(&mut self) {
        let open = self.declared.is_open() || self.declared.writing;
        let text = self.declarations().filter(|text| open && *text != self.declared.text);
        let Some(text) = text else { return };
        let folder = Arc::clone(&self.folder);
        let done = aside::blocking(move || folder.declare(&text)).await;
        if let Ok(Err(error)) = done {
            tracing::error!(journal = %self.name, %error, "the declarations of a journal cannot be written");
        }
    }

    fn begin(&mut self) {
        if let Some(damage) = &self.damage {
            tracing::error!(journal = %self.name, %damage, "the state file of this copy cannot be read");
            self.event(Event::Unreadable);
        } else {
            self.event(Event::Start);
        }
    }

    fn is_over(&self) -> bool {
        matches!(self.machine.phase(), Phase::Stopped | Phase::Failed) && self.loading.is_none()
    }

    async fn input(&mut self, input: Input) {
        match input {
            Input::Event(event) => self.event(event),
            Input::Answer(asked, event) if asked == self.asked => self.event(event),
            Input::Answer(..) => {}
            Input::Granted(asked, event, sent_at) => self.granted(asked, event, sent_at),
            Input::Renewed(token, sent_at, done) => self.renewed(token, sent_at, done),
            Input::Served(opened, served) => self.served(opened, served),
            Input::Loaded(opened) => self.loaded(opened).await,
            Input::Emptied(opened) => self.emptied(opened).await,
            Input::Durable(opened, lsn) if opened == self.opened => {
                self.with_standby(|standby, effects| standby.durable(lsn, effects));
            }
            Input::Durable(..) => {}
            Input::Word(session, message) => self.word(session, message),
            Input::News(session, news) => self.news(session, news),
            Input::Up => self.look_for_active(),
            Input::Down(node) => self.down(node),
            Input::Timer(timer, number) => {
                if self.timers.get(&timer) == Some(&number) {
                    self.timers.remove(&timer);
                    self.event(Event::Timer(timer));
                }
            }
            Input::Changed => self.changed(),
            Input::Amend(amendment, answer) => self.amend(amendment, answer),
            Input::Amended(found) => self.amended(found),
            Input::HandOver(answer) => self.hand_over(answer),
            Input::Saved(saved) => {
                self.saved = saved;
                self.report();
            }
            Input::Reloaded(settings) => self.reloaded(settings),
            Input::Redeclared => self.declared.changed(),
            Input::Declared(done) => {
                self.declared.writing = false;
                match done {
                    Ok(text) => self.declared.text = text,
                    Err(error) if works::wants_room(&error) => {
                        tracing::warn!(journal = %self.name, %error, "what is declared in a journal is written down later");
                        self.declared.changed_at(Millis(clock::now().0 + WRITE_AGAIN.0));
                    }
                    // As after every failed write.
                    Err(error) => {
                        let reason = format!(
                            "what is declared in journal {} cannot be written: {error}",
                            self.name
                        );
                        tracing::error!(%reason, "the node stops");
                        self.yard.failed.send_replace(Some(reason));
                    }
                }
            }
            Input::Unwritten(record) => self.unwritten(record),
            Input::Stop(answer) => {
                self.stopping.push(answer);
                self.event(Event::Stop);
            }
        }
    }

    /// Gives the machine an event, and performs what it wants.
    fn event(&mut self, event: Event) {
        let mut outputs = Vec::new();
        self.machine.step(event, &mut outputs);
        let mut more = Vec::new();
        for output in outputs {
            self.perform(output, &mut more);
        }
        self.after_step();
        for event in more {
            self.event(event);
        }
    }

    fn reloaded(&mut self, settings: config::Journal) {
        self.yard.settings = self.yard.settings.reloaded(settings);
        self.limits.replica_timeout = millis(self.yard.settings.replica_timeout);
        self.machine.set_allow_failback(self.yard.settings.allow_failback);
        if let Some(stage) = &self.stage {
            stage.ground.set_replica_timeout(self.limits.replica_timeout);
        }
    }

    /// The entry of the journal, as far as this node knows.
    fn entry(&self) -> Option<Arc<JournalEntry>> {
        self.yard.router.state().journal(&self.name).map(Arc::clone)
    }

    fn settings(&self, entry: &JournalEntry) -> Settings {
        settings(&self.yard, entry)
    }

    /// The node that has, or may have, the other copy.
    fn other(&self) -> Option<NodeId> {
        self.entry()?.other_than(self.me)
    }

    fn granted(&mut self, asked: u64, event: Event, sent_at: Millis) {
        if let Event::Acquired(token) = event {
            if asked != self.asked {
                // Nobody waits for it any more.
                return self.quorum.release(token);
            }
            self.lease = Some((token, Lease::new(self.lease_length, sent_at)));
            self.is_leased = false;
            self.renewal_sent = sent_at;
        }
        if asked == self.asked {
            self.event(event);
        }
    }

    fn renewed(&mut self, token: Token, sent_at: Millis, done: Option<bool>) {
        let Some((_, lease)) = self.lease.as_mut().filter(|(known, _)| *known == token) else {
            return;
        };
        match done {
            Some(true) => {
                let now = clock::now();
                // If it has ended the next tick says so.
                if lease.renewed(sent_at, now) {
                    self.hold.extend(lease.ends_at(), now);
                }
            }
            Some(false) => {
                self.hold.end();
                self.event(Event::LeaseEnded);
            }
            None => {}
        }
    }

    fn tick(&mut self) {
        let now = clock::now();
        self.look_at_work(now);
        if let Some((record, at)) = &mut self.unwritten
            && *at <= now
        {
            *at = Millis(u64::MAX);
            let record = *record;
            self.write_file(record);
        }
        if let Some((token, lease)) = &self.lease {
            let token = *token;
            if !lease.is_usable(now) {
                self.lease = None;
                self.hold.end();
                self.event(Event::LeaseEnded);
            } else if self.renewal_sent.0 + self.lease_length.0 / 4 <= now.0 && !self.work.hangs {
                self.renewal_sent = now;
                self.renew(token);
            }
        }
        if let Some(stage) = &self.stage {
            stage.ground.tick();
        }
        self.look_at_disk(now);
        if self.seek_until.is_some_and(|until| until <= now)
            && *self.machine.phase() == Phase::Passive(Passive::Seeking)
        {
            self.leave();
            self.event(Event::NotAccepted);
        }
        self.look_for_quorum(now);
        self.look_for_failback(now);
        self.look_at_declarations(now);
        self.report();
    }

    /// The own disk is allowed as much time as that of the replica, beside that for which
    /// acknowledgements wait for a sync. Where both are slow nothing changes.
    fn look_at_disk(&mut self, now: Millis) {
        let replicated =
            matches!(self.machine.phase(), Phase::Active { mode: Mode::Replicated { .. }, .. });
        let since = self.stage.as_ref().and_then(|stage| stage.ground.stalled_since());
        let Some(since) = since.filter(|_| replicated) else { return };
        let most = self.limits.replica_timeout.0 + millis(self.yard.settings.sync_delay).0;
        if since.0 + most <= now.0 {
            // It is renewed no more, and ends by itself.
            self.lease = None;
            self.hold.end();
            self.event(Event::Stalled);
        }
    }

    /// A replica that has been without a majority for as long as a lease leaves the pair.
    fn look_for_quorum(&mut self, now: Millis) {
        if self.line.has_quorum() {
            self.no_quorum_since = None;
            return;
        }
        let since = *self.no_quorum_since.get_or_insert(now);
        if since.0 + self.lease_length.0 <= now.0
            && *self.machine.phase() == Phase::Passive(Passive::InSync)
        {
            self.event(Event::QuorumLost);
        }
    }

    fn word(&mut self, session: Session, message: Bytes) {
        if let Some(stage) = &self.stage
            && stage.ground.session() == Some(session)
        {
            if message.is_empty() {
                return stage.ground.closed();
            }
            match wire::decode_upward(message) {
                Ok(message) => stage.ground.heard(&message),
                Err(error) => {
                    tracing::error!(journal = %self.name, ?error, "a word of the replica");
                    stage.ground.closed();
                }
            }
            return;
        }
        if self.standby.as_ref().is_some_and(|standby| standby.session() == session) {
            return self.with_standby(|standby, effects| standby.heard(message, effects));
        }
        if let Ok(Upward::Register { .. }) = wire::decode_upward(message) {
            self.registration(session);
        }
    }

    /// A node asks to be the replica.
    fn registration(&mut self, session: Session) {
        let is_waiting = self.unreadable.as_ref().is_some_and(|(until, _)| clock::now() < *until);
        if self.other() != Some(session.with) || self.stage.is_none() || is_waiting {
            let refused = Downward::Refused;
            self.line.send(session.with, session.downward(&refused));
            return;
        }
        if let Some(stage) = &self.stage
            && stage.ground.session().is_some_and(|known| known.with == session.with)
        {
            // It has begun anew, and this node has not noticed.
            stage.ground.closed();
        }
        self.asking = Some(session);
        self.event(Event::Registration { preferred: self.is_preferred(session.with) });
    }

    fn news(&mut self, session: Session, news: News) {
        if self.stage.as_ref().and_then(|stage| stage.ground.session()) != Some(session) {
            return;
        }
        match news {
            News::Unreadable(queue, seq) => self.unreadable(queue, seq),
            News::CopySent => self.event(Event::CopySent),
            News::InSync => {
                self.unreadable = None;
                self.event(Event::ReplicaInSync);
            }
            News::Lost(loss) => {
                tracing::warn!(journal = %self.name, ?loss, "the replica is lost");
                self.event(Event::ReplicaLost);
            }
        }
    }

    /// A message of the journal cannot be read, and no copy is whole without it. What the disk does not
    /// do now it may do later, and an operator may do without the message.
    fn unreadable(&mut self, queue: QueueId, seq: Seq) {
        let state = self.yard.router.state();
        let name =
            state.queue_by_id(queue).map_or_else(|| queue.to_string(), |it| it.name.to_string());
        let reason = format!(
            "message {seq} of queue {name} cannot be read, and there is no other copy until it can be, or is gone"
        );
        tracing::error!(journal = %self.name, %reason, "the journal cannot be copied");
        self.unreadable = Some((Millis(clock::now().0 + READ_AGAIN.0), reason));
    }

    fn down(&mut self, node: NodeId) {
        if let Some(stage) = &self.stage
            && stage.ground.session().is_some_and(|session| session.with == node)
        {
            stage.ground.closed();
        }
        if self.standby.as_ref().is_some_and(|standby| standby.session().with == node) {
            self.with_standby(Standby::closed);
        }
    }

    fn changed(&mut self) {
        let Some(entry) = self.entry() else { return };
        let is_alone = *self.machine.phase() == (Phase::Single { serving: true });
        if is_alone && !entry.paired && entry.backup.0 != 0 {
            self.event(Event::Pair);
        }
        if let Some(stage) = &self.stage
            && stage.ground.session().is_some_and(|known| Some(known.with) != self.other())
        {
            // An operator has taken the replica away.
            stage.ground.closed();
        }
        self.look_for_active();
    }

    /// Somebody may accept this node now, who did not when it looked.
    fn look_for_active(&mut self) {
        if self.standby.is_none()
            && self.timers.contains_key(&Timer::Seek)
            && *self.machine.phase() == Phase::Passive(Passive::Seeking)
        {
            self.timers.remove(&Timer::Seek);
            self.event(Event::Timer(Timer::Seek));
        }
    }
}

fn settings(yard: &Yard, entry: &JournalEntry) -> Settings {
    Settings { paired: entry.paired, allow_failback: yard.settings.allow_failback }
}

fn millis(span: Duration) -> Millis {
    Millis(u64::try_from(span.as_millis()).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests;
