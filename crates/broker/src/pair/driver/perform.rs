//! What the machine wants, done.

use std::sync::Arc;
use std::time::Duration;

use activation::event::{Event, Timer};
use activation::output::Output;
use activation::register::Token;
use activation::standing::{Record, Standing};
use metadata::declarations::Declarations;
use model::time::Millis;
use replication::message::Downward;

use crate::pair::driver::{Driver, Input, WRITE_AGAIN};
use crate::pair::ground::Ground;
use crate::pair::stage::Stage;
use crate::pair::works::Unopened;
use crate::pair::{aside, clock, works};

/// How soon it is said again that this node serves, if nobody answers.
const SERVE_AGAIN: Duration = Duration::from_millis(50);

/// How long the replica that the journal is handed over to is not told so, while nobody answers that
/// the lock is free.
const HEIR_WAIT: Duration = Duration::from_millis(200);

impl Driver {
    pub(super) fn perform(&mut self, output: Output, more: &mut Vec<Event>) {
        match output {
            Output::Read { linearizable } => {
                let quorum = Arc::clone(&self.quorum);
                self.ask(async move { quorum.read(linearizable).await });
            }
            Output::Acquire => self.acquire(),
            Output::Release(token) => {
                self.lease = None;
                let quorum = Arc::clone(&self.quorum);
                let word = self.passing.take().map(|session| {
                    let handed = session.downward(&Downward::HandedOver);
                    (Arc::clone(&self.line), session.with, handed)
                });
                self.releasing = Some(aside::spawn(async move {
                    let mut given = std::pin::pin!(quorum.give_back(token));
                    let mut is_given = false;
                    if let Some((line, to, handed)) = word {
                        // Told before, it would ask for a lock that is not free, and wait.
                        is_given = tokio::time::timeout(HEIR_WAIT, &mut given).await.is_ok();
                        line.send(to, handed);
                    }
                    if !is_given {
                        given.await;
                    }
                }));
            }
            Output::Swap { from, to, incarnation, token } => {
                let quorum = Arc::clone(&self.quorum);
                self.ask(async move { quorum.swap(from, to, incarnation, token).await });
            }
            Output::CreateRegister => {
                let quorum = Arc::clone(&self.quorum);
                self.ask(async move { quorum.create().await });
            }
            Output::Write(record) => self.write(record),
            Output::Load => self.load(),
            Output::Close => self.close(),
            Output::Gate(gate) => {
                if let Some(stage) = &self.stage {
                    stage.ground.set_gate(gate);
                }
            }
            Output::Serve => self.serve(),
            Output::Accept => {
                if let (Some(session), Some(stage)) = (self.asking.take(), &self.stage) {
                    stage.attach(&self.yard, &self.name, session, self.limits);
                }
            }
            Output::Decline => {
                if let Some(session) = self.asking.take() {
                    let refused = Downward::Refused;
                    self.line.send(session.with, session.downward(&refused));
                }
            }
            Output::SendSyncDone(age) => self.with_ground(|ground| ground.whole(age)),
            Output::DropReplica => self.with_ground(|ground| ground.drop_replica()),
            Output::SendStopCalled => self.with_ground(Ground::stop_called),
            Output::SendHandOver => {
                // It hears so when the lock is given back.
                self.passing = self.heir.take();
                self.counts.hand_overs += u64::from(self.passing.is_some());
            }
            Output::Seek => self.seek(more),
            Output::Copy => self.empty(),
            Output::SendInSync => {
                self.prune();
                self.with_standby(crate::pair::standby::Standby::in_sync);
            }
            Output::Leave => self.leave(),
            Output::Arm(timer) => self.arm(timer),
            Output::Tell(notice) => self.tell(notice),
            Output::Fail => {
                let reason = self.failure.take().unwrap_or_else(|| {
                    format!("the state file of journal {} cannot be written", self.name)
                });
                tracing::error!(%reason, "the node stops");
                self.yard.failed.send_replace(Some(reason));
            }
        }
    }

    fn with_ground(&self, work: impl FnOnce(&Arc<Ground>)) {
        if let Some(stage) = &self.stage {
            work(&stage.ground);
        }
    }

    /// Asks the quorum; what was asked before has no answer any more.
    fn ask(&mut self, question: impl Future<Output = Event> + Send + 'static) {
        self.asked += 1;
        let (asked, sender) = (self.asked, self.sender.clone());
        aside::spawn(async move {
            // The driver may have ended.
            drop(sender.send(Input::Answer(asked, question.await)));
        });
    }

    fn acquire(&mut self) {
        self.asked += 1;
        let (asked, sender) = (self.asked, self.sender.clone());
        let quorum = Arc::clone(&self.quorum);
        aside::spawn(async move {
            let (event, sent_at) = quorum.acquire().await;
            if let (Err(_), Event::Acquired(token)) =
                (sender.send(Input::Granted(asked, event, sent_at)), event)
            {
                quorum.release(token);
            }
        });
    }

    pub(super) fn renew(&self, token: Token) {
        let (sender, quorum) = (self.sender.clone(), Arc::clone(&self.quorum));
        let sent_at = clock::now();
        aside::spawn(async move {
            let done = quorum.renew(token).await;
            drop(sender.send(Input::Renewed(token, sent_at, done)));
        });
    }

    fn write(&mut self, record: Record) {
        if record.standing == Standing::Syncing {
            self.before = self.machine.own().record;
        }
        self.write_file(record);
    }

    /// Writes the state file. If there is no room for it the machine waits as if the disk were slow: the
    /// file has its old content, or its new one, and has the new one when it is written once more.
    pub(super) fn write_file(&self, record: Record) {
        let (sender, folder) = (self.sender.clone(), Arc::clone(&self.folder));
        let name = self.name.clone();
        aside::blocking(move || {
            let input = match folder.write(&record) {
                Ok(()) => Input::Event(Event::Written(record)),
                Err(error) if works::wants_room(&error) => Input::Unwritten(record),
                Err(error) => {
                    tracing::error!(journal = %name, %error, "cannot write the state file");
                    Input::Event(Event::WriteFailed)
                }
            };
            drop(sender.send(input));
        });
    }

    /// There was no room for a state file.
    pub(super) fn unwritten(&mut self, record: Record) {
        if self.unwritten.is_none_or(|(known, _)| known != record) {
            tracing::warn!(journal = %self.name, %record.standing, "the disk has no room for the state file; it is written as soon as there is some");
        }
        self.unwritten = Some((record, Millis(clock::now().0 + WRITE_AGAIN.0)));
    }

    fn load(&mut self) {
        self.opened += 1;
        let (opened, sender, closing) = (self.opened, self.sender.clone(), self.closing.take());
        let (yard, name, uid) = (self.yard.clone(), self.name.clone(), self.uid);
        let (hold, line, driver) =
            (Arc::clone(&self.hold), Arc::clone(&self.line), self.sender.clone());
        let (folder, pulse) = (Arc::clone(&self.folder), self.pulse.clone());
        self.loading = Some(aside::spawn(async move {
            if let Some(closing) = closing {
                drop(closing.await);
            }
            let open =
                move || Stage::open(&yard, uid, &name, (&*folder, &pulse), &hold, line, driver);
            let stage = aside::blocking(open).await;
            drop(sender.send(Input::Loaded(opened)));
            stage.unwrap_or_else(|error| Err(Unopened::because(error)))
        }));
    }

    pub(super) async fn loaded(&mut self, opened: u64) {
        if opened != self.opened {
            return;
        }
        let Some(loading) = self.loading.take() else { return };
        match loading.await.unwrap_or_else(|error| Err(Unopened::because(error))) {
            Ok(stage) => {
                self.stage = Some(stage);
                self.event(Event::Loaded);
            }
            Err(Unopened { reason, no_room }) => {
                self.yard.pairs.close(self.uid);
                tracing::error!(journal = %self.name, %reason, "the copy cannot be opened");
                self.event(if no_room { Event::NoRoom } else { Event::LoadFailed });
            }
        }
    }

    fn close(&mut self) {
        self.opened += 1;
        if let Some(serving) = self.serving.take() {
            serving.abort();
        }
        let (stage, loading, pairs) =
            (self.stage.take(), self.loading.take(), Arc::clone(&self.yard.pairs));
        self.heir = stage.as_ref().and_then(|stage| stage.ground.session());
        let (sender, before) = (self.sender.clone(), self.closing.take());
        self.closing = Some(aside::spawn(async move {
            if let Some(before) = before {
                drop(before.await);
            }
            let loaded = match loading {
                Some(loading) => loading.await.ok().and_then(Result::ok),
                None => None,
            };
            for stage in stage.into_iter().chain(loaded) {
                stage.close(&pairs).await;
            }
            drop(sender.send(Input::Event(Event::Closed)));
        }));
    }

    fn serve(&mut self) {
        let (opened, sender, quorum) = (self.opened, self.sender.clone(), Arc::clone(&self.quorum));
        let token = self.machine.token();
        self.serving = Some(aside::spawn(async move {
            let served = loop {
                match quorum.serve(token).await {
                    Ok(Some(term)) => break Ok(term),
                    Ok(None) => tokio::time::sleep(SERVE_AGAIN).await,
                    Err(reason) => break Err(reason),
                }
            };
            drop(sender.send(Input::Served(opened, served)));
        }));
    }

    pub(super) fn served(&mut self, opened: u64, served: Result<u64, String>) {
        if opened != self.opened {
            return;
        }
        match served {
            Ok(term) => {
                self.machine.occupied();
                if let Some(stage) = &mut self.stage {
                    stage.serve(&self.yard, &self.hold, term);
                    tracing::info!(journal = %self.name, term, "the journal is served here");
                }
                // It may have got a backup before it was served.
                self.sender.send(Input::Changed).expect("the driver has the receiver");
            }
            Err(reason) => {
                tracing::warn!(journal = %self.name, %reason, "the journal cannot be served here");
                self.hold.end();
                self.event(Event::LeaseEnded);
            }
        }
    }

    fn arm(&mut self, timer: Timer) {
        self.armed += 1;
        let number = self.armed;
        self.timers.insert(timer, number);
        let (sender, after) = (self.sender.clone(), Duration::from_millis(timer.default_ms()));
        aside::spawn(async move {
            tokio::time::sleep(after).await;
            drop(sender.send(Input::Timer(timer, number)));
        });
    }

    /// What may be confirmed, and for how long, follows from what the machine has come to.
    pub(super) fn after_step(&mut self) {
        let gate = self.machine.gate();
        match &self.lease {
            _ if !self.machine.needs_lease() => {
                self.is_leased = false;
                if gate.is_open() {
                    self.hold.free();
                } else {
                    self.hold.end();
                }
            }
            Some((token, lease)) if self.machine.token() == Some(*token) => {
                if !self.is_leased {
                    self.is_leased = true;
                    self.hold.grant(lease.ends_at());
                }
            }
            _ => {
                self.is_leased = false;
                self.hold.end();
            }
        }
        self.look_at_work(clock::now());
        #[cfg(test)]
        crate::pair::sim::eye::stepped(&self.machine, &self.hold);
        self.with_ground(|ground| ground.look());
        self.look_at_hand_over();
        self.report();
    }

    /// Writes down what the queues were declared as, if that is something else than before.
    pub(super) fn declare(&mut self) {
        self.declared.begin();
        let Some(text) = self.declarations().filter(|text| *text != self.declared.text) else {
            return;
        };
        self.declared.writing = true;
        let (sender, folder) = (self.sender.clone(), Arc::clone(&self.folder));
        aside::blocking(move || {
            let done = folder.declare(&text).map(|()| text);
            drop(sender.send(Input::Declared(done)));
        });
    }

    /// The text of it.
    pub(super) fn declarations(&self) -> Option<String> {
        Declarations::of(&self.yard.router.state(), &self.name).map(|known| known.encode())
    }

    pub(super) fn seek_wait(&mut self, wait: Millis) {
        self.seek_until = Some(Millis(clock::now().0 + wait.0));
    }
}
