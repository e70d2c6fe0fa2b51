//! How all nodes keep the groups of quorum queues whole, for operators.

use std::collections::BTreeMap;

use bytes::Bytes;
use management::inquiry::{self, Done, Inquiry};
use management::view::reconciliation::{PlanReport, ReconciliationReport};
use model::id::QueueId;

use crate::cluster::channel;
use crate::node::{Node, tool_name};
use crate::operator::inquiries::{PATIENCE, ask_all};
use crate::operator::parts;

/// How each node that answers is getting on, by name.
pub(super) async fn reports(node: &Node) -> Vec<ReconciliationReport> {
    let mut reports = vec![node.reconciler.report()];
    for (from, answer) in ask_all(node, &Inquiry::Reconciliation).await {
        match answer.map(|bytes| inquiry::decode(&bytes)) {
            Some(Ok(report)) => reports.push(report),
            Some(Err(error)) => tracing::warn!(node = %from, %error, "a report"),
            None => {}
        }
    }
    reports.sort_by(|one: &ReconciliationReport, other| one.node.cmp(&other.node));
    reports
}

/// Lets all nodes look at the queues that they lead; of those that cannot be told, why.
pub(super) async fn now(node: &Node) -> Vec<(String, Done)> {
    let names = parts::names(node);
    let me = node.cluster.me.node;
    let mut told: BTreeMap<String, Done> = BTreeMap::new();
    // This node need not wait for one that is silent.
    let here = now_here(node);
    for known in node.router.state().nodes().filter(|known| !known.lost && known.id != me) {
        told.insert(tool_name(&known.name), Err("it is not connected".to_owned()));
    }
    for (from, answer) in ask_all(node, &Inquiry::ReconcileNow).await {
        let done = match answer.map(|bytes| inquiry::decode::<Done>(&bytes)) {
            Some(Ok(done)) => done,
            Some(Err(error)) => Err(error.to_string()),
            None => Err("it does not answer".to_owned()),
        };
        told.insert(names.of(from).to_owned(), done);
    }
    told.insert(names.of(me).to_owned(), here);
    told.into_iter().collect()
}

/// Lets this node look at the queues that it leads.
pub(super) fn now_here(node: &Node) -> Done {
    if !node.reconciler.settings().enabled {
        return Err("reconciliation is switched off".to_owned());
    }
    node.cluster.bell.now();
    Ok(())
}

/// What the leader of a queue would do about its members.
///
/// # Errors
/// If nobody leads it, or the leader does not answer.
pub(super) async fn plan(node: &Node, queue: QueueId) -> Result<PlanReport, String> {
    const NO_LEADER: &str = "the queue has no leader";
    let leader = node.members.leader(queue).await.ok_or(NO_LEADER)?;
    if leader == node.cluster.me.node {
        return node.reconciler.plan_report(queue).ok_or_else(|| NO_LEADER.to_owned());
    }
    let question = Bytes::from(Inquiry::ReconciliationPlan(queue).encode());
    let answer = node.cluster.road.request(leader, channel::INQUIRIES, question, PATIENCE).await;
    let answer = answer.ok_or("the leader's node does not answer")?;
    let plan: Option<PlanReport> = inquiry::decode(&answer).map_err(|error| error.to_string())?;
    plan.ok_or_else(|| "the leader has changed".to_owned())
}
