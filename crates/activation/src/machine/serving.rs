//! Serving: with and without a replica, and how it ends.

use crate::event::Timer;
use crate::machine::{Machine, Mode, Phase, Step, Then, Why};
use crate::notice::Notice;
use crate::output::Output;
use crate::register::Token;
use crate::rules::{Rule, broken};

impl Machine {
    /// One replica at a time.
    pub(super) fn on_registration(&mut self, preferred: bool, out: &mut Vec<Output>) {
        match self.phase {
            Phase::Active { token, mode: Mode::Unreplicated } => {
                self.phase = Phase::Active { token, mode: Mode::Syncing { preferred } };
                out.push(Output::Accept);
            }
            _ => out.push(Output::Decline),
        }
    }

    /// From here on the replica may be a candidate, whether its answer is heard or not.
    pub(super) fn on_copy_sent(&mut self, out: &mut Vec<Output>) {
        if let Phase::Active { token, mode: Mode::Syncing { preferred } } = self.phase {
            self.phase = Phase::Active { token, mode: Mode::MaybeInSync { preferred } };
            out.push(Output::SendSyncDone(self.age()));
        }
    }

    pub(super) fn on_replica_in_sync(&mut self, out: &mut Vec<Output>) {
        let Phase::Active { token, mode: Mode::MaybeInSync { preferred } } = self.phase else {
            return;
        };
        out.push(Output::Tell(Notice::ReplicaInSync(self.age())));
        let failback = preferred && self.settings.allow_failback;
        if failback {
            out.push(Output::Arm(Timer::Announcement));
        } else if preferred {
            out.push(Output::Tell(Notice::FailbackNotAllowed));
        }
        self.phase = Phase::Active { token, mode: Mode::Replicated { failback } };
    }

    /// A breaking point, unless the replica cannot have been in sync. While the queues are being
    /// closed it is none: nothing is confirmed any more.
    pub(super) fn on_replica_lost(&mut self, out: &mut Vec<Output>) {
        let Phase::Active { token, mode } = self.phase else { return };
        let why = match mode {
            Mode::Unreplicated => return,
            Mode::Syncing { .. } => None,
            Mode::MaybeInSync { .. } if broken(Rule::RaiseAfterUnheardSync) => None,
            Mode::MaybeInSync { .. } => Some(Why::SyncUnheard),
            Mode::Replicated { .. } if broken(Rule::RaiseAfterLoss) => None,
            Mode::Replicated { .. } => Some(Why::ReplicaLost),
        };
        out.push(Output::DropReplica);
        match why {
            None => self.phase = Phase::Active { token, mode: Mode::Unreplicated },
            Some(why) => {
                out.push(Output::Tell(Notice::ReplicaLost(self.age())));
                self.raise(token, Step::Claim, why, out);
            }
        }
    }

    /// The replica can serve, and this node cannot. Nothing is said to it when the queues are closed:
    /// that takes the disk, and the lock may have ended with its lease long before. But if the disk goes
    /// on sooner, the lock that is given back is not for this node, which is always the first to know.
    pub(super) fn on_stalled(&mut self, out: &mut Vec<Output>) {
        if let Phase::Active { token, mode: Mode::Replicated { .. } } = self.phase {
            out.push(Output::Tell(Notice::Stalled));
            self.close(Some(token), Then::GiveWay, out);
        }
    }

    pub(super) fn on_backup_announced(&mut self, out: &mut Vec<Output>) {
        if let Phase::Active { mode: Mode::Replicated { failback: true }, .. } = self.phase {
            self.on_step_down(true, out);
        }
    }

    pub(super) fn on_step_down(&mut self, stay: bool, out: &mut Vec<Output>) {
        match self.phase {
            Phase::Active { token, mode: Mode::Replicated { .. } } => {
                out.push(Output::SendStopCalled);
                self.close(Some(token), Then::HandOver { stay }, out);
            }
            Phase::Active { .. } | Phase::Raising { .. } | Phase::Single { .. } => {
                out.push(Output::Tell(Notice::CannotStepDown));
            }
            _ => {}
        }
    }

    /// Stops serving. The lock is the last thing that is given back.
    pub(super) fn close(&mut self, token: Option<Token>, then: Then, out: &mut Vec<Output>) {
        let replica =
            matches!(self.phase, Phase::Active { mode, .. } if mode != Mode::Unreplicated);
        if replica && !matches!(then, Then::HandOver { .. }) {
            out.push(Output::DropReplica);
        }
        self.phase = Phase::Closing { token, then };
        out.push(Output::Close);
    }

    pub(super) fn on_closed(&mut self, out: &mut Vec<Output>) {
        let Phase::Closing { token, then } = self.phase else { return };
        match then {
            // Until the write is answered, the own age is not known.
            Then::Again | Then::Stop if self.writing.is_some() => {
                let then = Then::Written { stop: then == Then::Stop };
                self.phase = Phase::Closing { token, then };
            }
            Then::Again | Then::Stop | Then::GiveWay | Then::HandOver { .. } => {
                self.closed(token, then, out);
            }
            Then::Written { .. } => {}
        }
    }

    pub(super) fn closed(&mut self, token: Option<Token>, then: Then, out: &mut Vec<Output>) {
        if matches!(then, Then::HandOver { .. }) {
            out.push(Output::SendHandOver);
        }
        out.extend(token.map(Output::Release));
        match then {
            Then::HandOver { stay: true } | Then::GiveWay => {
                self.phase = Phase::Succeeding { age: self.age() };
                out.push(Output::Arm(Timer::Successor));
                out.push(Output::Arm(Timer::Retry));
            }
            Then::HandOver { stay: false } | Then::Stop | Then::Written { stop: true } => {
                self.phase = Phase::Stopped;
            }
            Then::Again | Then::Written { stop: false } => self.read(out),
        }
    }
}
