//! Rules that a run may break, to see that the judge notices.

/// A rule, by what keeping it means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Rule {
    /// A member that had started and has no data does not begin anew with an empty log.
    LostDoNotVote,
    /// A node says which members it has lost.
    LostAreReported,
    /// A member gets its vote when it has the log.
    CatchUpFirst,
    /// Nobody is taken out, and nobody gets a vote, if too few could agree then: who is down or has
    /// lost its part does not count.
    MajorityRemains,
    /// What was left half done is finished by whoever leads next.
    KeeperFinishes,
    /// Former selves of wiped nodes leave the group of the topology.
    FormerSelvesGo,
}

pub(super) const ALL: [Rule; 6] = [
    Rule::LostDoNotVote,
    Rule::LostAreReported,
    Rule::CatchUpFirst,
    Rule::MajorityRemains,
    Rule::KeeperFinishes,
    Rule::FormerSelvesGo,
];
