//! Members of quorum queues, under the names of RabbitMQ's newer and older dashboards.

use metadata::state::State;

use super::detailed::Selection;
use super::family::{Families, float};
use crate::view::raft::{RaftMember, RaftRole};

/// A number of a member by the rest of its metric's name.
type Number = (&'static str, &'static str, fn(&RaftMember) -> u64);

const NUMBERS: [Number; 9] = [
    ("term", "Current Raft term number", |one| one.term),
    ("commit_index", "The current commit index", |one| one.committed),
    ("last_written_index", "The last fully written and fsynced index", |one| one.last),
    ("last_applied", "The last applied index", |one| one.applied),
    ("snapshot_index", "The current snapshot index", |one| one.snapshot),
    ("log_commit_index", "Raft log commit index", |one| one.committed),
    ("log_last_written_index", "Raft log last written index", |one| one.last),
    ("log_last_applied_index", "Raft log last applied index", |one| one.applied),
    ("log_snapshot_index", "Raft log snapshot index", |one| one.snapshot),
];

/// How many queues this node leads, has a member of, and lets hibernate; and how many have nobody who
/// leads, as far as it knows.
pub fn node(families: &mut Families, members: &[RaftMember], hibernations: u64) {
    let leaders = members.iter().filter(|one| one.role == RaftRole::Leader).count();
    let without = members.iter().filter(|one| !one.has_leader).count();
    families.gauge(
        "leveret_raft_leaders",
        "Quorum queues that are led here",
        float(leaders as u64),
    );
    families.gauge(
        "leveret_raft_members",
        "Quorum queues that have a member here",
        float(members.len() as u64),
    );
    families.gauge(
        "leveret_raft_members_hibernated",
        "Quorum queues whose member here hibernates",
        float(members.iter().filter(|one| one.hibernated).count() as u64),
    );
    families.counter(
        "leveret_raft_hibernations_total",
        "How often the member of a quorum queue here has begun to hibernate",
        hibernations,
    );
    families.gauge(
        "leveret_quorum_queues_without_leader",
        "Quorum queues with a member here that knows of no leader",
        float(without as u64),
    );
    families.gauge(
        "leveret_raft_log_bytes",
        "Bytes of the logs of quorum queues",
        float(members.iter().map(|one| one.log_bytes).sum()),
    );
}

/// Sums over all members.
pub fn sums(families: &mut Families, members: &[RaftMember]) {
    for (name, help, value) in NUMBERS {
        let sum = members.iter().map(value).sum();
        families.gauge(&format!("rabbitmq_raft_{name}"), help, float(sum));
    }
}

/// A line per member.
pub fn members(
    families: &mut Families,
    state: &State,
    members: &[RaftMember],
    selection: &Selection,
) {
    let shown = members.iter().filter_map(|one| Some((one, state.queue_by_id(one.queue)?)));
    let shown: Vec<_> =
        shown.filter(|(_, queue)| selection.has(&queue.vhost, &queue.name)).collect();
    for (name, help, value) in NUMBERS {
        let lines = shown.iter().map(|(one, queue)| {
            (vec![("vhost", &*queue.vhost), ("queue", &*queue.name)], float(value(one)))
        });
        families.gauges(&format!("rabbitmq_raft_{name}"), help, lines);
    }
}
