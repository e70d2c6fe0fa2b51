//! Dead-lettering as far as the message is concerned: its headers and the rule against cycles.
//!
//! `x-death` is an array of tables, newest first, one for each pair of queue and reason; see the
//! dead-letter exchange guide of RabbitMQ, whose rules these are. What a client wrote into that
//! header counts for nothing: [`Message::is_dead_lettered`] tells the two apart.

use amq_protocol_types::{AMQPValue, FieldArray, FieldTable, ShortString};
use model::message::Message;
use queue::effect::Reason;
use wire::properties::Properties;
use wire::table;

/// The length that stands before an encoded table.
const TABLE_LEN: usize = 4;

/// One death.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Death<'a> {
    /// The queue that gave the message up.
    pub(crate) queue: &'a str,
    pub(crate) reason: Reason,
    /// Seconds since the Unix epoch.
    pub(crate) time: u64,
    /// The queue's dead-letter routing key, if it has one.
    pub(crate) routing_key: Option<&'a str>,
}

/// What a dead message becomes.
#[derive(Debug)]
pub(crate) struct DeadLetter {
    /// Published to the dead-letter exchange.
    pub(crate) message: Message,
    /// The keys that it is routed with: its own and those of `CC`, or the queue's.
    pub(crate) routing_keys: Vec<String>,
}

/// Writes the death into the message's headers and readies it for `exchange`.
pub(crate) fn dead_letter(message: &Message, exchange: &str, death: Death<'_>) -> DeadLetter {
    let properties = Properties::scan(message.properties()).unwrap_or_default();
    let old = header_table(&properties);
    let carbon_copies = strings(old.inner().get("CC"));
    let blind_copies = strings(old.inner().get("BCC"));

    let mut keys_before = vec![message.routing_key().to_owned()];
    keys_before.extend(carbon_copies.iter().cloned());
    let routing_keys = match death.routing_key {
        Some(key) => vec![key.to_owned()],
        None => keys_before.iter().cloned().chain(blind_copies).collect(),
    };

    let mut deaths =
        if message.is_dead_lettered() { tables(old.inner().get("x-death")) } else { Vec::new() };
    let entry = entry(&deaths, message, &keys_before, &properties, death);
    deaths.retain(|one| !is_of(one, death));
    deaths.insert(0, entry);

    let mut headers = FieldTable::default();
    for (name, value) in &old {
        let dropped = match name.as_str() {
            "BCC" | "x-death" => true,
            "CC" => death.routing_key.is_some(),
            other => !message.is_dead_lettered() && other.starts_with("x-first-death-"),
        };
        if !dropped {
            headers.insert(name.clone(), value.clone());
        }
    }
    for (name, value) in
        [("queue", death.queue), ("reason", death.reason.name()), ("exchange", message.exchange())]
    {
        let first = format!("x-first-death-{name}");
        if !headers.contains_key(&first) {
            headers.insert(first.into(), text(value));
        }
        headers.insert(format!("x-last-death-{name}").into(), text(value));
    }
    let deaths: Vec<AMQPValue> = deaths.into_iter().map(AMQPValue::FieldTable).collect();
    headers.insert("x-death".into(), AMQPValue::FieldArray(FieldArray::from(deaths)));

    let headers = table::encode(&headers);
    let properties =
        Properties { expiration: None, headers: Some(&headers[TABLE_LEN..]), ..properties };
    let key = routing_keys.first().map_or("", String::as_str);
    let (exchange, key) = (short(exchange), short(key));
    let message = Message::from_parts(exchange, key, &properties.encode(), message.body());
    DeadLetter { message: message.dead_lettered(), routing_keys }
}

/// The beginning that fits into a route: arguments and policies may name an exchange and a key with
/// longer texts than AMQP has for them.
fn short(text: &str) -> &str {
    text.get(..text.floor_char_boundary(255)).unwrap_or_default()
}

/// Whether a dead message must not go to `queue` again: it has been there, and since then only the
/// broker has moved it. A rejection in between means that a client wants the loop.
pub(crate) fn is_cycle(dead: &Message, queue: &str, reason: Reason) -> bool {
    if reason == Reason::Rejected {
        return false;
    }
    let headers = header_table(&Properties::scan(dead.properties()).unwrap_or_default());
    let deaths = tables(headers.inner().get("x-death"));
    let Some(visit) = deaths.iter().position(|death| long_text(death, "queue") == queue.as_bytes())
    else {
        return false;
    };
    deaths[..=visit].iter().all(|death| long_text(death, "reason") != b"rejected")
}

fn entry(
    deaths: &[FieldTable],
    message: &Message,
    keys: &[String],
    properties: &Properties<'_>,
    death: Death<'_>,
) -> FieldTable {
    if let Some(mut again) = deaths.iter().find(|one| is_of(one, death)).cloned() {
        let count = match again.inner().get("count") {
            Some(AMQPValue::LongLongInt(count)) => *count,
            _ => 0,
        };
        again.insert("count".into(), AMQPValue::LongLongInt(count.saturating_add(1)));
        return again;
    }
    let mut entry = FieldTable::default();
    entry.insert("count".into(), AMQPValue::LongLongInt(1));
    entry.insert("reason".into(), text(death.reason.name()));
    entry.insert("queue".into(), text(death.queue));
    entry.insert("time".into(), AMQPValue::Timestamp(death.time));
    entry.insert("exchange".into(), text(message.exchange()));
    let keys: Vec<AMQPValue> = keys.iter().map(|key| text(key)).collect();
    entry.insert("routing-keys".into(), AMQPValue::FieldArray(FieldArray::from(keys)));
    if let Some(expiration) = properties.expiration {
        let expiration = AMQPValue::LongString(expiration.to_vec().into());
        entry.insert("original-expiration".into(), expiration);
    }
    entry
}

fn is_of(entry: &FieldTable, death: Death<'_>) -> bool {
    long_text(entry, "queue") == death.queue.as_bytes()
        && long_text(entry, "reason") == death.reason.name().as_bytes()
}

fn long_text<'a>(table: &'a FieldTable, name: &str) -> &'a [u8] {
    match table.inner().get(name) {
        Some(AMQPValue::LongString(value)) => value.as_bytes(),
        _ => b"",
    }
}

fn text(value: &str) -> AMQPValue {
    AMQPValue::LongString(value.as_bytes().to_vec().into())
}

/// The texts of a `CC` or `BCC` header; anything else in it counts for nothing.
fn strings(value: Option<&AMQPValue>) -> Vec<String> {
    let Some(AMQPValue::FieldArray(array)) = value else { return Vec::new() };
    array
        .as_slice()
        .iter()
        .filter_map(|item| match item {
            AMQPValue::LongString(item) => String::from_utf8(item.as_bytes().to_vec()).ok(),
            _ => None,
        })
        .collect()
}

fn tables(value: Option<&AMQPValue>) -> Vec<FieldTable> {
    let Some(AMQPValue::FieldArray(array)) = value else { return Vec::new() };
    array
        .as_slice()
        .iter()
        .filter_map(|item| match item {
            AMQPValue::FieldTable(table) => Some(table.clone()),
            _ => None,
        })
        .collect()
}

fn header_table(properties: &Properties<'_>) -> FieldTable {
    properties.headers.and_then(|headers| table::parse(headers).ok()).unwrap_or_default()
}

/// The same message with a header set.
pub(crate) fn with_header(message: &Message, name: &str, value: AMQPValue) -> Message {
    let properties = Properties::scan(message.properties()).unwrap_or_default();
    let mut headers = header_table(&properties);
    headers.insert(ShortString::from(name), value);
    let headers = table::encode(&headers);
    message.with_properties(
        &Properties { headers: Some(&headers[TABLE_LEN..]), ..properties }.encode(),
    )
}

#[cfg(test)]
mod tests;
