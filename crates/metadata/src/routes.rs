//! The routing table: which queues a message goes to.
//!
//! ```text
//!  Routes ─► VhostRoutes ─┬─► queues     name → QueueRoute        (the default exchange)
//!                         └─► exchanges  name → ExchangeRoutes
//!                                                └─ table: direct │ fanout │ topic │ headers │ …
//!                                                            └─► hops: queue ids, exchange names
//! ```
//!
//! Immutable for readers: `Routes` is cloned in constant time, and the machine's next change copies
//! only the path to what it changes. Readers need no lock and see one moment of the topology.

mod direct;
mod headers;
mod hop;
mod index;
mod lottery;
mod rendezvous;
mod table;
mod topic;
mod walk;

pub mod content;
pub mod exchange;
pub mod targets;

use std::sync::Arc;

use imbl::OrdMap;
use model::id::QueueId;

use crate::objects::Name;
use crate::objects::binding::{Binding, Destination};
use crate::objects::exchange::Exchange;
use crate::objects::queue::Queue;
use crate::routes::content::Content;
use crate::routes::exchange::ExchangeRoutes;
use crate::routes::hop::Hop;
use crate::routes::index::Index;
use crate::routes::targets::{RouteSet, Target};

/// The routing table of the node.
#[derive(Debug, Clone, Default)]
pub struct Routes {
    vhosts: OrdMap<Name, Arc<VhostRoutes>>,
}

/// The routing table of one vhost.
#[derive(Debug, Clone, Default)]
pub struct VhostRoutes {
    queues: Index<QueueRoute>,
    exchanges: Index<Arc<ExchangeRoutes>>,
}

/// A queue as publishers need to know it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueueRoute {
    /// The queue.
    pub id: QueueId,
    /// Its persistent messages survive a restart.
    pub durable: bool,
    /// Its name.
    pub name: Name,
}

/// How a message was routed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Routed {
    /// At least one queue takes it.
    pub matched: bool,
    /// An alternate exchange had a part in it.
    pub via_alternate: bool,
    /// Only the keys decided: the answer is the same for every message with these keys as long as
    /// the snapshot is the same.
    pub by_keys_alone: bool,
}

impl Routes {
    /// The table of a vhost.
    pub fn vhost(&self, name: &str) -> Option<&Arc<VhostRoutes>> {
        self.vhosts.get(name)
    }

    pub(crate) fn add_vhost(&mut self, name: Name) {
        self.vhosts.entry(name).or_default();
    }

    pub(crate) fn remove_vhost(&mut self, name: &str) {
        self.vhosts.remove(name);
    }

    /// # Panics
    /// If there is no such vhost: the machine adds it before anything in it.
    pub(crate) fn vhost_mut(&mut self, name: &str) -> &mut VhostRoutes {
        let vhost = self.vhosts.get_mut(name).expect("a vhost has routes from its birth");
        Arc::make_mut(vhost)
    }
}

impl VhostRoutes {
    /// A queue by its name, which is its key on the default exchange.
    pub fn queue(&self, name: &str) -> Option<&QueueRoute> {
        self.queues.get(name)
    }

    /// An exchange by its name; the empty one is the default exchange.
    pub fn exchange(&self, name: &str) -> Option<&Arc<ExchangeRoutes>> {
        self.exchanges.get(name)
    }

    /// Adds the queues that a message with this key goes to, each once; `out` is not cleared
    /// first.
    ///
    /// Allocates nothing for direct exchanges and the default exchange, once `out` is large
    /// enough.
    pub fn route(
        &self,
        exchange: &ExchangeRoutes,
        routing_key: &str,
        content: &dyn Content,
        out: &mut RouteSet,
    ) -> Routed {
        self.route_keys(exchange, &[routing_key], content, out)
    }

    /// The same for a message with several keys (headers `CC` and `BCC`): it goes to every queue
    /// that one of them leads to, and to the alternate exchange only if none matches.
    pub fn route_keys(
        &self,
        exchange: &ExchangeRoutes,
        routing_keys: &[&str],
        content: &dyn Content,
        out: &mut RouteSet,
    ) -> Routed {
        walk::walk(self, exchange, routing_keys, content, out)
    }

    pub(crate) fn add_queue(&mut self, queue: &Queue) {
        let route =
            QueueRoute { id: queue.id, durable: queue.durable, name: Arc::clone(&queue.name) };
        self.queues.insert(Arc::clone(&queue.name), route);
    }

    pub(crate) fn remove_queue(&mut self, name: &str) {
        self.queues.remove(name);
    }

    pub(crate) fn add_exchange(&mut self, exchange: &Exchange, alternate: Option<Name>) {
        let routes = Arc::new(ExchangeRoutes::new(exchange, alternate));
        self.exchanges.insert(Arc::clone(&exchange.name), routes);
    }

    pub(crate) fn remove_exchange(&mut self, name: &str) {
        self.exchanges.remove(name);
    }

    /// Returns whether it was another one before.
    pub(crate) fn set_alternate(&mut self, exchange: &str, alternate: Option<Name>) -> bool {
        let Some(routes) = self.exchanges.get_mut(exchange) else { return false };
        if routes.alternate == alternate {
            return false;
        }
        Arc::make_mut(routes).alternate = alternate;
        true
    }

    /// # Panics
    /// If one of the ends is missing: the machine has checked that.
    pub(crate) fn bind(&mut self, binding: &Binding) {
        let hop = self.hop(&binding.destination);
        self.source_mut(binding).bind(hop, binding);
    }

    /// # Panics
    /// If one of the ends is missing: the machine removes bindings before their ends.
    pub(crate) fn unbind(&mut self, binding: &Binding) {
        let hop = self.hop(&binding.destination);
        self.source_mut(binding).unbind(&hop, binding);
    }

    fn source_mut(&mut self, binding: &Binding) -> &mut ExchangeRoutes {
        let source = self.exchanges.get_mut(&binding.source).expect("the source exists");
        Arc::make_mut(source)
    }

    fn hop(&self, destination: &Destination) -> Hop {
        match destination {
            Destination::Queue(name) => {
                let queue = self.queues.get(name).expect("the destination exists");
                Hop::Queue(Target { id: queue.id, durable: queue.durable })
            }
            Destination::Exchange(name) => Hop::Exchange(Arc::clone(name)),
        }
    }
}

/// The weight that a binding key of a consistent-hash exchange stands for; `None` if it is not a
/// positive integer.
pub(crate) fn weight(routing_key: &str) -> Option<u32> {
    rendezvous::weight(routing_key)
}

#[cfg(test)]
mod tests;
