//! What operators change of a copy that is not in use.
//!
//! The machine is stopped, the files are changed, and a new machine begins with what is found then,
//! as after a start of the node.

use std::sync::Arc;

use activation::age::Age;
use activation::event::Event;
use activation::machine::{Machine, Passive, Phase};
use activation::register::Incarnation;
use management::view::copy::Amendment;
use tokio::sync::oneshot;

use crate::pair::driver::{Driver, Input};
use crate::pair::folder::Found;
use crate::pair::works::Shelf;
use crate::pair::{aside, keeper};
use crate::shard::command;

/// How a change ended: what was before, or why there is none.
pub(crate) type Amended = Result<String, String>;

impl Driver {
    /// Changes the copy, if it is neither served nor about to be, nor being copied.
    pub(super) fn amend(&mut self, amendment: Amendment, answer: oneshot::Sender<Amended>) {
        let is_idle = matches!(
            self.machine.phase(),
            Phase::Held(_) | Phase::Waiting | Phase::Pausing | Phase::Passive(Passive::Seeking)
        );
        if !is_idle || !self.stopping.is_empty() {
            let state = self.told.as_ref().map_or("stopping", |told| told.state);
            return command::answer(answer, Err(format!("the copy is in use ({state})")));
        }
        // Whatever the quorum still answers is about the copy as it was.
        self.asked += 1;
        self.timers.clear();
        self.event(Event::Stop);
        let closing = self.closing.take();
        let (sender, folder) = (self.sender.clone(), Arc::clone(&self.folder));
        // A node that stops waits for it.
        self.closing = Some(aside::spawn(async move {
            if let Some(closing) = closing {
                drop(closing.await);
            }
            let change = move || {
                let amended = perform(&*folder, &amendment);
                (amended, folder.look())
            };
            let done = aside::blocking(change).await;
            let (amended, found) = done.unwrap_or_else(|error| {
                (Err(error.to_string()), Err(std::io::Error::other(error)))
            });
            command::answer(answer, amended);
            drop(sender.send(Input::Amended(found.map_err(|error| error.to_string()))));
        }));
    }

    /// Begins anew with what there is now.
    pub(super) fn amended(&mut self, found: Result<Found, String>) {
        if !self.stopping.is_empty() {
            return;
        }
        let (found, entry) = match (found, self.entry()) {
            (Ok(found), Some(entry)) => (found, entry),
            // The journal is being taken from this node.
            (Ok(_), None) => return,
            (Err(reason), _) => {
                tracing::error!(journal = %self.name, %reason, "what is left of the copy cannot be read");
                return self.event(Event::Unreadable);
            }
        };
        let own = keeper::own(&self.yard.router.state(), &entry, self.me, &found);
        self.machine = Machine::new(self.settings(&entry), own);
        self.damage = found.damage;
        self.before = own.record;
        self.saved = found.saved;
        self.begin();
    }
}

fn perform(folder: &dyn Shelf, amendment: &Amendment) -> Amended {
    let done = match *amendment {
        Amendment::Sequence { to, forced } => folder.set_sequence(age(to)?, forced),
        Amendment::Adopt { sequence, incarnation } => {
            folder.adopt(age(sequence)?, Incarnation(incarnation))
        }
        Amendment::Discard => folder.discard(),
        Amendment::Restore { ref name } => folder.restore(name),
    };
    done.map_err(|error| error.to_string())
}

fn age(number: u64) -> Result<Age, String> {
    Age::new(number).ok_or_else(|| "there is no such sequence".to_owned())
}
