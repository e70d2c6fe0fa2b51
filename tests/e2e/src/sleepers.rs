//! How many members of quorum queues hibernate, as the nodes' metrics say.

use crate::cluster::Cluster;
use crate::http::Api;

/// Of all nodes that run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Sleepers {
    /// Members of quorum queues.
    pub members: u64,
    /// Of these, those that hibernate now.
    pub asleep: u64,
    /// How often one has begun to. Who hibernates before and after, and has not begun to meanwhile, was
    /// not woken.
    pub begun: u64,
}

impl Sleepers {
    /// Asks all nodes that run.
    ///
    /// # Panics
    /// If one does not tell.
    pub fn of(cluster: &Cluster) -> Self {
        let mut all = Self::default();
        for node in cluster.nodes.iter().filter(|node| node.runs()) {
            let told = Api::new(node.metrics).request("GET", "/metrics", None);
            let text = told.expect("it answers").text();
            let value = |family: &str| -> u64 {
                let lines = text.lines().filter_map(|line| line.split_once(' '));
                let mut found = lines.filter(|(name, _)| *name == family);
                let value = found.next().and_then(|(_, value)| value.parse().ok());
                value.unwrap_or_else(|| panic!("no {family} in the metrics"))
            };
            all.members += value("leveret_raft_members");
            all.asleep += value("leveret_raft_members_hibernated");
            all.begun += value("leveret_raft_hibernations_total");
        }
        all
    }

    /// Whether so many members are there and all of them hibernate.
    pub fn are_all(&self, members: u64) -> bool {
        (self.members, self.asleep) == (members, members)
    }
}
