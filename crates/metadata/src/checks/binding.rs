//! Binding and unbinding.

use amq_protocol_types::AMQPValue;
use model::id::ConnectionId;

use crate::access::{Access, Right};
use crate::arguments;
use crate::checks::check_not_default_exchange;
use crate::checks::queue::locked;
use crate::objects::binding::{Binding, Destination};
use crate::objects::exchange::{Exchange, ExchangeKind};
use crate::quoted;
use crate::refusal::Refusal;
use crate::routes;
use crate::state::State;

impl State {
    /// What `queue.bind` and `exchange.bind` are answered with: whether the binding exists already,
    /// so that no command is needed.
    ///
    /// # Errors
    /// 403, 404 for one of the ends, 405, 406.
    pub fn check_bind(
        &self,
        binding: &Binding,
        connection: Option<ConnectionId>,
        access: Option<&Access>,
    ) -> Result<bool, Refusal> {
        self.check_inside(&binding.vhost)?;
        self.check_binding_rights(binding, access)?;
        let Some(source) = self.exchange(&binding.vhost, &binding.source) else {
            return Err(missing_exchange(binding, &binding.source));
        };
        match &binding.destination {
            Destination::Queue(name) => {
                let Some(queue) = self.queue(&binding.vhost, name) else {
                    return Err(Refusal::not_found(format!(
                        "no {}",
                        quoted::queue(&binding.vhost, name)
                    )));
                };
                // Without a client there is nobody to keep away.
                if access.is_some()
                    && queue.exclusive_owner.is_some()
                    && queue.exclusive_owner != connection
                {
                    return Err(locked(queue));
                }
            }
            Destination::Exchange(name) => {
                if self.exchange(&binding.vhost, name).is_none() {
                    return Err(missing_exchange(binding, name));
                }
            }
        }
        check_suits(source, binding)?;
        Ok(self.has_binding(binding))
    }

    /// What `queue.unbind` and `exchange.unbind` are answered with: whether there is something to
    /// remove. What is missing is as good as removed.
    ///
    /// # Errors
    /// 403, 405.
    pub fn check_unbind(
        &self,
        binding: &Binding,
        connection: Option<ConnectionId>,
        access: Option<&Access>,
    ) -> Result<bool, Refusal> {
        self.check_binding_rights(binding, access)?;
        if !self.has_binding(binding) {
            return Ok(false);
        }
        if let Destination::Queue(name) = &binding.destination
            && access.is_some()
            && let Some(queue) = self.queue(&binding.vhost, name)
            && queue.exclusive_owner.is_some()
            && queue.exclusive_owner != connection
        {
            return Err(locked(queue));
        }
        Ok(true)
    }

    fn check_binding_rights(
        &self,
        binding: &Binding,
        access: Option<&Access>,
    ) -> Result<(), Refusal> {
        if let Some(access) = access {
            match &binding.destination {
                Destination::Queue(name) => access.check_queue(Right::Write, name)?,
                Destination::Exchange(name) => access.check_exchange(Right::Write, name)?,
            }
        }
        if let Destination::Exchange(name) = &binding.destination {
            check_not_default_exchange(name)?;
        }
        check_not_default_exchange(&binding.source)?;
        if let Some(access) = access {
            access.check_exchange(Right::Read, &binding.source)?;
            let source = self.exchange(&binding.vhost, &binding.source);
            if source.is_some_and(|source| source.kind == ExchangeKind::Topic) {
                access.check_topic(Right::Read, &binding.source, &binding.routing_key)?;
            }
        }
        Ok(())
    }
}

fn missing_exchange(binding: &Binding, name: &str) -> Refusal {
    Refusal::not_found(format!("no {}", quoted::exchange(&binding.vhost, name)))
}

/// Some exchange types cannot take every binding.
fn check_suits(source: &Exchange, binding: &Binding) -> Result<(), Refusal> {
    match source.kind {
        ExchangeKind::Headers => check_match(binding),
        ExchangeKind::ConsistentHash => check_weight(binding),
        ExchangeKind::Direct
        | ExchangeKind::Fanout
        | ExchangeKind::Topic
        | ExchangeKind::ModulusHash
        | ExchangeKind::Random => Ok(()),
        ExchangeKind::LocalRandom => check_keyless(binding),
    }
}

fn check_match(binding: &Binding) -> Result<(), Refusal> {
    match binding.arguments.inner().get("x-match") {
        None => Ok(()),
        Some(value @ (AMQPValue::LongString(_) | AMQPValue::ShortString(_))) => {
            match arguments::shown(value).as_str() {
                "all" | "any" | "all-with-x" | "any-with-x" => Ok(()),
                other => Err(Refusal::precondition(format!(
                    "Invalid x-match field value <<\"{other}\">>; expected all, any, all-with-x, or \
                     any-with-x"
                ))),
            }
        }
        Some(other) => Err(Refusal::precondition(format!(
            "Invalid x-match field type {} (value {}); expected longstr",
            arguments::type_name(other),
            arguments::shown(other)
        ))),
    }
}

fn check_keyless(binding: &Binding) -> Result<(), Refusal> {
    if binding.routing_key.is_empty() {
        return Ok(());
    }
    Err(Refusal::precondition(format!(
        "Non empty binding '{}' key not permitted",
        binding.routing_key
    )))
}

fn check_weight(binding: &Binding) -> Result<(), Refusal> {
    if routes::weight(&binding.routing_key).is_some() {
        return Ok(());
    }
    let key = &binding.routing_key;
    Err(Refusal::precondition(if key.parse::<i64>().is_ok() {
        "The binding key must be greater than 0".to_owned()
    } else {
        format!("The binding key must be an integer: <<\"{key}\">>")
    }))
}
