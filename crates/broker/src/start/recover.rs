//! `leveret recover-metadata`: a cluster whose majority is lost for good goes on from one node.
//!
//! ```text
//!  what this node has of the topology, all of it ─► plan ─► said ─► confirmed?
//!     │ in the identity: recovering, and the new data set
//!     │ in the journal:  each group that has a member here founded anew by it alone, the metadata
//!     │                  group last, with the plan's commands behind
//!     └ in the identity: not recovering any more
//! ```
//!
//! The topology goes on under another data set, so that no node of before can talk to this one (see
//! [`crate::cluster::admission`]). Cut off anywhere, the node does not start, and doing it again does
//! all of it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::sync::Arc;

use bytes::Bytes;
use metadata::command::{Command, MemberName, PutNode, SerialQueueId};
use metadata::coordination::Coordination;
use metadata::objects::node::Node;
use metadata::objects::queue::{Queue, QueueKind};
use metadata::state::State;
use model::id::{NodeId, QueueId, Seq, StreamId};
use quorum::log::Log;
use quorum::offline::{Dormant, Part};
use quorum::recovered::Recovered;

use crate::cluster::GROUP;
use crate::cluster::identity::{self, Raised};
use crate::cluster::proposal::Proposal;
use crate::config::Config;
use crate::node::tool_name;
use crate::router::Router;
use crate::start::{Opened, StartError, together};
use crate::topology::Topology;

/// How many things of a kind are listed by name.
const LISTED: usize = 20;

/// What was done.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Done {
    /// Nothing: this name of the cluster has to be confirmed.
    NotConfirmed(String),
    /// The topology was recovered.
    Recovered,
}

/// A topology as one node has it, and its journal.
pub(super) struct Found {
    pub(super) state: Arc<State>,
    /// The log of the metadata group.
    pub(super) dormant: Dormant,
    pub(super) opened: Opened,
}

/// What becomes of the topology.
#[derive(Debug, Default)]
struct Plan {
    /// Nodes that are forgotten.
    nodes: Vec<Arc<Node>>,
    /// Quorum queues that go on with this node's member alone.
    kept: Vec<Arc<Queue>>,
    /// Queues that are gone, and why.
    lost: Vec<(Arc<Queue>, String)>,
}

/// Recovers the topology from `data_dir` if the cluster's name is confirmed. `say` is given lines.
///
/// # Errors
/// What is wrong with the directory. Nothing has changed then, or it can be done again.
pub(crate) fn recover(
    config: Config,
    confirmed: Option<&str>,
    say: &mut dyn FnMut(&str),
) -> Result<Done, StartError> {
    let directory = config.data_dir.clone();
    if identity::read(&directory).map_err(StartError)?.is_none() {
        return Err(StartError(format!("data_dir {} is no node's", directory.display())));
    }
    let found = Found::read(Opened::open(config, None)?)?;
    let Found { state, dormant, opened } = found;
    let me = opened.me;
    let known = state.node(me.node).map(Arc::clone).ok_or_else(|| {
        StartError(format!("node {} is not known to the topology that it has", me.node))
    })?;
    let cluster = name_of(&state, &opened.config);

    let Opened { journal, recovery, starts, .. } = opened;
    let mut groups: BTreeMap<StreamId, Recovered> = BTreeMap::new();
    let members = state.all_queues().filter(|queue| queue.kind == QueueKind::Quorum);
    let here: BTreeSet<StreamId> = members.filter_map(|queue| queue.stream(me.node)).collect();
    for known in recovery.streams().iter().filter(|known| here.contains(&known.stream)) {
        groups.insert(known.stream, Recovered::new(known.highest));
    }
    let note = |stream, seq: Seq, head: &[u8], bytes| {
        if let Some(group) = groups.get_mut(&stream) {
            group.note(seq, head, bytes);
        }
    };
    recovery.for_each(note).map_err(|error| StartError(format!("journal: {error}")))?;
    let mut dormants: BTreeMap<QueueId, Result<Dormant, String>> = BTreeMap::new();
    for queue in state.all_queues() {
        if let Some(stream) = queue.stream(me.node).filter(|stream| here.contains(stream)) {
            let recovered = groups.remove(&stream).unwrap_or_default();
            dormants.insert(queue.id, Dormant::new(stream, recovered));
        }
    }

    let plan = Plan::of(&state, me.node, |queue| match dormants.get(&queue) {
        None => Err("it has no member on this node".into()),
        Some(Err(reason)) => Err(format!("its member on this node cannot be used: {reason}")),
        Some(Ok(_)) => Ok(()),
    });
    plan.say(&state, &known, &cluster, &dormant, say);
    if confirmed != Some(cluster.as_str()) {
        return Ok(Done::NotConfirmed(cluster));
    }

    let data_set = loop {
        let drawn: u64 = rand::random();
        if drawn != 0 && drawn != state.data_set() {
            break drawn;
        }
    };
    let put = PutNode {
        id: me.node.0,
        name: Arc::clone(&known.name),
        address: known.address.clone(),
        role: known.role,
        boot: me.boot,
        starts: starts.clone(),
        zone: known.zone.clone(),
    };
    let commands = plan.commands(put, data_set);
    let mut after = State::clone(&state);
    for command in &commands {
        after.apply(command.clone()).map_err(|refusal| {
            StartError(format!("the recovered topology would be refused: {refusal}"))
        })?;
    }
    let commands: Vec<Bytes> = commands.iter().map(Command::encode).collect();
    let word = Proposal { sender: me, first: 1, commands }.encode();

    let raised = Raised { me, starts, formed: true, data_set, recovering: true };
    identity::write(&directory, &raised).map_err(StartError)?;
    let mut ops = Vec::new();
    for queue in &plan.kept {
        if let Some(Ok(dormant)) = dormants.get(&queue.id) {
            ops.extend(dormant.refound(me.node, None));
        }
    }
    ops.extend(dormant.refound(me.node, Some(word)));
    journal.submit(ops);
    close(journal)?;
    identity::write(&directory, &Raised { recovering: false, ..raised }).map_err(StartError)?;
    Ok(Done::Recovered)
}

/// Waits until all of it is on the disk.
pub(super) fn close(journal: Arc<journal::journal::Journal>) -> Result<(), StartError> {
    let journal = Arc::into_inner(journal)
        .ok_or_else(|| StartError("the journal is still in use in this process".into()))?;
    journal.close().map_err(|error| StartError(format!("journal: {error}")))
}

impl Found {
    /// Reads the topology of a node of a cluster, with all that is in its log.
    pub(super) fn read(opened: Opened) -> Result<Self, StartError> {
        let directory = opened.config.data_dir.display();
        if !opened.has_stream(GROUP.stream()) {
            return Err(StartError(format!(
                "data_dir {directory} has no part of a cluster's topology"
            )));
        }
        let failed =
            |error: String| StartError(format!("the topology in data_dir {directory}: {error}"));
        let dormant =
            Dormant::new(GROUP.stream(), together::recovered(&opened)?).map_err(failed)?;
        let router = Arc::new(Router::new(State::new()));
        let (place, _gone) = opened.place(None);
        let topology = Topology::new(opened.parts(&router, place), State::new(), 0, 0);
        let log: &dyn Log = &*opened.journal;
        dormant
            .replay(log, |part| match part {
                Part::Checkpoint(index, state) => topology.install(index, state).map(drop),
                Part::Entries(entries) => topology.commit(&entries).map(drop),
            })
            .map_err(failed)?;
        let state = router.state();
        Ok(Self { state, dormant, opened })
    }
}

/// What the cluster is called.
fn name_of(state: &State, config: &Config) -> String {
    let given = state.global_parameter("cluster_name");
    if let Some(name) = given.and_then(|given| given.value.as_str()) {
        return name.to_owned();
    }
    if !config.cluster.given_name.is_empty() {
        return config.cluster.given_name.clone();
    }
    let first = state.nodes().min_by_key(|node| node.number);
    tool_name(first.map_or("", |node| &node.name))
}

/// Whether this node has nothing of a classic queue.
fn is_elsewhere(state: &State, queue: &Queue, me: NodeId) -> bool {
    match queue.journal.as_deref().and_then(|name| state.journal(name)) {
        Some(journal) => !journal.is_on(me),
        None => queue.home != me,
    }
}

impl Plan {
    /// `usable`: whether this node's member of a quorum queue can go on.
    fn of(state: &State, me: NodeId, usable: impl Fn(QueueId) -> Result<(), String>) -> Self {
        let nodes = state.nodes().filter(|node| node.id != me).map(Arc::clone).collect();
        let mut plan = Self { nodes, ..Self::default() };
        for queue in state.all_queues() {
            match queue.kind {
                QueueKind::Quorum => match usable(queue.id) {
                    Ok(()) => plan.kept.push(Arc::clone(queue)),
                    Err(reason) => plan.lost.push((Arc::clone(queue), reason)),
                },
                QueueKind::Classic if is_elsewhere(state, queue, me) => {
                    let home = state.node(queue.home);
                    let home =
                        home.map_or_else(|| queue.home.to_string(), |it| it.name.to_string());
                    plan.lost.push((Arc::clone(queue), format!("node '{home}' keeps it")));
                }
                QueueKind::Classic => {}
            }
        }
        plan
    }

    /// What has to be done to the topology, in order; `put` makes this node known.
    fn commands(&self, put: PutNode, data_set: u64) -> Vec<Command> {
        let me = put.id;
        let mut commands = vec![
            Command::PutNode(put),
            Command::Coordinate(Coordination::NewDataSet { incarnation: data_set }),
        ];
        for queue in &self.kept {
            let name = |member: &metadata::objects::member::Member| MemberName {
                queue: SerialQueueId(queue.id),
                node: member.node.0,
                stream: member.stream.0,
            };
            let (mine, others): (Vec<MemberName>, Vec<MemberName>) =
                queue.members.iter().map(name).partition(|member| member.node == me);
            commands.extend(others.into_iter().map(Command::RemoveMember));
            commands.push(Command::MembersStarted(mine));
        }
        commands.extend(self.lost.iter().map(|(queue, _)| Command::DeleteQueue {
            vhost: Arc::clone(&queue.vhost),
            name: Arc::clone(&queue.name),
            id: Some(SerialQueueId(queue.id)),
        }));
        commands.extend(self.nodes.iter().map(|node| Command::ForgetNode { id: node.id.0 }));
        commands
    }

    /// Says what it comes to.
    fn say(
        &self,
        state: &State,
        me: &Node,
        cluster: &str,
        log: &Dormant,
        say: &mut dyn FnMut(&str),
    ) {
        let end = log.end();
        say(&format!("Cluster {cluster}, from node {} ({}) alone.", me.name, me.id));
        say(&format!(
            "Its topology ends with entry {} of term {}: what the others decided after that is lost.",
            end.index, end.term
        ));
        let nodes = self.nodes.iter().filter(|node| !node.lost);
        let nodes: Vec<String> = nodes.map(|node| format!("{} ({})", node.name, node.id)).collect();
        say(&format!(
            "Nodes that are forgotten, and must never run again on the data that they have: {}.",
            if nodes.is_empty() { "none".to_owned() } else { nodes.join(", ") }
        ));
        let classic = state.all_queues().filter(|queue| {
            queue.kind == QueueKind::Classic && queue.journal.is_none() && queue.home == me.id
        });
        say(&format!("Classic queues of this node, which go on as they are: {}.", classic.count()));
        say(&format!(
            "Quorum queues that go on with what this node has: {}. A message that the others \
             confirmed without it is lost, and one that they had settled may come again.",
            self.kept.len()
        ));
        for journal in state.journals().filter(|journal| journal.is_on(me.id)) {
            let queues = state.queues_of_journal(&journal.name).count();
            let what = if journal.paired {
                "is held until an operator goes on with it (leveretctl journal adopt): what the other \
                 copy has more is lost then"
            } else {
                "goes on as it is"
            };
            say(&format!("Journal '{}' with {queues} queues {what}.", journal.name));
        }
        say(&format!("Queues that are lost, with all that is in them: {}.", self.lost.len()));
        for (queue, reason) in self.lost.iter().take(LISTED) {
            say(&format!("  queue '{}' in vhost '{}': {reason}", queue.name, queue.vhost));
        }
        if self.lost.len() > LISTED {
            let mut more = String::new();
            write!(more, "  … and {} more", self.lost.len() - LISTED).expect("a string takes it");
            say(&more);
        }
    }
}

#[cfg(test)]
mod tests {
    use amq_protocol_types::{AMQPValue, FieldTable};
    use metadata::command::{DeclareQueue, JournalChange};
    use metadata::objects::node::NodeRole;
    use metadata::objects::vhost::Vhost;

    use super::*;

    const A: NodeId = NodeId(1);
    const B: NodeId = NodeId(2);
    const C: NodeId = NodeId(3);

    fn put(id: NodeId, boot: u64, starts: &[u64]) -> PutNode {
        PutNode {
            id: id.0,
            name: format!("n{}", id.0).into(),
            address: String::new(),
            role: NodeRole::Full,
            boot,
            starts: starts.to_vec(),
            zone: None,
        }
    }

    fn declare(state: &mut State, name: &str, home: NodeId, members: &[NodeId]) {
        let mut arguments = FieldTable::default();
        if !members.is_empty() {
            arguments.insert("x-queue-type".into(), AMQPValue::LongString("quorum".into()));
        }
        let declare = DeclareQueue {
            vhost: "/".into(),
            name: name.into(),
            generated: false,
            durable: true,
            auto_delete: false,
            exclusive_owner: None,
            arguments,
            user: "guest".into(),
            home,
            members: members.to_vec(),
            away: Vec::new(),
        };
        state.apply(Command::DeclareQueue(declare)).expect("it is new");
    }

    fn declare_in(state: &mut State, journal: &str, name: &str) {
        let mut arguments = FieldTable::default();
        arguments.insert("x-journal".into(), AMQPValue::LongString(journal.into()));
        let declare = DeclareQueue {
            vhost: "/".into(),
            name: name.into(),
            generated: false,
            durable: true,
            auto_delete: false,
            exclusive_owner: None,
            arguments,
            user: "guest".into(),
            home: B,
            members: Vec::new(),
            away: Vec::new(),
        };
        state.apply(Command::DeclareQueue(declare)).expect("it is new");
    }

    #[test]
    fn one_node_goes_on_with_what_it_has_and_the_rest_is_gone() {
        let mut state = State::new();
        state.apply(Command::PutVhost(Vhost::named("/"))).expect("it is new");
        for node in [A, B, C] {
            state.apply(Command::PutNode(put(node, 4, &[node.0]))).expect("it is new");
        }
        declare(&mut state, "mine", A, &[]);
        declare(&mut state, "theirs", B, &[]);
        declare(&mut state, "shared", B, &[A, B, C]);
        declare(&mut state, "damaged", B, &[A, B, C]);
        declare(&mut state, "elsewhere", B, &[B, C]);
        // Journals: one that this node has a copy of, wherever it is served, and one that it has not.
        for (name, uid, node, backup) in [("pair", "1", B, A), ("far", "2", B, C)] {
            let create = JournalChange::Create {
                name: name.into(),
                uid: uid.repeat(32).into(),
                node: node.0,
                backup: backup.0,
                incarnation: 5,
            };
            state.apply(Command::ChangeJournal(create)).expect("it is new");
            declare_in(&mut state, name, &format!("in-{name}"));
        }
        let id = |state: &State, name: &str| state.queue("/", name).map(|queue| queue.id);
        let shared = id(&state, "shared");
        let plan = Plan::of(&state, A, |queue| {
            if Some(queue) == shared { Ok(()) } else { Err("it is so".into()) }
        });
        let lost: Vec<&str> = plan.lost.iter().map(|(queue, _)| &*queue.name).collect();
        assert_eq!(lost.len(), 4, "{lost:?}");
        for command in plan.commands(put(A, 5, &[1, 7]), 99) {
            state.apply(command).expect("it is in order");
        }
        assert_eq!(state.data_set(), 99);
        let nodes: Vec<(NodeId, u64)> = state.nodes().map(|node| (node.id, node.boot)).collect();
        assert_eq!(nodes, [(A, 5)]);
        for (name, there) in [
            ("mine", true),
            ("shared", true),
            ("theirs", false),
            ("damaged", false),
            ("elsewhere", false),
            ("in-pair", true),
            ("in-far", false),
        ] {
            assert_eq!(id(&state, name).is_some(), there, "{name}");
        }
        let journal = state.journal("pair").expect("this node has a copy");
        assert_eq!((journal.node, journal.backup, journal.paired), (A, NodeId(0), true));
        // The register is of the data set before, so the copy is held.
        assert!(state.coordinated(&journal.uid).register.is_none());
        assert!(state.journal("far").is_none());
        let queue = state.queue("/", "shared").expect("it is kept");
        assert_eq!(queue.nodes().collect::<Vec<_>>(), [A]);
        assert_eq!(queue.members[0].stage, metadata::objects::member::Stage::Started);
    }
}
