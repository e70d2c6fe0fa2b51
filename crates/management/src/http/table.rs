//! AMQP field tables as JSON and back.

use amq_protocol_types::{AMQPValue, FieldArray, FieldTable, LongString, ShortString};
use serde_json::{Map, Number, Value};

use super::failure::{Failure, Outcome};

/// How deep a table from a client may be nested.
const DEPTH_MAX: usize = 32;

/// A table as JSON. Numbers stay numbers; bytes that are not UTF-8 are replaced.
pub fn to_json(table: &FieldTable) -> Value {
    Value::Object(
        table.into_iter().map(|(key, value)| (key.to_string(), value_to_json(value))).collect(),
    )
}

/// A field as JSON.
pub fn value_to_json(value: &AMQPValue) -> Value {
    let float = |number: f64| Number::from_f64(number).map_or(Value::Null, Value::Number);
    match value {
        AMQPValue::Boolean(flag) => Value::Bool(*flag),
        AMQPValue::ShortShortInt(number) => Value::from(*number),
        AMQPValue::ShortShortUInt(number) => Value::from(*number),
        AMQPValue::ShortInt(number) => Value::from(*number),
        AMQPValue::ShortUInt(number) => Value::from(*number),
        AMQPValue::LongInt(number) => Value::from(*number),
        AMQPValue::LongUInt(number) => Value::from(*number),
        AMQPValue::LongLongInt(number) => Value::from(*number),
        AMQPValue::Timestamp(number) => Value::from(*number),
        AMQPValue::Float(number) => float(f64::from(*number)),
        AMQPValue::Double(number) => float(*number),
        AMQPValue::DecimalValue(decimal) => {
            float(f64::from(decimal.value) / 10_f64.powi(i32::from(decimal.scale)))
        }
        AMQPValue::ShortString(text) => Value::String(text.to_string()),
        AMQPValue::LongString(text) => Value::String(text.to_string()),
        AMQPValue::ByteArray(bytes) => {
            Value::String(String::from_utf8_lossy(bytes.as_slice()).into_owned())
        }
        AMQPValue::FieldArray(items) => items.as_slice().iter().map(value_to_json).collect(),
        AMQPValue::FieldTable(table) => to_json(table),
        AMQPValue::Void => Value::Null,
    }
}

/// JSON as a table: texts become long strings, whole numbers 64-bit integers, others doubles.
///
/// # Errors
/// 400 for null, for names of more than 255 bytes, and for too deep nesting.
pub fn from_json(object: &Map<String, Value>) -> Outcome<FieldTable> {
    table(object, 0)
}

fn table(object: &Map<String, Value>, depth: usize) -> Outcome<FieldTable> {
    let mut table = FieldTable::default();
    for (key, field) in object {
        let key = ShortString::try_new(key.as_str())
            .map_err(|_| Failure::bad_request("argument names have at most 255 bytes"))?;
        table.insert(key, value(field, depth + 1)?);
    }
    Ok(table)
}

fn value(json: &Value, depth: usize) -> Outcome<AMQPValue> {
    if depth > DEPTH_MAX {
        return Err(Failure::bad_request("arguments are nested too deeply"));
    }
    Ok(match json {
        Value::Null => return Err(Failure::bad_request("null_not_allowed")),
        Value::Bool(flag) => AMQPValue::Boolean(*flag),
        Value::Number(number) => match (number.as_i64(), number.as_f64()) {
            (Some(whole), _) => AMQPValue::LongLongInt(whole),
            (None, Some(number)) => AMQPValue::Double(number),
            (None, None) => return Err(Failure::bad_request("number out of range")),
        },
        Value::String(text) => AMQPValue::LongString(LongString::from(text.as_str())),
        Value::Array(items) => AMQPValue::FieldArray(FieldArray::from(
            items.iter().map(|item| value(item, depth + 1)).collect::<Outcome<Vec<_>>>()?,
        )),
        Value::Object(object) => AMQPValue::FieldTable(table(object, depth)?),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn json_round_trips() {
        let json = json!({
            "x-message-ttl": 5000, "x-dead-letter-exchange": "dlx", "rate": 0.5, "on": true,
            "list": [1, "a", {"b": []}], "negative": -1,
        });
        let table = from_json(json.as_object().unwrap()).unwrap();
        assert_eq!(to_json(&table), json);
    }

    #[test]
    fn null_and_long_names_and_deep_nesting_are_refused() {
        let refused = |json: Value| from_json(json.as_object().unwrap()).is_err();
        assert!(refused(json!({"a": null})));
        assert!(refused(json!({"x".repeat(256): 1})));
        let mut deep = json!(1);
        for _ in 0..100 {
            deep = json!([deep]);
        }
        assert!(refused(json!({"a": deep})));
    }
}
