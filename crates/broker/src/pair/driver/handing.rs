//! Handing the journal over: because an operator wants the node empty, or because the node that is
//! preferred is back.

use activation::event::Event;
use activation::machine::{Mode, Phase};
use model::time::Millis;
use tokio::sync::oneshot;

use crate::pair::clock;
use crate::pair::driver::Driver;
use crate::shard::command;

/// How a hand-over ended: whether there was anything to be handed over, or why it stays.
pub(crate) type HandedOver = Result<bool, String>;

/// How long the preferred node must have been in sync before it gets the journal back.
const SETTLED: Millis = Millis(1000);

impl Driver {
    /// Hands the journal to its replica, if it is served here.
    pub(super) fn hand_over(&mut self, answer: oneshot::Sender<HandedOver>) {
        match self.machine.phase() {
            Phase::Active { mode: Mode::Replicated { .. }, .. } => {
                self.handing.push(answer);
                self.event(Event::StepDown { stay: true });
            }
            Phase::Active { .. } | Phase::Raising { .. } => {
                let reason = match self.other() {
                    Some(_) => "its other copy is not in sync",
                    None => "it has no backup",
                };
                command::answer(answer, Err(reason.to_owned()));
            }
            Phase::Single { .. } | Phase::Pairing(_) => {
                command::answer(answer, Err("it has no backup".to_owned()));
            }
            // What is not served here is nothing to be handed over.
            _ => command::answer(answer, Ok(false)),
        }
    }

    /// Tells those who wait for a hand-over what it has come to.
    pub(super) fn look_at_hand_over(&mut self) {
        if self.handing.is_empty() {
            return;
        }
        let handed_over = match self.machine.phase() {
            Phase::Closing { .. } => return,
            Phase::Succeeding { .. } => Ok(true),
            _ => Err("the replica was lost on the way".to_owned()),
        };
        for answer in self.handing.drain(..) {
            command::answer(answer, handed_over.clone());
        }
    }

    /// The preferred node is in sync, may have the journal back, and will not be gone at once.
    pub(super) fn look_for_failback(&mut self, now: Millis) {
        let waits = matches!(
            self.machine.phase(),
            Phase::Active { mode: Mode::Replicated { failback: true }, .. }
        );
        if !waits {
            self.failback_since = None;
            return;
        }
        let since = *self.failback_since.get_or_insert(now);
        let other = self.other().filter(|node| self.line.is_up(*node));
        let state = self.yard.router.state();
        let takes = other.and_then(|node| state.node(node)).is_some_and(|node| node.takes_queues());
        if takes && since.0 + SETTLED.0 <= now.0 {
            self.failback_since = None;
            self.counts.failbacks += 1;
            self.event(Event::BackupAnnounced);
        }
    }

    /// Whether a node is the one that the journal was made on.
    pub(super) fn is_preferred(&self, node: model::id::NodeId) -> bool {
        self.entry().is_some_and(|entry| entry.node == node)
    }

    /// What the queues were declared as is written down, some time after it has changed.
    pub(super) fn look_at_declarations(&mut self, now: Millis) {
        if self.declared.is_due(now) {
            self.declare();
        }
    }
}

/// Writing down what the queues of the journal were declared as.
#[derive(Debug, Default)]
pub(super) struct Declared {
    /// Something may have changed, since then.
    changed: Option<Millis>,
    /// The text is being written.
    pub(super) writing: bool,
    /// What was written last.
    pub(super) text: String,
}

/// How long changes are gathered.
const GATHERED: Millis = Millis(200);

impl Declared {
    pub(super) fn changed(&mut self) {
        self.changed.get_or_insert_with(clock::now);
    }

    /// The same, but it is not to be written before.
    pub(super) fn changed_at(&mut self, at: Millis) {
        self.changed = Some(at);
    }

    /// Whether there may be something to be written that nobody writes.
    pub(super) fn is_open(&self) -> bool {
        self.changed.is_some()
    }

    fn is_due(&self, now: Millis) -> bool {
        !self.writing && self.changed.is_some_and(|since| since.0 + GATHERED.0 <= now.0)
    }

    pub(super) fn begin(&mut self) {
        self.changed = None;
    }
}
