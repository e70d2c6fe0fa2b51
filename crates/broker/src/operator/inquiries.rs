//! Asking other nodes on behalf of operators, and answering them.
//!
//! One question goes to each node, whatever the number of queues. Who does not answer in time is left
//! out, and that is logged when it begins.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use management::inquiry::{self, Done, Inquiry, Wanted};
use management::view::part::Part;
use management::view::raft::{MemberReport, RaftMember, RaftRole};
use model::id::{NodeId, QueueId};
use parking_lot::Mutex;
use peer::answer::Answer;
use peer::frame::PAYLOAD_MAX;
use quorum::group::GroupId;
use tokio::task::JoinSet;

use crate::cluster::{Inquiries, channel};
use crate::maintenance;
use crate::node::Node;
use crate::operator::{journals, parts, peek, reconciliation};

/// How long another node may take to say what it has.
pub(super) const PATIENCE: Duration = Duration::from_secs(3);
/// How long another node may take to hand its leadership over.
const TRANSFER_PATIENCE: Duration = Duration::from_secs(10);

/// How long another node may take for what concerns all that it has.
const ORDER_PATIENCE: Duration = Duration::from_mins(5);

/// Asks other nodes.
#[derive(Debug, Default)]
pub(crate) struct Inquirer {
    /// Connected nodes that did not answer the last time.
    silent: Mutex<BTreeSet<NodeId>>,
}

impl Inquirer {
    /// What the connected nodes say.
    pub(super) async fn parts(&self, node: &Node, wanted: Wanted) -> Vec<Part> {
        let answers = ask_all(node, &Inquiry::Part(wanted)).await;
        let mut parts = Vec::new();
        for (from, answer) in answers {
            let part = answer.ok_or_else(|| "it does not answer".to_owned()).and_then(|bytes| {
                let part = Part::decode(&bytes).map_err(|error| error.to_string())?;
                if part.id == from { Ok(part) } else { Err("it answers for another one".into()) }
            });
            match part {
                Ok(part) => {
                    self.silent.lock().remove(&from);
                    parts.push(part);
                }
                Err(reason) => {
                    if self.silent.lock().insert(from) {
                        tracing::warn!(node = %from, reason, "lists are without what a node has");
                    }
                }
            }
        }
        parts
    }

    /// All members of a quorum queue, those of this node's topology that are gone included.
    pub(super) async fn quorum_status(&self, node: &Node, queue: QueueId) -> Vec<MemberReport> {
        let names = parts::names(node);
        let me = node.cluster.me.node;
        let mut found = vec![(me, Ok(parts::raft_member_of(node, queue)))];
        for (from, answer) in ask_all(node, &Inquiry::Member(queue)).await {
            let member = answer.and_then(|bytes| inquiry::decode(&bytes).ok());
            found.push((from, member.ok_or("nodedown")));
        }
        let leading = |member: &Option<RaftMember>| {
            member.filter(|member| member.role == RaftRole::Leader).map(|member| member.term)
        };
        let leader = found
            .iter()
            .filter_map(|(node, member)| Some((leading(member.as_ref().ok()?)?, *node)));
        let mut members = members(node, queue, leader.max().map(|(_, node)| node));
        for (node, member) in &found {
            if matches!(member, Ok(Some(_))) && !members.contains(node) {
                members.push(*node);
            }
        }
        let report = |member: NodeId| {
            let known = found.iter().find(|(node, _)| *node == member);
            MemberReport {
                node: names.of(member).to_owned(),
                member: match known {
                    None => Err("nodedown"),
                    Some((_, Err(why))) => Err(*why),
                    Some((_, Ok(None))) => Err("noproc"),
                    Some((_, Ok(Some(member)))) => Ok(*member),
                },
            }
        };
        let mut reports: Vec<MemberReport> = members.into_iter().map(report).collect();
        reports.sort_by(|one, other| one.node.cmp(&other.node));
        reports
    }

    /// Lets a queue's leader give its leadership to `to`.
    pub(super) async fn transfer(&self, node: &Node, queue: QueueId, to: NodeId) -> Done {
        let me = node.cluster.me.node;
        let own = parts::raft_member_of(node, queue);
        if own.is_some_and(|member| member.role == RaftRole::Leader) {
            return transfer(node, queue, to).await;
        }
        let status = node.cluster.host.status(GroupId::from(queue));
        let mut leader = status.and_then(|status| status.leader).filter(|leader| *leader != me);
        if leader.is_none() {
            let leads = |bytes: &Bytes| {
                let member: Option<RaftMember> = inquiry::decode(bytes).ok()?;
                member.filter(|member| member.role == RaftRole::Leader)
            };
            let answers = ask_all(node, &Inquiry::Member(queue)).await.into_iter();
            let leading = answers.filter_map(|(from, answer)| Some((leads(&answer?)?.term, from)));
            leader = leading.max().map(|(_, from)| from);
        }
        let leader = leader.ok_or("the queue has no leader")?;
        let order = Inquiry::Transfer { queue, to }.encode().into();
        let road = &node.cluster.road;
        let answer = road.request(leader, channel::INQUIRIES, order, TRANSFER_PATIENCE).await;
        let answer = answer.ok_or("the leader's node does not answer")?;
        inquiry::decode::<Done>(&answer).map_err(|error| error.to_string())?
    }

    /// Takes checkpoints of all members of these queues; gives those of which a member could not, and
    /// why.
    pub(super) async fn checkpoint(
        &self,
        node: &Node,
        queues: Vec<QueueId>,
    ) -> BTreeMap<QueueId, String> {
        let (names, state) = (parts::names(node), node.router.state());
        let me = node.cluster.me.node;
        let mut here = Vec::new();
        let mut there: BTreeMap<NodeId, Vec<u64>> = BTreeMap::new();
        for queue in queues.iter().filter_map(|id| state.queue_by_id(*id)) {
            for member in queue.nodes() {
                if member == me {
                    here.push(queue.id);
                } else {
                    there.entry(member).or_default().push(queue.id.0);
                }
            }
        }
        let mut asked = JoinSet::new();
        for (member, queues) in there {
            let road = node.cluster.road.clone();
            asked.spawn(async move {
                let order = Bytes::from(Inquiry::Checkpoint(queues.clone()).encode());
                let answer = road.request(member, channel::INQUIRIES, order, ORDER_PATIENCE).await;
                let failed: Option<Vec<(u64, String)>> =
                    answer.and_then(|bytes| inquiry::decode(&bytes).ok());
                let silent = || {
                    let why = || "the node does not answer".to_owned();
                    queues.into_iter().map(|queue| (queue, why())).collect()
                };
                (member, failed.unwrap_or_else(silent))
            });
        }
        let mut failed = vec![(me, checkpoint_here(node, here).await)];
        failed.extend(asked.join_all().await);
        let mut found = BTreeMap::new();
        for (member, queues) in failed {
            for (queue, why) in queues {
                let why = format!("on {}: {why}", names.of(member));
                found.entry(QueueId(queue)).or_insert(why);
            }
        }
        found
    }

    /// Lets another node do something that takes a while.
    pub(super) async fn order(
        &self,
        node: &Node,
        to: NodeId,
        order: Inquiry,
    ) -> Result<Bytes, String> {
        let order = Bytes::from(order.encode());
        let road = &node.cluster.road;
        let answer = road.request(to, channel::INQUIRIES, order, ORDER_PATIENCE).await;
        answer.ok_or_else(|| "the node does not answer".to_owned())
    }

    /// Lets whoever has a connection of that name close it.
    pub(super) async fn close(&self, node: &Node, name: &str, reason: &str) -> bool {
        let order = Inquiry::Close { name: name.to_owned(), reason: reason.to_owned() };
        let closed = |bytes: &Bytes| matches!(inquiry::decode::<Done>(bytes), Ok(Ok(())));
        let answers = ask_all(node, &order).await;
        answers.iter().any(|(_, answer)| answer.as_ref().is_some_and(closed))
    }
}

/// The members of a queue: as this node's own member knows them, else as it was declared.
fn members(node: &Node, queue: QueueId, leader: Option<NodeId>) -> Vec<NodeId> {
    let status = node.cluster.host.status(GroupId::from(queue));
    let of_group: Vec<NodeId> = status
        .map(|status| status.members.iter().map(|one| one.node).collect())
        .unwrap_or_default();
    if !of_group.is_empty() {
        return of_group;
    }
    let state = node.router.state();
    let declared = state.queue_by_id(queue).map(|queue| queue.nodes().collect());
    let mut members: Vec<NodeId> = declared.unwrap_or_default();
    members.extend(leader.filter(|leader| !members.contains(leader)));
    members
}

/// Asks all connected nodes at once.
pub(super) async fn ask_all(node: &Node, question: &Inquiry) -> Vec<(NodeId, Option<Bytes>)> {
    let connected = node.cluster.connected();
    if connected.is_empty() {
        return Vec::new();
    }
    let question = Bytes::from(question.encode());
    let mut asked = JoinSet::new();
    for peer in connected {
        let (road, question) = (node.cluster.road.clone(), question.clone());
        asked.spawn(async move {
            let answer = road.request(peer.id, channel::INQUIRIES, question, PATIENCE).await;
            (peer.id, answer)
        });
    }
    let mut answers = asked.join_all().await;
    answers.sort_by_key(|(from, _)| *from);
    answers
}

/// The queues of which this node or a connected one has lost its member.
pub(super) async fn lost_members(node: &Node) -> BTreeSet<QueueId> {
    let mut lost: BTreeSet<QueueId> = node.cluster.berths.all_lost().into_iter().collect();
    for (_, answer) in ask_all(node, &Inquiry::LostMembers).await {
        let theirs = answer.and_then(|bytes| inquiry::decode::<Vec<u64>>(&bytes).ok());
        lost.extend(theirs.into_iter().flatten().map(QueueId));
    }
    lost
}

/// What answers other nodes.
#[derive(Debug)]
struct Desk(Weak<Node>);

/// From now on other nodes are answered.
pub(crate) fn open(node: &Arc<Node>) {
    node.cluster.open_inquiries(Box::new(Desk(Arc::downgrade(node))));
}

impl Inquiries for Desk {
    fn ask(&self, from: NodeId, question: Bytes, answer: Answer) {
        let Some(node) = self.0.upgrade() else { return };
        let question = match Inquiry::decode(&question) {
            Ok(question) => question,
            // Dropping the right to answer says that there is none.
            Err(error) => return tracing::warn!(%from, %error, "an inquiry"),
        };
        tokio::spawn(async move {
            let bytes = perform(&node, question).await;
            if bytes.len() > PAYLOAD_MAX {
                tracing::warn!(%from, bytes = bytes.len(), "what this node has is too much to tell");
            } else {
                answer.send(bytes.into());
            }
        });
    }
}

async fn perform(node: &Arc<Node>, question: Inquiry) -> Vec<u8> {
    match question {
        Inquiry::Part(wanted) => {
            let part = parts::part(node, wanted).await;
            // Ten thousand queues take a while to write down.
            tokio::task::spawn_blocking(move || part.encode()).await.unwrap_or_default()
        }
        Inquiry::Member(queue) => inquiry::encode(&parts::raft_member_of(node, queue)),
        Inquiry::Transfer { queue, to } => inquiry::encode(&transfer(node, queue, to).await),
        Inquiry::AddMember { queue, node: member } => {
            inquiry::encode(&node.members.add_here(queue, member).await)
        }
        Inquiry::DeleteMember { queue, node: member, force } => {
            inquiry::encode(&node.members.delete_here(queue, member, force).await)
        }
        Inquiry::ForceShrink(queue) => {
            inquiry::encode(&node.members.force_shrink_here(queue).await)
        }
        Inquiry::Checkpoint(queues) => {
            let queues = queues.into_iter().map(QueueId).collect();
            inquiry::encode(&checkpoint_here(node, queues).await)
        }
        Inquiry::Peek { queue, before, most } => {
            inquiry::encode(&peek::here(node, queue, before, most).await)
        }
        Inquiry::Drain => {
            let drained = maintenance::drain(node).await;
            inquiry::encode(&drained.map_err(|refusal| refusal.text))
        }
        Inquiry::Revive => {
            let revived: Done = maintenance::revive(node).await.map_err(|refusal| refusal.text);
            inquiry::encode(&revived)
        }
        Inquiry::MayForget(gone) => {
            let may: Done = node.members.may_forget(gone).await.map_err(|refusal| refusal.text);
            inquiry::encode(&may)
        }
        Inquiry::Forget(gone) => {
            let forgotten: Done = node.members.forget(gone).await.map_err(|refusal| refusal.text);
            inquiry::encode(&forgotten)
        }
        Inquiry::LostMembers => {
            let lost: Vec<u64> = node.cluster.berths.all_lost().iter().map(|one| one.0).collect();
            inquiry::encode(&lost)
        }
        Inquiry::Reconciliation => inquiry::encode(&node.reconciler.report()),
        Inquiry::ReconcileNow => inquiry::encode(&reconciliation::now_here(node)),
        Inquiry::ReconciliationPlan(queue) => inquiry::encode(&node.reconciler.plan_report(queue)),
        Inquiry::JournalCopies => inquiry::encode(&journals::copies_here(node)),
        Inquiry::LeftJournals => inquiry::encode(&journals::left_here(node).await),
        Inquiry::LeftDeclarations { uid } => {
            inquiry::encode(&journals::declarations_here(node, uid).await)
        }
        Inquiry::AmendCopy { uid, amendment } => {
            inquiry::encode(&journals::amend(node, &uid, amendment).await)
        }
        Inquiry::Close { name, reason } => {
            let closed = node.connections.close(&reason, |record| record.name == name);
            let done: Done = if closed > 0 { Ok(()) } else { Err("no such connection".into()) };
            inquiry::encode(&done)
        }
    }
}

/// Takes checkpoints of this node's members, one after the other; gives those that could not.
async fn checkpoint_here(node: &Node, queues: Vec<QueueId>) -> Vec<(u64, String)> {
    let mut failed = Vec::new();
    for queue in queues {
        if let Err(error) = node.cluster.host.checkpoint(GroupId::from(queue)).await {
            failed.push((queue.0, error.to_string()));
        }
    }
    failed
}

/// This node, which leads a queue, gives the leadership to `to`.
async fn transfer(node: &Node, queue: QueueId, to: NodeId) -> Done {
    if to == node.cluster.me.node {
        return Ok(());
    }
    // Whoever hands over stops to lead, so nobody is asked who cannot take over.
    if !node.members.is_up(to) {
        return Err("the node is not running".to_owned());
    }
    let transferred = node.cluster.host.transfer(GroupId::from(queue), to).await;
    // Groups know nodes by their numbers.
    let named = |text: String| text.replace(&to.to_string(), parts::names(node).of(to));
    transferred.map_err(|error| named(error.to_string()))
}
