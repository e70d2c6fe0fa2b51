//! Runtime parameters and parameters of the cluster.

use std::sync::Arc;

use serde_json::Value;

use crate::machine::parts::not_found;
use crate::objects::Name;
use crate::objects::parameter::{GlobalParameter, Parameter};
use crate::outcome::Outcome;
use crate::refusal::Refusal;
use crate::state::State;
use crate::store::record::{self, Record};

/// How deep the values of parameters may be nested.
const DEPTH_MAX: usize = 64;

impl State {
    pub(super) fn put_parameter(
        &mut self,
        parameter: Parameter,
        out: &mut Outcome,
    ) -> Result<(), Refusal> {
        self.vhost_to_change(&parameter.vhost)?;
        check_depth(&parameter.value)?;
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

    pub(super) fn put_global_parameter(
        &mut self,
        parameter: GlobalParameter,
        out: &mut Outcome,
    ) -> Result<(), Refusal> {
        check_depth(&parameter.value)?;
        let parameter = Arc::new(parameter);
        out.records.push(record::put(&Record::GlobalParameter(&parameter)));
        let name = Arc::clone(&parameter.name);
        out.created = self.global_parameters.insert(name, parameter).is_none();
        Ok(())
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

/// What is accepted must be readable again, and who reads JSON goes down 127 levels only.
fn check_depth(value: &Value) -> Result<(), Refusal> {
    fn fits(value: &Value, levels: usize) -> bool {
        let Some(below) = levels.checked_sub(1) else { return false };
        match value {
            Value::Array(values) => values.iter().all(|value| fits(value, below)),
            Value::Object(fields) => fields.values().all(|value| fits(value, below)),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => true,
        }
    }
    if fits(value, DEPTH_MAX) {
        return Ok(());
    }
    Err(Refusal::invalid(format!("the value is nested deeper than {DEPTH_MAX}")))
}
