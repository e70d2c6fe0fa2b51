//! What this node says of what it keeps, leads and serves.

use std::collections::BTreeMap;

use management::census::Names;
use management::inquiry::Wanted;
use management::view::part::{ClientPart, ConsumerPart, MemberPart, Part, QueuePart};
use management::view::raft::{RaftMember, RaftRole};
use metadata::objects::queue::QueueKind;
use model::id::{NodeId, QueueId};
use quorum::group::GroupId;
use quorum::member::Role;
use quorum::status::{Brief, Status};

use crate::node::{Node, tool_name};
use crate::operator::views;
use crate::shard::command::Command;
use crate::shard::view::{ConsumerView, QueueView};

/// What is wanted of this node.
pub(super) async fn part(node: &Node, wanted: Wanted) -> Part {
    let queues = async {
        match wanted.only.map(QueueId) {
            _ if !wanted.queues => Vec::new(),
            Some(queue) => {
                let view = node.ask(queue, |answer| Command::View { queue, answer }).await;
                view.flatten().into_iter().filter(|view| is_own(node, view)).collect()
            }
            None => node.own_views().await,
        }
    };
    let clients = async {
        if wanted.clients { views::clients(node).await } else { (Vec::new(), Vec::new()) }
    };
    let (queues, (connections, channels)) = tokio::join!(queues, clients);
    let totals = views::counters(node);
    Part {
        id: node.cluster.me.node,
        queues: queues.into_iter().map(queue).collect(),
        members: members(node, wanted),
        connections,
        channels,
        clients: if wanted.queues && !wanted.clients { owners(node) } else { Vec::new() },
        exchanges: if wanted.exchanges { views::exchanges(node) } else { Vec::new() },
        messages: totals.messages,
        churn: totals.churn,
        node: wanted.nodes.then(|| views::node_stats(node)),
    }
}

/// Whether this node keeps or leads what it has looked at.
fn is_own(node: &Node, view: &QueueView) -> bool {
    let state = node.router.state();
    let Some(queue) = state.queue_by_id(view.id) else { return false };
    match queue.kind {
        QueueKind::Quorum => view.term.is_some(),
        QueueKind::Classic => queue.home == NodeId(0) || queue.home == node.cluster.me.node,
    }
}

fn queue(view: QueueView) -> QueuePart {
    QueuePart {
        id: view.id,
        term: view.term.unwrap_or(0),
        stats: views::queue_stats(&view),
        consumers: view.consumers.iter().map(|one| consumer(&view, one)).collect(),
        voters: view.voters,
        learners: view.learners,
    }
}

fn consumer(queue: &QueueView, consumer: &ConsumerView) -> ConsumerPart {
    ConsumerPart {
        connection: consumer.connection,
        channel: consumer.channel,
        tag: consumer.tag.clone(),
        ack_required: !consumer.no_ack,
        exclusive: consumer.exclusive,
        prefetch_count: u32::from(consumer.prefetch),
        arguments: consumer.arguments.clone(),
        user: consumer.user.to_string(),
        timeout_ms: consumer.timeout,
        has_turn: queue.active == Some(consumer.id),
    }
}

/// Whom this node's connections belong to.
fn owners(node: &Node) -> Vec<ClientPart> {
    let records = node.connections.all();
    let owner = |record: &std::sync::Arc<crate::connections::Record>| ClientPart {
        id: record.id,
        name: record.name.clone(),
        peer_host: record.peer.remote.ip().to_string(),
        peer_port: record.peer.remote.port(),
    };
    records.iter().map(owner).collect()
}

/// This node's members of quorum queues, ascending.
fn statuses(node: &Node) -> impl Iterator<Item = (QueueId, Status)> {
    let statuses = node.cluster.host.statuses();
    let queues = statuses.filter(|(group, _)| *group != crate::cluster::GROUP);
    queues.map(|(group, status)| (QueueId(group.0), status))
}

fn members(node: &Node, wanted: Wanted) -> Vec<MemberPart> {
    let member = |(queue, status): (QueueId, Status)| MemberPart {
        queue,
        term: status.term,
        leader: status.leader.unwrap_or(NodeId(0)),
    };
    match wanted.only.map(QueueId) {
        _ if !wanted.queues || !wanted.members => Vec::new(),
        None => {
            let briefs = node.cluster.host.briefs();
            let queues = briefs.iter().filter(|brief| brief.group != crate::cluster::GROUP);
            let member = |brief: &Brief| MemberPart {
                queue: QueueId(brief.group.0),
                term: brief.term,
                leader: brief.leader.unwrap_or(NodeId(0)),
            };
            queues.map(member).collect()
        }
        Some(queue) => {
            let status = node.cluster.host.status(GroupId::from(queue));
            let works = status.filter(|status| !status.has_failed);
            works.map(|status| member((queue, status))).into_iter().collect()
        }
    }
}

/// This node's members of quorum queues as Raft sees them.
pub(super) fn raft_members(node: &Node) -> Vec<RaftMember> {
    let me = node.cluster.me.node;
    statuses(node).map(|(queue, status)| raft_member(me, queue, &status)).collect()
}

/// This node's member of one of them.
pub(super) fn raft_member_of(node: &Node, queue: QueueId) -> Option<RaftMember> {
    if let Some(status) = node.cluster.host.status(GroupId::from(queue)) {
        return Some(raft_member(node.cluster.me.node, queue, &status));
    }
    node.cluster.berths.lost(queue).map(|_| RaftMember {
        queue,
        role: RaftRole::Lost,
        has_leader: false,
        term: 0,
        last: 0,
        committed: 0,
        applied: 0,
        snapshot: 0,
        log_bytes: 0,
        hibernated: false,
    })
}

fn raft_member(me: NodeId, queue: QueueId, status: &Status) -> RaftMember {
    let votes = status.members.iter().any(|one| one.node == me && one.is_voter);
    RaftMember {
        queue,
        role: match status.role {
            _ if status.has_failed => RaftRole::Failed,
            Role::Leader { .. } => RaftRole::Leader,
            Role::Follower { .. } if votes => RaftRole::Follower,
            Role::Follower { .. } => RaftRole::Learner,
        },
        has_leader: status.leader.is_some(),
        term: status.term,
        last: status.last.unwrap_or(0),
        committed: status.committed.unwrap_or(0),
        applied: status.applied.unwrap_or(0),
        snapshot: status.checkpoint.unwrap_or(0),
        log_bytes: status.log_bytes,
        hibernated: status.is_asleep,
    }
}

/// The names of all nodes. A node that was wiped is another one under its old name: what is left of
/// the former one is called lost.
pub(super) fn names(node: &Node) -> Names {
    let own = tool_name(&node.config.node.name);
    let state = node.router.state();
    let mut all: BTreeMap<NodeId, String> = state
        .nodes()
        .map(|known| {
            let name = tool_name(&known.name);
            (known.id, if known.lost { format!("{name} (lost)") } else { name })
        })
        .collect();
    all.insert(node.cluster.me.node, own.clone());
    Names::new(own, all)
}
