//! Copies of named journals, of this node and of the others.

use management::inquiry::{self, Inquiry};
use management::view::copy::{Amendment, JournalCopy, NodeCopies};

use crate::node::Node;
use crate::operator::{inquiries, parts};
use crate::pair::driver::Amended;
use crate::pair::{clock, registry};

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
