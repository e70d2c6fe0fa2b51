//! Tables of every kind of value.

use amq_protocol_types::{
    AMQPValue, ByteArray, DecimalValue, FieldArray, FieldTable, LongString, ShortString,
};
use proptest::prelude::*;
use serde::{Deserialize, Serialize};

use crate::arguments::{canonical, equal, value_equal};

#[derive(Debug, Serialize, Deserialize)]
struct Holder {
    #[serde(default, with = "crate::arguments::text")]
    table: FieldTable,
}

fn value() -> impl Strategy<Value = AMQPValue> {
    let leaf = prop_oneof![
        any::<bool>().prop_map(AMQPValue::Boolean),
        any::<i8>().prop_map(AMQPValue::ShortShortInt),
        any::<u8>().prop_map(AMQPValue::ShortShortUInt),
        any::<i16>().prop_map(AMQPValue::ShortInt),
        any::<u16>().prop_map(AMQPValue::ShortUInt),
        any::<i32>().prop_map(AMQPValue::LongInt),
        any::<u32>().prop_map(AMQPValue::LongUInt),
        any::<i64>().prop_map(AMQPValue::LongLongInt),
        any::<u32>().prop_map(|bits| AMQPValue::Float(f32::from_bits(bits))),
        any::<u64>().prop_map(|bits| AMQPValue::Double(f64::from_bits(bits))),
        any::<(u8, u32)>()
            .prop_map(|(scale, value)| AMQPValue::DecimalValue(DecimalValue { scale, value })),
        any::<Vec<u8>>().prop_map(|bytes| AMQPValue::LongString(LongString::from(bytes))),
        any::<Vec<u8>>().prop_map(|bytes| AMQPValue::ByteArray(ByteArray::from(bytes))),
        any::<u64>().prop_map(AMQPValue::Timestamp),
        Just(AMQPValue::Void),
    ];
    leaf.prop_recursive(3, 24, 4, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4)
                .prop_map(|values| AMQPValue::FieldArray(FieldArray::from(values))),
            fields(inner).prop_map(AMQPValue::FieldTable),
        ]
    })
}

fn fields(value: impl Strategy<Value = AMQPValue>) -> impl Strategy<Value = FieldTable> {
    proptest::collection::btree_map("[a-z]{0,3}", value, 0..4).prop_map(|fields| {
        let fields = fields.into_iter().map(|(key, value)| (ShortString::from(key), value));
        FieldTable::from(fields.collect::<std::collections::BTreeMap<_, _>>())
    })
}

proptest! {
    #[test]
    fn records_bring_tables_back_exactly(table in fields(value())) {
        let json = serde_json::to_string(&Holder { table: table.clone() }).unwrap();
        let read: Holder = serde_json::from_str(&json).unwrap();
        // Not a number is not equal to itself, so the texts are compared.
        prop_assert_eq!(format!("{:?}", read.table), format!("{table:?}"));
        prop_assert!(equal(&read.table, &table));
    }

    #[test]
    fn canonical_texts_are_equal_exactly_for_equal_tables(
        one in fields(value()),
        other in fields(value()),
    ) {
        prop_assert_eq!(canonical(&one) == canonical(&other), equal(&one, &other));
        prop_assert!(equal(&one, &one));
    }

    #[test]
    fn damaged_texts_are_refused_without_a_panic(text in "[A-Za-z0-9+/=]{0,40}") {
        drop(serde_json::from_str::<Holder>(&format!("{{\"table\":\"{text}\"}}")));
    }
}

#[test]
fn integers_of_any_width() {
    let values = [
        AMQPValue::ShortShortInt(5),
        AMQPValue::ShortShortUInt(5),
        AMQPValue::ShortInt(5),
        AMQPValue::ShortUInt(5),
        AMQPValue::LongInt(5),
        AMQPValue::LongUInt(5),
        AMQPValue::LongLongInt(5),
    ];
    for one in &values {
        for other in &values {
            assert!(value_equal(one, other));
        }
        assert!(!value_equal(one, &AMQPValue::Timestamp(5)));
        assert!(!value_equal(one, &AMQPValue::Double(5.0)));
    }
}
