//! Declaring and deleting exchanges.

use std::sync::Arc;

use amq_protocol_types::AMQPValue;

use crate::access::{Access, Right};
use crate::arguments;
use crate::checks::{check_not_default_exchange, check_reserved, equivalence};
use crate::command::DeclareExchange;
use crate::objects::exchange::{Exchange, ExchangeKind};
use crate::quoted;
use crate::refusal::Refusal;
use crate::state::State;

impl State {
    /// What `exchange.declare` is answered with: the exchange if it exists and is equivalent, so
    /// that no command is needed; `None` if [`crate::command::Command::DeclareExchange`] would make
    /// it. Without `access` no permission is asked for.
    ///
    /// # Errors
    /// 403, 406.
    pub fn check_declare_exchange(
        &self,
        declare: &DeclareExchange,
        access: Option<&Access>,
    ) -> Result<Option<Arc<Exchange>>, Refusal> {
        self.check_inside(&declare.vhost)?;
        let kind = ExchangeKind::parse(&declare.kind).ok_or_else(|| {
            Refusal::precondition(format!("unknown exchange type '{}'", declare.kind))
        })?;
        check_not_default_exchange(&declare.name)?;
        if let Some(access) = access {
            access.check_exchange(Right::Configure, &declare.name)?;
        }
        if let Some(existing) = self.exchange(&declare.vhost, &declare.name) {
            check_equivalent(existing, declare, kind)?;
            return Ok(Some(Arc::clone(existing)));
        }
        check_reserved("exchange", &declare.name)?;
        check_new(declare, kind, access)?;
        Ok(None)
    }

    /// What a passive `exchange.declare` is answered with; any of the three rights is enough.
    ///
    /// # Errors
    /// 403, 404.
    pub fn check_passive_exchange(
        &self,
        vhost: &str,
        name: &str,
        access: Option<&Access>,
    ) -> Result<Arc<Exchange>, Refusal> {
        check_not_default_exchange(name)?;
        if let Some(access) = access {
            access.check_exchange_any(name)?;
        }
        self.exchange(vhost, name)
            .map(Arc::clone)
            .ok_or_else(|| Refusal::not_found(format!("no {}", quoted::exchange(vhost, name))))
    }

    /// What `exchange.delete` is answered with: `None` if there is nothing to delete, which is
    /// fine.
    ///
    /// # Errors
    /// 403, 406 if it is in use.
    pub fn check_delete_exchange(
        &self,
        vhost: &str,
        name: &str,
        if_unused: bool,
        access: Option<&Access>,
    ) -> Result<Option<Arc<Exchange>>, Refusal> {
        check_not_default_exchange(name)?;
        if name.starts_with("amq.") {
            return Err(Refusal::access_refused(format!(
                "deletion of system {} not allowed",
                quoted::exchange(vhost, name)
            )));
        }
        if let Some(access) = access {
            access.check_exchange(Right::Configure, name)?;
        }
        let Some(existing) = self.exchange(vhost, name) else { return Ok(None) };
        if if_unused && self.bindings_from(vhost, name).next().is_some() {
            return Err(Refusal::in_use(format!("{} in use", quoted::exchange(vhost, name))));
        }
        Ok(Some(Arc::clone(existing)))
    }
}

fn check_equivalent(
    existing: &Exchange,
    declare: &DeclareExchange,
    kind: ExchangeKind,
) -> Result<(), Refusal> {
    let object = quoted::exchange(&existing.vhost, &existing.name);
    equivalence::check_property("type", &object, &existing.kind, &kind)?;
    equivalence::check_property("durable", &object, &existing.durable, &declare.durable)?;
    equivalence::check_property(
        "auto_delete",
        &object,
        &existing.auto_delete,
        &declare.auto_delete,
    )?;
    equivalence::check_property("internal", &object, &existing.internal, &declare.internal)?;
    equivalence::check_argument(
        "alternate-exchange",
        &object,
        &existing.arguments,
        &declare.arguments,
    )
}

fn check_new(
    declare: &DeclareExchange,
    kind: ExchangeKind,
    access: Option<&Access>,
) -> Result<(), Refusal> {
    if let Some(alternate) = declare.arguments.inner().get("alternate-exchange") {
        let Some(name) = arguments::string(&declare.arguments, "alternate-exchange") else {
            return Err(Refusal::precondition(format!(
                "invalid type '{}' for arg 'alternate-exchange' in {}",
                arguments::type_name(alternate),
                quoted::exchange(&declare.vhost, &declare.name)
            )));
        };
        if let Some(access) = access {
            access.check_exchange(Right::Read, &declare.name)?;
            access.check_exchange(Right::Write, &name)?;
        }
    }
    if kind == ExchangeKind::ConsistentHash {
        check_hash_subject(declare)?;
    }
    Ok(())
}

/// A consistent-hash exchange hashes the routing key, a header, or one of three properties.
fn check_hash_subject(declare: &DeclareExchange) -> Result<(), Refusal> {
    let header = declare.arguments.inner().get("hash-header");
    let property = declare.arguments.inner().get("hash-property");
    if header.is_some() && property.is_some() {
        return Err(Refusal::precondition("hash-header and hash-property are mutually exclusive"));
    }
    if let Some(value) = header
        && !matches!(value, AMQPValue::LongString(_) | AMQPValue::ShortString(_))
    {
        return Err(Refusal::precondition(format!(
            "invalid type '{}' for arg 'hash-header' in {}",
            arguments::type_name(value),
            quoted::exchange(&declare.vhost, &declare.name)
        )));
    }
    if let Some(value) = property {
        let name = arguments::shown(value);
        if !matches!(name.as_str(), "message_id" | "correlation_id" | "timestamp") {
            return Err(Refusal::precondition(format!("Unsupported property: {name}")));
        }
    }
    Ok(())
}
