//! Whether what is declared again is what exists.

use amq_protocol_types::{AMQPValue, FieldTable};

use crate::arguments;
use crate::refusal::Refusal;

/// Compares a property that both always have.
pub(super) fn check_property(
    key: &str,
    object: &str,
    current: &impl ToString,
    received: &impl ToString,
) -> Result<(), Refusal> {
    let (current, received) = (current.to_string(), received.to_string());
    if current == received {
        return Ok(());
    }
    Err(inequivalent(key, object, &format!("'{received}'"), &format!("'{current}'")))
}

/// Compares an argument that either may lack.
pub(super) fn check_argument(
    key: &str,
    object: &str,
    current: &FieldTable,
    received: &FieldTable,
) -> Result<(), Refusal> {
    let (current, received) = (current.inner().get(key), received.inner().get(key));
    match (current, received) {
        (None, None) => Ok(()),
        (Some(current), Some(received)) => {
            if arguments::value_equal(current, received) {
                return Ok(());
            }
            let quoted = |value: &AMQPValue| match value {
                AMQPValue::Void => "none".to_owned(),
                value => format!("'{}'", arguments::shown(value)),
            };
            Err(inequivalent(key, object, &quoted(received), &quoted(current)))
        }
        (current, received) => {
            Err(inequivalent(key, object, &described(received), &described(current)))
        }
    }
}

fn described(value: Option<&AMQPValue>) -> String {
    match value {
        None => "none".into(),
        Some(value) => format!(
            "the value '{}' of type '{}'",
            arguments::shown(value),
            arguments::type_name(value)
        ),
    }
}

fn inequivalent(key: &str, object: &str, received: &str, current: &str) -> Refusal {
    Refusal::precondition(format!(
        "inequivalent arg '{key}' for {object}: received {received} but current is {current}"
    ))
}
