//! The machine: one for each journal on each node that may hold a copy of it.
//!
//! ```text
//!            Start                      in sync, self-repair,       the lock is ours
//!  Stopped ────────► Reading ──────────► maybe in sync: Acquiring ─────────► Confirming
//!     ▲                │ ▲  ▲                  │ busy: Pausing, and again      │ read again
//!     │                │ │  └──────────────────┘                               ▼ under the lock
//!     │ held classes   │ │                                                  Loading queues
//!     │   Held ◄───────┤ └──────────────────────────────┐                      │
//!     │                │ stale, blank, incomplete       │                      ▼
//!     │                ▼                                │ lost             Raising the age
//!     │   Passive: Seeking ► Verifying ► Marking ►      │ before      repair: file, register
//!     │            Copying ► Persisting ► InSync ───────┤ in sync     claim ► file ► commit
//!     │                                      │          │                      │
//!     │                                      └──────────┘                      ▼
//!     │                           active lost, handed over                  Active
//!     │                                                  Unreplicated ► Syncing ► MaybeInSync
//!     └──── Closing ◄────────────────────────────────────     ▲            ► Replicated ──┐
//!            queues closed, then the lock:                    │ replica lost              │
//!            stop, begin again, or hand over ► Succeeding     └──── Raising the age ◄─────┘
//! ```
//!
//! From every phase: no answer of the quorum leads to `Waiting`, a failed write to `Failed`.
//!
//! # Invariants
//!
//! 1. At most one node confirms operations of a journal.
//! 2. What a node confirms without a replica, it confirms under an age that is committed and that no
//!    other copy has.
//! 3. What was confirmed is durable in every copy that may come to serve.
//! 4. The register moves `i ► -(i + 1) ► i + 1` and in no other way, but by an operator's force.
//! 5. A copy is served only with its age equal to the committed one, and overwritten only after a
//!    linearizable read found it behind.
//! 6. While a claim `-i` is open, somebody has `i - 1` or `i` with everything that was confirmed.
//!
//! The driver's part in them: answers of a replica mean that it has the operation on disk; the copy
//! is durable before [`Event::SyncDone`]; a confirm is sent only if [`Machine::gate`] allows it
//! and the lease is usable at that moment.

mod candidate;
mod passive;
mod raising;
mod serving;

use crate::age::Age;
use crate::class::Held;
use crate::event::{Event, Timer};
use crate::gate::Gate;
use crate::notice::Notice;
use crate::output::Output;
use crate::register::{Incarnation, Token, View};
use crate::standing::{Own, Record, Standing};

/// What the metadata says of the journal and this node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Settings {
    /// The journal has, or had, a backup: there is a register. If not, it is served on its own.
    pub paired: bool,
    /// A node that handed over to the preferred one does so of its own accord (default: no).
    pub allow_failback: bool,
}

/// The activation of one journal on one node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Machine {
    settings: Settings,
    own: Own,
    /// Of the last linearizable read: what the state file will say.
    incarnation: Option<Incarnation>,
    /// A write of the state file that is not answered yet.
    writing: Option<Record>,
    /// What operators were told last, so that a held copy is reported once.
    told: Option<Held>,
    /// What the read under the lock found, until the queues are loaded.
    found: Option<View>,
    phase: Phase,
}

/// Where the machine is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Phase {
    /// It has not begun, or has ended.
    Stopped,
    /// The journal has no register; `serving` once its queues are loaded.
    Single {
        /// Clients are served.
        serving: bool,
    },
    /// A journal that is served on its own is being given its first age.
    Pairing(Pairing),
    /// The quorum does not answer.
    Waiting,
    /// The register is being read, without the lock.
    Reading {
        /// By a read that cannot lag.
        linearizable: bool,
    },
    /// The founder writes age 0 before it tries for the first time.
    Founding,
    /// Somebody else has the lock; it is tried again soon.
    Pausing,
    /// The lock is asked for.
    Acquiring,
    /// The lock is held, and the register is being read once more.
    Confirming(Token),
    /// The queues are being loaded: before the age is raised, so that a failure changes nothing.
    Loading(Token),
    /// The age is being raised.
    Raising {
        /// The grant under which that happens.
        token: Token,
        /// How far it is.
        step: Step,
        /// Why, and what may be confirmed meanwhile.
        why: Why,
    },
    /// Clients are served.
    Active {
        /// The grant under which that happens.
        token: Token,
        /// Alone, or with whom.
        mode: Mode,
    },
    /// Queues are being closed.
    Closing {
        /// The lock, given back once they are closed; none for a journal on its own.
        token: Option<Token>,
        /// What comes then.
        then: Then,
    },
    /// The journal was handed over; the successor's claim is awaited.
    Succeeding {
        /// The age that was handed over.
        age: Age,
    },
    /// Not served here, and copied from the active node if there is one.
    Passive(Passive),
    /// Nothing is done until an operator decides, or the class changes.
    Held(Held),
    /// A write has failed; the node is stopping.
    Failed,
}

/// The steps before a journal on its own has a lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Pairing {
    /// Age 0 is being written.
    Marking,
    /// The register is being created.
    Creating,
    /// The lock is asked for.
    Acquiring,
    /// The quorum does not answer, or the lock is not free: tried again soon.
    Pausing,
}

/// The steps of raising the age.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Step {
    /// The state file takes an age that somebody else claimed.
    RepairFile,
    /// The register takes the claimed age as committed.
    RepairRegister,
    /// The register takes the claim of the next age.
    Claim,
    /// The state file takes the next age.
    File,
    /// The register takes the next age as committed.
    Commit,
}

/// Why the age is raised.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Why {
    /// To begin to serve; nothing is confirmed.
    Activation,
    /// A replica that was in sync is lost: what it has answered may be confirmed.
    ReplicaLost,
    /// A replica that may be in sync is lost: nothing may be confirmed.
    SyncUnheard,
    /// The journal has only been served on its own, and there is no other copy: it goes on.
    Pairing,
}

/// How an active node serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Mode {
    /// Without a replica.
    Unreplicated,
    /// A replica is copying; it is no candidate yet.
    Syncing {
        /// It is the preferred node.
        preferred: bool,
    },
    /// The replica was told that its copy is whole, and has not answered: it may be a candidate.
    MaybeInSync {
        /// It is the preferred node.
        preferred: bool,
    },
    /// The replica is a candidate.
    Replicated {
        /// Hands over to it once it is announced.
        failback: bool,
    },
}

/// What follows when the queues are closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Then {
    /// Looking at the register again, like a node that starts.
    Again,
    /// The replica's turn, of which nothing is said to it: it finds the lock free.
    GiveWay,
    /// Nothing.
    Stop,
    /// The replica is told that it is its turn.
    HandOver {
        /// This node takes part again afterwards.
        stay: bool,
    },
    /// The queues are closed already; a write of the state file is not answered yet.
    Written {
        /// And then nothing, instead of beginning again.
        stop: bool,
    },
}

/// What a node that does not serve does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Passive {
    /// It looks for an active node.
    Seeking,
    /// Registered; whether its copy may be overwritten is being read, linearizably.
    Verifying,
    /// The state file is being told that the copy is worth nothing.
    Marking {
        /// The active node is gone meanwhile.
        lost: bool,
    },
    /// The copy is being received.
    Copying,
    /// The copy is whole and durable; its age is being written.
    Persisting {
        /// The active node is gone meanwhile.
        lost: bool,
    },
    /// A candidate as soon as the active node is gone.
    InSync,
}

impl Machine {
    /// A machine that has not begun.
    ///
    /// `own` is what the driver found when it opened the journal's folder; the state file was
    /// synced once more then, because a process that died between replacing and syncing it leaves a
    /// file that a power cut can still take back.
    pub fn new(settings: Settings, own: Own) -> Self {
        let incarnation = own.record.incarnation;
        Self {
            settings,
            own,
            incarnation,
            writing: None,
            told: None,
            found: None,
            phase: Phase::Stopped,
        }
    }

    /// Advances by one event.
    ///
    /// Outputs are added in the order in which they must be performed. Events that come too late
    /// for the phase change nothing: whatever ends a phase does so once.
    ///
    /// # Panics
    /// If an age beyond [`Age::MAX`] would be needed.
    pub fn step(&mut self, event: Event, out: &mut Vec<Output>) {
        let gate = self.gate();
        let already = out.len();
        self.react(event, out);
        if self.gate() != gate {
            // Before everything else: what follows may give the lock away.
            out.insert(already, Output::Gate(self.gate()));
        }
    }

    fn react(&mut self, event: Event, out: &mut Vec<Output>) {
        match event {
            Event::Start => self.on_start(out),
            Event::Stop => self.on_stop(out),
            Event::StepDown { stay } => self.on_step_down(stay, out),
            Event::Pair => self.on_pair(out),
            Event::Read(view) => self.on_read(&view, out),
            Event::Acquired(token) => self.on_acquired(token, out),
            Event::Busy => self.on_busy(out),
            Event::Swapped { to } => self.on_swapped(to, out),
            Event::Refused { to, found } => self.on_refused(to, found, out),
            Event::Created(incarnation) => self.on_created(incarnation, out),
            Event::Unavailable => self.on_unavailable(out),
            Event::LeaseEnded => self.on_lease_ended(out),
            Event::Stalled => self.on_stalled(out),
            Event::QuorumLost => self.on_quorum_lost(out),
            Event::Written(record) => self.on_written(record, out),
            Event::WriteFailed => self.on_write_failed(out),
            Event::Unreadable => self.on_unreadable(out),
            Event::Loaded => self.on_loaded(out),
            Event::LoadFailed => self.on_load_failed(Held::Unloadable, out),
            Event::NoRoom => self.on_load_failed(Held::NoRoom, out),
            Event::Closed => self.on_closed(out),
            Event::Registration { preferred } => self.on_registration(preferred, out),
            Event::CopySent => self.on_copy_sent(out),
            Event::ReplicaInSync => self.on_replica_in_sync(out),
            Event::ReplicaLost => self.on_replica_lost(out),
            Event::BackupAnnounced => self.on_backup_announced(out),
            Event::Accepted => self.on_accepted(out),
            Event::NotAccepted => self.on_not_accepted(out),
            Event::SyncDone { age } => self.on_sync_done(age, out),
            Event::StopCalled => self.on_stop_called(out),
            Event::HandedOver | Event::ActiveLost => self.on_active_lost(out),
            Event::Timer(timer) => self.on_timer(timer, out),
        }
    }

    /// What may be confirmed now.
    pub fn gate(&self) -> Gate {
        match self.phase {
            Phase::Single { serving: true } | Phase::Pairing(_) => Gate::Alone,
            Phase::Active { mode, .. } => match mode {
                Mode::Unreplicated | Mode::Syncing { .. } => Gate::Alone,
                Mode::MaybeInSync { .. } => Gate::Hold,
                Mode::Replicated { .. } => Gate::Replica,
            },
            Phase::Raising { why, .. } => match why {
                Why::Activation => Gate::Closed,
                Why::ReplicaLost | Why::SyncUnheard
                    if crate::rules::broken(crate::rules::Rule::GateUntilCommit) =>
                {
                    Gate::Alone
                }
                Why::ReplicaLost => Gate::Replica,
                Why::SyncUnheard => Gate::Hold,
                Why::Pairing => Gate::Alone,
            },
            Phase::Stopped
            | Phase::Single { serving: false }
            | Phase::Waiting
            | Phase::Reading { .. }
            | Phase::Founding
            | Phase::Pausing
            | Phase::Acquiring
            | Phase::Confirming(_)
            | Phase::Loading(_)
            | Phase::Closing { .. }
            | Phase::Succeeding { .. }
            | Phase::Passive(_)
            | Phase::Held(_)
            | Phase::Failed => Gate::Closed,
        }
    }

    /// Whether confirms need a usable lease beside the gate. Not for a journal without any other
    /// copy: nobody else can serve it.
    pub fn needs_lease(&self) -> bool {
        match self.phase {
            Phase::Single { .. } | Phase::Pairing(_) => false,
            Phase::Raising { why, .. } => why != Why::Pairing,
            _ => true,
        }
    }

    /// Whether the preferred node gets the journal back, once it is in sync from now on.
    pub fn set_allow_failback(&mut self, allow: bool) {
        self.settings.allow_failback = allow;
        if let Phase::Active { mode: Mode::Replicated { failback }, .. } = &mut self.phase {
            *failback &= allow;
        }
    }

    /// Where the machine is, for operators and metrics.
    pub fn phase(&self) -> &Phase {
        &self.phase
    }

    /// What it knows of its copy.
    pub fn own(&self) -> &Own {
        &self.own
    }

    /// The grant of the lock that the driver has to renew.
    pub fn token(&self) -> Option<Token> {
        match self.phase {
            Phase::Confirming(token)
            | Phase::Loading(token)
            | Phase::Raising { token, .. }
            | Phase::Active { token, .. } => Some(token),
            Phase::Closing { token, .. } => token,
            Phase::Stopped
            | Phase::Single { .. }
            | Phase::Pairing(_)
            | Phase::Waiting
            | Phase::Reading { .. }
            | Phase::Founding
            | Phase::Pausing
            | Phase::Acquiring
            | Phase::Succeeding { .. }
            | Phase::Passive(_)
            | Phase::Held(_)
            | Phase::Failed => None,
        }
    }

    /// The own age.
    ///
    /// # Panics
    /// If the copy is not whole: only candidates get where this is asked.
    fn age(&self) -> Age {
        self.own.record.standing.age().expect("a candidate's copy is whole")
    }

    /// The journal has records from now on; the driver says so when the first one is written.
    pub fn occupied(&mut self) {
        self.own.vacant = false;
    }

    /// Gives the grant another number, so that searches find states that differ in nothing else.
    #[cfg(test)]
    pub(crate) fn renumber(&mut self, number: impl Fn(Token) -> Token) {
        match &mut self.phase {
            Phase::Confirming(token)
            | Phase::Loading(token)
            | Phase::Raising { token, .. }
            | Phase::Active { token, .. }
            | Phase::Closing { token: Some(token), .. } => *token = number(*token),
            _ => {}
        }
    }

    fn write(&mut self, standing: Standing, out: &mut Vec<Output>) {
        debug_assert!(self.writing.is_none(), "one write of the state file at a time");
        let record = Record { standing, incarnation: self.incarnation };
        self.writing = Some(record);
        out.push(Output::Write(record));
    }

    fn on_start(&mut self, out: &mut Vec<Output>) {
        if self.phase != Phase::Stopped {
            return;
        }
        if self.settings.paired {
            self.read(out);
        } else {
            self.phase = Phase::Single { serving: false };
            out.push(Output::Load);
        }
    }

    fn on_stop(&mut self, out: &mut Vec<Output>) {
        match self.phase {
            Phase::Stopped | Phase::Failed => {}
            Phase::Single { .. } | Phase::Pairing(_) => self.close(None, Then::Stop, out),
            Phase::Waiting
            | Phase::Reading { .. }
            | Phase::Founding
            | Phase::Pausing
            | Phase::Acquiring
            | Phase::Succeeding { .. }
            | Phase::Held(_) => self.end(),
            Phase::Confirming(token) => {
                out.push(Output::Release(token));
                self.phase = Phase::Stopped;
            }
            Phase::Active { token, mode: Mode::Replicated { .. } } => {
                out.push(Output::SendStopCalled);
                self.close(Some(token), Then::HandOver { stay: false }, out);
            }
            Phase::Loading(token) | Phase::Raising { token, .. } | Phase::Active { token, .. } => {
                self.close(Some(token), Then::Stop, out);
            }
            Phase::Closing { token, then } => {
                let then = match then {
                    Then::Again | Then::GiveWay | Then::Stop => Then::Stop,
                    Then::HandOver { .. } => Then::HandOver { stay: false },
                    Then::Written { .. } => Then::Written { stop: true },
                };
                self.phase = Phase::Closing { token, then };
            }
            Phase::Passive(_) => {
                out.push(Output::Leave);
                self.end();
            }
        }
    }

    /// Ends, once a write of the state file that is under way is answered.
    fn end(&mut self) {
        self.phase = match self.writing {
            None => Phase::Stopped,
            Some(_) => Phase::Closing { token: None, then: Then::Written { stop: true } },
        };
    }

    fn on_unreadable(&mut self, out: &mut Vec<Output>) {
        if self.phase == Phase::Stopped {
            self.hold(Held::Unreadable, None, out);
        }
    }

    fn on_written(&mut self, record: Record, out: &mut Vec<Output>) {
        if self.writing.take_if(|asked| *asked == record).is_none() {
            return;
        }
        self.own.record = record;
        match self.phase {
            Phase::Founding => self.acquire(out),
            Phase::Pairing(Pairing::Marking) => self.create(out),
            Phase::Raising { token, step, why } => self.raised_file(token, step, why, out),
            Phase::Passive(passive) => self.marked(passive, out),
            Phase::Closing { token, then: Then::Written { stop } } => {
                self.closed(token, if stop { Then::Stop } else { Then::Again }, out);
            }
            // Queues are still being closed, or the node stops and has its answer.
            Phase::Closing { .. } | Phase::Stopped | Phase::Failed => {}
            Phase::Single { .. }
            | Phase::Pairing(_)
            | Phase::Waiting
            | Phase::Reading { .. }
            | Phase::Pausing
            | Phase::Acquiring
            | Phase::Confirming(_)
            | Phase::Loading(_)
            | Phase::Active { .. }
            | Phase::Succeeding { .. }
            | Phase::Held(_) => unreachable!("these phases are not entered before the answer"),
        }
    }

    fn on_write_failed(&mut self, out: &mut Vec<Output>) {
        if self.phase == Phase::Failed {
            return;
        }
        if let Phase::Raising { step: Step::File | Step::RepairFile, .. } = self.phase {
            out.push(Output::Tell(Notice::WriteFailed(self.age().next())));
        }
        let token = self.token();
        self.phase = Phase::Failed;
        out.extend(token.map(Output::Release));
        out.push(Output::Fail);
    }

    fn on_timer(&mut self, timer: Timer, out: &mut Vec<Output>) {
        match (timer, self.phase) {
            (Timer::Retry, Phase::Waiting | Phase::Pausing)
            | (Timer::Seek, Phase::Passive(Passive::Seeking))
            | (Timer::Successor, Phase::Succeeding { .. }) => {
                if matches!(self.phase, Phase::Passive(_)) {
                    out.push(Output::Leave);
                }
                self.read(out);
            }
            (Timer::Retry, Phase::Succeeding { .. }) => {
                out.push(Output::Read { linearizable: false });
            }
            (Timer::Retry, Phase::Pairing(Pairing::Pausing)) => self.create(out),
            (Timer::Recheck, Phase::Held(held)) if held.may_pass() => {
                if self.settings.paired {
                    self.read_linearizable(out);
                } else {
                    self.phase = Phase::Stopped;
                    self.on_start(out);
                }
            }
            (Timer::Takeover, Phase::Passive(Passive::InSync)) => self.on_active_lost(out),
            (
                Timer::Announcement,
                Phase::Active { token, mode: Mode::Replicated { failback: true } },
            ) => {
                out.push(Output::Tell(Notice::FailbackGivenUp));
                self.phase = Phase::Active { token, mode: Mode::Replicated { failback: false } };
            }
            // Nobody waits for it any more.
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests;
