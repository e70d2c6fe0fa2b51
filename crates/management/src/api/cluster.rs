//! `/nodes/NODE/drain`, `/nodes/NODE/revive`, `/rebalance/queues`, and `DELETE /nodes/NODE`: what
//! operators do with nodes. RabbitMQ has commands for these and, but for one, no paths.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::http::StatusCode;
use metadata::objects::journal::Journal;
use metadata::objects::queue::{Queue, QueueKind};
use model::id::NodeId;
use serde_json::{Value, json};

use super::call::Call;
use super::replicas;
use crate::http::answer::Answer;
use crate::http::failure::{Failure, Outcome};
use crate::inquiry::Wanted;
use crate::journals::Sight;
use crate::node::Node;

/// `POST /nodes/NODE/drain`.
pub(super) async fn drain<N: Node>(call: &Call<'_, N>, name: &str) -> Outcome<Answer> {
    call.administrator()?;
    let node = call.node.names().find(name).ok_or_else(Failure::not_found)?;
    let drained = call.node.drain(node).await?;
    let stayed = drained
        .stayed
        .iter()
        .map(|(vhost, name, reason)| json!({"vhost": vhost, "name": name, "reason": reason}));
    let journals = drained
        .journals_stayed
        .iter()
        .map(|(name, reason)| json!({"name": name, "reason": reason}));
    Ok(Answer::Json(json!({
        "connections": drained.connections,
        "leaders_moved": drained.moved,
        "leaders_stayed": stayed.collect::<Vec<_>>(),
        "journals_moved": drained.journals_moved,
        "journals_stayed": journals.collect::<Vec<_>>(),
    })))
}

/// `POST /nodes/NODE/revive`.
pub(super) async fn revive<N: Node>(call: &Call<'_, N>, name: &str) -> Outcome<Answer> {
    call.administrator()?;
    let node = call.node.names().find(name).ok_or_else(Failure::not_found)?;
    call.node.revive(node).await?;
    Ok(Answer::Done)
}

/// `DELETE /nodes/NODE`: first its members of quorum queues go, then the node. With `"force": true`
/// also what only it has. With `"keep_members": true` the members stay where they are, dangling, for
/// reconciliation or for whoever takes them out later.
pub(super) async fn forget<N: Node>(call: &Call<'_, N>, name: &str) -> Outcome<Answer> {
    call.administrator()?;
    let nodes = replicas::incarnations(call, name)?;
    let force = call.body.flag("force", false)?;
    let names = call.node.names();
    let (own, others) = (call.node.stats().name, call.node.other_nodes());
    let runs = |node: &NodeId| {
        let name = names.of(*node);
        name == own || others.iter().any(|other| other.running && other.name == name)
    };
    if nodes.iter().any(runs) {
        let reason =
            format!("node {name} is running; it must be stopped before it can be forgotten");
        return Err(Failure::bad_request(reason));
    }
    let sole: Vec<&Queue> = call
        .state
        .all_queues()
        .map(|queue| &**queue)
        .filter(|queue| is_sole(queue, &nodes))
        .collect();
    if !sole.is_empty() && !force {
        let some: Vec<String> = sole
            .iter()
            .take(5)
            .map(|queue| format!("'{}' in vhost '{}'", queue.name, queue.vhost))
            .collect();
        let reason = format!(
            "{} queues are only on {name} and would be lost, such as {}; use force to lose them",
            sole.len(),
            some.join(", ")
        );
        return Err(Failure::precondition_failed(reason));
    }
    let journals = sole_journals(call, &nodes).await;
    if !journals.is_empty() && !force {
        let reason = format!(
            "journals would be lost, or what was confirmed last in them, since no other node that runs \
             has a copy in sync: {}; use force to lose it",
            journals.join(", ")
        );
        return Err(Failure::precondition_failed(reason));
    }
    let keep_members = call.body.flag("keep_members", false)?;
    let recorded: Vec<NodeId> =
        nodes.iter().copied().filter(|node| call.state.node(*node).is_some()).collect();
    // This node may be the only one that has lost it: whoever decides is asked before anything is taken
    // from it.
    for node in &recorded {
        call.node.may_forget(*node).await?;
    }
    let mut rows = if keep_members {
        Vec::new()
    } else {
        replicas::shrink_all(call, &nodes, false, |queue| !is_sole(queue, &nodes)).await
    };
    let failed = rows.iter().filter(|row| row["result"] != "ok").count();
    if failed > 0 {
        let reason = format!(
            "{failed} quorum queues still have a member on {name}, so it was not forgotten; with \
             keep_members it is, and they stay as they are"
        );
        let status = StatusCode::SERVICE_UNAVAILABLE;
        let error = "service_unavailable";
        return Ok(Answer::Status(
            status,
            json!({"error": error, "reason": reason, "queues": rows}),
        ));
    }
    // Nobody is left who could lead them. Classic ones go with the record of the node.
    for queue in sole.into_iter().filter(|queue| queue.kind == QueueKind::Quorum) {
        call.node.give_up(queue.id).await?;
        let (vhost, name) = (&*queue.vhost, &*queue.name);
        rows.push(json!({"vhost": vhost, "name": name, "size": 0, "result": "lost"}));
    }
    for node in recorded {
        call.node.forget(node).await?;
    }
    Ok(Answer::Json(json!({ "queues": rows })))
}

/// Journals of which these nodes may be the only ones with the newest copy.
async fn sole_journals<N: Node>(call: &Call<'_, N>, nodes: &[NodeId]) -> Vec<String> {
    let on_them = |journal: &&Arc<Journal>| nodes.iter().any(|node| journal.is_on(*node));
    if !call.state.journals().any(|journal| on_them(&journal)) {
        return Vec::new();
    }
    let names = call.node.names();
    let told = call.node.all_journal_copies().await;
    let journals = call.state.journals().filter(on_them).filter(|journal| {
        let sight = Sight::new(&call.state, &names, &told, journal);
        !sight.seats.iter().any(|seat| !nodes.contains(&seat.node) && sight.may_start(seat))
    });
    journals.map(|journal| format!("'{}'", journal.name)).collect()
}

fn is_sole(queue: &Queue, nodes: &[NodeId]) -> bool {
    match queue.kind {
        // Of those in journals the other copy counts.
        QueueKind::Classic => {
            queue.durable && queue.journal.is_none() && nodes.contains(&queue.home)
        }
        QueueKind::Quorum => queue.nodes().all(|node| nodes.contains(&node)),
    }
}

/// While leaders are moved it is said so often that somebody is at it.
const KEEP: Duration = Duration::from_secs(5);

/// `POST /rebalance/queues`: leaders of quorum queues move until all nodes lead about as many. One at a
/// time in the whole cluster.
/// RabbitMQ says nothing of what comes of it; with `?report=true` there is a list.
pub(super) async fn rebalance<N: Node>(call: &Call<'_, N>) -> Outcome<Answer> {
    call.administrator()?;
    let wanted = replicas::matching(call)?;
    let grant = call.node.begin_rebalance().await?;
    let ended = spread(call, wanted, grant).await;
    call.node.end_rebalance(grant).await;
    ended
}

async fn spread<N: Node>(call: &Call<'_, N>, wanted: Vec<&Queue>, grant: u64) -> Outcome<Answer> {
    let names = call.node.names();
    let running = call.node.running_nodes();
    let census = call.node.census(Wanted::QUEUES).await;
    let mut leads = Vec::new();
    for queue in wanted {
        let place = census.queues.get(&queue.id).map(|sight| &sight.place);
        let leader = place.filter(|place| place.is_led).and_then(|place| place.leader.as_deref());
        if let Some(leader) = leader.and_then(|leader| names.find(leader)) {
            let may: Vec<NodeId> = queue.nodes().filter(|node| running.contains(node)).collect();
            leads.push(Led { queue, leader, may });
        }
    }
    let mut failed = 0;
    let mut kept = Instant::now();
    for (queue, to) in moves(&mut leads, &running) {
        if kept.elapsed() > KEEP {
            call.node.keep_rebalance(grant).await?;
            kept = Instant::now();
        }
        if call.node.transfer_leadership(queue.id, to).await.is_err() {
            failed += 1;
        }
    }
    if !call.query.is_true("report") {
        return Ok(Answer::Done);
    }
    let census = call.node.census(Wanted::QUEUES).await;
    let mut counts: BTreeMap<&str, u64> = running.iter().map(|node| (names.of(*node), 0)).collect();
    for led in &leads {
        let leader = census.queues.get(&led.queue.id).and_then(|it| it.place.leader.as_deref());
        if let Some(count) = leader.and_then(|leader| counts.get_mut(leader)) {
            *count += 1;
        }
    }
    let row =
        |(node, count): (&str, u64)| json!({"Node name": node, "Number of quorum queues": count});
    let rows: Vec<Value> = counts.into_iter().map(row).collect();
    Ok(Answer::Json(json!({"nodes": rows, "failed": failed})))
}

/// A queue, who leads it, and who may.
struct Led<'a> {
    queue: &'a Queue,
    leader: NodeId,
    may: Vec<NodeId>,
}

/// Which leaders have to move where, so that no node leads two more than another one that might lead
/// one of them.
fn moves<'a>(leads: &mut [Led<'a>], running: &[NodeId]) -> Vec<(&'a Queue, NodeId)> {
    let mut counts: BTreeMap<NodeId, usize> = running.iter().map(|node| (*node, 0)).collect();
    for led in &*leads {
        *counts.entry(led.leader).or_default() += 1;
    }
    let mut moves: BTreeMap<usize, NodeId> = BTreeMap::new();
    loop {
        let mut moved = false;
        for (at, led) in leads.iter_mut().enumerate() {
            let count = |node: &NodeId| counts.get(node).copied().unwrap_or_default();
            let fewest = led.may.iter().min_by_key(|node| (count(node), **node)).copied();
            let here = count(&led.leader);
            // Who is drained, or no member, gives away all that it has.
            let stays = led.may.contains(&led.leader);
            let Some(to) = fewest.filter(|to| !stays || count(to) + 1 < here) else { continue };
            *counts.entry(led.leader).or_default() -= 1;
            *counts.entry(to).or_default() += 1;
            led.leader = to;
            moves.insert(at, to);
            moved = true;
        }
        if !moved {
            return moves.into_iter().map(|(at, to)| (leads[at].queue, to)).collect();
        }
    }
}

#[cfg(test)]
mod tests {
    use amq_protocol_types::FieldTable;
    use metadata::objects::member::Member;
    use model::id::QueueId;

    use super::*;

    fn queues(count: u64) -> Vec<Queue> {
        let queue = |id: u64| Queue {
            id: QueueId(id),
            vhost: "/".into(),
            name: format!("q{id}").into(),
            kind: QueueKind::Quorum,
            durable: true,
            auto_delete: false,
            exclusive_owner: None,
            arguments: FieldTable::default(),
            user_who_performed_action: "guest".into(),
            home: NodeId(1),
            journal: None,
            members: (1..=3).map(|node| Member::founding(QueueId(id), NodeId(node))).collect(),
        };
        (1..=count).map(queue).collect()
    }

    fn check(
        count: u64,
        leader: impl Fn(u64) -> u64,
        running: &[u64],
        expected: &[usize],
    ) -> usize {
        let queues = queues(count);
        let running: Vec<NodeId> = running.iter().map(|node| NodeId(*node)).collect();
        let may = |queue: &Queue| queue.nodes().filter(|node| running.contains(node)).collect();
        let led = |queue| Led { queue, leader: NodeId(leader(queue.id.0)), may: may(queue) };
        let mut leads: Vec<Led<'_>> = queues.iter().map(led).collect();
        let moves = moves(&mut leads, &running);
        let count = |node: &NodeId| leads.iter().filter(|led| led.leader == *node).count();
        let mut counts: Vec<usize> = running.iter().map(count).collect();
        counts.sort_unstable();
        assert_eq!(counts, expected);
        moves.len()
    }

    #[test]
    fn leaders_are_spread_with_as_few_moves_as_needed() {
        assert_eq!(check(9, |_| 1, &[1, 2, 3], &[3, 3, 3]), 6);
        assert_eq!(check(10, |_| 2, &[1, 2, 3], &[3, 3, 4]), 6);
        assert_eq!(check(9, |id| id % 3 + 1, &[1, 2, 3], &[3, 3, 3]), 0);
        assert_eq!(check(4, |_| 1, &[1], &[4]), 0);
        assert_eq!(check(0, |_| 1, &[1, 2], &[0, 0]), 0);
    }

    #[test]
    fn a_node_that_is_drained_gives_everything_away() {
        assert_eq!(check(6, |_| 1, &[2, 3], &[3, 3]), 6);
    }
}
