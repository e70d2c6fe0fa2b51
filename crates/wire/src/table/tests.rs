use super::*;
use crate::testing::{field_table, mutate};
use amq_protocol::types::AMQPValue;
use proptest::prelude::*;

fn nested(tag: u8, depth: usize) -> Vec<u8> {
    // the outermost entries are level 1
    let mut inner: Vec<u8> = Vec::new();
    for level in 0..depth - 1 {
        let array_below = tag == b'A' && level + 1 < depth - 1;
        let mut outer = if array_below { vec![] } else { vec![1, b'k'] };
        outer.push(tag);
        outer.extend_from_slice(&u32::try_from(inner.len()).unwrap().to_be_bytes());
        outer.extend_from_slice(&inner);
        inner = outer;
    }
    inner
}

#[test]
fn every_type_of_the_dialect_is_read() {
    let check = |value: &[u8], expected: AMQPValue| {
        let entries = [&[1, b'k'], value].concat();
        let table = parse(&entries).unwrap();
        assert_eq!(table.inner().get("k"), Some(&expected));
    };
    check(b"t\x01", AMQPValue::Boolean(true));
    check(b"b\xff", AMQPValue::ShortShortInt(-1));
    check(b"B\xff", AMQPValue::ShortShortUInt(255));
    check(b"s\xff\xfe", AMQPValue::ShortInt(-2));
    check(b"U\xff\xfe", AMQPValue::ShortInt(-2));
    check(b"u\xff\xfe", AMQPValue::ShortUInt(65534));
    check(b"I\xff\xff\xff\xff", AMQPValue::LongInt(-1));
    check(b"i\xff\xff\xff\xff", AMQPValue::LongUInt(u32::MAX));
    check(b"l\xff\xff\xff\xff\xff\xff\xff\xff", AMQPValue::LongLongInt(-1));
    check(b"L\xff\xff\xff\xff\xff\xff\xff\xff", AMQPValue::LongLongInt(-1));
    check(b"f\x3f\x80\x00\x00", AMQPValue::Float(1.0));
    check(b"d\x3f\xf0\x00\x00\x00\x00\x00\x00", AMQPValue::Double(1.0));
    check(b"T\x00\x00\x00\x00\x00\x00\x00\x09", AMQPValue::Timestamp(9));
    check(b"S\x00\x00\x00\x01a", AMQPValue::LongString("a".into()));
    check(b"x\x00\x00\x00\x01a", AMQPValue::ByteArray(b"a"[..].into()));
    check(b"A\x00\x00\x00\x01V", AMQPValue::FieldArray(vec![AMQPValue::Void].into()));
    check(b"F\x00\x00\x00\x00", AMQPValue::FieldTable(FieldTable::default()));
    check(b"V", AMQPValue::Void);
}

#[test]
fn errors_name_the_cause() {
    let check = |entries: &[u8], text: &str| {
        assert_eq!(parse(entries).unwrap_err().to_string(), text);
    };
    check(b"\x01kz", "field table holds a value of unknown type 'z'");
    check(b"\x01k\x00", "field table holds a value of unknown type '\\x00'");
    check(b"\x05k", "field table malformed");
    check(b"\x01kS\x00\x00\x01\x00a", "field table malformed");
    check(b"\x01\xffV", "field table malformed");
    check(&nested(b'F', DEPTH_MAX + 1), "field table nested deeper than 64");
}

/// The deepest tables that are let through fit a small stack, ten thousand levels do no harm.
#[test]
fn depth_is_bounded() {
    let deep = std::thread::Builder::new().stack_size(512 * 1024).spawn(|| {
        for tag in [b'F', b'A'] {
            assert_eq!(check(&nested(tag, 10_000)), Err(TableError::TooDeep));
            assert_eq!(parse(&nested(tag, DEPTH_MAX + 1)).err(), Some(TableError::TooDeep));
            let table = parse(&nested(tag, DEPTH_MAX)).unwrap();
            assert_eq!(encode(&table)[4..], nested(tag, DEPTH_MAX));
        }
    });
    deep.unwrap().join().unwrap();
}

#[test]
fn entries_are_found_and_removed() {
    let table = b"\x02CCA\x00\x00\x00\x0cS\x00\x00\x00\x01aS\x00\x00\x00\x01b\x03BCCV\x01ni\x00\x00\x00\x07";
    let items: Vec<_> =
        get(table, "CC").unwrap().items().unwrap().filter_map(|item| item.string()).collect();
    assert_eq!(items, [b"a", b"b"]);
    assert_eq!(get(table, "n").unwrap().integer(), Some(7));
    assert_eq!(get(table, "BCC").unwrap().type_name(), "void");
    assert_eq!(get(table, "no"), None);
    let kept = without(table, "BCC");
    assert_eq!(
        kept,
        b"\x02CCA\x00\x00\x00\x0cS\x00\x00\x00\x01aS\x00\x00\x00\x01b\x01ni\x00\x00\x00\x07"
    );
    assert_eq!(without(&kept, "CC"), b"\x01ni\x00\x00\x00\x07");
}

proptest! {
    #[test]
    fn round_trip(table in field_table()) {
        let encoded = encode(&table);
        let length = u32::from_be_bytes(encoded[..4].try_into().unwrap());
        prop_assert_eq!(length as usize, encoded.len() - 4);
        prop_assert_eq!(check(&encoded[4..]), Ok(()));
        prop_assert_eq!(entries(&encoded[4..]).count(), table.inner().len());
        prop_assert_eq!(parse(&encoded[4..]).unwrap(), table);
    }

    /// What the check lets through, the parser reads; nothing panics.
    #[test]
    fn check_and_parser_agree(
        table in field_table(),
        changes in prop::collection::vec(any::<(u16, u8)>(), 0..6),
    ) {
        let mut bytes = encode(&table).split_off(4);
        mutate(&mut bytes, &changes);
        let checked = check(&bytes);
        let mut whole = u32::try_from(bytes.len()).unwrap().to_be_bytes().to_vec();
        whole.extend_from_slice(&bytes);
        let parsed = parse_field_table(&whole[..]).is_ok();
        prop_assert_eq!(checked.is_ok(), parsed, "{:?}", checked);
        for (_, value) in entries(&bytes) {
            if let Some(items) = value.items() {
                items.for_each(drop);
            }
            value.integer();
        }
        if checked.is_ok() {
            prop_assert_eq!(without(&bytes, "\u{1}"), bytes);
        }
    }
}
