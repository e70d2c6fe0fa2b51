//! Queue arguments: JSON to a field table.

use amq_protocol::types::{AMQPValue, FieldTable};
use serde_json::{Map, Value};

/// Reads a JSON object such as `{"x-queue-type":"quorum"}`.
///
/// # Errors
/// What is wrong with it, for people.
pub fn parse(text: &str) -> Result<FieldTable, String> {
    match serde_json::from_str(text) {
        Ok(Value::Object(map)) => Ok(table(map)),
        Ok(other) => Err(format!("--queue-args must be a JSON object, not {other}")),
        Err(error) => Err(format!("--queue-args is not JSON: {error}")),
    }
}

fn table(map: Map<String, Value>) -> FieldTable {
    let mut table = FieldTable::default();
    for (name, inner) in map {
        table.insert(name.as_str().into(), value(inner));
    }
    table
}

fn value(value: Value) -> AMQPValue {
    match value {
        Value::Null => AMQPValue::Void,
        Value::Bool(value) => AMQPValue::Boolean(value),
        Value::String(text) => AMQPValue::LongString(text.into_bytes().into()),
        Value::Array(items) => {
            AMQPValue::FieldArray(items.into_iter().map(self::value).collect::<Vec<_>>().into())
        }
        Value::Object(map) => AMQPValue::FieldTable(table(map)),
        Value::Number(number) => match (number.as_i64(), number.as_f64()) {
            (Some(whole), _) => {
                i32::try_from(whole).map_or(AMQPValue::LongLongInt(whole), AMQPValue::LongInt)
            }
            (None, broken) => AMQPValue::Double(broken.unwrap_or_default()),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_becomes_a_table() {
        let table = parse(
            r#"{"x-queue-type":"quorum","x-max-length":5,"big":5000000000,"half":0.5,"yes":true,"list":[null]}"#,
        )
        .unwrap();
        let get = |name: &str| table.inner().get(name).unwrap().clone();
        assert_eq!(get("x-queue-type"), AMQPValue::LongString("quorum".into()));
        assert_eq!(get("x-max-length"), AMQPValue::LongInt(5));
        assert_eq!(get("big"), AMQPValue::LongLongInt(5_000_000_000));
        assert_eq!(get("half"), AMQPValue::Double(0.5));
        assert_eq!(get("yes"), AMQPValue::Boolean(true));
        assert_eq!(get("list"), AMQPValue::FieldArray(vec![AMQPValue::Void].into()));
    }

    #[test]
    fn other_json_is_refused() {
        assert_eq!(parse("[1]").unwrap_err(), "--queue-args must be a JSON object, not [1]");
        assert!(parse("{").unwrap_err().starts_with("--queue-args is not JSON: "));
    }
}
