//! Message properties as JSON and back: the encoding of an AMQP content header between.

use amq_protocol::frame::WriteContext;
use amq_protocol::protocol::BasicProperties;
use amq_protocol::protocol::basic::{gen_properties, parse_properties};
use amq_protocol::types::ShortString;
use serde_json::{Map, Value};

use super::body::Body;
use super::failure::{Failure, Outcome};
use super::table;

/// The properties that are present, under their AMQP names with underscores.
pub fn to_json(encoded: &[u8]) -> Value {
    let mut object = Map::new();
    let Ok((_, properties)) = parse_properties(encoded) else { return Value::Object(object) };
    let texts = [
        ("content_type", properties.content_type()),
        ("content_encoding", properties.content_encoding()),
        ("correlation_id", properties.correlation_id()),
        ("reply_to", properties.reply_to()),
        ("expiration", properties.expiration()),
        ("message_id", properties.message_id()),
        ("type", properties.kind()),
        ("user_id", properties.user_id()),
        ("app_id", properties.app_id()),
        ("cluster_id", properties.cluster_id()),
    ];
    for (key, text) in texts {
        if let Some(text) = text {
            object.insert(key.to_owned(), Value::from(text.as_str()));
        }
    }
    if let Some(headers) = properties.headers() {
        object.insert("headers".to_owned(), table::to_json(headers));
    }
    if let Some(mode) = properties.delivery_mode() {
        object.insert("delivery_mode".to_owned(), Value::from(*mode));
    }
    if let Some(priority) = properties.priority() {
        object.insert("priority".to_owned(), Value::from(*priority));
    }
    if let Some(timestamp) = properties.timestamp() {
        object.insert("timestamp".to_owned(), Value::from(*timestamp));
    }
    Value::Object(object)
}

/// Encodes the `properties` field of a request. Unknown names are ignored.
///
/// # Errors
/// 400 for a value of the wrong type or out of range.
pub fn from_json(body: &Body) -> Outcome<Vec<u8>> {
    let fields = Body::from(body.object("properties")?);
    let mut properties = BasicProperties::default();
    let text = |key: &str| -> Outcome<Option<ShortString>> {
        if fields.get(key).is_none() {
            return Ok(None);
        }
        ShortString::try_new(fields.text(key)?)
            .map(Some)
            .map_err(|_| Failure::bad_request(format!("{key} is longer than 255 bytes")))
    };
    let byte = |key: &str| -> Outcome<Option<u8>> {
        let Some(number) = fields.integer(key)? else { return Ok(None) };
        u8::try_from(number)
            .map(Some)
            .map_err(|_| Failure::bad_request(format!("{key} must be 0 to 255")))
    };
    if let Some(text) = text("content_type")? {
        properties = properties.with_content_type(text);
    }
    if let Some(text) = text("content_encoding")? {
        properties = properties.with_content_encoding(text);
    }
    if fields.get("headers").is_some() {
        properties = properties.with_headers(table::from_json(&fields.object("headers")?)?);
    }
    if let Some(mode) = byte("delivery_mode")? {
        properties = properties.with_delivery_mode(mode);
    }
    if let Some(priority) = byte("priority")? {
        properties = properties.with_priority(priority);
    }
    if let Some(text) = text("correlation_id")? {
        properties = properties.with_correlation_id(text);
    }
    if let Some(text) = text("reply_to")? {
        properties = properties.with_reply_to(text);
    }
    if let Some(text) = text("expiration")? {
        properties = properties.with_expiration(text);
    }
    if let Some(text) = text("message_id")? {
        properties = properties.with_message_id(text);
    }
    if let Some(timestamp) = fields.integer("timestamp")? {
        let timestamp = u64::try_from(timestamp)
            .map_err(|_| Failure::bad_request("timestamp must not be negative"))?;
        properties = properties.with_timestamp(timestamp);
    }
    if let Some(text) = text("type")? {
        properties = properties.with_type(text);
    }
    if let Some(text) = text("user_id")? {
        properties = properties.with_user_id(text);
    }
    if let Some(text) = text("app_id")? {
        properties = properties.with_app_id(text);
    }
    if let Some(text) = text("cluster_id")? {
        properties = properties.with_cluster_id(text);
    }
    let written = gen_properties(&properties)(WriteContext::from(Vec::new()))
        .map_err(|_| Failure::bad_request("properties cannot be encoded"))?;
    Ok(written.into_inner().0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn properties_round_trip() {
        let properties = json!({
            "content_type": "text/plain", "headers": {"k": "v", "n": 1}, "delivery_mode": 2,
            "priority": 3, "timestamp": 5, "type": "t", "message_id": "m", "expiration": "1000",
        });
        let request = json!({ "properties": properties }).to_string();
        let encoded = from_json(&Body::parse(request.as_bytes()).unwrap()).unwrap();
        assert_eq!(to_json(&encoded), properties);
    }

    #[test]
    fn strings_are_coerced_and_nonsense_is_refused() {
        let encode = |properties: Value| {
            let request = json!({ "properties": properties }).to_string();
            from_json(&Body::parse(request.as_bytes()).unwrap())
        };
        let encoded = encode(json!({"delivery_mode": "2"})).unwrap();
        assert_eq!(to_json(&encoded), json!({"delivery_mode": 2}));
        assert!(encode(json!({"priority": 256})).is_err());
        assert!(encode(json!({"type": "x".repeat(256)})).is_err());
        assert!(encode(json!({"headers": 5})).is_err());
        assert_eq!(to_json(&encode(json!([])).unwrap()), json!({}));
    }
}
