//! A group whose majority is gone for good goes on with one of its members.
//!
//! That member is told so in the way in which members are told everything: by the last word of a
//! leader, of one that never was, in a term far above all that there were. The word is an entry that
//! names one voter, and says that all before it is committed, which the others may never have agreed
//! on. Then the member votes for itself.
//!
//! The others must not hear of it as of the same group, or they would be a majority again when they
//! come back: from now on the group has another address, and they speak to one that nobody answers to.

use crate::bringup::Receiving;
use crate::group::GroupId;
use crate::host::{Group, GroupError, Host};
use crate::types::{AppendRequest, Entry, Membership, Payload, log_id, vote};
use model::id::NodeId;
use openraft::raft::AppendEntriesResponse;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Terms that are left out, so that those of the others stay below.
const LEAP: u64 = 1_000_000;

impl Host {
    /// From now on the members of a group know each other by this number.
    ///
    /// # Errors
    /// If the group is not started here.
    pub fn move_to(&self, id: GroupId, address: GroupId) -> Result<(), GroupError> {
        let group = self.group(id)?;
        group.address.set(address);
        self.shared.moved_to(id, address);
        Ok(())
    }

    /// Makes this node's member the only one of its group, under another address. Entries that it
    /// lacks are lost, and entries that it alone has are kept. Doing it again does nothing.
    ///
    /// # Errors
    /// If the group is not started here, has no entries, or has stopped.
    pub async fn reform(&self, id: GroupId, address: GroupId) -> Result<(), GroupError> {
        let group = self.group(id)?;
        self.move_to(id, address)?;
        let me = self.shared.options.me;
        if group.electors() != [BTreeSet::from([me])] {
            // Of what others have under way nothing counts any more.
            group.inbox.clear();
            Receiving::abandon(&mut group.receiving.lock(), &group.log);
            *group.heard.lock() = None;
            group.go_on_alone(me).await?;
        }
        self.shared.alarm.ring();
        Ok(())
    }
}

impl Group {
    async fn go_on_alone(self: &Arc<Self>, me: NodeId) -> Result<(), GroupError> {
        let refused = |reason: String| GroupError::Refused(reason);
        let last = self.log.last().ok_or_else(|| refused("it has no entries".into()))?;
        let known = self.log.vote().map_or(0, |vote| vote.leader_id.term);
        let term = known.max(last.leader_id.term) + LEAP;
        let id = log_id(term, last.index + 1);
        let members = Membership::new_with_defaults(vec![BTreeSet::from([me.0])], []);
        let payload = Payload::Membership(members);
        let word = AppendRequest {
            // No node has this number.
            vote: vote(term, u64::MAX, true),
            prev_log_id: Some(last),
            entries: vec![Entry { log_id: id, payload }],
            leader_commit: Some(id),
        };
        let answer = self.wake().await?.raft.append_entries(word).await;
        match answer.map_err(|error| refused(error.to_string()))? {
            AppendEntriesResponse::Success => self.elect(0).await,
            other => Err(refused(format!("the log has changed meanwhile: {other:?}"))),
        }
    }
}
