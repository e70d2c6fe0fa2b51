//! `/queues/quorum/...`: what operators see and do of a quorum queue's members.

use metadata::objects::queue::{Queue, QueueKind};
use serde_json::{Value, json};

use super::call::Call;
use super::queues;
use super::replicas;
use crate::http::answer::Answer;
use crate::http::failure::{Failure, Outcome};
use crate::http::list;
use crate::node::Node;
use crate::view::raft::MemberReport;

/// The version of the machine of quorum queues.
const MACHINE_VERSION: u64 = 1;

/// `GET /queues/quorum/VHOST/NAME/status`.
pub(super) async fn status<N: Node>(
    call: &Call<'_, N>,
    vhost: &str,
    name: &str,
) -> Outcome<Answer> {
    let queue = find(call, vhost, name)?;
    let reports = call.node.quorum_status(queue.id).await;
    list::respond(reports.iter().map(show), &call.query)
}

/// `PUT /queues/quorum/VHOST/NAME/leader` with `{"node": NODE}`: the leadership goes to that node.
pub(super) async fn transfer<N: Node>(
    call: &Call<'_, N>,
    vhost: &str,
    name: &str,
) -> Outcome<Answer> {
    call.administrator()?;
    let queue = find(call, vhost, name)?;
    let node = call.body.text("node")?;
    let to = call.node.names().find(&node).ok_or_else(Failure::not_found)?;
    call.node.transfer_leadership(queue.id, to).await?;
    Ok(Answer::Done)
}

/// `POST /queues/quorum/VHOST/NAME/checkpoint`: every member of the queue takes a checkpoint, and drops
/// of its log what that makes superfluous.
pub(super) async fn checkpoint<N: Node>(
    call: &Call<'_, N>,
    vhost: &str,
    name: &str,
) -> Outcome<Answer> {
    call.administrator()?;
    let queue = find(call, vhost, name)?;
    match call.node.checkpoint(vec![queue.id]).await.remove(&queue.id) {
        None => Ok(Answer::Done),
        Some(why) => Err(Failure::unavailable(why)),
    }
}

/// `POST /queues/quorum/replicas/checkpoint` with perhaps `vhost_pattern` and `queue_pattern`: the same for all
/// queues that match; one row for each.
pub(super) async fn checkpoints<N: Node>(call: &Call<'_, N>) -> Outcome<Answer> {
    call.administrator()?;
    let queues = replicas::matching(call)?;
    let failed = call.node.checkpoint(queues.iter().map(|queue| queue.id).collect()).await;
    let row = |queue: &&Queue| {
        let result = match failed.get(&queue.id) {
            None => "ok".to_owned(),
            Some(why) => format!("error: {why}"),
        };
        json!({"vhost": &*queue.vhost, "name": &*queue.name, "result": result})
    };
    Ok(Answer::Json(queues.iter().map(row).collect()))
}

pub(super) fn find<'a, N: Node>(
    call: &'a Call<'_, N>,
    vhost: &str,
    name: &str,
) -> Outcome<&'a Queue> {
    let queue = queues::find(call, vhost, name)?;
    if queue.kind == QueueKind::Quorum {
        return Ok(queue);
    }
    Err(Failure::bad_request("not a quorum queue"))
}

fn show(report: &MemberReport) -> Value {
    match &report.member {
        Ok(member) => json!({
            "Node Name": report.node,
            "Raft State": member.role.state(),
            "Membership": member.role.membership(),
            "Last Log Index": member.last,
            "Last Written": member.last,
            "Last Applied": member.applied,
            "Commit Index": member.committed,
            "Snapshot Index": member.snapshot,
            "Term": member.term,
            "Machine Version": MACHINE_VERSION,
            "Hibernated": member.hibernated,
        }),
        Err(why) => json!({
            "Node Name": report.node,
            "Raft State": why,
            "Membership": "",
            "Last Log Index": "",
            "Last Written": "",
            "Last Applied": "",
            "Commit Index": "",
            "Snapshot Index": "",
            "Term": "",
            "Machine Version": "",
            "Hibernated": "",
        }),
    }
}
