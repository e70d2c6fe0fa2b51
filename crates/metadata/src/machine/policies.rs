//! Policies and operator policies, and whom they touch.

use std::sync::Arc;

use crate::checks::policy as check;
use crate::machine::parts::{no_vhost, not_found};
use crate::objects::Name;
use crate::objects::policy::Policy;
use crate::outcome::Outcome;
use crate::refusal::Refusal;
use crate::state::{CompiledPolicy, State};
use crate::store::record::{self, Record};

impl State {
    pub(super) fn put_policy(
        &mut self,
        policy: Policy,
        operator: bool,
        out: &mut Outcome,
    ) -> Result<(), Refusal> {
        if !self.vhosts.contains_key(&policy.vhost) {
            return Err(no_vhost(&policy.vhost));
        }
        let pattern = check::compile(&policy, operator)?;
        let vhost = Arc::clone(&policy.vhost);
        let new = Arc::new(CompiledPolicy { policy, pattern });
        out.records.push(record::put(&Record::Policy(&new.policy, operator)));
        let old = self.insert_policy(Arc::clone(&new), operator);
        out.created = old.is_none();
        self.touch(&vhost, &[Some(new), old], out);
        Ok(())
    }

    /// Returns the one of that name before.
    pub(crate) fn insert_policy(
        &mut self,
        policy: Arc<CompiledPolicy>,
        operator: bool,
    ) -> Option<Arc<CompiledPolicy>> {
        let vhost = self.vhost_mut(&policy.policy.vhost).expect("the vhost was checked");
        let policies = if operator { &mut vhost.operator_policies } else { &mut vhost.policies };
        policies.insert(Arc::clone(&policy.policy.name), policy)
    }

    pub(super) fn delete_policy(
        &mut self,
        vhost: &Name,
        name: &Name,
        operator: bool,
        out: &mut Outcome,
    ) -> Result<(), Refusal> {
        let inside = self.vhost_to_change(vhost)?;
        let policies = if operator { &mut inside.operator_policies } else { &mut inside.policies };
        let old = policies.remove(name).ok_or_else(|| not_found("policy", name))?;
        out.deleted = true;
        out.records.push(record::delete(&Record::Policy(&old.policy, operator)));
        self.touch(vhost, &[Some(old)], out);
        Ok(())
    }

    /// Lists the queues that one of the policies matches, and renews alternate exchanges.
    fn touch(&mut self, vhost: &str, changed: &[Option<Arc<CompiledPolicy>>], out: &mut Outcome) {
        let Some(inside) = self.vhosts.get(vhost) else { return };
        for queue in inside.queues.values() {
            let touched = changed.iter().flatten().any(|policy| policy.applies_to_queue(queue));
            if touched {
                out.queues_changed.push(queue.id);
            }
        }
        if !changed.iter().flatten().any(|policy| policy.policy.apply_to.covers_exchanges()) {
            return;
        }
        let alternates: Vec<_> = inside
            .exchanges
            .values()
            .map(|exchange| (Arc::clone(&exchange.name), inside.alternate_exchange(exchange)))
            .collect();
        let routes = self.routes.vhost_mut(vhost);
        for (exchange, alternate) in alternates {
            out.routes_changed |= routes.set_alternate(&exchange, alternate);
        }
    }
}
