//! `/queues/quorum/.../replicas/...`: members of quorum queues that come and go.

use std::pin::Pin;

use axum::http::StatusCode;
use futures_util::StreamExt as _;
use futures_util::stream;
use metadata::objects::queue::{Queue, QueueKind};
use model::id::NodeId;
use regex::Regex;
use serde_json::{Value, json};

use super::call::Call;
use super::quorum;
use crate::http::answer::Answer;
use crate::http::failure::{Failure, Outcome};
use crate::inquiry::Change;
use crate::members::MemberError;
use crate::node::Node;
use crate::view::raft::RaftRole;

/// Queues that are changed at the same time.
const AT_ONCE: usize = 16;

/// `POST /queues/quorum/VHOST/NAME/replicas/add` with `{"node": NODE}`.
pub(super) async fn add<N: Node>(call: &Call<'_, N>, vhost: &str, name: &str) -> Outcome<Answer> {
    allowed(call)?;
    let queue = quorum::find(call, vhost, name)?;
    membership(call)?;
    let node = node(call, &call.body.text("node")?)?;
    call.node.add_member(queue.id, node).await.map_err(failure)?;
    Ok(Answer::Done)
}

/// `DELETE /queues/quorum/VHOST/NAME/replicas/delete` with `{"node": NODE}` and perhaps
/// `"force": true`.
pub(super) async fn delete<N: Node>(
    call: &Call<'_, N>,
    vhost: &str,
    name: &str,
) -> Outcome<Answer> {
    allowed(call)?;
    let queue = quorum::find(call, vhost, name)?;
    let force = call.body.flag("force", false)?;
    let nodes = incarnations(call, &call.body.text("node")?)?;
    let node = member_of(queue, &nodes).unwrap_or(nodes[0]);
    call.node.delete_member(queue.id, node, force).await.map_err(failure)?;
    Ok(Answer::Accepted)
}

/// `POST /queues/quorum/replicas/on/NODE/grow` with `strategy`, `vhost_pattern` and
/// `queue_pattern`: all queues that match, or those of an even size, get a member there.
pub(super) async fn grow<N: Node>(call: &Call<'_, N>, name: &str) -> Outcome<Answer> {
    allowed(call)?;
    membership(call)?;
    let node = node(call, name)?;
    let even = is_even(call)?;
    let queues = matching(call)?;
    let mut work: Vec<Work<'_>> = Vec::new();
    for queue in queues {
        let size = queue.members.len();
        if queue.member(node).is_none() && (!even || size.is_multiple_of(2)) {
            work.push(Box::pin(grow_by(call, queue, vec![node])));
        }
    }
    Ok(Answer::Json(perform(work).await.into()))
}

/// A queue gets members one after the other.
async fn grow_by<N: Node>(call: &Call<'_, N>, queue: &Queue, nodes: Vec<NodeId>) -> Value {
    let mut last: Change = Err(MemberError::NotStable);
    for node in nodes {
        last = if is_stable(call, queue).await {
            call.node.add_member(queue.id, node).await
        } else {
            Err(MemberError::NotStable)
        };
        if last.is_err() {
            break;
        }
    }
    row(queue, &last)
}

/// A queue loses members one after the other.
async fn shrink_by<N: Node>(
    call: &Call<'_, N>,
    queue: &Queue,
    nodes: Vec<NodeId>,
    force: bool,
) -> Value {
    let mut last: Change = Err(MemberError::NotFound);
    for node in nodes {
        last = call.node.delete_member(queue.id, node, force).await;
        if last.is_err() {
            break;
        }
    }
    row(queue, &last)
}

/// `POST /queues/quorum/replicas/grow` with `count` and the fields of [`grow`]: all queues that match
/// and have fewer members get one after the other, on nodes that have the fewest.
pub(super) async fn grow_to_count<N: Node>(call: &Call<'_, N>) -> Outcome<Answer> {
    allowed(call)?;
    membership(call)?;
    let count = call.body.integer("count")?.and_then(|count| usize::try_from(count).ok());
    let count = count.filter(|count| *count > 0);
    let count = count.ok_or_else(|| Failure::bad_request("count must be a positive number"))?;
    let even = is_even(call)?;
    let running = call.node.running_nodes();
    let count = count.min(running.len());
    let state = call.node.state();
    let mut load: Vec<(usize, NodeId)> = running
        .iter()
        .map(|node| (state.all_queues().filter(|it| it.member(*node).is_some()).count(), *node))
        .collect();
    let mut work: Vec<Work<'_>> = Vec::new();
    for queue in matching(call)? {
        let size = queue.members.len();
        if size >= count || (even && !size.is_multiple_of(2)) {
            continue;
        }
        // The choice is made beforehand, so that it does not depend on what is quicker.
        load.sort_unstable();
        let free = load.iter_mut().filter(|(_, node)| queue.member(*node).is_none());
        let chosen: Vec<NodeId> = free
            .take(count - size)
            .map(|(load, node)| {
                *load += 1;
                *node
            })
            .collect();
        work.push(Box::pin(grow_by(call, queue, chosen)));
    }
    Ok(Answer::Json(perform(work).await.into()))
}

/// `DELETE /queues/quorum/replicas/on/NODE/shrink`: no queue has a member there any more. The node
/// need not run.
pub(super) async fn shrink<N: Node>(call: &Call<'_, N>, name: &str) -> Outcome<Answer> {
    allowed(call)?;
    let nodes = incarnations(call, name)?;
    let force = call.body.flag("force", false)?;
    let rows = shrink_all(call, &nodes, force, |_| true).await;
    Ok(Answer::Status(StatusCode::ACCEPTED, rows.into()))
}

/// Takes the members on these nodes from all queues that are meant; one row for each queue that has
/// one there.
pub(super) async fn shrink_all<N: Node>(
    call: &Call<'_, N>,
    nodes: &[NodeId],
    force: bool,
    is_meant: impl Fn(&Queue) -> bool,
) -> Vec<Value> {
    let mut work: Vec<Work<'_>> = Vec::new();
    for queue in quorum_queues(call).filter(|queue| is_meant(queue)) {
        let here: Vec<NodeId> = queue.nodes().filter(|node| nodes.contains(node)).collect();
        if !here.is_empty() {
            work.push(Box::pin(shrink_by(call, queue, here, force)));
        }
    }
    perform(work).await
}

/// `POST /queues/quorum/VHOST/NAME/replicas/force-shrink` with `{"node": NODE, "force": true}`: the
/// queue, whose majority is gone for good, goes on with the member there alone.
pub(super) async fn force_shrink<N: Node>(
    call: &Call<'_, N>,
    vhost: &str,
    name: &str,
) -> Outcome<Answer> {
    allowed(call)?;
    let queue = quorum::find(call, vhost, name)?;
    let node = node(call, &call.body.text("node")?)?;
    confirmed(call)?;
    call.node.force_shrink(queue.id, node).await.map_err(failure)?;
    Ok(Answer::Done)
}

/// `POST /queues/quorum/replicas/on/NODE/force-shrink` with `"force": true` and perhaps
/// `vhost_pattern` and `queue_pattern`: the same for all queues that match and have a member there;
/// one row for each.
pub(super) async fn force_shrink_all<N: Node>(call: &Call<'_, N>, name: &str) -> Outcome<Answer> {
    allowed(call)?;
    let node = node(call, name)?;
    let queues = matching(call)?;
    confirmed(call)?;
    let mut work: Vec<Work<'_>> = Vec::new();
    for queue in queues.into_iter().filter(|queue| queue.member(node).is_some()) {
        work.push(Box::pin(
            async move { row(queue, &call.node.force_shrink(queue.id, node).await) },
        ));
    }
    Ok(Answer::Json(perform(work).await.into()))
}

/// What may lose messages has to be asked for twice.
fn confirmed<N: Node>(call: &Call<'_, N>) -> Outcome<()> {
    if call.body.flag("force", false)? {
        return Ok(());
    }
    Err(Failure::bad_request(
        "messages that only the other members have are lost: force must be true",
    ))
}

/// What is done with one queue; gives its row.
type Work<'a> = Pin<Box<dyn Future<Output = Value> + Send + 'a>>;

async fn perform(work: Vec<Work<'_>>) -> Vec<Value> {
    stream::iter(work).buffered(AT_ONCE).collect().await
}

/// Whether who asks may change members at all.
fn allowed<N: Node>(call: &Call<'_, N>) -> Outcome<()> {
    if !call.node.allows_replica_operations() {
        let reason = "Broker settings disallow quorum queue replica operations.";
        return Err(Failure::new(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", reason));
    }
    call.administrator()
}

/// What became of one queue.
fn row(queue: &Queue, changed: &Change) -> Value {
    let size = match changed {
        Ok(changed) => json!(changed.size),
        Err(error) if error.is_unknown() => json!("?"),
        Err(_) => json!(queue.members.len()),
    };
    let result = match changed {
        Ok(_) => "ok".to_owned(),
        Err(MemberError::LastMember) => "error: the last node cannot be removed".to_owned(),
        Err(MemberError::TimedOut) => {
            "error: the operation timed out and may not have been completed".to_owned()
        }
        Err(error) => format!("error: {error}"),
    };
    json!({"vhost": &*queue.vhost, "name": &*queue.name, "size": size, "result": result})
}

/// What a change of one queue's members that failed is answered by.
fn failure(error: MemberError) -> Failure {
    match error {
        MemberError::NotFound | MemberError::UnknownNode => Failure::not_found(),
        MemberError::Classic => Failure::bad_request("not a quorum queue"),
        error => Failure::unavailable(error.to_string()),
    }
}

/// Whether every member runs and has a vote.
async fn is_stable<N: Node>(call: &Call<'_, N>, queue: &Queue) -> bool {
    let reports = call.node.quorum_status(queue.id).await;
    let is_stable = |role| matches!(role, RaftRole::Leader | RaftRole::Follower);
    reports.iter().all(|report| report.member.as_ref().is_ok_and(|it| is_stable(it.role)))
}

fn quorum_queues<'a, N: Node>(call: &'a Call<'_, N>) -> impl Iterator<Item = &'a Queue> {
    let queues = call.state.vhosts().flat_map(|vhost| call.state.queues(&vhost.name));
    queues.map(|queue| &**queue).filter(|queue| queue.kind == QueueKind::Quorum)
}

pub(super) fn matching<'a, N: Node>(call: &'a Call<'_, N>) -> Outcome<Vec<&'a Queue>> {
    let pattern = |key: &str| {
        let text = call.body.text_or(key, Some(".*"))?;
        Regex::new(&text).map_err(|error| Failure::bad_request(format!("{key}: {error}")))
    };
    let (vhosts, queues) = (pattern("vhost_pattern")?, pattern("queue_pattern")?);
    let is_meant = |queue: &&Queue| vhosts.is_match(&queue.vhost) && queues.is_match(&queue.name);
    Ok(quorum_queues(call).filter(is_meant).collect())
}

fn is_even<N: Node>(call: &Call<'_, N>) -> Outcome<bool> {
    match call.body.text_or("strategy", Some("all"))?.as_str() {
        "all" => Ok(false),
        "even" => Ok(true),
        other => Err(Failure::bad_request(format!("strategy '{other}' is not recognised."))),
    }
}

/// Members are added without a vote and get it when they have caught up, before the answer.
fn membership<N: Node>(call: &Call<'_, N>) -> Outcome<()> {
    match call.body.text_or("membership", Some("promotable"))?.as_str() {
        "promotable" | "voter" => Ok(()),
        "non_voter" => Err(Failure::bad_request("members without a vote are not supported")),
        other => Err(Failure::bad_request(format!("voter status '{other}' is not recognised."))),
    }
}

/// A node that is one of the cluster now.
fn node<N: Node>(call: &Call<'_, N>, name: &str) -> Outcome<NodeId> {
    call.node.names().find(name).ok_or_else(Failure::not_found)
}

/// A node by its name, with what it was before it was wiped; or by its number, which is all that is
/// known of one that was forgotten.
pub(super) fn incarnations<N: Node>(call: &Call<'_, N>, name: &str) -> Outcome<Vec<NodeId>> {
    let mut nodes = call.node.names().incarnations(name);
    if let (16, Ok(number)) = (name.len(), u64::from_str_radix(name, 16)) {
        nodes.push(NodeId(number));
    }
    if nodes.is_empty() { Err(Failure::not_found()) } else { Ok(nodes) }
}

/// The one of these nodes that has a member of a queue, one that is lost before others.
fn member_of(queue: &Queue, nodes: &[NodeId]) -> Option<NodeId> {
    nodes.iter().rev().find(|node| queue.member(**node).is_some()).copied()
}
