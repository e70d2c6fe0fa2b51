//! A member of a quorum queue, as the topology records it.
//!
//! ```text
//!  declared, its node is there    Founding ─┐ it has the log        ┌─► Started ─► (data gone) Lost ─┐
//!  declared, its node is away     Unstarted ├──────────────────────┤                              │
//!  added later, or in the place   Unstarted ┘                       └─► removed                    │
//!  of a lost one                      ▲                                                           │
//!                                     └─────────── out of the group, a new stream ◄────────────────┘
//! ```
//!
//! A member is (queue, node, stream), and none of the three is ever used again: a node is an
//! incarnation, and a stream is drawn anew for each member that is added. So what a node has in
//! its journal can be told from what an earlier member of the same queue has left there.

use model::id::{NodeId, QueueId, StreamId};
use serde::{Deserialize, Serialize};

/// See the module head.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Written")]
pub struct Member {
    /// Its node.
    #[serde(with = "super::node::node_id")]
    pub node: NodeId,
    /// Its stream in the node's journal. 0 in records: that of the queue's own number.
    #[serde(with = "stream_id")]
    pub stream: StreamId,
    /// How far it has come.
    pub stage: Stage,
    /// By which number the members of the group know each other: 0 for that of the queue, until the
    /// group is made anew of one member.
    #[serde(skip_serializing_if = "is_zero")]
    pub group: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature is serde's")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// How far a member has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stage {
    /// It starts without data and founds the group with the others that are so recorded.
    Founding,
    /// It starts without data, and waits for the leader to tell it the log. It has never voted.
    Unstarted,
    /// It has been told the log. Without its data it must never start again: it could vote a second
    /// time, or lack what it has acknowledged.
    Started,
    /// Its data is gone, and somebody has begun to put another member in its place on the same node:
    /// whoever leads the group finishes that.
    Lost,
    /// The majority of its group is gone for good: it has to go on as the only member, under another
    /// number, with what it has of the log.
    Sole,
}

/// Members as records have them: plain numbers of nodes before members were told apart.
#[derive(Deserialize)]
#[serde(untagged)]
enum Written {
    Plain(u64),
    Whole {
        node: u64,
        stream: u64,
        stage: Stage,
        #[serde(default)]
        group: u64,
    },
}

impl From<Written> for Member {
    fn from(written: Written) -> Self {
        match written {
            Written::Plain(node) => {
                Self { node: NodeId(node), stream: StreamId(0), stage: Stage::Founding, group: 0 }
            }
            Written::Whole { node, stream, stage, group } => {
                Self { node: NodeId(node), stream: StreamId(stream), stage, group }
            }
        }
    }
}

impl Member {
    /// A member of a queue that is declared while its node is there.
    pub fn founding(queue: QueueId, node: NodeId) -> Self {
        Self { node, stream: queue.into(), stage: Stage::Founding, group: 0 }
    }

    /// A member that is added, or whose node is away when the queue is declared.
    pub fn unstarted(stream: StreamId, node: NodeId) -> Self {
        Self { node, stream, stage: Stage::Unstarted, group: 0 }
    }
}

/// The nodes that may found the group of a queue with these members: none once it was founded,
/// since all who found it must name the same.
pub fn founders(members: &[Member]) -> Vec<NodeId> {
    let was_founded =
        |member: &Member| matches!(member.stage, Stage::Started | Stage::Lost | Stage::Sole);
    if members.iter().any(was_founded) {
        return Vec::new();
    }
    let founding = members.iter().filter(|member| member.stage == Stage::Founding);
    founding.map(|member| member.node).collect()
}

/// Ids are plain numbers in records.
mod stream_id {
    use model::id::StreamId;
    use serde::{Serialize, Serializer};

    #[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature is serde's")]
    pub(super) fn serialize<S: Serializer>(id: &StreamId, to: S) -> Result<S::Ok, S::Error> {
        id.0.serialize(to)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_of_before_are_read() {
        let members: Vec<Member> =
            serde_json::from_str(r#"[7,{"node":8,"stream":21,"stage":"started"}]"#).unwrap();
        assert_eq!(members[0].node, NodeId(7));
        assert_eq!((members[0].stream, members[0].stage), (StreamId(0), Stage::Founding));
        let started =
            Member { node: NodeId(8), stream: StreamId(21), stage: Stage::Started, group: 0 };
        assert_eq!(members[1], started);
        let text = serde_json::to_string(&members[1]).unwrap();
        assert_eq!(text, r#"{"node":8,"stream":21,"stage":"started"}"#);
        assert_eq!(serde_json::from_str::<Member>(&text).unwrap(), started);
        let anew = Member { group: 30, ..started };
        let text = serde_json::to_string(&anew).unwrap();
        assert_eq!(serde_json::from_str::<Member>(&text).unwrap(), anew);
    }

    #[test]
    fn a_group_is_founded_once() {
        let (a, b) = (NodeId(1), NodeId(2));
        let mut members = vec![Member::founding(QueueId(9), a), Member::unstarted(StreamId(9), b)];
        assert_eq!(founders(&members), [a]);
        members[1].stage = Stage::Started;
        assert_eq!(founders(&members), []);
    }
}
