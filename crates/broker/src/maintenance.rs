//! Maintenance mode: a node that is about to be stopped gives away what others can do.
//!
//! ```text
//!  drain   listeners of clients close ─► connections close ─► leaders and journals move ─► the node may stop
//!  revive  listeners open again; new queues and members come here again
//! ```
//!
//! The mode is part of the topology, so that all nodes leave this one out, and it ends with the
//! process. Members stay, and vote.

use std::sync::Arc;

use management::members::Drained;
use metadata::command::Command;
use metadata::refusal::Refusal;

use crate::node::Node;

/// What clients are told.
const REASON: &str = "Node was put into maintenance mode";

/// Enters maintenance mode. Doing it again moves what has come to lead here meanwhile.
///
/// # Errors
/// If the topology cannot be changed; then nothing has happened.
pub(crate) async fn drain(node: &Arc<Node>) -> Result<Drained, Refusal> {
    set(node, true).await?;
    tracing::warn!("entering maintenance mode: no clients, no leaders");
    node.maintenance.send_replace(true);
    let connections = node.connections.close(REASON, |_| true);
    let (moved, stay) = node.members.hand_over_all().await;
    let journals = node.cluster.pairs.hand_over_all().await;
    node.cluster.hand_over().await;
    let state = node.router.state();
    let stayed = stay.into_iter().filter_map(|(id, error)| {
        let queue = state.queue_by_id(id)?;
        Some((queue.vhost.to_string(), queue.name.to_string(), error.to_string()))
    });
    let stayed: Vec<_> = stayed.collect();
    if !stayed.is_empty() {
        tracing::warn!(count = stayed.len(), "leaders of quorum queues that nobody can take over");
    }
    let (mut journals_moved, mut journals_stayed) = (0, Vec::new());
    for (uid, handed_over) in journals {
        match handed_over {
            Ok(moved) => journals_moved += usize::from(moved),
            Err(reason) => {
                let journal = state.journal_by_uid(&uid.to_string());
                let name = journal.map_or_else(|| uid.to_string(), |known| known.name.to_string());
                tracing::warn!(journal = %name, %reason, "a journal that nobody can take over");
                journals_stayed.push((name, reason));
            }
        }
    }
    Ok(Drained { connections, moved, stayed, journals_moved, journals_stayed })
}

/// Leaves maintenance mode.
///
/// # Errors
/// If the topology cannot be changed; then nothing has happened.
pub(crate) async fn revive(node: &Arc<Node>) -> Result<(), Refusal> {
    set(node, false).await?;
    node.maintenance.send_replace(false);
    tracing::info!("out of maintenance mode");
    Ok(())
}

async fn set(node: &Arc<Node>, on: bool) -> Result<(), Refusal> {
    let me = node.cluster.me.node;
    if node.cluster.group.is_some() {
        node.topology.submit(Command::SetMaintenance { id: me.0, on }).await?;
    }
    Ok(())
}
