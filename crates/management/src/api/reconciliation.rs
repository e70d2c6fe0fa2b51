//! `/reconciliation` and `/queues/quorum/VHOST/NAME/plan`: how the members of quorum queues are kept
//! as many as wanted.

use serde_json::{Value, json};

use super::call::Call;
use super::quorum;
use crate::http::answer::Answer;
use crate::http::failure::Outcome;
use crate::http::list;
use crate::node::Node;

/// `GET /reconciliation`: one object for each node that answers.
pub(super) async fn status<N: Node>(call: &Call<'_, N>) -> Outcome<Answer> {
    let reports = call.node.reconciliation().await;
    let reports = reports.iter().map(|report| json!(report));
    list::respond(reports, &call.query)
}

/// `POST /reconciliation/now`: all nodes that can be reached look at their queues at once.
pub(super) async fn now<N: Node>(call: &Call<'_, N>) -> Outcome<Answer> {
    call.administrator()?;
    let told = call.node.reconcile_now().await;
    let rows = told.into_iter().map(|(node, done)| match done {
        Ok(()) => json!({"node": node, "result": "ok"}),
        Err(reason) => json!({"node": node, "result": "error", "reason": reason}),
    });
    Ok(Answer::Json(Value::Array(rows.collect())))
}

/// `GET /queues/quorum/VHOST/NAME/plan`.
pub(super) async fn plan<N: Node>(call: &Call<'_, N>, vhost: &str, name: &str) -> Outcome<Answer> {
    let queue = quorum::find(call, vhost, name)?;
    let plan = call.node.reconciliation_plan(queue.id).await?;
    Ok(Answer::Json(json!(plan)))
}
