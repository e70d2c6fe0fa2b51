//! How a journal is on this node, for operators.

use activation::machine::{Mode, Pairing, Passive, Phase, Why};
use activation::notice::Notice;

use crate::pair::driver::Driver;

/// See the module head.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Report {
    /// One or two words.
    pub(crate) state: &'static str,
    /// Why, if it waits for somebody or something.
    pub(crate) reason: Option<String>,
    /// What the state file says.
    pub(crate) sequence: Option<u64>,
    /// The state file in words.
    pub(crate) standing: String,
    /// Operations without a confirm, on the active node.
    pub(crate) held: u64,
    /// Bytes that the replica has not answered, on the active node.
    pub(crate) unanswered: usize,
}

impl Driver {
    pub(super) fn report(&mut self) {
        let own = self.machine.own();
        let backlog = self.stage.as_ref().map(|stage| stage.ground.backlog()).unwrap_or_default();
        let (state, reason) = said(self.machine.phase());
        let report = Report {
            state,
            reason,
            sequence: own.record.standing.age().map(activation::age::Age::get),
            standing: own.record.standing.to_string(),
            held: backlog.held,
            unanswered: backlog.unanswered,
        };
        if self.told.as_ref() != Some(&report) {
            self.yard.pairs.report(self.uid, report.clone());
            self.told = Some(report);
        }
    }

    pub(super) fn tell(&self, notice: Notice) {
        let journal = &self.name;
        match notice {
            Notice::Held(..) | Notice::WriteFailed(_) | Notice::LoadFailed => {
                tracing::error!(%journal, "{notice}");
            }
            Notice::SwapRefused(..)
            | Notice::SwapUnknown(_)
            | Notice::LeaseEnded
            | Notice::WaitingForQuorum
            | Notice::ReplicaLost(_)
            | Notice::TakingOver(_)
            | Notice::CannotStepDown
            | Notice::FailbackGivenUp => tracing::warn!(%journal, "{notice}"),
            Notice::Candidate(..)
            | Notice::NotCandidate(..)
            | Notice::Raised(..)
            | Notice::ReplicaInSync(_)
            | Notice::InSync(_)
            | Notice::FailbackNotAllowed => tracing::info!(%journal, "{notice}"),
        }
    }
}

fn said(phase: &Phase) -> (&'static str, Option<String>) {
    let because = |text: &str| Some(text.to_owned());
    match phase {
        Phase::Stopped => ("stopped", None),
        Phase::Single { serving: true } => ("single", None),
        Phase::Single { serving: false } | Phase::Loading(_) => ("loading", None),
        Phase::Pairing(Pairing::Pausing) => {
            ("pairing", because("no majority of the cluster answers"))
        }
        Phase::Pairing(_) | Phase::Raising { why: Why::Pairing, .. } => ("pairing", None),
        Phase::Waiting => ("waiting", because("no majority of the cluster answers")),
        Phase::Reading { .. } | Phase::Founding | Phase::Confirming(_) => ("starting", None),
        Phase::Pausing | Phase::Acquiring => ("waiting", because("another node has the lock")),
        Phase::Raising { why: Why::Activation, .. } => ("activating", None),
        Phase::Raising { .. } => ("detaching", because("the replica was lost")),
        Phase::Active { mode, .. } => match mode {
            Mode::Unreplicated => ("active, alone", None),
            Mode::Syncing { .. } => ("active, copying", None),
            Mode::MaybeInSync { .. } => ("active, handing in", None),
            Mode::Replicated { .. } => ("active, replicated", None),
        },
        Phase::Closing { .. } => ("closing", None),
        Phase::Succeeding { .. } => ("handed over", None),
        Phase::Passive(passive) => match passive {
            Passive::Seeking => ("seeking", because("no active node accepts this one")),
            Passive::Verifying
            | Passive::Marking { .. }
            | Passive::Copying
            | Passive::Persisting { .. } => ("copying", None),
            Passive::InSync => ("in sync", None),
        },
        Phase::Held(held) => ("held", Some(held.to_string())),
        Phase::Failed => ("failed", because("a write has failed")),
    }
}
