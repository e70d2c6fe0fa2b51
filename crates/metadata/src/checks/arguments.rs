//! The arguments of a new queue: which there are, and what they may be.

use amq_protocol_types::{AMQPValue, FieldTable};

use crate::arguments;
use crate::objects::queue::QueueKind;
use crate::refusal::Refusal;

/// The longest time that an argument can name: ten years.
const MILLIS_MAX: i64 = 10 * 365 * 24 * 3600 * 1000;

/// The arguments that a redeclaration compares, in RabbitMQ's order. Others are kept and shown but
/// not compared.
pub(super) const COMPARED: &[&str] = &[
    "x-expires",
    "x-message-ttl",
    "x-dead-letter-exchange",
    "x-dead-letter-routing-key",
    "x-max-length",
    "x-max-length-bytes",
    "x-max-priority",
    "x-overflow",
    "x-queue-mode",
    "x-queue-version",
    "x-queue-leader-locator",
    "x-queue-master-locator",
    "x-single-active-consumer",
    "x-queue-type",
    "x-delivery-limit",
    "x-consumer-timeout",
    "x-dead-letter-strategy",
    "x-quorum-initial-group-size",
    "x-quorum-target-group-size",
    "x-delayed-retry-type",
    "x-delayed-retry-min",
    "x-delayed-retry-max",
    JOURNAL,
];

/// The argument, and the key of policies, that names a queue's journal.
pub(super) const JOURNAL: &str = "x-journal";

/// Arguments that only streams have.
const OF_STREAMS: &[&str] = &[
    "x-max-age",
    "x-stream-max-segment-size-bytes",
    "x-stream-filter-size-bytes",
    "x-initial-cluster-size",
];

/// Arguments that only quorum queues have.
const OF_QUORUM: &[&str] = &[
    "x-dead-letter-strategy",
    "x-max-in-memory-length",
    "x-max-in-memory-bytes",
    "x-quorum-initial-group-size",
    "x-quorum-target-group-size",
    "x-delayed-retry-type",
    "x-delayed-retry-min",
    "x-delayed-retry-max",
];

/// Arguments that only classic queues have.
const OF_CLASSIC: &[&str] =
    &["x-max-priority", "x-queue-mode", "x-queue-version", "x-queue-master-locator", JOURNAL];

/// The check of one argument; the error is RabbitMQ's term, printed.
type Check = fn(&AMQPValue, &FieldTable) -> Result<(), String>;

const CHECKS: &[(&str, Check)] = &[
    ("x-expires", check_expires),
    ("x-message-ttl", check_ttl),
    ("x-dead-letter-exchange", check_string),
    ("x-dead-letter-routing-key", check_dead_letter_key),
    ("x-max-length", check_count),
    ("x-max-length-bytes", check_count),
    ("x-max-priority", check_priority),
    ("x-overflow", check_overflow),
    ("x-queue-version", check_version),
    ("x-single-active-consumer", check_boolean),
    ("x-queue-leader-locator", check_locator),
    ("x-delivery-limit", check_delivery_limit),
    ("x-consumer-timeout", check_consumer_timeout),
    ("x-dead-letter-strategy", check_strategy),
    ("x-max-in-memory-length", check_count),
    ("x-max-in-memory-bytes", check_count),
    ("x-quorum-initial-group-size", check_group_size),
    ("x-quorum-target-group-size", check_count),
    ("x-delayed-retry-type", check_retry),
    ("x-delayed-retry-min", check_ttl),
    ("x-delayed-retry-max", check_ttl),
    (JOURNAL, check_string),
];

/// The type that arguments ask for, which were checked.
pub(crate) fn kind(table: &FieldTable) -> QueueKind {
    arguments::string(table, "x-queue-type")
        .and_then(|name| QueueKind::parse(&name))
        .unwrap_or(QueueKind::Classic)
}

/// Whether queues of this type have the argument, or it is of nobody.
pub(super) fn is_known(kind: QueueKind, key: &str) -> bool {
    !foreign_to(kind).any(|foreign| *foreign == key)
}

fn foreign_to(kind: QueueKind) -> impl Iterator<Item = &'static &'static str> {
    let of_the_other = match kind {
        QueueKind::Classic => OF_QUORUM,
        QueueKind::Quorum => OF_CLASSIC,
    };
    of_the_other.iter().chain(OF_STREAMS)
}

/// Whether arguments ask for this type. Without one they fit every queue: what the virtual host's
/// default is may have changed since.
pub(super) fn ask_for(table: &FieldTable, kind: QueueKind) -> bool {
    if !table.contains_key("x-queue-type") {
        return true;
    }
    arguments::string(table, "x-queue-type").is_some_and(|name| name == kind.as_str())
}

/// Whether this node can make queues of that type.
pub(super) fn is_supported_type(name: &str) -> bool {
    QueueKind::parse(name).is_some()
}

/// Checks the type, then the values of the arguments that it knows, then that there are none of
/// other types.
pub(super) fn check(object: &str, table: &FieldTable) -> Result<(), Refusal> {
    let invalid = |key: &str, error: String| {
        Refusal::precondition(format!("invalid arg '{key}' for {object}: {error}"))
    };
    if let Some(value) = table.inner().get("x-queue-type") {
        check_type(value).map_err(|error| invalid("x-queue-type", error))?;
    }
    let kind = kind(table);
    for (key, check) in CHECKS.iter().filter(|(key, _)| is_known(kind, key)) {
        if let Some(value) = table.inner().get(*key) {
            check(value, table).map_err(|error| invalid(key, error))?;
        }
    }
    for (key, _) in table {
        if !is_known(kind, key.as_str()) {
            return Err(Refusal::precondition(format!(
                "invalid arg '{key}' for {object} of queue type rabbit_{kind}_queue"
            )));
        }
    }
    Ok(())
}

fn check_type(value: &AMQPValue) -> Result<(), String> {
    let name = text(value)?;
    // The empty name stands for the default, and is kept as it is.
    if name.is_empty() || is_supported_type(&name) {
        Ok(())
    } else {
        Err(format!("\"unsupported queue type '{name}'\""))
    }
}

fn check_expires(value: &AMQPValue, _: &FieldTable) -> Result<(), String> {
    match integer(value)? {
        0 => Err("{value_zero,0}".into()),
        millis => check_millis(millis),
    }
}

fn check_ttl(value: &AMQPValue, _: &FieldTable) -> Result<(), String> {
    check_millis(integer(value)?)
}

fn check_consumer_timeout(value: &AMQPValue, _: &FieldTable) -> Result<(), String> {
    check_millis(integer(value)?)
}

fn check_millis(millis: i64) -> Result<(), String> {
    if millis > MILLIS_MAX {
        return Err(format!("{{value_too_large,{millis}}}"));
    }
    not_negative(millis).map(drop)
}

fn check_count(value: &AMQPValue, _: &FieldTable) -> Result<(), String> {
    not_negative(integer(value)?).map(drop)
}

fn check_priority(value: &AMQPValue, _: &FieldTable) -> Result<(), String> {
    let priority = not_negative(integer(value)?)?;
    if priority > 255 { Err(format!("{{max_value_exceeded,{priority}}}")) } else { Ok(()) }
}

/// Any number: a negative one means no limit.
fn check_delivery_limit(value: &AMQPValue, _: &FieldTable) -> Result<(), String> {
    integer(value).map(drop)
}

fn check_string(value: &AMQPValue, _: &FieldTable) -> Result<(), String> {
    text(value).map(drop)
}

fn check_dead_letter_key(value: &AMQPValue, table: &FieldTable) -> Result<(), String> {
    text(value)?;
    if table.contains_key("x-dead-letter-exchange") {
        Ok(())
    } else {
        Err("routing_key_but_no_dlx_defined".into())
    }
}

fn check_overflow(value: &AMQPValue, _: &FieldTable) -> Result<(), String> {
    let name = text(value)?;
    crate::effective::Overflow::parse(&name).map(drop).ok_or_else(|| "invalid_overflow".into())
}

fn check_group_size(value: &AMQPValue, _: &FieldTable) -> Result<(), String> {
    match not_negative(integer(value)?)? {
        0 => Err("{value_zero,0}".into()),
        _ => Ok(()),
    }
}

fn check_strategy(value: &AMQPValue, _: &FieldTable) -> Result<(), String> {
    match &*text(value)? {
        "at-most-once" | "at-least-once" => Ok(()),
        _ => Err("invalid_dlx_strategy".into()),
    }
}

fn check_retry(value: &AMQPValue, _: &FieldTable) -> Result<(), String> {
    match &*text(value)? {
        "disabled" | "failed" | "returned" | "all" => Ok(()),
        _ => Err("invalid_delayed_retry_type".into()),
    }
}

fn check_locator(value: &AMQPValue, _: &FieldTable) -> Result<(), String> {
    match &*text(value)? {
        "client-local" | "balanced" => Ok(()),
        _ => Err("invalid_queue_locator_arg".into()),
    }
}

fn check_version(value: &AMQPValue, _: &FieldTable) -> Result<(), String> {
    match not_negative(integer(value)?)? {
        2 => Ok(()),
        other => Err(format!("\"unsupported queue version '{other}'\"")),
    }
}

fn check_boolean(value: &AMQPValue, _: &FieldTable) -> Result<(), String> {
    match value {
        AMQPValue::Boolean(_) => Ok(()),
        other => Err(unacceptable(other)),
    }
}

fn integer(value: &AMQPValue) -> Result<i64, String> {
    arguments::integer_of(value)
        .ok_or_else(|| format!("\"expected integer, got {}\"", arguments::type_name(value)))
}

fn text(value: &AMQPValue) -> Result<String, String> {
    match value {
        AMQPValue::LongString(_) | AMQPValue::ShortString(_) => Ok(arguments::shown(value)),
        other => Err(unacceptable(other)),
    }
}

fn not_negative(value: i64) -> Result<i64, String> {
    if value < 0 { Err(format!("{{value_negative,{value}}}")) } else { Ok(value) }
}

fn unacceptable(value: &AMQPValue) -> String {
    format!("{{unacceptable_type,{}}}", arguments::type_name(value))
}
