//! Not serving: finding an active node, being copied from it, taking over.

use crate::age::Age;
use crate::class::{Class, Held, classify};
use crate::event::Timer;
use crate::machine::{Machine, Passive, Phase};
use crate::notice::Notice;
use crate::output::Output;
use crate::register::View;
use crate::rules::{Rule, broken};
use crate::standing::Standing;

impl Machine {
    pub(super) fn seek(&mut self, out: &mut Vec<Output>) {
        self.told = None;
        self.phase = Phase::Passive(Passive::Seeking);
        out.push(Output::Seek);
    }

    /// An active node waits to send its copy. What is here goes only now that a source exists, and
    /// only if a read that cannot lag says that it is worthless.
    pub(super) fn on_accepted(&mut self, out: &mut Vec<Output>) {
        match self.phase {
            Phase::Passive(Passive::Seeking) if broken(Rule::ReadBeforeDiscard) => {
                self.mark(out);
            }
            Phase::Passive(Passive::Seeking) => {
                self.phase = Phase::Passive(Passive::Verifying);
                out.push(Output::Read { linearizable: true });
            }
            // Found too late.
            Phase::Passive(_) => {}
            _ => out.push(Output::Leave),
        }
    }

    pub(super) fn verify(&mut self, view: &View, out: &mut Vec<Output>) {
        let class = classify(&self.own, view);
        match class {
            Class::Stale | Class::Blank | Class::Syncing => {
                self.incarnation = Some(view.incarnation);
                self.mark(out);
            }
            Class::InSync | Class::SelfRepair | Class::MaybeInSync => {
                out.push(Output::Leave);
                self.acquire(out);
            }
            Class::Held(held) => {
                out.push(Output::Leave);
                self.hold(held, view.register, out);
            }
        }
    }

    fn mark(&mut self, out: &mut Vec<Output>) {
        if broken(Rule::MarkSyncing) {
            self.phase = Phase::Passive(Passive::Copying);
            out.push(Output::Copy);
            return;
        }
        self.phase = Phase::Passive(Passive::Marking { lost: false });
        self.write(Standing::Syncing, out);
    }

    /// The state file is written.
    pub(super) fn marked(&mut self, passive: Passive, out: &mut Vec<Output>) {
        match passive {
            Passive::Marking { lost: false } => {
                self.phase = Phase::Passive(Passive::Copying);
                out.push(Output::Copy);
            }
            Passive::Persisting { lost: false } => self.in_sync(out),
            Passive::Marking { lost: true } => self.read(out),
            Passive::Persisting { lost: true } => {
                out.push(Output::Tell(Notice::TakingOver(self.age())));
                self.read(out);
            }
            Passive::Seeking | Passive::Verifying | Passive::Copying | Passive::InSync => {
                unreachable!("these write nothing")
            }
        }
    }

    fn in_sync(&mut self, out: &mut Vec<Output>) {
        self.phase = Phase::Passive(Passive::InSync);
        out.push(Output::Tell(Notice::InSync(self.age())));
        out.push(Output::SendInSync);
    }

    /// Nobody accepts; somebody may later, and the register may say something else by then.
    pub(super) fn on_not_accepted(&mut self, out: &mut Vec<Output>) {
        if self.phase == Phase::Passive(Passive::Seeking) {
            out.push(Output::Arm(Timer::Seek));
        }
    }

    /// The copy is whole and durable. An active node has an age of at least 1.
    pub(super) fn on_sync_done(&mut self, age: Age, out: &mut Vec<Output>) {
        if self.phase != Phase::Passive(Passive::Copying) {
            return;
        }
        if age == Age::ZERO {
            out.push(Output::Leave);
            return self.hold(Held::Refused, None, out);
        }
        self.own.vacant = false;
        self.phase = Phase::Passive(Passive::Persisting { lost: false });
        self.write(Standing::Valid(age), out);
    }

    pub(super) fn on_stop_called(&mut self, out: &mut Vec<Output>) {
        if self.phase == Phase::Passive(Passive::InSync) {
            out.push(Output::Arm(Timer::Takeover));
        }
    }

    /// In sync: this node tries to serve. Before that: it begins again, and is no candidate.
    pub(super) fn on_active_lost(&mut self, out: &mut Vec<Output>) {
        let Phase::Passive(passive) = self.phase else { return };
        match passive {
            // Nobody was found yet whose loss could matter.
            Passive::Seeking => {}
            Passive::Verifying | Passive::Copying => {
                out.push(Output::Leave);
                self.read(out);
            }
            // What the file says is known when the write is answered.
            Passive::Marking { .. } => {
                out.push(Output::Leave);
                self.phase = Phase::Passive(Passive::Marking { lost: true });
            }
            Passive::Persisting { .. } => {
                out.push(Output::Leave);
                self.phase = Phase::Passive(Passive::Persisting { lost: true });
            }
            Passive::InSync => {
                out.push(Output::Tell(Notice::TakingOver(self.age())));
                out.push(Output::Leave);
                self.read(out);
            }
        }
    }

    /// Whoever cannot reach the quorum leaves the pair, and keeps its age: when the quorum is back,
    /// it may turn out to be a candidate.
    pub(super) fn on_quorum_lost(&mut self, out: &mut Vec<Output>) {
        if self.phase == Phase::Passive(Passive::InSync) {
            out.push(Output::Leave);
            self.wait_for_quorum(out);
        }
    }
}
