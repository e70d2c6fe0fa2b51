//! The replica's side: looking for an active node, and being copied from it.

use std::sync::Arc;

use activation::event::Event;
use activation::machine::{Passive, Phase};
use journal::op::Lsn;
use replication::message::Refusal;
use replication::receiver::Effect;
use tokio::sync::watch;

use crate::pair::driver::{Driver, Input, SEEK_WAIT};
use crate::pair::line::Session;
use crate::pair::standby::Standby;
use crate::pair::works::Store;
use crate::pair::{aside, stage};

impl Driver {
    /// Asks the other node to accept this one.
    pub(super) fn seek(&mut self, more: &mut Vec<Event>) {
        self.leave();
        let Some(with) = self.other().filter(|node| self.line.is_up(*node)) else {
            more.push(Event::NotAccepted);
            return;
        };
        let session = Session { journal: self.uid, with, id: aside::random() };
        let mut effects = Vec::new();
        self.standby = Some(Standby::register(session, Arc::clone(&self.line), &mut effects));
        self.seek_wait(SEEK_WAIT);
        self.standby_effects(effects, more);
    }

    /// Ends the session with the active node, and closes the copy.
    pub(super) fn leave(&mut self) {
        self.seek_until = None;
        if let Some(follower) = self.follower.take() {
            follower.abort();
        }
        let Some(standby) = self.standby.take() else { return };
        self.opened += 1;
        if let Some(journal) = standby.end() {
            let before = self.closing.take();
            self.closing = Some(aside::spawn(async move {
                if let Some(before) = before {
                    drop(before.await);
                }
                stage::close_journal(journal).await;
            }));
        }
    }

    pub(super) fn with_standby(&mut self, work: impl FnOnce(&mut Standby, &mut Vec<Effect>)) {
        let mut effects = Vec::new();
        if let Some(standby) = &mut self.standby {
            work(standby, &mut effects);
        }
        let mut more = Vec::new();
        self.standby_effects(effects, &mut more);
        for event in more {
            self.event(event);
        }
    }

    fn standby_effects(&mut self, effects: Vec<Effect>, more: &mut Vec<Event>) {
        let Some(standby) = &mut self.standby else { return };
        for effect in standby.perform(effects) {
            more.extend(match effect {
                Effect::Accepted => {
                    self.seek_until = None;
                    Some(Event::Accepted)
                }
                Effect::NotAccepted(Refusal::NotNow) => Some(Event::NotAccepted),
                Effect::NotAccepted(Refusal::OtherJournal) => Some(Event::Rejected),
                Effect::SyncDone(age) => Some(Event::SyncDone { age, same_journal: true }),
                Effect::StopCalled => Some(Event::StopCalled),
                Effect::HandedOver => Some(Event::HandedOver),
                // Nobody has accepted yet whose loss could matter.
                Effect::Ended(_) if *self.machine.phase() == Phase::Passive(Passive::Seeking) => {
                    Some(Event::NotAccepted)
                }
                Effect::Ended(end) => {
                    tracing::warn!(journal = %self.name, ?end, "the session with the active node has ended");
                    Some(Event::ActiveLost)
                }
                Effect::Send(_) | Effect::Store(..) => None,
            });
        }
        if more.contains(&Event::NotAccepted) {
            self.leave();
        }
    }

    /// Puts the old copy aside and opens an empty one.
    pub(super) fn empty(&mut self) {
        self.opened += 1;
        let (opened, sender, closing) = (self.opened, self.sender.clone(), self.closing.take());
        let (yard, name, folder) = (self.yard.clone(), self.name.clone(), Arc::clone(&self.folder));
        let (before, vacant) = (self.before, self.machine.own().vacant);
        let told = self.sender.clone();
        aside::spawn(async move {
            if let Some(closing) = closing {
                drop(closing.await);
            }
            let open = move || {
                folder.set_aside(&before, vacant).map_err(|error| error.to_string())?;
                if let Ok(saved) = folder.saved_copies() {
                    drop(told.send(Input::Saved(saved)));
                }
                let (journal, recovery, ear) = folder.open(&yard, &name)?;
                drop(recovery);
                Ok((journal, ear.watch()))
            };
            let emptied = aside::blocking(open).await;
            let emptied = emptied.unwrap_or_else(|error| Err(error.to_string()));
            drop(sender.send(Input::Emptied(opened, emptied)));
        });
    }

    pub(super) fn emptied(
        &mut self,
        opened: u64,
        emptied: Result<(Box<dyn Store>, watch::Receiver<Lsn>), String>,
    ) {
        match emptied {
            Ok((journal, durable)) if opened == self.opened && self.standby.is_some() => {
                self.follow(durable);
                self.with_standby(|standby, effects| standby.copy(journal, effects));
            }
            // The session has ended meanwhile.
            Ok((journal, _)) => {
                let before = self.closing.take();
                self.closing = Some(aside::spawn(async move {
                    if let Some(before) = before {
                        drop(before.await);
                    }
                    stage::close_journal(journal).await;
                }));
            }
            Err(reason) => {
                tracing::error!(journal = %self.name, %reason, "cannot make room for a copy");
                if opened == self.opened {
                    self.event(Event::WriteFailed);
                }
            }
        }
    }

    /// Hears how far the copy is durable.
    fn follow(&mut self, mut durable: watch::Receiver<Lsn>) {
        let (opened, sender) = (self.opened, self.sender.clone());
        self.follower = Some(aside::spawn(async move {
            while durable.changed().await.is_ok() {
                let lsn = *durable.borrow_and_update();
                if sender.send(Input::Durable(opened, lsn)).is_err() {
                    return;
                }
            }
        }));
    }

    /// The new copy is whole: of the old ones the oldest go.
    pub(super) fn prune(&self) {
        let (folder, name) = (Arc::clone(&self.folder), self.name.clone());
        let (sender, most) = (self.sender.clone(), self.yard.settings.max_saved_copies);
        aside::blocking(move || {
            if let Err(error) = folder.prune(most) {
                tracing::warn!(journal = %name, %error, "cannot remove an old copy");
            }
            if let Ok(saved) = folder.saved_copies() {
                drop(sender.send(Input::Saved(saved)));
            }
        });
    }
}
