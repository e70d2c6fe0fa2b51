//! What a policy may say.

use serde_json::{Map, Value};

use crate::access::matcher::Matcher;
use crate::objects::policy::Policy;
use crate::objects::queue::QueueKind;
use crate::refusal::Refusal;

/// What the value of a key may be.
#[derive(Clone, Copy)]
enum Shape {
    /// At least this number.
    AtLeast(i64),
    /// At least 1, and its refusal says so.
    Positive,
    /// Any integer.
    Integer,
    Text,
    /// One of these words.
    OneOf(&'static [&'static str]),
    /// A number with a unit, such as `7D`.
    Age,
}

struct Setting {
    key: &'static str,
    shape: Shape,
    /// The words behind "is not a valid".
    noun: &'static str,
    /// Operators may set it.
    operator: bool,
    /// Classic queues can honour it.
    classic: bool,
    /// Quorum queues can honour it.
    quorum: bool,
}

const fn setting(key: &'static str, shape: Shape, noun: &'static str) -> Setting {
    Setting { key, shape, noun, operator: false, classic: true, quorum: true }
}

impl Setting {
    const fn for_operators(mut self) -> Self {
        self.operator = true;
        self
    }

    /// A policy with such a key does not apply to classic queues.
    const fn not_classic(mut self) -> Self {
        self.classic = false;
        self
    }

    /// A policy with such a key does not apply to quorum queues.
    const fn not_quorum(mut self) -> Self {
        self.quorum = false;
        self
    }
}

const OVERFLOWS: &[&str] = &["drop-head", "reject-publish", "reject-publish-dlx"];
const STRATEGIES: &[&str] = &["at-most-once", "at-least-once"];
const RETRIES: &[&str] = &["all", "failed", "returned", "disabled"];
const RETRY_TYPE: &str = "delayed retry type. Must be one of: all, failed, returned, disabled";
const LOCATORS: &[&str] = &["client-local", "balanced"];

const SETTINGS: &[Setting] = &[
    setting("alternate-exchange", Shape::Text, "alternate exchange name"),
    setting("consumer-timeout", Shape::AtLeast(0), "consumer timeout"),
    setting("dead-letter-exchange", Shape::Text, "dead letter exchange name"),
    setting("dead-letter-routing-key", Shape::Text, "dead letter routing key"),
    setting("dead-letter-strategy", Shape::OneOf(STRATEGIES), "dead letter strategy").not_classic(),
    setting("delivery-limit", Shape::Integer, "delivery limit").for_operators(),
    setting("expires", Shape::AtLeast(1), "queue expiry").for_operators(),
    setting("message-ttl", Shape::AtLeast(0), "message TTL").for_operators(),
    setting("max-length", Shape::AtLeast(0), "maximum length").for_operators(),
    setting("max-length-bytes", Shape::AtLeast(0), "maximum length in bytes").for_operators(),
    setting("max-in-memory-length", Shape::AtLeast(0), "maximum memory in bytes")
        .for_operators()
        .not_classic(),
    setting("max-in-memory-bytes", Shape::AtLeast(0), "maximum memory in bytes")
        .for_operators()
        .not_classic(),
    setting("overflow", Shape::OneOf(OVERFLOWS), "overflow value").for_operators(),
    setting("queue-mode", Shape::OneOf(&["default", "lazy"]), "queue-mode value").not_quorum(),
    setting("queue-version", Shape::AtLeast(1), "queue version").for_operators().not_quorum(),
    setting("max-age", Shape::Age, "max age").not_classic().not_quorum(),
    setting("stream-max-segment-size-bytes", Shape::AtLeast(0), "segment size")
        .not_classic()
        .not_quorum(),
    setting("stream-filter-size-bytes", Shape::AtLeast(0), "filter size")
        .not_classic()
        .not_quorum(),
    setting("queue-leader-locator", Shape::OneOf(LOCATORS), "queue leader locator value"),
    setting("initial-cluster-size", Shape::AtLeast(0), "cluster size").not_classic().not_quorum(),
    setting("target-group-size", Shape::AtLeast(0), "target count").for_operators().not_classic(),
    setting("delayed-retry-type", Shape::OneOf(RETRIES), RETRY_TYPE).for_operators().not_classic(),
    setting("delayed-retry-min", Shape::Positive, "delayed retry minimum delay")
        .for_operators()
        .not_classic(),
    setting("delayed-retry-max", Shape::Positive, "delayed retry maximum delay")
        .for_operators()
        .not_classic(),
    setting("x-journal", Shape::Text, "journal name").not_quorum(),
];

/// Compiles the pattern of a policy whose definition is right.
pub(crate) fn compile(policy: &Policy, operator: bool) -> Result<Matcher, Refusal> {
    let pattern = Matcher::pattern(&policy.pattern).map_err(|error| {
        failed(&format!("pattern should be regular expression but is invalid: {error}"))
    })?;
    check_definition(&policy.definition, operator).map_err(|text| failed(&text))?;
    Ok(pattern)
}

/// Whether queues of this kind can honour every key.
pub(crate) fn suits_queue(definition: &Map<String, Value>, kind: QueueKind) -> bool {
    definition.keys().all(|key| {
        SETTINGS.iter().find(|setting| setting.key == key).is_none_or(|setting| match kind {
            QueueKind::Classic => setting.classic,
            QueueKind::Quorum => setting.quorum,
        })
    })
}

fn failed(text: &str) -> Refusal {
    Refusal::invalid(format!("Validation failed\n\n{text}\n"))
}

fn check_definition(definition: &Map<String, Value>, operator: bool) -> Result<(), String> {
    if definition.is_empty() {
        return Err("no policy provided".into());
    }
    let mut unknown = Vec::new();
    for (key, value) in definition {
        let known =
            SETTINGS.iter().find(|setting| setting.key == key && (setting.operator || !operator));
        match known {
            None => unknown.push(format!("{{<<\"{key}\">>,{}}}", term(value))),
            Some(setting) if !fits(setting.shape, value) => {
                let more = match setting.shape {
                    Shape::Positive => ". Must be a positive integer",
                    _ => "",
                };
                return Err(format!("{} is not a valid {}{more}", term(value), setting.noun));
            }
            Some(_) => {}
        }
    }
    if unknown.is_empty() {
        return check_retry(definition);
    }
    Err(format!("[{}] are not recognised policy settings", unknown.join(",")))
}

/// What the keys of delayed retry need of each other.
fn check_retry(definition: &Map<String, Value>) -> Result<(), String> {
    let number = |key: &str| definition.get(key).and_then(Value::as_i64);
    match (number("delayed-retry-min"), number("delayed-retry-max")) {
        (Some(min), Some(max)) if max < min => {
            return Err(format!(
                "delayed-retry-max ({max}) must not be smaller than delayed-retry-min ({min})"
            ));
        }
        (Some(_), _) => return Ok(()),
        (None, _) => {}
    }
    match definition.get("delayed-retry-type").and_then(Value::as_str) {
        None | Some("disabled") => Ok(()),
        Some(which) => {
            Err(format!("delayed-retry-min is required when delayed-retry-type is {which}"))
        }
    }
}

fn fits(shape: Shape, value: &Value) -> bool {
    match shape {
        Shape::AtLeast(least) => value.as_i64().is_some_and(|value| value >= least),
        Shape::Positive => value.as_i64().is_some_and(|value| value > 0),
        Shape::Integer => value.is_i64() || value.is_u64(),
        Shape::Text => value.is_string(),
        Shape::OneOf(words) => value.as_str().is_some_and(|value| words.contains(&value)),
        Shape::Age => value.as_str().is_some_and(is_age),
    }
}

fn is_age(text: &str) -> bool {
    let digits = text.trim_end_matches(|unit: char| "YMDhms".contains(unit));
    text.len() == digits.len() + 1 && digits.parse::<u64>().is_ok_and(|count| count > 0)
}

/// A value as Erlang prints it.
fn term(value: &Value) -> String {
    match value {
        Value::String(text) => format!("<<\"{text}\">>"),
        Value::Array(values) => {
            format!("[{}]", values.iter().map(term).collect::<Vec<_>>().join(","))
        }
        Value::Object(fields) => {
            let fields =
                fields.iter().map(|(key, value)| format!("<<\"{key}\">> => {}", term(value)));
            format!("#{{{}}}", fields.collect::<Vec<_>>().join(","))
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => value.to_string(),
    }
}
