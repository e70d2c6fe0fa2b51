//! Copies of named journals, of this node and of the others.

use management::inquiry::{self, Inquiry};
use management::view::copy::{Amendment, JournalCopy, NodeCopies, NodeLeft};

use crate::node::Node;
use crate::operator::{inquiries, parts};
use crate::pair::driver::Amended;
use crate::pair::{clock, left, registry};

/// What this node has.
pub(super) fn copies(node: &Node) -> Vec<JournalCopy> {
    let now = clock::now();
    let reports = node.cluster.pairs.reports().into_iter();
    reports.map(|(uid, report)| report.shown(uid, now)).collect()
}

/// The same, with the node's name.
pub(super) fn copies_here(node: &Node) -> NodeCopies {
    let names = parts::names(node);
    NodeCopies { node: names.of(node.cluster.me.node).to_owned(), copies: copies(node) }
}

/// What all nodes that answer have.
pub(super) async fn all_copies(node: &Node) -> Vec<NodeCopies> {
    let mut all = vec![copies_here(node)];
    for (_, answer) in inquiries::ask_all(node, &Inquiry::JournalCopies).await {
        all.extend(answer.and_then(|bytes| inquiry::decode::<NodeCopies>(&bytes).ok()));
    }
    all
}

/// Changes a copy of this node.
pub(super) async fn amend(node: &Node, uid: &str, amendment: Amendment) -> Amended {
    let uid = registry::uid(uid).ok_or("that is no journal's uid")?;
    node.cluster.pairs.amend(uid, amendment).await
}

/// What lies in this node's data directory and the topology does not know.
pub(super) async fn left_here(node: &Node) -> NodeLeft {
    let (data_dir, state) = (node.config.data_dir.clone(), node.router.state());
    let found = tokio::task::spawn_blocking(move || left::journals(&data_dir, &state)).await;
    let journals = match found {
        Ok(Ok(journals)) => journals,
        Ok(Err(error)) => {
            tracing::error!(%error, "the journals in the data directory cannot be listed");
            Vec::new()
        }
        Err(error) => {
            tracing::error!(%error, "the journals in the data directory were not listed");
            Vec::new()
        }
    };
    let names = parts::names(node);
    NodeLeft { node: names.of(node.cluster.me.node).to_owned(), journals }
}

/// The same of all nodes that answer.
pub(super) async fn all_left(node: &Node) -> Vec<NodeLeft> {
    let mut all = vec![left_here(node).await];
    for (_, answer) in inquiries::ask_all(node, &Inquiry::LeftJournals).await {
        all.extend(answer.and_then(|bytes| inquiry::decode::<NodeLeft>(&bytes).ok()));
    }
    all
}

/// What was declared in such a journal of this node.
pub(super) async fn declarations_here(node: &Node, uid: String) -> Result<String, String> {
    let data_dir = node.config.data_dir.clone();
    let read = tokio::task::spawn_blocking(move || left::declarations(&data_dir, &uid)).await;
    read.unwrap_or_else(|error| Err(error.to_string()))
}
