//! The smallest changes. Each moves the indexes, the routes and the records at once.

use std::sync::Arc;

use crate::objects::Name;
use crate::objects::binding::{Binding, Destination};
use crate::objects::exchange::Exchange;
use crate::objects::queue::Queue;
use crate::outcome::Outcome;
use crate::refusal::Refusal;
use crate::state::{ByDestination, BySource, State, VhostState};
use crate::store::record::{self, Record};

impl State {
    /// The vhost to change. Copies its top if a snapshot is held.
    pub(super) fn vhost_mut(&mut self, name: &str) -> Option<&mut VhostState> {
        self.vhosts.get_mut(name).map(Arc::make_mut)
    }

    /// The same, refused with what the HTTP API says of a vhost that is not there.
    pub(super) fn vhost_to_change(&mut self, name: &str) -> Result<&mut VhostState, Refusal> {
        self.vhost_mut(name).ok_or_else(|| no_vhost(name))
    }

    /// # Panics
    /// If the vhost is missing.
    pub(crate) fn insert_exchange(&mut self, exchange: &Arc<Exchange>) {
        let vhost = self.vhost_mut(&exchange.vhost).expect("the vhost was checked");
        let alternate = vhost.alternate_exchange(exchange);
        vhost.exchanges.insert(Arc::clone(&exchange.name), Arc::clone(exchange));
        self.routes.vhost_mut(&exchange.vhost).add_exchange(exchange, alternate);
    }

    /// # Panics
    /// If the vhost is missing.
    pub(crate) fn insert_queue(&mut self, queue: Arc<Queue>) {
        self.last_queue = self.last_queue.max(queue.id.0);
        if let Some(owner) = queue.exclusive_owner {
            self.exclusive.insert((owner.0, queue.id.0));
        }
        self.queues_by_id.insert(queue.id.0, Arc::clone(&queue));
        self.routes.vhost_mut(&queue.vhost).add_queue(&queue);
        let vhost = self.vhost_mut(&queue.vhost).expect("the vhost was checked");
        vhost.queues.insert(Arc::clone(&queue.name), queue);
    }

    /// Puts a queue in the place of what it was before. Its routes stay.
    ///
    /// # Panics
    /// If the vhost is missing.
    pub(super) fn replace_queue(&mut self, queue: Arc<Queue>) {
        self.queues_by_id.insert(queue.id.0, Arc::clone(&queue));
        let vhost = self.vhost_mut(&queue.vhost).expect("a queue has a vhost");
        vhost.queues.insert(Arc::clone(&queue.name), queue);
    }

    /// # Panics
    /// If an end of the binding is missing.
    pub(crate) fn insert_binding(&mut self, binding: Arc<Binding>) {
        self.routes.vhost_mut(&binding.vhost).bind(&binding);
        let vhost = self.vhost_mut(&binding.vhost).expect("the vhost was checked");
        vhost.by_source.insert(BySource(Arc::clone(&binding)));
        vhost.by_destination.insert(ByDestination(binding));
    }

    /// Removes bindings, the auto-delete exchanges for which they were the last, the bindings to
    /// those, and so on. A list instead of recursion: a chain of exchanges can be long.
    pub(super) fn remove_bindings(&mut self, mut doomed: Vec<Arc<Binding>>, out: &mut Outcome) {
        while let Some(binding) = doomed.pop() {
            let Some(vhost) = self.vhost_mut(&binding.vhost) else { continue };
            if vhost.by_source.remove(&BySource(Arc::clone(&binding))).is_none() {
                continue;
            }
            vhost.by_destination.remove(&ByDestination(Arc::clone(&binding)));
            let last = vhost.from(&binding.source).next().is_none();
            let source = vhost.exchanges.get(&binding.source).map(Arc::clone);
            self.routes.vhost_mut(&binding.vhost).unbind(&binding);
            out.routes_changed = true;
            out.records.push(record::delete(&Record::Binding(&binding)));
            if let Some(source) = source.filter(|source| last && source.auto_delete) {
                doomed.extend(self.remove_exchange(&source, out));
            }
            out.bindings_deleted.push(binding);
        }
    }

    /// Removes an exchange without outgoing bindings; returns the bindings that lead to it.
    fn remove_exchange(
        &mut self,
        exchange: &Arc<Exchange>,
        out: &mut Outcome,
    ) -> Vec<Arc<Binding>> {
        let vhost = self.vhost_mut(&exchange.vhost).expect("an exchange has a vhost");
        vhost.exchanges.remove(&exchange.name);
        let incoming =
            vhost.to(&Destination::Exchange(Arc::clone(&exchange.name))).map(Arc::clone).collect();
        self.routes.vhost_mut(&exchange.vhost).remove_exchange(&exchange.name);
        out.routes_changed = true;
        out.records.push(record::delete(&Record::Exchange(exchange)));
        out.exchanges_deleted.push(Arc::clone(exchange));
        incoming
    }

    /// Removes an exchange with all bindings from and to it.
    pub(super) fn drop_exchange(&mut self, exchange: &Arc<Exchange>, out: &mut Outcome) {
        let outgoing =
            self.bindings_from(&exchange.vhost, &exchange.name).map(Arc::clone).collect();
        self.remove_bindings(outgoing, out);
        // An auto-delete exchange went with the last of them.
        if self.exchange(&exchange.vhost, &exchange.name).is_some() {
            let incoming = self.remove_exchange(exchange, out);
            self.remove_bindings(incoming, out);
        }
    }

    /// Removes a queue with all bindings to it.
    pub(super) fn drop_queue(&mut self, queue: &Arc<Queue>, out: &mut Outcome) {
        let incoming = self
            .bindings_to(&queue.vhost, &Destination::Queue(Arc::clone(&queue.name)))
            .map(Arc::clone)
            .collect();
        self.remove_bindings(incoming, out);
        if let Some(owner) = queue.exclusive_owner {
            self.exclusive.remove(&(owner.0, queue.id.0));
        }
        self.queues_by_id.remove(&queue.id.0);
        self.routes.vhost_mut(&queue.vhost).remove_queue(&queue.name);
        let vhost = self.vhost_mut(&queue.vhost).expect("a queue has a vhost");
        vhost.queues.remove(&queue.name);
        out.routes_changed = true;
        out.records.push(record::delete(&Record::Queue(queue)));
        out.queues_deleted.push(Arc::clone(queue));
    }
}

/// What the HTTP API says of a vhost that is not there.
pub(super) fn no_vhost(name: &str) -> Refusal {
    Refusal::not_found(format!("vhost '{name}' not found"))
}

/// What the HTTP API says of an object that is not there.
pub(super) fn not_found(what: &str, name: &Name) -> Refusal {
    Refusal::not_found(format!("no {what} '{name}'"))
}
