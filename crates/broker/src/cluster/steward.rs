//! Brings this node into the cluster and keeps what the cluster knows of it current.
//!
//! It looks around whenever something has changed, and a few times a second while something is still
//! to be done: find or found the group, be let in, make this start known; on the leader, make what a
//! first start makes.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use metadata::command::{Command, PutNode};
use metadata::objects::Name;
use metadata::objects::node::NodeRole;
use metadata::state::State;
use model::id::{NodeId, StreamId};
use parking_lot::Mutex;
use quorum::change::Change;
use tokio::sync::watch;

use crate::cluster::acquaintances::directory;
use crate::cluster::formation::{self, Neighbour, Query, Standing, Step};
use crate::cluster::identity::Raised;
use crate::cluster::{Cluster, GROUP, channel, identity};
use crate::replicated::numbered::Sender;
use crate::router::Router;
use crate::topology::Topology;

/// How often it looks while something is to be done.
const INTERVAL: Duration = Duration::from_millis(100);
/// How often it looks when everything is done.
const IDLE: Duration = Duration::from_secs(5);
/// How long an answer about the other's standing may take.
const QUICK: Duration = Duration::from_secs(1);
/// How long letting a node in may take: it gets the whole state.
const SLOW: Duration = Duration::from_secs(30);

/// See the module head.
pub(crate) struct Steward {
    pub(crate) cluster: Arc<Cluster>,
    pub(crate) topology: Arc<Topology>,
    pub(crate) router: Arc<Router>,
    /// Where peers reach this node.
    pub(crate) address: String,
    pub(crate) role: NodeRole,
    /// What members of a quorum queue are spread over.
    pub(crate) zone: Option<Name>,
    /// What a first start makes, and the cluster's lasting name.
    pub(crate) first: Vec<Command>,
    /// The node's number, once it has one.
    pub(crate) number: watch::Sender<Option<u16>>,
    /// Where the node's identity is.
    pub(crate) directory: PathBuf,
    /// What this start has written into the identity: the journal has something, of this data set.
    pub(crate) marked: Mutex<Option<u64>>,
    /// What stood in its way last.
    pub(crate) told: Mutex<String>,
}

impl Steward {
    /// Runs for as long as the node lives.
    pub(crate) async fn run(self) {
        let Some(group) = &self.cluster.group else { return };
        loop {
            let done = self.step().await;
            let pause = if done { IDLE } else { INTERVAL };
            drop(tokio::time::timeout(pause, group.changed.notified()).await);
            self.cluster.bell.topology();
            // What has changed is rarely alone, and to look may take a look at all queues.
            tokio::time::sleep(INTERVAL / 5).await;
        }
    }

    /// Does what can be done now; `true` if nothing is left to do.
    async fn step(&self) -> bool {
        let Some(group) = &self.cluster.group else { return true };
        if !group.formed.load(Ordering::Acquire) {
            if let Err(reason) = self.cluster.form(&group.listed).await {
                self.complain(reason, "not in a cluster yet");
            }
            return false;
        }
        self.cluster.meet(&self.router.state());
        self.cluster.stop_if_overtaken(&self.router.state());
        if !group.proposer.is_available() {
            // The leader may be one that neither the list nor what is here of the topology names: a
            // start that ended right after it was let in has left it like that.
            self.cluster.look_around(&group.listed).await;
            return false;
        }
        if let Err(reason) = self.cluster.get_vote().await {
            self.complain(reason, "without a vote on the topology yet");
            return false;
        }
        let done = self.make_known().await && self.make_first().await && self.take_number();
        self.end_what_is_over().await;
        if done {
            self.mark();
            // What this start has submitted is applied, so all before it is.
            if self.cluster.has_strays() {
                let (state, me) = (self.router.state(), self.cluster.me.node);
                let used: BTreeSet<StreamId> =
                    state.all_queues().filter_map(|queue| queue.stream(me)).collect();
                self.cluster.drop_strays(|stream| used.contains(&stream));
            }
        }
        done
    }

    /// Something stands in the way: said once, however often it is tried again.
    fn complain(&self, reason: String, what: &str) {
        let mut told = self.told.lock();
        if *told != reason {
            tracing::info!(%reason, "{what}");
            *told = reason;
        }
    }

    /// From now on the node does not start without its journal.
    fn mark(&self) {
        let data_set = self.router.state().data_set();
        let mut marked = self.marked.lock();
        if *marked == Some(data_set) {
            return;
        }
        // The cluster has taken note of this start: what was drawn before is of no use any more.
        let (me, starts) = (self.cluster.me, vec![self.cluster.start()]);
        let raised = Raised { me, starts, formed: true, data_set, recovering: false };
        match identity::write(&self.directory, &raised) {
            Ok(()) => *marked = Some(data_set),
            Err(error) => tracing::error!(error, "cannot write the node's identity"),
        }
        self.cluster.is_of(data_set);
    }

    /// Makes this start of the node known to the cluster.
    async fn make_known(&self) -> bool {
        let me = self.cluster.me;
        let state = self.router.state();
        if let Some(node) = state.node(me.node)
            && (node.boot, node.start) == (me.boot, self.cluster.start())
            && node.address == self.address
            && node.role == self.role
            && node.zone == self.zone
        {
            return true;
        }
        let put = PutNode {
            id: me.node.0,
            name: self.cluster.name.as_str().into(),
            address: self.address.clone(),
            role: self.role,
            boot: me.boot,
            starts: self.cluster.starts.clone(),
            zone: self.zone.clone(),
        };
        match self.topology.submit(Command::PutNode(put)).await {
            Ok(_) => {}
            Err(refusal) => tracing::warn!(%refusal, "cannot make this node known to its cluster"),
        }
        false
    }

    /// Lets clients in, once there is what a first start makes.
    fn take_number(&self) -> bool {
        let state = self.router.state();
        let Some(node) = state.node(self.cluster.me.node) else { return false };
        if state.vhosts().next().is_none() {
            return false;
        }
        self.number.send_if_modified(|number| number.replace(node.number).is_none());
        true
    }

    /// On the leader: ends what lived with starts of nodes that are over.
    async fn end_what_is_over(&self) {
        let group = self.cluster.group.as_ref();
        if group.and_then(|group| group.proposer.leader()) != Some(self.cluster.me.node) {
            return;
        }
        self.remove_former_selves().await;
        let state = self.router.state();
        let unseen = state.nodes().filter(|node| !node.lost);
        self.cluster.wait_for_unseen(unseen.map(|node| Sender { node: node.id, boot: node.boot }));
        let over = over(&state, &mut self.cluster.ended.lock());
        for Sender { node, boot } in over {
            let ended = Command::NodeEnded { id: node.0, boot };
            if let Err(refusal) = self.topology.submit(ended).await {
                tracing::warn!(%node, %refusal, "cannot end what lived with a node");
            }
        }
    }

    /// On the leader: takes former selves out of the group whose successors have their vote. Who lets
    /// a node in does that; but it may have been cut off.
    async fn remove_former_selves(&self) {
        let Some(group) = &self.cluster.group else { return };
        let (voters, learners) = group.proposer.members();
        for gone in former_selves(&self.router.state(), &voters, &learners) {
            tracing::info!(node = %gone, "the old self of a node is no member any more");
            if let Err(error) = self.cluster.host.change(GROUP, Change::Remove(gone)).await {
                tracing::warn!(node = %gone, %error, "cannot take out the old self of a node");
            }
        }
    }

    /// On the leader: makes what a first start makes, if nobody has.
    async fn make_first(&self) -> bool {
        let leads = self.cluster.group.as_ref().and_then(|group| group.proposer.leader());
        let state = self.router.state();
        if leads != Some(self.cluster.me.node) || state.vhosts().next().is_some() {
            return true;
        }
        tracing::info!("first start of a cluster");
        for command in &self.first {
            if let Err(refusal) = self.topology.submit(command.clone()).await {
                tracing::warn!(%refusal, "cannot make what a first start makes");
                return false;
            }
        }
        false
    }
}

/// Members of the metadata group that were wiped and have a vote again under another number, or
/// whose name nobody bears any more: their successor was forgotten.
pub(super) fn former_selves(state: &State, voters: &[NodeId], learners: &[NodeId]) -> Vec<NodeId> {
    let successor = |name: &Name| {
        let has_name =
            |voter: &&NodeId| state.node(**voter).is_some_and(|it| !it.lost && it.name == *name);
        voters.iter().find(has_name)
    };
    let is_borne = |name: &Name| state.nodes().any(|it| !it.lost && it.name == *name);
    let is_former = |member: &&NodeId| {
        let known = state.node(**member).filter(|known| known.lost);
        known.is_some_and(|known| successor(&known.name).is_some() || !is_borne(&known.name))
    };
    voters.iter().chain(learners).filter(is_former).copied().collect()
}

/// Which of the starts that have ended have left something behind. Starts that cannot leave anything
/// behind any more are forgotten; of the others something may yet be committed that they had
/// declared.
fn over(state: &State, ended: &mut BTreeSet<Sender>) -> Vec<Sender> {
    ended.retain(|start| {
        state.node(start.node).is_some_and(|node| !node.lost && node.boot <= start.boot)
    });
    let has_left =
        |start: &&Sender| state.node(start.node).is_some_and(|node| state.has_transients(node));
    ended.iter().filter(has_left).copied().collect()
}

impl Cluster {
    /// One step towards a group.
    ///
    /// # Errors
    /// What stands in the way.
    async fn form(&self, listed: &[String]) -> Result<(), String> {
        if self.group.as_ref().is_some_and(|group| !group.proposer.members().0.is_empty()) {
            // Another node has founded it with this one.
            self.formed();
            return Ok(());
        }
        let up = self.look_around(listed).await;
        match formation::next(self.me.node, &self.name, listed, &up) {
            Step::Wait => Ok(()),
            Step::Start => {
                self.start_group().await?;
                self.formed();
                Ok(())
            }
            Step::Join(by) => {
                // First the part, so that the leader finds somebody.
                self.start_group().await?;
                self.join(by).await?;
                self.formed();
                Ok(())
            }
            Step::Found(members) => self.found(listed, members).await,
        }
    }

    /// Asks a node to be let into the group, with a vote.
    async fn join(&self, by: NodeId) -> Result<(), String> {
        self.ask(by, &Query::Join { name: self.name.clone() }, SLOW).await
    }

    /// Sees to it that this node votes. One that follows without a vote was on its way in when that was
    /// cut off: another change was under way, or who let it in is gone. Nobody else would go on.
    ///
    /// # Errors
    /// What stands in the way.
    async fn get_vote(&self) -> Result<(), String> {
        let Some(group) = &self.group else { return Ok(()) };
        let (voters, learners) = group.proposer.members();
        if voters.contains(&self.me.node) || !learners.contains(&self.me.node) {
            return Ok(());
        }
        match group.proposer.leader() {
            Some(leader) => self.join(leader).await,
            None => Err("nobody leads the group".into()),
        }
    }

    /// Asks the connected nodes how far they are, and meets whom they know.
    async fn look_around(&self, listed: &[String]) -> Vec<Neighbour> {
        let mut up = Vec::new();
        for peer in self.connected() {
            let asked = Query::Standing.encode();
            let answer = self.road.request(peer.id, channel::QUERIES, asked, QUICK).await;
            let standing = answer.and_then(|answer| Standing::decode(answer).ok());
            if let (Some(standing), Some(links)) = (&standing, self.road.links()) {
                let others = standing.nodes.iter().filter(|(name, _)| **name != *self.name);
                self.acquaintances.lock().meet(links, listed, others.cloned().collect());
            }
            up.push(Neighbour { name: peer.name.to_string(), id: peer.id, standing });
        }
        up
    }

    /// Keeps the ways to nodes that the configuration does not list what the topology says.
    fn meet(&self, state: &State) {
        let (Some(group), Some(links)) = (&self.group, self.road.links()) else { return };
        let others = directory(state, self.me.node);
        let mut acquaintances = self.acquaintances.lock();
        // A topology without this node is not whole yet.
        if state.node(self.me.node).is_some() {
            acquaintances.part(links, &others);
        }
        acquaintances.meet(links, &group.listed, others);
    }

    fn formed(&self) {
        if let Some(group) = &self.group {
            group.formed.store(true, Ordering::Release);
            group.changed.notify_one();
        }
    }

    async fn found(&self, listed: &[String], members: Vec<NodeId>) -> Result<(), String> {
        let names = formation::names(&self.name, listed);
        let query = Query::Found { names, members: members.clone() };
        for member in members.iter().filter(|member| **member != self.me.node) {
            self.ask(*member, &query, SLOW).await?;
        }
        self.start_group().await?;
        // From here on it may be in the journal.
        self.formed();
        tracing::info!(nodes = members.len(), "founding a cluster");
        self.host.initialise(GROUP, &members).await.map_err(|error| error.to_string())
    }

    async fn ask(&self, node: NodeId, query: &Query, within: Duration) -> Result<(), String> {
        match self.road.request(node, channel::QUERIES, query.encode(), within).await {
            Some(answer) => {
                formation::agreed(&answer).map_err(|reason| format!("node {node}: {reason}"))
            }
            None => Err(format!("node {node} does not answer")),
        }
    }

    /// Another node founds the group, with this one in it.
    ///
    /// # Errors
    /// Why not.
    pub(super) async fn be_founded(
        &self,
        by: NodeId,
        names: &[String],
        members: &[NodeId],
    ) -> Result<(), String> {
        let Some(group) = &self.group else { return Err("this node is on its own".into()) };
        if group.formed.load(Ordering::Acquire) {
            return Err("this node has a group already".into());
        }
        let own = formation::names(&self.name, &group.listed);
        if own != names {
            return Err(format!(
                "cluster.peers differ: here {}, there {}",
                own.join(", "),
                names.join(", ")
            ));
        }
        if !members.contains(&self.me.node) || !members.contains(&by) {
            return Err("the members are others".into());
        }
        self.start_group().await
    }

    /// Lets a node into the group, in the place of an older one with its name. Done again, it goes on
    /// where it was cut off.
    ///
    /// # Errors
    /// Why not, or not yet.
    pub(super) async fn let_in(&self, node: NodeId, name: &str) -> Result<(), String> {
        let Some(group) = &self.group else { return Err("this node is on its own".into()) };
        if group.proposer.leader() != Some(self.me.node) {
            return Err("this node does not lead the group".into());
        }
        let change =
            async |change| self.host.change(GROUP, change).await.map_err(|error| error.to_string());
        let (voters, learners) = group.proposer.members();
        let votes = voters.contains(&node);
        if !votes {
            if !learners.contains(&node) {
                change(Change::AddLearner(node)).await?;
            }
            self.caught_up(node).await?;
        }
        // Before the new one votes: with both, it would take one more than before to decide anything, and
        // the old one does not come back.
        let state = group.part.topology.state();
        for old in self.members().into_iter().filter(|member| *member != node) {
            if state.node(old).is_some_and(|known| &*known.name == name) {
                tracing::info!(node = %old, name, "the old self of a node is no member any more");
                change(Change::Remove(old)).await?;
            }
        }
        if !votes {
            change(Change::Promote(node)).await?;
            tracing::info!(%node, name, "a node has got a vote");
        }
        Ok(())
    }

    /// Waits until a learner has what the log had at the beginning.
    async fn caught_up(&self, node: NodeId) -> Result<(), String> {
        let status = || self.host.status(GROUP).ok_or("the group has stopped");
        let goal = status()?.last;
        let deadline = tokio::time::Instant::now() + SLOW / 2;
        loop {
            let members = status()?.members;
            let matched = members.iter().find(|one| one.node == node).and_then(|one| one.matched);
            if matched >= goal {
                return Ok(());
            }
            if tokio::time::Instant::now() > deadline {
                return Err("it does not catch up".into());
            }
            tokio::time::sleep(INTERVAL / 5).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use amq_protocol_types::FieldTable;
    use metadata::command::DeclareQueue;
    use metadata::objects::vhost::Vhost;
    use model::id::ConnectionId;

    use super::*;

    const DEAD: Sender = Sender { node: NodeId(7), boot: 3 };

    fn put(boot: u64) -> Command {
        let (name, address) = ("a".into(), "a:1".to_owned());
        let role = NodeRole::Full;
        Command::PutNode(PutNode {
            id: DEAD.node.0,
            name,
            address,
            role,
            boot,
            starts: Vec::new(),
            zone: None,
        })
    }

    #[test]
    fn a_former_self_goes_when_its_successor_votes() {
        let mut state = State::new();
        for (id, name) in [(1, "a"), (2, "b"), (3, "c"), (33, "c")] {
            let (name, address) = (name.into(), String::new());
            let (role, starts) = (NodeRole::Full, Vec::new());
            let put = PutNode { id, name, address, role, boot: 1, zone: None, starts };
            state.apply(Command::PutNode(put)).expect("a node can come");
        }
        let former = |voters: &[u64], learners: &[u64]| {
            let ids = |of: &[u64]| of.iter().copied().map(NodeId).collect::<Vec<_>>();
            former_selves(&state, &ids(voters), &ids(learners))
        };
        assert_eq!(former(&[1, 2, 3, 33], &[]), [NodeId(3)]);
        assert_eq!(former(&[1, 2, 3], &[33]), [], "it has no vote yet");
        assert_eq!(former(&[1, 2, 33], &[3]), [NodeId(3)]);
        assert_eq!(former(&[1, 2, 33], &[]), []);
        assert_eq!(former(&[1, 2, 3], &[]), []);
        // The successor was forgotten before that.
        state.apply(Command::ForgetNode { id: 33 }).expect("it is known");
        let ids = [NodeId(1), NodeId(2), NodeId(3)];
        assert_eq!(former_selves(&state, &ids, &[]), [NodeId(3)]);
    }

    #[test]
    fn what_an_ended_start_had_declared_is_ended_also_if_it_comes_to_light_later() {
        let mut state = State::new();
        state.apply(Command::PutVhost(Vhost::named("/"))).expect("it is new");
        state.apply(put(3)).expect("it is new");
        let mut ended = BTreeSet::from([DEAD, Sender { node: NodeId(8), boot: 1 }]);
        assert_eq!(over(&state, &mut ended), []);
        assert_eq!(ended, BTreeSet::from([DEAD]), "nobody knows node 8");
        let owner = ConnectionId::new(1, 3, 1);
        let declare = DeclareQueue {
            vhost: "/".into(),
            name: "mine".into(),
            generated: false,
            durable: false,
            auto_delete: false,
            exclusive_owner: Some(owner),
            arguments: FieldTable::default(),
            user: "guest".into(),
            home: DEAD.node,
            members: Vec::new(),
            away: Vec::new(),
        };
        state.apply(Command::DeclareQueue(declare)).expect("it is new");
        assert_eq!(over(&state, &mut ended), [DEAD]);
        state.apply(Command::NodeEnded { id: 7, boot: 3 }).expect("it is known");
        assert_eq!(over(&state, &mut ended), []);
        state.apply(put(4)).expect("it starts again");
        assert_eq!(over(&state, &mut ended), []);
        assert!(ended.is_empty(), "{ended:?}");
    }
}
