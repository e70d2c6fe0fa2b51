//! When a group may sleep: the decision, pure.
//!
//! A group that sleeps has no openraft and no task; its log, its vote and its member stay as they
//! are, so it is a node of the group that answers late. See ADR 0040 for why that is safe.
//!
//! The leader goes first, once all that is connected has all that there is, and tells the others;
//! they follow when they have no stream of appends any more. Nothing wakes a group but a use of it.

use crate::types::LogId;
use std::time::Duration;

/// When groups sleep.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rest {
    /// A group that was not used for so long sleeps; `None`: none ever does.
    pub after: Option<Duration>,
    /// With more groups awake than this, those that were not used for longest sleep sooner.
    pub awake_max: usize,
}

/// With too many awake, a group may sleep when it was not used for so long.
pub(crate) const SOONEST: Duration = Duration::from_secs(1);
/// How long a group stays awake for a member that is connected and does not catch up. It wakes when
/// that one asks who leads.
const LAG_PATIENCE: Duration = Duration::from_mins(1);

/// A group, as far as that decides about its sleep.
#[derive(Debug, Clone)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
pub(crate) struct Look {
    /// Since when nobody used it.
    pub(crate) idle: Duration,
    /// Its last entry.
    pub(crate) last: Option<LogId>,
    /// Up to where it knows entries to be committed.
    pub(crate) committed: Option<LogId>,
    /// Up to where its member has them.
    pub(crate) applied: Option<LogId>,
    /// Whether its records, votes among them, are synced.
    pub(crate) is_durable: bool,
    /// Whether openraft has stopped by itself.
    pub(crate) has_failed: bool,
    /// The newest election that this node has won, if it is the newest that it knows of.
    pub(crate) won: Option<u64>,
    /// The term in which it may propose.
    pub(crate) leads: Option<u64>,
    /// Whether its members are being changed.
    pub(crate) is_changing: bool,
    /// Whether a member that is connected lacks entries.
    pub(crate) is_followed_late: bool,
    /// Whether a leader's stream of appends is open here, or a checkpoint comes in.
    pub(crate) is_fed: bool,
    /// Whether a checkpoint goes out.
    pub(crate) feeds: bool,
    /// Whether it stands for election, or has voted for somebody a moment ago.
    pub(crate) is_voting: bool,
}

/// Why a group stays awake.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stays {
    /// It was used a moment ago.
    Used,
    /// It has failed, and whoever asks shall see that.
    Failed,
    /// Something of it is not on the disk.
    Unsynced,
    /// Entries are not committed, or not applied.
    Unfinished,
    /// Its members are being changed.
    Changing,
    /// A member lacks entries.
    Followed,
    /// A leader sends it entries, or a checkpoint.
    Fed,
    /// A checkpoint is being sent.
    Feeding,
    /// There is an election.
    Voting,
}

impl Look {
    /// Whether it may sleep after having been idle for `after`.
    pub(crate) fn may_sleep(&self, after: Duration) -> Result<(), Stays> {
        let stays = |is_so: bool, why: Stays| if is_so { Err(why) } else { Ok(()) };
        stays(self.idle < after, Stays::Used)?;
        stays(self.has_failed, Stays::Failed)?;
        stays(!self.is_durable, Stays::Unsynced)?;
        stays(self.is_voting, Stays::Voting)?;
        stays(self.is_fed, Stays::Fed)?;
        stays(self.feeds, Stays::Feeding)?;
        stays(self.is_changing, Stays::Changing)?;
        stays(self.committed != self.applied, Stays::Unfinished)?;
        if self.won.is_none() {
            // What a follower lacks it gets when it is woken.
            return Ok(());
        }
        // A leader that cannot propose yet, or gives its place away, is about to do something.
        stays(self.won != self.leads, Stays::Voting)?;
        stays(self.last != self.committed, Stays::Unfinished)?;
        stays(self.is_followed_late && self.idle < after + LAG_PATIENCE, Stays::Followed)
    }
}

/// How long each of `awake` groups must have been idle to sleep, when so many are.
pub(crate) fn patience(rest: Rest, awake: usize) -> Option<Duration> {
    let after = rest.after?;
    Some(if awake > rest.awake_max { after.min(SOONEST) } else { after })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::log_id;

    const AFTER: Duration = Duration::from_secs(10);

    fn leader() -> Look {
        let last = Some(log_id(4, 9));
        Look {
            idle: AFTER,
            last,
            committed: last,
            applied: last,
            is_durable: true,
            has_failed: false,
            won: Some(4),
            leads: Some(4),
            is_changing: false,
            is_followed_late: false,
            is_fed: false,
            feeds: false,
            is_voting: false,
        }
    }

    fn follower() -> Look {
        Look { won: None, leads: None, ..leader() }
    }

    #[test]
    fn idle_groups_sleep_and_used_ones_do_not() {
        assert_eq!(leader().may_sleep(AFTER), Ok(()));
        assert_eq!(follower().may_sleep(AFTER), Ok(()));
        let idle = Duration::from_millis(9_999);
        assert_eq!(Look { idle, ..leader() }.may_sleep(AFTER), Err(Stays::Used));
        assert_eq!(Look { idle, ..follower() }.may_sleep(AFTER), Err(Stays::Used));
        let empty = Look { last: None, committed: None, applied: None, ..follower() };
        assert_eq!(empty.may_sleep(AFTER), Ok(()), "it was never founded");
    }

    #[test]
    fn what_is_under_way_keeps_awake() {
        for base in [leader(), follower()] {
            let cases = [
                (Look { has_failed: true, ..base.clone() }, Stays::Failed),
                (Look { is_durable: false, ..base.clone() }, Stays::Unsynced),
                (Look { is_voting: true, ..base.clone() }, Stays::Voting),
                (Look { is_fed: true, ..base.clone() }, Stays::Fed),
                (Look { feeds: true, ..base.clone() }, Stays::Feeding),
                (Look { is_changing: true, ..base.clone() }, Stays::Changing),
                (Look { applied: Some(log_id(4, 8)), ..base.clone() }, Stays::Unfinished),
            ];
            for (look, why) in cases {
                assert_eq!(look.may_sleep(AFTER), Err(why));
            }
        }
    }

    #[test]
    fn a_leader_sleeps_when_it_owes_nobody_anything() {
        let before = Some(log_id(4, 8));
        let open = Look { committed: before, applied: before, ..leader() };
        assert_eq!(open.may_sleep(AFTER), Err(Stays::Unfinished));
        let open = Look { committed: before, applied: before, ..follower() };
        assert_eq!(open.may_sleep(AFTER), Ok(()), "its leader sees to that");
        assert_eq!(Look { leads: None, ..leader() }.may_sleep(AFTER), Err(Stays::Voting));
        let late = Look { is_followed_late: true, ..leader() };
        assert_eq!(late.may_sleep(AFTER), Err(Stays::Followed));
        let idle = AFTER + LAG_PATIENCE;
        assert_eq!(Look { idle, ..late }.may_sleep(AFTER), Ok(()), "it does not catch up");
    }

    #[test]
    fn with_too_many_awake_patience_is_short() {
        let rest = Rest { after: Some(AFTER), awake_max: 3 };
        assert_eq!(patience(rest, 3), Some(AFTER));
        assert_eq!(patience(rest, 4), Some(SOONEST));
        let quick = Duration::from_millis(20);
        assert_eq!(patience(Rest { after: Some(quick), ..rest }, 4), Some(quick));
        assert_eq!(patience(Rest { after: None, ..rest }, 4), None);
    }
}
