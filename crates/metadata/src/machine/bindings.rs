//! Binding and unbinding.

use std::sync::Arc;

use crate::objects::binding::Binding;
use crate::outcome::Outcome;
use crate::refusal::Refusal;
use crate::state::State;
use crate::store::record::{self, Record};

impl State {
    pub(super) fn bind(&mut self, binding: Binding, out: &mut Outcome) -> Result<(), Refusal> {
        if self.check_bind(&binding, None, None)? {
            return Ok(());
        }
        let binding = Arc::new(binding);
        out.created = true;
        out.routes_changed = true;
        out.records.push(record::put(&Record::Binding(&binding)));
        self.insert_binding(Arc::clone(&binding));
        out.bindings_created.push(binding);
        Ok(())
    }

    pub(super) fn unbind(&mut self, binding: Binding, out: &mut Outcome) {
        if self.has_binding(&binding) {
            self.remove_bindings(vec![Arc::new(binding)], out);
            out.deleted = true;
        }
    }
}
