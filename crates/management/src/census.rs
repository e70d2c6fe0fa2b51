//! What the nodes of a cluster say of themselves, put together.
//!
//! A classic queue is what its home says, a quorum queue what its leader says; if two nodes say that
//! they lead, the higher term is right. A node that has not answered is left out: its classic queues
//! are down, and quorum queues have one member less.

use std::collections::BTreeMap;

use metadata::objects::queue::{Queue, QueueKind};
use metadata::state::State;
use model::id::{ConnectionId, NodeId, QueueId};

use crate::inquiry::Wanted;
use crate::view::connection::{ChannelInfo, ConnectionInfo};
use crate::view::consumer::{ConsumerActivity, ConsumerInfo};
use crate::view::counters::{ChurnCounters, ExchangeCounters, MessageCounters};
use crate::view::node::NodeStats;
use crate::view::part::{ClientPart, ConsumerPart, Part, QueuePart};
use crate::view::queue::{QueueState, QueueStats};

/// See the module head.
#[derive(Debug, Clone, Default)]
pub struct Census {
    /// Queues: all of the topology that were asked for; of one node, those that it keeps or leads.
    pub queues: BTreeMap<QueueId, Box<QueueSight>>,
    /// Client connections.
    pub connections: Vec<ConnectionInfo>,
    /// Channels.
    pub channels: Vec<ChannelInfo>,
    /// Consumers whose queue and whose connection's node have answered.
    pub consumers: Vec<ConsumerInfo>,
    /// Whom connections belong to.
    pub clients: BTreeMap<ConnectionId, ClientPart>,
    /// Each node that answered, by name.
    pub nodes: BTreeMap<String, NodeSight>,
}

/// A node, as it says.
#[derive(Debug, Clone, Default)]
pub struct NodeSight {
    /// What happened to messages on it.
    pub messages: MessageCounters,
    /// Comings and goings on it.
    pub churn: ChurnCounters,
    /// The node itself, if that was asked about.
    pub stats: Option<NodeStats>,
}

/// A queue and where it is.
#[derive(Debug, Clone)]
pub struct QueueSight {
    /// What it holds and does; nothing if who knows it does not answer.
    pub stats: QueueStats,
    /// Where it is.
    pub place: Place,
}

/// Where a queue is; as it is shown.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Place {
    /// The node that keeps it, or leads it; the first of its members if nobody does.
    pub node: String,
    /// The node that leads it; a classic queue's home.
    pub leader: Option<String>,
    /// Nodes that have it.
    pub members: Vec<String>,
    /// Of these, those that answer.
    pub online: Vec<String>,
    /// Whether its leader has answered.
    pub is_led: bool,
    /// How many members have a vote, and how many of these answer.
    pub votes: (usize, usize),
}

/// The names of the cluster's nodes.
#[derive(Debug, Clone)]
pub struct Names {
    own: String,
    all: BTreeMap<NodeId, String>,
}

impl Names {
    /// The name of the node that is asked, and those of all that there are.
    pub fn new(own: String, all: BTreeMap<NodeId, String>) -> Self {
        Self { own, all }
    }

    /// The name of a node. Queues of a node on its own name none.
    pub fn of(&self, node: NodeId) -> &str {
        match self.all.get(&node) {
            Some(name) => name,
            None if node == NodeId(0) => &self.own,
            None => "unknown",
        }
    }

    /// The nodes of that name: the one that has it now, then those that had it before they were wiped.
    pub fn incarnations(&self, name: &str) -> Vec<NodeId> {
        let former = format!("{name} (lost)");
        let lost = self.all.iter().filter(|(_, known)| **known == former).map(|(node, _)| *node);
        self.find(name).into_iter().chain(lost).collect()
    }

    /// The node of that name.
    pub fn find(&self, name: &str) -> Option<NodeId> {
        self.all.iter().find(|(_, known)| *known == name).map(|(node, _)| *node)
    }
}

impl Place {
    /// Where a queue was put when it was declared, without asking anybody.
    pub fn declared(queue: &Queue, names: &Names) -> Self {
        let members = match queue.kind {
            QueueKind::Classic => vec![queue.home],
            QueueKind::Quorum => queue.nodes().collect(),
        };
        let members: Vec<String> = members.iter().map(|node| names.of(*node).to_owned()).collect();
        Self {
            node: members.first().cloned().unwrap_or_else(|| names.own.clone()),
            leader: members.first().cloned(),
            online: members.clone(),
            members,
            is_led: true,
            votes: (1, 1),
        }
    }
}

/// Puts together what was answered. The first part is that of the node that was asked.
pub fn merge(state: &State, names: &Names, wanted: &Wanted, parts: Vec<Part>) -> Census {
    let mut census = Census::default();
    for part in &parts {
        let (messages, churn, stats) = (part.messages, part.churn, part.node.clone());
        let sight = NodeSight { messages, churn, stats };
        census.nodes.insert(names.of(part.id).to_owned(), sight);
    }
    let mut homes = BTreeMap::new();
    for part in &parts {
        for client in &part.clients {
            homes.insert(client.id, names.of(part.id));
            census.clients.insert(client.id, client.clone());
        }
        for connection in &part.connections {
            homes.insert(connection.id, names.of(part.id));
            census.clients.insert(
                connection.id,
                ClientPart {
                    id: connection.id,
                    name: connection.name.clone(),
                    peer_host: connection.peer_host.clone(),
                    peer_port: connection.peer_port,
                },
            );
        }
    }
    // Of one node alone nothing is wanted but its own.
    let is_asked = |queue: QueueId| {
        wanted.has(queue)
            && (wanted.everywhere || parts.iter().any(|part| find(part, queue).is_some()))
    };
    for queue in state.all_queues().filter(|queue| is_asked(queue.id)) {
        let (kept, place) = match queue.kind {
            QueueKind::Classic => classic(queue, names, &parts),
            QueueKind::Quorum => quorum(queue, names, &parts),
        };
        let mut stats = kept.map(|kept| kept.stats.clone()).unwrap_or_default();
        stats.state = state_of(queue.kind, stats.state, &place);
        let consumers = kept.map_or(&[][..], |kept| kept.consumers.as_slice());
        let single_active = !consumers.is_empty() && queue.is_single_active();
        for consumer in consumers {
            if let (Some(client), Some(home)) =
                (census.clients.get(&consumer.connection), homes.get(&consumer.connection))
            {
                census.consumers.push(join(queue, consumer, single_active, client, home));
            }
        }
        census.queues.insert(queue.id, Box::new(QueueSight { stats, place }));
    }
    for part in parts {
        census.connections.extend(part.connections);
        census.channels.extend(part.channels);
    }
    census
}

/// What went through exchanges on all nodes, by virtual host and name.
pub fn exchanges(parts: &[Part]) -> BTreeMap<(String, String), ExchangeCounters> {
    let mut sums: BTreeMap<_, ExchangeCounters> = BTreeMap::new();
    for part in parts.iter().flat_map(|part| &part.exchanges) {
        sums.entry((part.vhost.clone(), part.name.clone())).or_default().add(&part.counters);
    }
    sums
}

fn find(part: &Part, queue: QueueId) -> Option<&QueuePart> {
    part.queues.binary_search_by_key(&queue, |one| one.id).ok().map(|at| &part.queues[at])
}

fn classic<'a>(queue: &Queue, names: &Names, parts: &'a [Part]) -> (Option<&'a QueuePart>, Place) {
    // A queue of a node on its own names no home.
    let home = parts.iter().position(|part| part.id == queue.home);
    let home = home.or((queue.home == NodeId(0) && !parts.is_empty()).then_some(0));
    let mut place = Place::declared(queue, names);
    if home.is_none() {
        place.online.clear();
        place.is_led = false;
        place.votes = (1, 0);
    }
    (home.and_then(|home| find(&parts[home], queue.id)), place)
}

fn quorum<'a>(queue: &Queue, names: &Names, parts: &'a [Part]) -> (Option<&'a QueuePart>, Place) {
    let claims = parts.iter().filter_map(|part| Some((part.id, find(part, queue.id)?)));
    let leading = claims.max_by_key(|(_, claim)| claim.term);
    let recorded: Vec<NodeId> = queue.nodes().collect();
    let (voters, learners) = match leading {
        Some((_, claim)) if !claim.voters.is_empty() => {
            (claim.voters.as_slice(), claim.learners.as_slice())
        }
        _ => (recorded.as_slice(), &[][..]),
    };
    let seats = parts.iter().filter_map(|part| {
        let at = part.members.binary_search_by_key(&queue.id, |one| one.queue).ok()?;
        Some((part.id, part.members[at]))
    });
    let seats: Vec<_> = seats.collect();
    let is_online = |node: &NodeId| seats.iter().any(|(id, _)| id == node);
    let rumour = || {
        let known = seats.iter().filter(|(_, seat)| seat.leader != NodeId(0));
        known.max_by_key(|(_, seat)| seat.term).map(|(_, seat)| seat.leader)
    };
    let leader = leading.map(|(node, _)| node).or_else(rumour);
    let name = |node: &NodeId| names.of(*node).to_owned();
    let all = || voters.iter().chain(learners);
    let mut members: Vec<String> = all().map(name).collect();
    let mut online: Vec<String> = all().filter(|node| is_online(node)).map(name).collect();
    members.sort_unstable();
    online.sort_unstable();
    let place = Place {
        node: leader.as_ref().or(recorded.first()).map(name).unwrap_or_default(),
        leader: leader.as_ref().map(name),
        members,
        online,
        is_led: leading.is_some(),
        votes: (voters.len(), voters.iter().filter(|node| is_online(node)).count()),
    };
    (leading.map(|(_, claim)| claim), place)
}

/// RabbitMQ's rules: without a majority a quorum queue is in minority, without anybody, or with a
/// majority and no leader, it is down.
fn state_of(kind: QueueKind, own: QueueState, place: &Place) -> QueueState {
    let (members, online) = (place.members.len(), place.online.len());
    match kind {
        QueueKind::Classic if place.is_led => own,
        QueueKind::Classic => QueueState::Down,
        QueueKind::Quorum if online == 0 => QueueState::Down,
        QueueKind::Quorum if online < members / 2 + 1 => QueueState::Minority,
        QueueKind::Quorum if !place.is_led => QueueState::Down,
        QueueKind::Quorum => own,
    }
}

fn join(
    queue: &Queue,
    consumer: &ConsumerPart,
    single_active: bool,
    client: &ClientPart,
    node: &str,
) -> ConsumerInfo {
    ConsumerInfo {
        tag: consumer.tag.clone(),
        vhost: queue.vhost.to_string(),
        queue: queue.name.to_string(),
        ack_required: consumer.ack_required,
        exclusive: consumer.exclusive,
        prefetch_count: consumer.prefetch_count,
        arguments: consumer.arguments.clone(),
        activity: match (single_active, consumer.has_turn) {
            (false, _) => ConsumerActivity::Up,
            (true, true) => ConsumerActivity::SingleActive,
            (true, false) => ConsumerActivity::Waiting,
        },
        timeout_ms: consumer.timeout_ms,
        node: node.to_owned(),
        channel: consumer.channel,
        connection_name: client.name.clone(),
        peer_host: client.peer_host.clone(),
        peer_port: client.peer_port,
        user: consumer.user.clone(),
    }
}
