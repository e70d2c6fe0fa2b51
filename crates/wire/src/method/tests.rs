use super::*;
use crate::table::DEPTH_MAX;
use crate::testing::{field_table, mutate, short};
use amq_protocol::frame::{AMQPFrame, gen_frame};
use amq_protocol::protocol::{basic, channel, connection, exchange, queue};
use bytes::Buf;
use proptest::prelude::*;

/// Methods with tables, bits and texts in every place.
fn methods() -> impl Strategy<Value = AMQPClass> {
    (field_table(), short(), short(), short(), any::<[bool; 5]>(), any::<u64>(), 0..14_u8).prop_map(
        |(table, a, b, c, bits, number, which)| {
            let (one, two, three) = (a.as_str().into(), b.as_str().into(), c.as_str().into());
            let small = number.to_be_bytes()[7];
            match which {
                0 => AMQPClass::Connection(connection::AMQPMethod::Start(connection::Start {
                    version_major: 0,
                    version_minor: 9,
                    server_properties: table,
                    mechanisms: a.as_str().into(),
                    locales: b.as_str().into(),
                })),
                1 => AMQPClass::Connection(connection::AMQPMethod::StartOk(connection::StartOk {
                    client_properties: table,
                    mechanism: one,
                    response: b.as_str().into(),
                    locale: three,
                })),
                2 => AMQPClass::Exchange(exchange::AMQPMethod::Declare(exchange::Declare {
                    exchange: one,
                    kind: two,
                    passive: bits[0],
                    durable: bits[1],
                    auto_delete: bits[2],
                    internal: bits[3],
                    nowait: bits[4],
                    arguments: table,
                })),
                3 => AMQPClass::Exchange(exchange::AMQPMethod::Bind(exchange::Bind {
                    destination: one,
                    source: two,
                    routing_key: three,
                    nowait: bits[0],
                    arguments: table,
                })),
                4 => AMQPClass::Exchange(exchange::AMQPMethod::Unbind(exchange::Unbind {
                    destination: one,
                    source: two,
                    routing_key: three,
                    nowait: bits[0],
                    arguments: table,
                })),
                5 => AMQPClass::Queue(queue::AMQPMethod::Declare(queue::Declare {
                    queue: one,
                    passive: bits[0],
                    durable: bits[1],
                    exclusive: bits[2],
                    auto_delete: bits[3],
                    nowait: bits[4],
                    arguments: table,
                })),
                6 => AMQPClass::Queue(queue::AMQPMethod::Bind(queue::Bind {
                    queue: one,
                    exchange: two,
                    routing_key: three,
                    nowait: bits[0],
                    arguments: table,
                })),
                7 => AMQPClass::Queue(queue::AMQPMethod::Unbind(queue::Unbind {
                    queue: one,
                    exchange: two,
                    routing_key: three,
                    arguments: table,
                })),
                8 => AMQPClass::Basic(basic::AMQPMethod::Consume(basic::Consume {
                    queue: one,
                    consumer_tag: two,
                    no_local: bits[0],
                    no_ack: bits[1],
                    exclusive: bits[2],
                    nowait: bits[3],
                    arguments: table,
                })),
                9 => AMQPClass::Basic(basic::AMQPMethod::Qos(basic::Qos {
                    prefetch_count: u16::from(small),
                    global: bits[0],
                })),
                10 => AMQPClass::Basic(basic::AMQPMethod::Get(basic::Get {
                    queue: one,
                    no_ack: bits[0],
                })),
                11 => AMQPClass::Channel(channel::AMQPMethod::Close(channel::Close {
                    reply_code: 404,
                    reply_text: one,
                    class_id: 60,
                    method_id: 40,
                })),
                12 => AMQPClass::Queue(queue::AMQPMethod::DeclareOk(queue::DeclareOk {
                    queue: one,
                    message_count: u32::from(small),
                    consumer_count: 3,
                })),
                _ => AMQPClass::Connection(connection::AMQPMethod::Open(connection::Open {
                    virtual_host: one,
                })),
            }
        },
    )
}

fn payload_of(class: &AMQPClass) -> Vec<u8> {
    let mut out = BytesMut::new();
    write_method(&mut out, 1, class);
    frame::decode(&mut out, 0).unwrap().unwrap().payload.to_vec()
}

fn check_error(payload: &[u8], text: &str) {
    assert_eq!(parse(payload).unwrap_err().to_string(), text);
}

#[test]
fn unknown_methods_are_told_from_malformed_ones() {
    assert_eq!(parse(&[0, 99, 0, 10]), Err(MethodError::UnknownClass { class: 99, method: 10 }));
    assert_eq!(parse(&[0, 60, 0, 99]), Err(MethodError::UnknownMethod { class: 60, method: 99 }));
    check_error(&[0, 60], "arguments of method 0.0 malformed");
    check_error(&[0, 60, 0, 40, 0], "arguments of method 60.40 malformed");
    check_error(&[0, 20, 0, 11, 0, 0, 0, 0, 9], "arguments of method 20.11 followed by more bytes");
}

#[test]
fn bad_tables_are_named() {
    let declare = |table: &[u8]| {
        let mut payload = vec![0, 50, 0, 10, 0, 0, 1, b'q', 0];
        payload.extend_from_slice(&u32::try_from(table.len()).unwrap().to_be_bytes());
        payload.extend_from_slice(table);
        payload
    };
    assert!(parse(&declare(b"\x01kV")).is_ok());
    check_error(&declare(b"\x01kz"), "field table holds a value of unknown type 'z'");
    let mut deep = Vec::new();
    for _ in 0..=DEPTH_MAX {
        let mut outer = vec![1, b'k', b'F'];
        outer.extend_from_slice(&u32::try_from(deep.len()).unwrap().to_be_bytes());
        outer.extend_from_slice(&deep);
        deep = outer;
    }
    check_error(&declare(&deep), "field table nested deeper than 64");
}

/// The list of methods that tells an unknown one from a malformed one holds all of them.
#[test]
fn every_known_method_parses_or_lacks_arguments() {
    for class in 0..=100 {
        for method in 0..=130 {
            let mut payload = vec![0, class, 0, method];
            payload.extend_from_slice(&[0; 64]);
            let parses = protocol::parse_class(&payload[..]).is_ok();
            let known = matches!(known(u16::from(class), u16::from(method)), Known::Method);
            assert_eq!(parses, known, "{class}.{method}");
        }
    }
}

proptest! {
    #[test]
    fn round_trip(class in methods(), channel in any::<u16>()) {
        let mut out = BytesMut::new();
        write_method(&mut out, channel, &class);
        let theirs = gen_frame(&AMQPFrame::Method(channel, class.clone()))(Vec::new().into());
        prop_assert_eq!(&out[..], &theirs.unwrap().write[..]);
        let frame = frame::decode(&mut out, 0).unwrap().unwrap();
        prop_assert!(!out.has_remaining());
        prop_assert_eq!((frame.kind, frame.channel), (Kind::Method, channel));
        let expected = (class.get_amqp_class_id(), class.get_amqp_method_id());
        prop_assert_eq!(ids(&frame.payload), Some(expected));
        prop_assert_eq!(parse(&frame.payload).unwrap(), class);
    }

    /// The check before the parser finds the table where the parser finds it.
    #[test]
    fn no_input_panics(
        class in methods(),
        changes in prop::collection::vec(any::<(u16, u8)>(), 0..6),
    ) {
        let mut payload = payload_of(&class);
        mutate(&mut payload, &changes);
        let whole = matches!(protocol::parse_class(&payload[..]), Ok(([], _)));
        prop_assert_eq!(parse(&payload).is_ok(), whole);
    }
}
