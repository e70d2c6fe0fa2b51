//! The state of the topology, for reading.
//!
//! Cloning takes constant time; the clone shares what neither side changes. Lists come in the order
//! of names.

use std::sync::Arc;

use imbl::{OrdMap, OrdSet};
use model::id::{ConnectionId, NodeId, QueueId};

use crate::access::matcher::Matcher;
use crate::access::topic::CompiledTopicPermission;
use crate::objects::Name;
use crate::objects::binding::{Binding, Destination};
use crate::objects::exchange::Exchange;
use crate::objects::journal::Journal;
use crate::objects::limit::{UserLimit, VhostLimit};
use crate::objects::lock::Lock;
use crate::objects::node::Node;
use crate::objects::parameter::{GlobalParameter, Parameter};
use crate::objects::permission::{Permission, TopicPermission};
use crate::objects::policy::Policy;
use crate::objects::queue::Queue;
use crate::objects::register::Register;
use crate::objects::user::User;
use crate::objects::vhost::Vhost;
use crate::routes::Routes;

mod link;

pub(crate) use link::{ByDestination, BySource};

/// Everything that `apply` knows.
#[derive(Debug, Clone, Default)]
pub struct State {
    pub(crate) vhosts: OrdMap<Name, Arc<VhostState>>,
    pub(crate) users: OrdMap<Name, Arc<User>>,
    pub(crate) user_limits: OrdMap<(Name, UserLimit), i64>,
    pub(crate) global_parameters: OrdMap<Name, Arc<GlobalParameter>>,
    pub(crate) queues_by_id: OrdMap<u64, Arc<Queue>>,
    /// Exclusive queues by owner, so that the end of a connection does not search all queues.
    pub(crate) exclusive: OrdSet<(u64, u64)>,
    /// The last queue id that was given.
    pub(crate) last_queue: u64,
    pub(crate) nodes: OrdMap<u64, Arc<Node>>,
    /// Nodes that were forgotten: what one of them has is of no cluster any more.
    pub(crate) forgotten: OrdSet<u64>,
    /// The last node number that was given.
    pub(crate) last_node: u16,
    pub(crate) locks: OrdMap<Name, Arc<Lock>>,
    /// The last grant of any lock.
    pub(crate) last_token: u64,
    pub(crate) registers: OrdMap<Name, Arc<Register>>,
    /// Names the data set that registers belong to; 0 until it was recovered for the first time.
    pub(crate) data_set: u64,
    pub(crate) journals: OrdMap<Name, Arc<Journal>>,
    pub(crate) routes: Routes,
}

/// One vhost with what is in it.
#[derive(Debug, Clone)]
pub(crate) struct VhostState {
    pub(crate) vhost: Arc<Vhost>,
    pub(crate) exchanges: OrdMap<Name, Arc<Exchange>>,
    pub(crate) queues: OrdMap<Name, Arc<Queue>>,
    pub(crate) by_source: OrdSet<BySource>,
    pub(crate) by_destination: OrdSet<ByDestination>,
    pub(crate) permissions: OrdMap<Name, Arc<CompiledPermission>>,
    /// By user and exchange.
    pub(crate) topic_permissions: OrdMap<(Name, Name), Arc<CompiledTopicPermission>>,
    pub(crate) policies: OrdMap<Name, Arc<CompiledPolicy>>,
    pub(crate) operator_policies: OrdMap<Name, Arc<CompiledPolicy>>,
    pub(crate) limits: OrdMap<VhostLimit, i64>,
    /// By component and name.
    pub(crate) parameters: OrdMap<(Name, Name), Arc<Parameter>>,
}

/// A permission with its expressions compiled.
#[derive(Debug)]
pub(crate) struct CompiledPermission {
    pub(crate) permission: Permission,
    pub(crate) configure: Matcher,
    pub(crate) write: Matcher,
    pub(crate) read: Matcher,
}

/// A policy with its pattern compiled.
#[derive(Debug)]
pub(crate) struct CompiledPolicy {
    pub(crate) policy: Policy,
    pub(crate) pattern: Matcher,
}

impl State {
    /// The first queue id; streams of lower numbers are free for the broker's own records.
    pub const FIRST_QUEUE: QueueId = QueueId(1024);

    /// A state without anything in it, not even a vhost.
    pub fn new() -> Self {
        Self { last_queue: Self::FIRST_QUEUE.0 - 1, ..Self::default() }
    }

    /// The life of the cluster's topology that this is of: 0, until it was recovered from one node.
    pub fn data_set(&self) -> u64 {
        self.data_set
    }

    /// The routing table as of now, to keep and to read while the state goes on.
    pub fn routes(&self) -> &Routes {
        &self.routes
    }

    /// A vhost.
    pub fn vhost(&self, name: &str) -> Option<&Arc<Vhost>> {
        self.vhosts.get(name).map(|vhost| &vhost.vhost)
    }

    /// All vhosts.
    pub fn vhosts(&self) -> impl Iterator<Item = &Arc<Vhost>> {
        self.vhosts.values().map(|vhost| &vhost.vhost)
    }

    /// A limit of a vhost; `None` if there is none.
    pub fn vhost_limit(&self, vhost: &str, limit: VhostLimit) -> Option<u64> {
        let value = self.vhosts.get(vhost)?.limits.get(&limit)?;
        u64::try_from(*value).ok()
    }

    /// The limits of a vhost as they were put, negative ones too.
    pub fn vhost_limits(&self, vhost: &str) -> impl Iterator<Item = (VhostLimit, i64)> {
        let limits = self.vhosts.get(vhost).map(|vhost| &vhost.limits);
        limits.into_iter().flatten().map(|(limit, value)| (*limit, *value))
    }

    /// A user.
    pub fn user(&self, name: &str) -> Option<&Arc<User>> {
        self.users.get(name)
    }

    /// All users.
    pub fn users(&self) -> impl Iterator<Item = &Arc<User>> {
        self.users.values()
    }

    /// A limit of a user; `None` if there is none.
    pub fn user_limit(&self, user: &str, limit: UserLimit) -> Option<u64> {
        u64::try_from(*self.user_limits.get(&(Name::from(user), limit))?).ok()
    }

    /// The limits of a user as they were put, negative ones too.
    pub fn user_limits(&self, user: &str) -> impl Iterator<Item = (UserLimit, i64)> {
        [UserLimit::MaxConnections, UserLimit::MaxChannels].into_iter().filter_map(move |limit| {
            Some((limit, *self.user_limits.get(&(Name::from(user), limit))?))
        })
    }

    /// What a user may do in a vhost; `None`: not even open a connection.
    pub fn permission(&self, vhost: &str, user: &str) -> Option<&Permission> {
        Some(&self.vhosts.get(vhost)?.permissions.get(user)?.permission)
    }

    /// All permissions in a vhost.
    pub fn permissions(&self, vhost: &str) -> impl Iterator<Item = &Permission> {
        let permissions = self.vhosts.get(vhost).map(|vhost| &vhost.permissions);
        permissions.into_iter().flatten().map(|(_, compiled)| &compiled.permission)
    }

    /// All topic permissions in a vhost.
    pub fn topic_permissions(&self, vhost: &str) -> impl Iterator<Item = &Arc<TopicPermission>> {
        let permissions = self.vhosts.get(vhost).map(|vhost| &vhost.topic_permissions);
        permissions.into_iter().flatten().map(|(_, compiled)| &compiled.permission)
    }

    /// An exchange; the empty name is the default exchange.
    pub fn exchange(&self, vhost: &str, name: &str) -> Option<&Arc<Exchange>> {
        self.vhosts.get(vhost)?.exchanges.get(name)
    }

    /// All exchanges of a vhost.
    pub fn exchanges(&self, vhost: &str) -> impl Iterator<Item = &Arc<Exchange>> {
        let exchanges = self.vhosts.get(vhost).map(|vhost| &vhost.exchanges);
        exchanges.into_iter().flatten().map(|(_, exchange)| exchange)
    }

    /// A queue.
    pub fn queue(&self, vhost: &str, name: &str) -> Option<&Arc<Queue>> {
        self.vhosts.get(vhost)?.queues.get(name)
    }

    /// A queue by its id.
    pub fn queue_by_id(&self, id: QueueId) -> Option<&Arc<Queue>> {
        self.queues_by_id.get(&id.0)
    }

    /// All queues of a vhost.
    pub fn queues(&self, vhost: &str) -> impl Iterator<Item = &Arc<Queue>> {
        let queues = self.vhosts.get(vhost).map(|vhost| &vhost.queues);
        queues.into_iter().flatten().map(|(_, queue)| queue)
    }

    /// All queues of all vhosts, in the order in which they were declared.
    pub fn all_queues(&self) -> impl Iterator<Item = &Arc<Queue>> {
        self.queues_by_id.values()
    }

    /// The number of queues of a vhost.
    pub fn queue_count(&self, vhost: &str) -> usize {
        self.vhosts.get(vhost).map_or(0, |vhost| vhost.queues.len())
    }

    /// The exclusive queues of a connection.
    pub fn exclusive_queues(&self, owner: ConnectionId) -> impl Iterator<Item = &Arc<Queue>> {
        self.exclusive
            .range((owner.0, 0)..=(owner.0, u64::MAX))
            .filter_map(|(_, queue)| self.queues_by_id.get(queue))
    }

    /// All bindings of a vhost but those of the default exchange, which every queue has by its
    /// name and which are nowhere stored (see [`State::default_binding`]).
    pub fn bindings(&self, vhost: &str) -> impl Iterator<Item = &Arc<Binding>> {
        let bindings = self.vhosts.get(vhost).map(|vhost| &vhost.by_source);
        bindings.into_iter().flatten().map(|link| &link.0)
    }

    /// The bindings that lead away from an exchange.
    pub fn bindings_from(&self, vhost: &str, source: &str) -> impl Iterator<Item = &Arc<Binding>> {
        let bindings = self.vhosts.get(vhost).map(|vhost| vhost.from(source));
        bindings.into_iter().flatten()
    }

    /// The bindings that lead to a queue or exchange.
    pub fn bindings_to(
        &self,
        vhost: &str,
        destination: &Destination,
    ) -> impl Iterator<Item = &Arc<Binding>> {
        let bindings = self.vhosts.get(vhost).map(|vhost| vhost.to(destination));
        bindings.into_iter().flatten()
    }

    /// The binding of the properties key that the HTTP API names.
    pub fn binding_by_properties(
        &self,
        vhost: &str,
        source: &str,
        destination: &Destination,
        properties_key: &str,
    ) -> Option<&Arc<Binding>> {
        self.bindings_to(vhost, destination).find(|binding| {
            &*binding.source == source && binding.properties_key() == properties_key
        })
    }

    /// Whether exactly this binding exists.
    pub fn has_binding(&self, binding: &Binding) -> bool {
        let Some(vhost) = self.vhosts.get(&binding.vhost) else { return false };
        vhost.by_source.contains(&BySource(Arc::new(binding.clone())))
    }

    /// The binding of a queue to the default exchange, as listings show it.
    pub fn default_binding(queue: &Queue) -> Binding {
        Binding {
            vhost: Arc::clone(&queue.vhost),
            source: "".into(),
            destination: Destination::Queue(Arc::clone(&queue.name)),
            routing_key: Arc::clone(&queue.name),
            arguments: amq_protocol_types::FieldTable::default(),
        }
    }

    /// A policy.
    pub fn policy(&self, vhost: &str, name: &str) -> Option<&Policy> {
        Some(&self.vhosts.get(vhost)?.policies.get(name)?.policy)
    }

    /// All policies of a vhost.
    pub fn policies(&self, vhost: &str) -> impl Iterator<Item = &Policy> {
        let policies = self.vhosts.get(vhost).map(|vhost| &vhost.policies);
        policies.into_iter().flatten().map(|(_, compiled)| &compiled.policy)
    }

    /// An operator policy.
    pub fn operator_policy(&self, vhost: &str, name: &str) -> Option<&Policy> {
        Some(&self.vhosts.get(vhost)?.operator_policies.get(name)?.policy)
    }

    /// All operator policies of a vhost.
    pub fn operator_policies(&self, vhost: &str) -> impl Iterator<Item = &Policy> {
        let policies = self.vhosts.get(vhost).map(|vhost| &vhost.operator_policies);
        policies.into_iter().flatten().map(|(_, compiled)| &compiled.policy)
    }

    /// A runtime parameter.
    pub fn parameter(&self, component: &str, vhost: &str, name: &str) -> Option<&Arc<Parameter>> {
        self.vhosts.get(vhost)?.parameters.get(&(component.into(), name.into()))
    }

    /// All runtime parameters of a vhost.
    pub fn parameters(&self, vhost: &str) -> impl Iterator<Item = &Arc<Parameter>> {
        let parameters = self.vhosts.get(vhost).map(|vhost| &vhost.parameters);
        parameters.into_iter().flatten().map(|(_, parameter)| parameter)
    }

    /// A node of the cluster.
    pub fn node(&self, id: NodeId) -> Option<&Arc<Node>> {
        self.nodes.get(&id.0)
    }

    /// Whether a node was forgotten. None comes back: one whose data directory is empty is another one.
    pub fn was_forgotten(&self, id: NodeId) -> bool {
        self.forgotten.contains(&id.0)
    }

    /// The present incarnation of a node.
    pub fn node_named(&self, name: &str) -> Option<&Arc<Node>> {
        self.nodes().find(|node| &*node.name == name && !node.lost)
    }

    /// All nodes of the cluster, lost ones too. None if the node is on its own.
    pub fn nodes(&self) -> impl Iterator<Item = &Arc<Node>> {
        self.nodes.values()
    }

    /// A named journal.
    pub fn journal(&self, name: &str) -> Option<&Arc<Journal>> {
        self.journals.get(name)
    }

    /// A named journal by its uid.
    pub fn journal_by_uid(&self, uid: &str) -> Option<&Arc<Journal>> {
        self.journals().find(|journal| &*journal.uid == uid)
    }

    /// All named journals.
    pub fn journals(&self) -> impl Iterator<Item = &Arc<Journal>> {
        self.journals.values()
    }

    /// The queues of a named journal.
    pub fn queues_of_journal(&self, name: &str) -> impl Iterator<Item = &Arc<Queue>> {
        self.all_queues().filter(move |queue| queue.journal.as_deref() == Some(name))
    }

    /// A lock, held or not; `None` if nobody ever asked for it.
    pub fn lock(&self, id: &str) -> Option<&Arc<Lock>> {
        self.locks.get(id)
    }

    /// All locks.
    pub fn locks(&self) -> impl Iterator<Item = &Arc<Lock>> {
        self.locks.values()
    }

    /// All registers, also those of another data set, which reads do not find.
    pub fn registers(&self) -> impl Iterator<Item = &Arc<Register>> {
        self.registers.values()
    }

    /// A parameter of the cluster.
    pub fn global_parameter(&self, name: &str) -> Option<&Arc<GlobalParameter>> {
        self.global_parameters.get(name)
    }

    /// All parameters of the cluster.
    pub fn global_parameters(&self) -> impl Iterator<Item = &Arc<GlobalParameter>> {
        self.global_parameters.values()
    }
}

impl VhostState {
    pub(crate) fn new(vhost: Arc<Vhost>) -> Self {
        Self {
            vhost,
            exchanges: OrdMap::new(),
            queues: OrdMap::new(),
            by_source: OrdSet::new(),
            by_destination: OrdSet::new(),
            permissions: OrdMap::new(),
            topic_permissions: OrdMap::new(),
            policies: OrdMap::new(),
            operator_policies: OrdMap::new(),
            limits: OrdMap::new(),
            parameters: OrdMap::new(),
        }
    }

    /// The bindings that lead away from an exchange.
    pub(crate) fn from(&self, source: &str) -> impl Iterator<Item = &Arc<Binding>> {
        let source = Name::from(source);
        self.by_source
            .range(BySource::first(&self.vhost.name, &source)..)
            .map(|link| &link.0)
            .take_while(move |binding| binding.source == source)
    }

    /// The bindings that lead to a queue or exchange.
    pub(crate) fn to(&self, destination: &Destination) -> impl Iterator<Item = &Arc<Binding>> {
        let destination = destination.clone();
        self.by_destination
            .range(ByDestination::first(&self.vhost.name, &destination)..)
            .map(|link| &link.0)
            .take_while(move |binding| binding.destination == destination)
    }
}
