//! Declaring and deleting exchanges.

use std::sync::Arc;

use crate::command::DeclareExchange;
use crate::objects::exchange::{Exchange, ExchangeKind};
use crate::outcome::Outcome;
use crate::refusal::Refusal;
use crate::state::State;
use crate::store::record::{self, Record};

impl State {
    pub(super) fn declare_exchange(
        &mut self,
        declare: DeclareExchange,
        out: &mut Outcome,
    ) -> Result<(), Refusal> {
        if self.check_declare_exchange(&declare, None)?.is_some() {
            return Ok(());
        }
        let exchange = Arc::new(Exchange {
            vhost: declare.vhost,
            name: declare.name,
            kind: ExchangeKind::parse(&declare.kind).expect("the kind was checked"),
            durable: declare.durable,
            auto_delete: declare.auto_delete,
            internal: declare.internal,
            arguments: declare.arguments,
            user_who_performed_action: declare.user,
        });
        out.created = true;
        out.routes_changed = true;
        out.records.push(record::put(&Record::Exchange(&exchange)));
        self.insert_exchange(&exchange);
        out.exchanges_created.push(exchange);
        Ok(())
    }

    pub(super) fn delete_exchange(
        &mut self,
        vhost: &str,
        name: &str,
        if_unused: bool,
        out: &mut Outcome,
    ) -> Result<(), Refusal> {
        if let Some(exchange) = self.check_delete_exchange(vhost, name, if_unused, None)? {
            self.drop_exchange(&exchange, out);
            out.deleted = true;
        }
        Ok(())
    }
}
