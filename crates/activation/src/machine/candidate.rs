//! From the register's value to the lock.

use crate::age::Age;
use crate::class::{Class, Held, classify};
use crate::event::Timer;
use crate::machine::{Machine, Pairing, Passive, Phase, Then};
use crate::notice::Notice;
use crate::output::Output;
use crate::register::{Register, Succession, Token, View};
use crate::rules::{Rule, broken};
use crate::standing::Standing;

impl Held {
    /// Whether the copy may come out of it without an operator: its class may change.
    pub(super) fn may_pass(self) -> bool {
        match self {
            Self::LocalAhead | Self::QuorumDataLost | Self::NeedsAdoption | Self::NoRoom => true,
            Self::Marked(_) | Self::Unreadable | Self::Unloadable | Self::Refused => false,
        }
    }
}

impl Machine {
    /// Looks at the register like a node that starts.
    pub(super) fn read(&mut self, out: &mut Vec<Output>) {
        debug_assert!(self.writing.is_none(), "the own age must be known");
        self.phase = Phase::Reading { linearizable: false };
        out.push(Output::Read { linearizable: false });
    }

    pub(super) fn read_linearizable(&mut self, out: &mut Vec<Output>) {
        self.phase = Phase::Reading { linearizable: true };
        out.push(Output::Read { linearizable: true });
    }

    pub(super) fn on_read(&mut self, view: &View, out: &mut Vec<Output>) {
        match self.phase {
            Phase::Reading { linearizable } => self.decide(view, linearizable, out),
            Phase::Confirming(token) => self.confirm(view, token, out),
            Phase::Passive(Passive::Verifying) => self.verify(view, out),
            Phase::Succeeding { age } => {
                let done = view
                    .register
                    .is_some_and(|register| register.succession(age) == Succession::Done);
                if done {
                    self.read(out);
                } else {
                    out.push(Output::Arm(Timer::Retry));
                }
            }
            // Superseded.
            _ => {}
        }
    }

    /// Without the lock: whether to try for it. The read may lag, so it decides only what holds for
    /// every later value too.
    fn decide(&mut self, view: &View, linearizable: bool, out: &mut Vec<Output>) {
        let class = self.classify(view);
        match class {
            Class::InSync | Class::SelfRepair | Class::MaybeInSync => {
                if self.own.record.standing == Standing::Empty {
                    self.incarnation = Some(view.incarnation);
                    self.phase = Phase::Founding;
                    self.write(Standing::Valid(Age::ZERO), out);
                } else {
                    self.acquire(out);
                }
            }
            // At once, also if somebody holds the lock: a stale node must not wait for it.
            Class::Stale | Class::Blank | Class::Syncing => {
                out.push(Output::Tell(Notice::NotCandidate(class, view.register)));
                self.seek(out);
            }
            Class::Held(held) if linearizable || matches!(held, Held::Marked(_)) => {
                self.hold(held, view.register, out);
            }
            // The value may be an old one.
            Class::Held(_) => self.read_linearizable(out),
        }
    }

    fn classify(&mut self, view: &View) -> Class {
        let class = classify(&self.own, view);
        if let (Class::Stale, Some(Register::Committed(age))) = (class, view.register)
            && broken(Rule::StaleIsPassive)
        {
            self.own.record.standing = Standing::Valid(age);
            return Class::InSync;
        }
        class
    }

    pub(super) fn acquire(&mut self, out: &mut Vec<Output>) {
        self.phase = Phase::Acquiring;
        out.push(Output::Acquire);
    }

    pub(super) fn on_acquired(&mut self, token: Token, out: &mut Vec<Output>) {
        match self.phase {
            Phase::Acquiring => {
                self.phase = Phase::Confirming(token);
                out.push(Output::Read { linearizable: !broken(Rule::ReadUnderLock) });
            }
            Phase::Pairing(Pairing::Acquiring) => self.begin_pairing(token, out),
            // Nobody wants it any more.
            _ => out.push(Output::Release(token)),
        }
    }

    pub(super) fn on_busy(&mut self, out: &mut Vec<Output>) {
        match self.phase {
            Phase::Acquiring => {
                self.phase = Phase::Pausing;
                out.push(Output::Arm(Timer::Retry));
            }
            Phase::Pairing(Pairing::Acquiring) => self.pause_pairing(out),
            _ => {}
        }
    }

    /// With the lock: the read that counts, if the lock was still held at its moment. Otherwise a
    /// claim that it saw may be somebody else's who is about to commit it, and not an abandoned one
    /// (ADR 0030): a copy that took that age into its file would look in sync.
    fn confirm(&mut self, view: &View, token: Token, out: &mut Vec<Output>) {
        if view.holder != Some(token) && !broken(Rule::ReadIsFenced) {
            return self.on_lease_ended(out);
        }
        let class = self.classify(view);
        match (class, view.register) {
            (Class::InSync | Class::SelfRepair | Class::MaybeInSync, Some(register)) => {
                out.push(Output::Tell(Notice::Candidate(class, register)));
                self.incarnation = Some(view.incarnation);
                self.found = Some(*view);
                self.phase = Phase::Loading(token);
                out.push(Output::Load);
            }
            (Class::Held(held), register) => {
                out.push(Output::Release(token));
                self.hold(held, register, out);
            }
            (_, register) => {
                out.push(Output::Release(token));
                out.push(Output::Tell(Notice::NotCandidate(class, register)));
                self.seek(out);
            }
        }
    }

    pub(super) fn on_loaded(&mut self, out: &mut Vec<Output>) {
        if matches!(self.phase, Phase::Loading(_) | Phase::Single { .. }) {
            self.told = None;
        }
        match self.phase {
            Phase::Loading(token) => self.begin_raising(token, out),
            Phase::Single { serving: false } => {
                self.phase = Phase::Single { serving: true };
                out.push(Output::Serve);
            }
            _ => {}
        }
    }

    /// The lock is somebody else's, who may be able to.
    pub(super) fn on_load_failed(&mut self, held: Held, out: &mut Vec<Output>) {
        match self.phase {
            Phase::Loading(token) => out.push(Output::Release(token)),
            Phase::Single { serving: false } => {}
            _ => return,
        }
        if held == Held::Unloadable {
            out.push(Output::Tell(Notice::LoadFailed));
        }
        self.hold(held, None, out);
    }

    /// The copy stays untouched. What may pass by itself is looked at again.
    pub(super) fn hold(&mut self, held: Held, register: Option<Register>, out: &mut Vec<Output>) {
        if self.told != Some(held) {
            out.push(Output::Tell(Notice::Held(held, register)));
            self.told = Some(held);
        }
        self.phase = Phase::Held(held);
        if held.may_pass() {
            out.push(Output::Arm(Timer::Recheck));
        }
    }

    pub(super) fn wait_for_quorum(&mut self, out: &mut Vec<Output>) {
        self.phase = Phase::Waiting;
        out.push(Output::Tell(Notice::WaitingForQuorum));
        out.push(Output::Arm(Timer::Retry));
    }

    pub(super) fn on_unavailable(&mut self, out: &mut Vec<Output>) {
        match self.phase {
            Phase::Reading { .. } | Phase::Acquiring => self.wait_for_quorum(out),
            Phase::Confirming(token) => {
                out.push(Output::Release(token));
                self.wait_for_quorum(out);
            }
            Phase::Passive(Passive::Verifying) => {
                out.push(Output::Leave);
                self.wait_for_quorum(out);
            }
            Phase::Succeeding { .. } => out.push(Output::Arm(Timer::Retry)),
            Phase::Pairing(Pairing::Creating | Pairing::Acquiring) => self.pause_pairing(out),
            Phase::Raising { token, step, .. } => {
                if let Some((_, to)) = self.swap_of(step) {
                    out.push(Output::Tell(Notice::SwapUnknown(to)));
                    self.close(Some(token), Then::Again, out);
                }
            }
            // Nothing was asked, or it was superseded.
            _ => {}
        }
    }

    /// The holder stops: it never takes the lock again and goes on.
    pub(super) fn on_lease_ended(&mut self, out: &mut Vec<Output>) {
        if broken(Rule::StopAtLeaseEnd) {
            return;
        }
        match self.phase {
            Phase::Confirming(token) => {
                out.push(Output::Tell(Notice::LeaseEnded));
                out.push(Output::Release(token));
                self.read(out);
            }
            Phase::Loading(token) | Phase::Raising { token, .. } | Phase::Active { token, .. } => {
                out.push(Output::Tell(Notice::LeaseEnded));
                self.close(Some(token), Then::Again, out);
            }
            // It is being given back.
            _ => {}
        }
    }
}
