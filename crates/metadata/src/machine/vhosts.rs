//! Vhosts and their limits.

use std::sync::Arc;

use crate::boot;
use crate::machine::parts::{no_vhost, not_found};
use crate::objects::Name;
use crate::objects::limit::VhostLimit;
use crate::objects::vhost::Vhost;
use crate::outcome::Outcome;
use crate::refusal::Refusal;
use crate::state::{State, VhostState};
use crate::store::record::{self, Record};

impl State {
    pub(super) fn put_vhost(&mut self, mut vhost: Vhost, out: &mut Outcome) -> Result<(), Refusal> {
        vhost.default_queue_type = match vhost.default_queue_type.as_deref() {
            Some("") => {
                return Err(Refusal::invalid("default_queue_type must not be an empty string"));
            }
            Some("classic" | "quorum" | "stream") => vhost.default_queue_type,
            Some(other) => {
                return Err(Refusal::invalid(format!("{other} is not a valid queue type")));
            }
            None => match self.vhost(&vhost.name) {
                Some(existing) => existing.default_queue_type.clone(),
                None => Some("classic".to_owned()),
            },
        };
        let vhost = Arc::new(vhost);
        out.records.push(record::put(&Record::Vhost(&vhost)));
        if let Some(existing) = self.vhost_mut(&vhost.name) {
            existing.vhost = vhost;
            return Ok(());
        }
        out.created = true;
        out.routes_changed = true;
        self.insert_vhost(Arc::clone(&vhost));
        for exchange in boot::predeclared_exchanges(&vhost.name) {
            let exchange = Arc::new(exchange);
            out.records.push(record::put(&Record::Exchange(&exchange)));
            self.insert_exchange(&exchange);
            out.exchanges_created.push(exchange);
        }
        Ok(())
    }

    pub(crate) fn insert_vhost(&mut self, vhost: Arc<Vhost>) {
        self.routes.add_vhost(Arc::clone(&vhost.name));
        let name = Arc::clone(&vhost.name);
        self.vhosts.insert(name, Arc::new(VhostState::new(vhost)));
    }

    pub(super) fn delete_vhost(&mut self, name: &Name, out: &mut Outcome) -> Result<(), Refusal> {
        let vhost = self.vhosts.get(name).ok_or_else(|| no_vhost(name))?;
        if vhost.vhost.protected {
            return Err(Refusal::protected(format!(
                "Cannot delete vhost '{name}': it is protected from deletion"
            )));
        }
        let vhost = Arc::clone(vhost);
        self.vhosts.remove(name);
        self.routes.remove_vhost(name);
        for queue in vhost.queues.values() {
            self.queues_by_id.remove(&queue.id.0);
            if let Some(owner) = queue.exclusive_owner {
                self.exclusive.remove(&(owner.0, queue.id.0));
            }
            out.queues_deleted.push(Arc::clone(queue));
        }
        out.exchanges_deleted.extend(vhost.exchanges.values().map(Arc::clone));
        out.bindings_deleted.extend(vhost.by_source.iter().map(|link| Arc::clone(&link.0)));
        record::all_of_vhost(&vhost, &mut |record| out.records.push(record::delete(&record)));
        out.deleted = true;
        out.routes_changed = true;
        out.vhost_deleted = Some(Arc::clone(name));
        Ok(())
    }

    pub(super) fn set_tracing(
        &mut self,
        name: &str,
        on: bool,
        out: &mut Outcome,
    ) -> Result<(), Refusal> {
        let vhost = self.vhost_to_change(name)?;
        let changed = Arc::new(Vhost { tracing: on, ..Vhost::clone(&vhost.vhost) });
        out.records.push(record::put(&Record::Vhost(&changed)));
        vhost.vhost = changed;
        Ok(())
    }

    pub(super) fn put_vhost_limit(
        &mut self,
        name: &Name,
        limit: VhostLimit,
        value: i64,
        out: &mut Outcome,
    ) -> Result<(), Refusal> {
        let vhost = self.vhost_to_change(name)?;
        out.created = vhost.limits.insert(limit, value).is_none();
        out.records.push(record::put(&Record::VhostLimit(name, limit, value)));
        Ok(())
    }

    pub(super) fn delete_vhost_limit(
        &mut self,
        name: &Name,
        limit: Option<VhostLimit>,
        out: &mut Outcome,
    ) -> Result<(), Refusal> {
        let vhost = self.vhost_to_change(name)?;
        let doomed: Vec<_> = match limit {
            Some(limit) => vec![limit],
            None => vhost.limits.keys().copied().collect(),
        };
        for limit in doomed {
            if let Some(value) = vhost.limits.remove(&limit) {
                out.deleted = true;
                out.records.push(record::delete(&Record::VhostLimit(name, limit, value)));
            }
        }
        if limit.is_some() && !out.deleted {
            return Err(not_found("limit of vhost", name));
        }
        Ok(())
    }
}
