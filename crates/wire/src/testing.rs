//! What the property tests draw: tables, properties, routes, messages, and broken bytes.

use amq_protocol::frame::WriteContext;
use amq_protocol::protocol::BasicProperties;
use amq_protocol::protocol::basic::gen_properties;
use amq_protocol::types::{AMQPValue, DecimalValue, FieldArray, FieldTable};
use bytes::BytesMut;
use model::message::Message;
use proptest::prelude::*;
use std::collections::BTreeMap;

pub(crate) fn short() -> impl Strategy<Value = String> {
    prop_oneof![4 => "[a-z.#*]{0,12}", 1 => "\\PC{0,60}", 1 => Just("x".repeat(255))]
}

pub(crate) fn value() -> impl Strategy<Value = AMQPValue> {
    let leaf = prop_oneof![
        any::<bool>().prop_map(AMQPValue::Boolean),
        any::<i8>().prop_map(AMQPValue::ShortShortInt),
        any::<u8>().prop_map(AMQPValue::ShortShortUInt),
        any::<i16>().prop_map(AMQPValue::ShortInt),
        any::<u16>().prop_map(AMQPValue::ShortUInt),
        any::<i32>().prop_map(AMQPValue::LongInt),
        any::<u32>().prop_map(AMQPValue::LongUInt),
        any::<i64>().prop_map(AMQPValue::LongLongInt),
        (-1e9..1e9_f32).prop_map(AMQPValue::Float),
        (-1e9..1e9_f64).prop_map(AMQPValue::Double),
        (any::<u8>(), any::<u32>())
            .prop_map(|(scale, value)| AMQPValue::DecimalValue(DecimalValue { scale, value })),
        prop::collection::vec(any::<u8>(), 0..20)
            .prop_map(|bytes| AMQPValue::LongString(bytes.into())),
        prop::collection::vec(any::<u8>(), 0..20)
            .prop_map(|bytes| AMQPValue::ByteArray(bytes.into())),
        any::<u64>().prop_map(AMQPValue::Timestamp),
        Just(AMQPValue::Void),
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4)
                .prop_map(|items| AMQPValue::FieldArray(FieldArray::from(items))),
            entries(inner).prop_map(AMQPValue::FieldTable),
        ]
    })
}

fn entries(value: impl Strategy<Value = AMQPValue>) -> impl Strategy<Value = FieldTable> {
    prop::collection::btree_map(short(), value, 0..4).prop_map(|map| {
        let map: BTreeMap<_, _> =
            map.into_iter().map(|(name, value)| (name.as_str().into(), value)).collect();
        FieldTable::from(map)
    })
}

pub(crate) fn field_table() -> impl Strategy<Value = FieldTable> {
    entries(value())
}

/// All fourteen properties, each there or not.
pub(crate) fn basic_properties() -> impl Strategy<Value = BasicProperties> {
    let texts = prop::collection::vec(prop::option::of(short()), 10);
    let numbers = (
        prop::option::of(any::<u8>()),
        prop::option::of(any::<u8>()),
        prop::option::of(any::<u64>()),
    );
    (texts, numbers, prop::option::of(field_table())).prop_map(
        |(texts, (mode, priority, timestamp), headers)| {
            let mut all = BasicProperties::default();
            let setters = [
                BasicProperties::with_content_type,
                BasicProperties::with_content_encoding,
                BasicProperties::with_correlation_id,
                BasicProperties::with_reply_to,
                BasicProperties::with_expiration,
                BasicProperties::with_message_id,
                BasicProperties::with_type,
                BasicProperties::with_user_id,
                BasicProperties::with_app_id,
                BasicProperties::with_cluster_id,
            ];
            for (set, text) in setters.iter().zip(texts) {
                if let Some(text) = text {
                    all = set(all, text.as_str().into());
                }
            }
            if let Some(mode) = mode {
                all = all.with_delivery_mode(mode);
            }
            if let Some(priority) = priority {
                all = all.with_priority(priority);
            }
            if let Some(timestamp) = timestamp {
                all = all.with_timestamp(timestamp);
            }
            if let Some(headers) = headers {
                all = all.with_headers(headers);
            }
            all
        },
    )
}

pub(crate) fn encode_properties(properties: &BasicProperties) -> Vec<u8> {
    let context = WriteContext { write: Vec::new(), position: 0 };
    gen_properties(properties)(context).unwrap().write
}

pub(crate) fn body() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        1 => Just(Vec::new()),
        4 => prop::collection::vec(any::<u8>(), 1..64),
        2 => (any::<u8>(), 1..40_000_usize).prop_map(|(seed, length)| {
            (0..length).map(|at| seed.wrapping_add(at.to_le_bytes()[0] ^ at.to_le_bytes()[1])).collect()
        }),
    ]
}

pub(crate) fn message() -> impl Strategy<Value = Message> {
    (short(), short(), basic_properties(), body()).prop_map(|(exchange, key, properties, body)| {
        Message::from_parts(&exchange, &key, &encode_properties(&properties), &body)
    })
}

pub(crate) fn frame_max() -> impl Strategy<Value = u32> {
    prop_oneof![Just(0), Just(4096), Just(131_072), 40_u32..9000]
}

/// Changes bytes here and there, and cuts or repeats a part.
pub(crate) fn mutate(bytes: &mut Vec<u8>, changes: &[(u16, u8)]) {
    for &(place, value) in changes {
        if bytes.is_empty() {
            return;
        }
        let at = usize::from(place) % bytes.len();
        match value % 4 {
            0 => bytes[at] = value,
            1 => bytes[at] ^= 1 << (value % 8),
            2 => bytes.truncate(at),
            _ => bytes.insert(at, value),
        }
    }
}

/// Everything that `output` holds, in order.
pub(crate) fn sent(output: &mut crate::output::Output) -> BytesMut {
    use bytes::{Buf, BufMut};
    let mut all = BytesMut::new();
    while output.has_remaining() {
        let chunk = output.chunk();
        let length = chunk.len();
        all.put_slice(chunk);
        output.advance(length);
    }
    all
}
