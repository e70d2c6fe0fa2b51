//! The replica's side: looking for an active node, and being copied from it.

use std::sync::Arc;

use activation::event::Event;
use activation::machine::{Passive, Phase};
use journal::op::Lsn;
use model::time::Millis;
use replication::receiver::Effect;
use tokio::sync::watch;

use crate::pair::driver::{Driver, Input, SEEK_WAIT};
use crate::pair::ear::Ear;
use crate::pair::line::Session;
use crate::pair::standby::Standby;
use crate::pair::works::{Store, Unopened};
use crate::pair::{aside, clock, stage};

/// How long no node is asked for a copy for which the disk had no room.
const ROOM_AGAIN: Millis = Millis(5000);

/// An empty journal for a copy and what it tells, or why there is none.
pub(super) type Emptied = Result<(Box<dyn Store>, Arc<Ear>), Unopened>;

impl Driver {
    /// Asks the other node to accept this one.
    pub(super) fn seek(&mut self, more: &mut Vec<Event>) {
        self.leave();
        let may_ask = self.no_room_until.is_none_or(|until| until <= clock::now());
        let other = self.other().filter(|node| may_ask && self.line.is_up(*node));
        let Some(with) = other else {
            more.push(Event::NotAccepted);
            return;
        };
        let session = Session { journal: self.uid, with, id: aside::random() };
        let mut effects = Vec::new();
        self.standby = Some(Standby::register(session, Arc::clone(&self.line), &mut effects));
        self.seek_wait(SEEK_WAIT);
        self.standby_effects(effects, more);
    }

    /// Ends the session with the active node, and closes the copy. What is opened next waits for
    /// that, also if an empty copy is still being made.
    pub(super) fn leave(&mut self) {
        self.seek_until = None;
        if let Some(follower) = self.follower.take() {
            follower.abort();
        }
        if self.copy.take().is_some_and(|copy| copy.is_full()) {
            // The next one would come no further.
            tracing::warn!(journal = %self.name, "the disk has no room for the copy");
            self.no_room_until = Some(Millis(clock::now().0 + ROOM_AGAIN.0));
        }
        let (standby, emptying) = (self.standby.take(), self.emptying.take());
        if standby.is_none() && emptying.is_none() {
            return;
        }
        self.opened += 1;
        let journal = standby.and_then(Standby::end);
        if journal.is_none() && emptying.is_none() {
            return;
        }
        let before = self.closing.take();
        self.closing = Some(aside::spawn(async move {
            if let Some(before) = before {
                drop(before.await);
            }
            let emptied = match emptying {
                Some(emptying) => emptying.await.ok().and_then(Result::ok),
                None => None,
            };
            for journal in journal.into_iter().chain(emptied.map(|(journal, _)| journal)) {
                stage::close_journal(journal).await;
            }
        }));
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
                Effect::NotAccepted => Some(Event::NotAccepted),
                Effect::SyncDone(age) => Some(Event::SyncDone { age }),
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
        let before = self.before;
        let (told, pulse) = (self.sender.clone(), self.pulse.clone());
        self.emptying = Some(aside::spawn(async move {
            if let Some(closing) = closing {
                drop(closing.await);
            }
            let open = move || {
                let done = folder.set_aside(&before);
                done.map_err(|error| Unopened::io(&error, error.to_string()))?;
                if let Ok(saved) = folder.saved_copies() {
                    drop(told.send(Input::Saved(saved)));
                }
                let (journal, recovery, ear) = folder.open(&yard, &name, &pulse)?;
                drop(recovery);
                Ok((journal, ear))
            };
            let emptied = aside::blocking(open).await;
            drop(sender.send(Input::Emptied(opened)));
            emptied.unwrap_or_else(|error| Err(Unopened::because(error)))
        }));
    }

    pub(super) async fn emptied(&mut self, opened: u64) {
        if opened != self.opened {
            // The session has ended meanwhile, and whoever ended it closes the copy.
            return;
        }
        let Some(emptying) = self.emptying.take() else { return };
        match emptying.await.unwrap_or_else(|error| Err(Unopened::because(error))) {
            Ok((journal, ear)) => {
                self.no_room_until = None;
                self.follow(ear.watch());
                self.copy = Some(ear);
                self.with_standby(|standby, effects| standby.copy(journal, effects));
            }
            Err(Unopened { reason, no_room: true }) => {
                tracing::error!(journal = %self.name, %reason, "the disk has no room for a copy");
                self.no_room_until = Some(Millis(clock::now().0 + ROOM_AGAIN.0));
                // The session is given up: somebody else must not wait for this node.
                self.event(Event::ActiveLost);
            }
            Err(Unopened { reason, .. }) => {
                tracing::error!(journal = %self.name, %reason, "cannot make room for a copy");
                let reason =
                    format!("journal {}: the copy cannot be replaced: {reason}", self.name);
                self.failure = Some(reason);
                self.event(Event::WriteFailed);
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
