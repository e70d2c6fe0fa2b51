use super::*;
use crate::testing::{basic_properties, encode_properties, mutate};
use amq_protocol::protocol::basic::parse_properties;
use amq_protocol::types::ShortString;
use proptest::prelude::*;

fn check_error(bytes: &[u8], text: &str) {
    assert_eq!(Properties::scan(bytes).unwrap_err().to_string(), text);
}

#[test]
fn errors_name_the_cause() {
    check_error(&[0], "content properties malformed");
    check_error(&[0x10, 0], "content properties malformed");
    check_error(&[0x10, 0, 1, 1], "content properties followed by more bytes");
    check_error(&[0x80, 0, 4, b'a'], "content properties malformed");
    check_error(&[0, 1], "content properties malformed");
    check_error(&[0, 1, 0, 0], "content properties malformed");
    check_error(
        &[0x20, 0, 0, 0, 0, 3, 1, b'k', b'z'],
        "headers: field table holds a value of unknown type 'z'",
    );
}

#[test]
fn binary_ids_are_kept() {
    let bytes = [0x04, 0, 3, 0xff, 0, 0xfe];
    let properties = Properties::scan(&bytes).unwrap();
    assert_eq!(properties.correlation_id, Some(&[0xff, 0, 0xfe][..]));
    assert_eq!(properties.encode(), bytes);
}

#[test]
fn recipients_are_read() {
    let headers = b"\x02CCA\x00\x00\x00\x07S\x00\x00\x00\x01aV\x03BCCS\x00\x00\x00\x01b";
    let properties = Properties { headers: Some(headers), ..Properties::default() };
    assert_eq!(properties.recipients("CC"), Ok(vec![&b"a"[..]]));
    assert_eq!(properties.recipients("BCC"), Err("longstr"));
    assert_eq!(properties.recipients("DCC"), Ok(vec![]));
    assert_eq!(Properties::default().recipients("CC"), Ok(vec![]));
}

#[expect(clippy::ref_option, reason = "amq-protocol returns it so")]
fn text(field: &Option<ShortString>) -> Option<&[u8]> {
    field.as_ref().map(|text| text.as_str().as_bytes())
}

proptest! {
    /// The scan finds what `amq-protocol` finds, and writing gives the same bytes.
    #[test]
    fn round_trip(theirs in basic_properties()) {
        let bytes = encode_properties(&theirs);
        let ours = Properties::scan(&bytes).unwrap();
        prop_assert_eq!(&ours.encode(), &bytes);
        prop_assert_eq!(ours.content_type, text(theirs.content_type()));
        prop_assert_eq!(ours.content_encoding, text(theirs.content_encoding()));
        prop_assert_eq!(ours.correlation_id, text(theirs.correlation_id()));
        prop_assert_eq!(ours.reply_to, text(theirs.reply_to()));
        prop_assert_eq!(ours.expiration, text(theirs.expiration()));
        prop_assert_eq!(ours.message_id, text(theirs.message_id()));
        prop_assert_eq!(ours.kind, text(theirs.kind()));
        prop_assert_eq!(ours.user_id, text(theirs.user_id()));
        prop_assert_eq!(ours.app_id, text(theirs.app_id()));
        prop_assert_eq!(ours.cluster_id, text(theirs.cluster_id()));
        prop_assert_eq!(ours.delivery_mode, *theirs.delivery_mode());
        prop_assert_eq!(ours.priority, *theirs.priority());
        prop_assert_eq!(ours.timestamp, *theirs.timestamp());
        let headers = ours.headers.map(|entries| table::parse(entries).unwrap());
        prop_assert_eq!(&headers, theirs.headers());
    }

    /// A changed property is the only change.
    #[test]
    fn one_change(theirs in basic_properties(), reply_to in "[a-z]{0,20}") {
        let bytes = encode_properties(&theirs);
        let changed = Properties {
            reply_to: Some(reply_to.as_bytes()),
            expiration: None,
            ..Properties::scan(&bytes).unwrap()
        };
        let changed = changed.encode();
        let read = Properties::scan(&changed).unwrap();
        prop_assert_eq!(read.reply_to, Some(reply_to.as_bytes()));
        prop_assert_eq!(read.expiration, None);
        let before = Properties::scan(&bytes).unwrap();
        let back = Properties { reply_to: before.reply_to, expiration: before.expiration, ..read };
        prop_assert_eq!(back.encode(), bytes);
    }

    /// Broken bytes do not panic; whatever `amq-protocol` reads whole, the scan reads.
    #[test]
    fn no_input_panics(
        theirs in basic_properties(),
        changes in prop::collection::vec(any::<(u16, u8)>(), 0..6),
    ) {
        let mut bytes = encode_properties(&theirs);
        mutate(&mut bytes, &changes);
        let scanned = Properties::scan(&bytes);
        if let Ok(([], _)) = parse_properties(&bytes[..]) {
            prop_assert!(scanned.is_ok());
        }
        if let Ok(properties) = scanned {
            let again = properties.encode();
            prop_assert_eq!(Properties::scan(&again).unwrap(), properties);
        }
    }
}
