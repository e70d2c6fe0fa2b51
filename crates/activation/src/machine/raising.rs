//! Raising the age: claim, file, commit; with a repair before it if a claim was left open.
//!
//! ```text
//!  register i      file i     ── Claim ──►  -(i + 1)
//!           -(i + 1)     i    ── File ───►            i + 1
//!           -(i + 1)  i + 1   ── Commit ─►   i + 1              only now something is confirmed
//! ```
//!
//! A repair of `-(i + 1)` writes `i + 1` to the file, if it is not there, then to the register, and
//! then the age is raised to `i + 2`: whoever else has `i + 1` in its file, the one that claimed it
//! above all, must not take it for the newest.

use crate::age::Age;
use crate::class::{Class, classify};
use crate::event::Timer;
use crate::machine::{Machine, Mode, Pairing, Phase, Step, Then, Why};
use crate::notice::{Cause, Notice};
use crate::output::Output;
use crate::register::{Incarnation, Register, Token};
use crate::rules::{Rule, broken};
use crate::standing::{Record, Standing};

impl Machine {
    /// The queues are loaded and the lock is held: what the confirming read found decides.
    pub(super) fn begin_raising(&mut self, token: Token, out: &mut Vec<Output>) {
        let view = self.found.take().expect("the read under the lock came before");
        let step = match classify(&self.own, &view) {
            Class::SelfRepair => Step::RepairRegister,
            Class::MaybeInSync if broken(Rule::RepairWritesFirst) => Step::RepairRegister,
            Class::MaybeInSync => Step::RepairFile,
            _ => Step::Claim,
        };
        self.raise(token, step, Why::Activation, out);
    }

    /// Begins a step.
    pub(super) fn raise(&mut self, token: Token, step: Step, why: Why, out: &mut Vec<Output>) {
        self.phase = Phase::Raising { token, step, why };
        match self.swap_of(step) {
            Some((from, to)) => {
                let incarnation = self.incarnation.expect("a read or the creation told it");
                out.push(Output::Swap { from, to, incarnation, token });
            }
            None => self.write(Standing::Valid(self.age().next()), out),
        }
    }

    /// What a step changes in the register; `None` for those that write the file.
    pub(super) fn swap_of(&self, step: Step) -> Option<(Register, Register)> {
        let own = self.age();
        match step {
            Step::RepairFile | Step::File => None,
            Step::RepairRegister if broken(Rule::RepairWritesFirst) => {
                let own = own.next();
                Some((Register::Claimed(own), Register::Committed(own)))
            }
            Step::RepairRegister | Step::Commit => {
                Some((Register::Claimed(own), Register::Committed(own)))
            }
            Step::Claim => Some((Register::Committed(own), Register::Claimed(own.next()))),
        }
    }

    pub(super) fn on_swapped(&mut self, to: Register, out: &mut Vec<Output>) {
        let Phase::Raising { token, step, why } = self.phase else { return };
        if self.swap_of(step).is_none_or(|(_, asked)| asked != to) {
            return;
        }
        match step {
            Step::RepairRegister if broken(Rule::RepairWritesFirst) => {
                self.own.record.standing = Standing::Valid(to.age());
                self.raise(token, Step::Claim, why, out);
            }
            Step::RepairRegister if broken(Rule::RaiseAfterRepair) => {
                self.raised(token, why, out);
            }
            Step::RepairRegister => self.raise(token, Step::Claim, why, out),
            Step::Claim => self.raise(token, Step::File, why, out),
            Step::Commit => self.raised(token, why, out),
            Step::RepairFile | Step::File => unreachable!("these swap nothing"),
        }
    }

    pub(super) fn raised_file(
        &mut self,
        token: Token,
        step: Step,
        why: Why,
        out: &mut Vec<Output>,
    ) {
        match step {
            Step::RepairFile => self.raise(token, Step::RepairRegister, why, out),
            Step::File if broken(Rule::CommitFirst) => self.raised(token, why, out),
            Step::File => self.raise(token, Step::Commit, why, out),
            Step::RepairRegister | Step::Claim | Step::Commit => {
                unreachable!("these write nothing")
            }
        }
    }

    fn raised(&mut self, token: Token, why: Why, out: &mut Vec<Output>) {
        let cause = match why {
            Why::Activation => Cause::Activation,
            Why::ReplicaLost | Why::SyncUnheard => Cause::ReplicaLost,
            Why::Pairing => Cause::Pairing,
        };
        out.push(Output::Tell(Notice::Raised(self.age(), cause)));
        self.phase = Phase::Active { token, mode: Mode::Unreplicated };
        if why == Why::Activation {
            out.push(Output::Serve);
        }
    }

    /// Somebody else has the lock now, or an operator has forced a value. Never tried again.
    pub(super) fn on_refused(
        &mut self,
        to: Register,
        found: Option<Register>,
        out: &mut Vec<Output>,
    ) {
        let Phase::Raising { token, step, .. } = self.phase else { return };
        if self.swap_of(step).is_some_and(|(_, asked)| asked == to) {
            out.push(Output::Tell(Notice::SwapRefused(to, found)));
            self.close(Some(token), Then::Again, out);
        }
    }

    /// A journal that is served on its own gets its first age, and goes on being served. Nobody
    /// else has a copy, so that no lease is needed until it has.
    pub(super) fn on_pair(&mut self, out: &mut Vec<Output>) {
        if self.phase == (Phase::Single { serving: true }) {
            self.settings.paired = true;
            // What the file says of a register that is gone would not fit to the new one.
            self.incarnation = None;
            let begun = Record { standing: Standing::Valid(Age::ZERO), incarnation: None };
            if self.own.record == begun {
                self.create(out);
            } else {
                self.phase = Phase::Pairing(Pairing::Marking);
                self.write(begun.standing, out);
            }
        }
    }

    pub(super) fn create(&mut self, out: &mut Vec<Output>) {
        self.phase = Phase::Pairing(Pairing::Creating);
        out.push(Output::CreateRegister);
    }

    pub(super) fn on_created(&mut self, incarnation: Incarnation, out: &mut Vec<Output>) {
        if self.phase == Phase::Pairing(Pairing::Creating) {
            self.own.founder = true;
            self.incarnation = Some(incarnation);
            self.phase = Phase::Pairing(Pairing::Acquiring);
            out.push(Output::Acquire);
        }
    }

    pub(super) fn pause_pairing(&mut self, out: &mut Vec<Output>) {
        self.phase = Phase::Pairing(Pairing::Pausing);
        out.push(Output::Arm(Timer::Retry));
    }

    pub(super) fn begin_pairing(&mut self, token: Token, out: &mut Vec<Output>) {
        self.raise(token, Step::Claim, Why::Pairing, out);
    }
}
