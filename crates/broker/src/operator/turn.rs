//! The right to move leaders from node to node, which one operator has at a time in the whole cluster.
//!
//! It is a lock of the topology. Whoever has it says so again now and then, or it ends by itself.

use metadata::command::Command;
use metadata::coordination::{Answer, Coordination};
use metadata::objects::Name;
use metadata::refusal::Refusal;

use crate::node::{Node, tool_name};

/// Of the lock.
const ID: &str = "rebalance";
/// How long it lasts if nobody says that he is still at it: longer than one leader takes to move.
const LEASE_MS: u64 = 30_000;

async fn ask(node: &Node, change: Coordination) -> Result<Option<Answer>, Refusal> {
    Ok(node.topology.submit(Command::Coordinate(change)).await?.answer)
}

/// Takes the right if nobody has it; the grant. A node of no cluster has nobody to agree with.
pub(super) async fn begin(node: &Node) -> Result<u64, Refusal> {
    if node.cluster.group.is_none() {
        return Ok(0);
    }
    let me = node.cluster.me;
    let acquire = Coordination::Acquire {
        id: Name::from(ID),
        node: me.node.0,
        boot: me.boot,
        attempt: rand::random(),
        lease_ms: LEASE_MS,
    };
    match ask(node, acquire).await? {
        Some(Answer::Granted { token }) => Ok(token),
        Some(Answer::Busy { node: holder }) => {
            let state = node.router.state();
            let known = state.nodes().find(|known| known.id.0 == holder);
            let asked_at = known.map_or_else(String::new, |known| {
                format!(", which was asked for at {}", tool_name(&known.name))
            });
            let text = format!("another rebalance is in progress{asked_at}");
            Err(Refusal::unavailable(text))
        }
        _ => Err(Refusal::unavailable("the lock for a rebalance is not given")),
    }
}

/// Goes on having it.
///
/// # Errors
/// If it has ended: somebody else may have it.
pub(super) async fn keep(node: &Node, grant: u64) -> Result<(), Refusal> {
    if grant == 0 {
        return Ok(());
    }
    match ask(node, Coordination::Renew { id: Name::from(ID), token: grant }).await? {
        Some(Answer::Done) => Ok(()),
        _ => {
            Err(Refusal::unavailable("the rebalance took too long and another one may have begun"))
        }
    }
}

/// Gives it back, or lets it end by itself if nobody can be told.
pub(super) async fn end(node: &Node, grant: u64) {
    if grant != 0
        && let Err(refusal) =
            ask(node, Coordination::Release { id: Name::from(ID), token: grant }).await
    {
        tracing::info!(%refusal, "the lock of a rebalance ends by itself");
    }
}
