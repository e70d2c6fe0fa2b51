//! An exchange in the routing table.

use std::sync::Arc;

use crate::objects::Name;
use crate::objects::binding::Binding;
use crate::objects::exchange::{Exchange, ExchangeKind};
use crate::routes::hop::Hop;
use crate::routes::table::Table;

/// An exchange as publishers need to know it.
#[derive(Debug, Clone)]
pub struct ExchangeRoutes {
    /// Its name.
    pub name: Name,
    /// How it routes.
    pub kind: ExchangeKind,
    /// Survives a restart.
    pub durable: bool,
    /// Clients cannot publish to it.
    pub internal: bool,
    /// Where a message goes that no binding matches, by argument or policy.
    pub alternate: Option<Name>,
    pub(super) table: Table,
}

impl ExchangeRoutes {
    pub(super) fn new(exchange: &Exchange, alternate: Option<Name>) -> Self {
        Self {
            name: Arc::clone(&exchange.name),
            kind: exchange.kind,
            durable: exchange.durable,
            internal: exchange.internal,
            alternate,
            table: Table::new(exchange),
        }
    }

    pub(super) fn bind(&mut self, hop: Hop, binding: &Binding) {
        self.table.bind(hop, binding);
    }

    pub(super) fn unbind(&mut self, hop: &Hop, binding: &Binding) {
        self.table.unbind(hop, binding);
    }
}
