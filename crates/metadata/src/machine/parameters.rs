//! Runtime parameters and parameters of the cluster.

use std::sync::Arc;

use crate::machine::parts::not_found;
use crate::objects::Name;
use crate::objects::parameter::{GlobalParameter, Parameter};
use crate::outcome::Outcome;
use crate::refusal::Refusal;
use crate::state::State;
use crate::store::record::{self, Record};

impl State {
    pub(super) fn put_parameter(
        &mut self,
        parameter: Parameter,
        out: &mut Outcome,
    ) -> Result<(), Refusal> {
        self.vhost_to_change(&parameter.vhost)?;
        let parameter = Arc::new(parameter);
        out.records.push(record::put(&Record::Parameter(&parameter)));
        out.created = self.insert_parameter(parameter);
        Ok(())
    }

    /// Returns whether it is new.
    pub(crate) fn insert_parameter(&mut self, parameter: Arc<Parameter>) -> bool {
        let key = (Arc::clone(&parameter.component), Arc::clone(&parameter.name));
        let vhost = self.vhost_mut(&parameter.vhost).expect("the vhost was checked");
        vhost.parameters.insert(key, parameter).is_none()
    }

    pub(super) fn delete_parameter(
        &mut self,
        component: &Name,
        vhost: &Name,
        name: &Name,
        out: &mut Outcome,
    ) -> Result<(), Refusal> {
        let inside = self.vhost_to_change(vhost)?;
        let key = (Arc::clone(component), Arc::clone(name));
        let old = inside.parameters.remove(&key).ok_or_else(|| not_found("parameter", name))?;
        out.deleted = true;
        out.records.push(record::delete(&Record::Parameter(&old)));
        Ok(())
    }

    pub(super) fn put_global_parameter(&mut self, parameter: GlobalParameter, out: &mut Outcome) {
        let parameter = Arc::new(parameter);
        out.records.push(record::put(&Record::GlobalParameter(&parameter)));
        let name = Arc::clone(&parameter.name);
        out.created = self.global_parameters.insert(name, parameter).is_none();
    }

    pub(super) fn delete_global_parameter(
        &mut self,
        name: &Name,
        out: &mut Outcome,
    ) -> Result<(), Refusal> {
        let old = self
            .global_parameters
            .remove(name)
            .ok_or_else(|| not_found("global parameter", name))?;
        out.deleted = true;
        out.records.push(record::delete(&Record::GlobalParameter(&old)));
        Ok(())
    }
}
