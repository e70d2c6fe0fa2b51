//! How a journal is on this node, for operators.

use activation::class::Class;
use activation::file::JournalUid;
use activation::machine::{Mode, Pairing, Passive, Phase, Why};
use activation::notice::{Cause, Notice};
use activation::standing::{Own, Standing};
use management::view::copy::{CopyCounts, CopyFile, JournalCopy, SavedCopy};
use model::time::Millis;

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
    /// Since when the oldest of them has not been answered, on [`crate::pair::clock`].
    pub(crate) unanswered_since: Option<Millis>,
    /// When the lease of the lock ends, on the same clock.
    pub(crate) leased_until: Option<Millis>,
    /// What the driver knows of the copy.
    pub(crate) own: Own,
    /// The state file cannot be read.
    pub(crate) damaged: bool,
    /// What has happened since the node's start.
    pub(crate) counts: CopyCounts,
    /// Copies that were put aside.
    pub(crate) saved: Vec<SavedCopy>,
}

impl Report {
    /// For operators, at this moment.
    pub(crate) fn shown(&self, uid: JournalUid, now: Millis) -> JournalCopy {
        let file = match self.own.record.standing {
            _ if self.damaged => CopyFile::Damaged,
            Standing::Empty => CopyFile::None,
            Standing::Valid(_) => CopyFile::Valid,
            Standing::Syncing => CopyFile::Copying,
            Standing::Marked(..) => CopyFile::SetAside,
        };
        JournalCopy {
            uid: uid.to_string(),
            state: self.state.to_owned(),
            reason: self.reason.clone(),
            sequence: self.sequence,
            standing: self.standing.clone(),
            held: self.held,
            unanswered_bytes: self.unanswered,
            unanswered_ms: self.unanswered_since.map_or(0, |since| now.0.saturating_sub(since.0)),
            file,
            incarnation: self.own.record.incarnation.map(|one| format!("{:016x}", one.0)),
            vacant: self.own.vacant,
            founder: self.own.founder,
            lease_ms: self.leased_until.map(|until| until.0.saturating_sub(now.0)),
            counts: self.counts,
            saved: self.saved.clone(),
        }
    }
}

impl Driver {
    pub(super) fn report(&mut self) {
        let own = *self.machine.own();
        let backlog = self.stage.as_ref().map(|stage| stage.ground.backlog()).unwrap_or_default();
        let (state, mut reason) = said(self.machine.phase());
        if let (Phase::Active { .. }, Some((_, why))) = (self.machine.phase(), &self.unreadable) {
            reason = Some(why.clone());
        }
        if *self.machine.phase() == Phase::Passive(Passive::Seeking) && self.no_room_until.is_some()
        {
            reason = Some("the disk has no room for a copy".to_owned());
        }
        let report = Report {
            state,
            reason,
            sequence: own.record.standing.age().map(activation::age::Age::get),
            standing: own.record.standing.to_string(),
            held: backlog.held,
            unanswered: backlog.unanswered,
            unanswered_since: backlog.unanswered_since,
            leased_until: self.lease.as_ref().map(|(_, lease)| lease.ends_at()),
            own,
            damaged: self.damage.is_some(),
            counts: self.counts,
            saved: self.saved.clone(),
        };
        if self.told.as_ref() != Some(&report) {
            self.yard.pairs.report(self.uid, report.clone());
            self.told = Some(report);
        }
    }

    pub(super) fn tell(&mut self, notice: Notice) {
        self.count(notice);
        let is_known = self.noticed.replace(notice) == Some(notice);
        let journal = &self.name;
        match notice {
            // It is tried again five times a second.
            Notice::WaitingForQuorum if is_known => {}
            Notice::Held(..) | Notice::WriteFailed(_) | Notice::LoadFailed => {
                tracing::error!(%journal, "{notice}");
            }
            Notice::SwapRefused(..)
            | Notice::SwapUnknown(_)
            | Notice::LeaseEnded
            | Notice::Stalled
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

    fn count(&mut self, notice: Notice) {
        let counts = &mut self.counts;
        match notice {
            Notice::Candidate(class, _) => self.candidate = Some(class),
            Notice::Raised(_, Cause::Activation) => {
                counts.activations += 1;
                match self.candidate.take() {
                    Some(Class::SelfRepair) => counts.self_repairs += 1,
                    Some(Class::MaybeInSync) => counts.auto_repairs += 1,
                    _ => {}
                }
            }
            Notice::Raised(_, Cause::ReplicaLost) => counts.detachments += 1,
            Notice::TakingOver(_) => counts.takeovers += 1,
            Notice::LeaseEnded => counts.leases_lost += 1,
            Notice::InSync(_) => counts.copies += 1,
            _ => {}
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
