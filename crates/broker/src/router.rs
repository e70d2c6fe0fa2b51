//! The published topology, and what routing needs of a message.

use std::cell::OnceCell;
use std::sync::Arc;

use amq_protocol_types::FieldTable;
use arc_swap::ArcSwap;
use metadata::objects::Name;
use metadata::routes::content::Content;
use metadata::routes::targets::RouteSet;
use metadata::state::State;
use model::id::QueueId;
use model::message::Message;
use model::time::Millis;
use wire::properties::Properties;

use crate::death::DeadLetter;

/// The state as everybody reads it: one snapshot, replaced whole.
#[derive(Debug)]
pub(crate) struct Router {
    state: ArcSwap<State>,
}

/// What a queue needs to know of a message.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Facts {
    pub(crate) persistent: bool,
    pub(crate) priority: Option<u8>,
    pub(crate) ttl: Option<Millis>,
}

impl Router {
    pub(crate) fn new(state: State) -> Self {
        Self { state: ArcSwap::from_pointee(state) }
    }

    /// The snapshot of now.
    pub(crate) fn state(&self) -> Arc<State> {
        self.state.load_full()
    }

    /// Whether `state` is still the snapshot of now.
    pub(crate) fn is_current(&self, state: &Arc<State>) -> bool {
        Arc::ptr_eq(&self.state.load(), state)
    }

    pub(crate) fn publish(&self, state: State) {
        self.state.store(Arc::new(state));
    }

    /// Persistence, priority and expiration of a message that the broker made itself, whose
    /// properties need no checks.
    pub(crate) fn facts(message: &Message) -> Facts {
        let properties = Properties::scan(message.properties()).unwrap_or_default();
        Facts {
            persistent: properties.is_persistent(),
            priority: properties.priority,
            ttl: properties.expiration.and_then(|text| parse_expiration(text).ok()),
        }
    }

    /// The queues that a dead message goes to, with their names. None if its exchange is gone.
    pub(crate) fn dead_letter_targets(
        &self,
        vhost: &str,
        exchange: &str,
        dead: &DeadLetter,
    ) -> Vec<(QueueId, Name)> {
        let state = self.state.load();
        let Some(routes) = state.routes().vhost(vhost) else { return Vec::new() };
        let Some(exchange) = routes.exchange(exchange) else { return Vec::new() };
        let properties = Properties::scan(dead.message.properties()).unwrap_or_default();
        let keys: Vec<&str> = dead.routing_keys.iter().map(String::as_str).collect();
        let mut set = RouteSet::new();
        routes.route_keys(exchange, &keys, &MessageContent::new(&properties), &mut set);
        set.targets()
            .iter()
            .filter_map(|target| {
                let queue = state.queue_by_id(target.id)?;
                Some((target.id, Arc::clone(&queue.name)))
            })
            .collect()
    }
}

/// A message as exchanges see it; headers are parsed when one asks for them.
#[derive(Debug)]
pub(crate) struct MessageContent<'a> {
    properties: &'a Properties<'a>,
    headers: OnceCell<Option<FieldTable>>,
}

impl<'a> MessageContent<'a> {
    pub(crate) fn new(properties: &'a Properties<'a>) -> Self {
        Self { properties, headers: OnceCell::new() }
    }
}

impl Content for MessageContent<'_> {
    fn headers(&self) -> Option<&FieldTable> {
        self.headers
            .get_or_init(|| {
                self.properties.headers.and_then(|headers| wire::table::parse(headers).ok())
            })
            .as_ref()
    }

    fn message_id(&self) -> Option<&str> {
        text(self.properties.message_id)
    }

    fn correlation_id(&self) -> Option<&str> {
        text(self.properties.correlation_id)
    }

    fn timestamp(&self) -> Option<u64> {
        self.properties.timestamp
    }

    fn random(&self) -> u64 {
        rand::random()
    }
}

fn text(bytes: Option<&[u8]>) -> Option<&str> {
    bytes.and_then(|bytes| std::str::from_utf8(bytes).ok())
}

/// Reads an `expiration` property: decimal milliseconds.
///
/// # Errors
/// Why it is none, as RabbitMQ says it.
pub(crate) fn parse_expiration(text: &[u8]) -> Result<Millis, String> {
    /// Ten years, as RabbitMQ has it.
    const MAX: i128 = 315_360_000_000;
    let text = String::from_utf8_lossy(text);
    let sign = usize::from(text.starts_with(['-', '+']));
    let digits = text.chars().skip(sign).take_while(char::is_ascii_digit).count();
    let (number, rest) = text.split_at_checked(sign + digits).unwrap_or((&text, ""));
    if digits == 0 {
        return Err("no_integer".to_owned());
    }
    if !rest.is_empty() {
        return Err(format!("{{leftover_string,{rest:?}}}"));
    }
    match number.parse::<i128>() {
        Ok(value) if value < 0 => Err(format!("{{value_negative,{value}}}")),
        Ok(value) if value <= MAX => Ok(Millis(u64::try_from(value).unwrap_or_default())),
        _ => Err(format!("{{value_too_big,{number}}}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expirations_are_decimal_milliseconds() {
        assert_eq!(parse_expiration(b"0"), Ok(Millis(0)));
        assert_eq!(parse_expiration(b"60000"), Ok(Millis(60_000)));
        assert_eq!(parse_expiration(b"99999999999"), Ok(Millis(99_999_999_999)));
        for (bad, reason) in [
            (&b""[..], "no_integer"),
            (b"ten", "no_integer"),
            (b" 1", "no_integer"),
            (b"1.5", "{leftover_string,\".5\"}"),
            (b"-1", "{value_negative,-1}"),
            (b"999999999999", "{value_too_big,999999999999}"),
        ] {
            assert_eq!(parse_expiration(bad).unwrap_err(), reason, "{bad:?}");
        }
    }
}
