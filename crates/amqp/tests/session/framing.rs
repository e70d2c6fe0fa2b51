//! Frames that are wrong, and contents out of order.

use crate::harness::{Bench, Got, capabilities, close_ok};
use amq_protocol::protocol::{AMQPClass, channel, connection};
use amqp::config::SessionConfig;
use amqp::request::{Event, Request};
use bytes::BytesMut;
use wire::frame::{self, Kind};

fn frame(kind: Kind, channel: u16, payload: &[u8]) -> Vec<u8> {
    let mut bytes = BytesMut::new();
    frame::write(&mut bytes, kind, channel, payload);
    bytes.to_vec()
}

fn publish_method() -> Vec<u8> {
    frame(Kind::Method, 1, &[0, 60, 0, 40, 0, 0, 1, b'x', 1, b'k', 0])
}

fn header(size: u64) -> Vec<u8> {
    let mut payload = vec![0, 60, 0, 0];
    payload.extend(size.to_be_bytes());
    payload.extend([0, 0]);
    frame(Kind::Header, 1, &payload)
}

#[track_caller]
fn closes(bytes: &[u8], code: u16, text: &str) {
    let mut bench = Bench::open();
    bench.bytes(bytes);
    bench.expect_close(code, text);
    // what follows is discarded
    bench.bytes(b"\x01\0\x01\0\0\0\x05\0\x14\0\x0a\0\xce");
    assert_eq!(bench.take(), []);
    assert!(!bench.session.wants_close());
}

#[test]
fn case_001_heartbeat_on_a_channel() {
    closes(&[8, 0, 1, 0, 0, 0, 0, 0xce], 505, "UNEXPECTED_FRAME - type 8, all octets = <<>>");
    let mut bench = Bench::open();
    bench.bytes(&frame::HEARTBEAT);
    assert_eq!(bench.take(), []);
}

#[test]
fn frames_that_are_none() {
    closes(
        &[1, 0, 1, 0xff, 0, 0, 0],
        501,
        "FRAME_ERROR - type 1, all octets = <<>>: {frame_too_large,4278190080,131064}",
    );
    closes(
        &[1, 0, 1, 0, 0, 0, 4, b'a', b'b', b'c', b'd', 0xcf],
        501,
        "FRAME_ERROR - type 1, all octets = <<\"abcd\">>: {invalid_frame_end_marker,207}",
    );
    closes(
        &[9, 0, 1, 0, 0, 0, 1, 0, 0xce],
        501,
        "FRAME_ERROR - type 9, all octets = <<0>>: unknown_frame",
    );
    closes(
        &frame(Kind::Method, 1, &[0, 60]),
        501,
        "FRAME_ERROR - type 1, all octets = <<0,60>>: unknown_frame",
    );
    closes(&frame(Kind::Body, 0, b"x"), 505, "UNEXPECTED_FRAME - type 3, all octets = <<\"x\">>");
}

#[test]
fn methods_that_are_none() {
    closes(&frame(Kind::Method, 1, &[0, 99, 0, 1]), 503, "COMMAND_INVALID - unknown method 99.1");
    closes(&frame(Kind::Method, 1, &[0, 60, 0, 99]), 503, "COMMAND_INVALID - unknown method 60.99");
    closes(&frame(Kind::Method, 1, &[0, 50, 0, 10, 0]), 501, "FRAME_ERROR - cannot decode <<0>>");
    closes(
        &frame(Kind::Method, 1, &[0, 50, 0, 10, 0, 0, 1, b'q', 4, 0, 0, 0, 0, b'x']),
        501,
        "FRAME_ERROR - cannot decode <<0,0,1,113,4,0,0,0,0,120>>",
    );
    closes(
        &frame(Kind::Method, 1, &[0, 50, 0, 10, 0, 0, 1, b'q', 4, 0, 0, 0, 3, 1, b'k', b'Z']),
        502,
        "SYNTAX_ERROR - field table holds a value of unknown type 'Z'",
    );
    closes(
        &frame(Kind::Header, 2, &[0; 14]),
        505,
        "UNEXPECTED_FRAME - expected method frame, got non method frame instead",
    );
    // queue.declare-ok comes only from servers
    closes(
        &frame(Kind::Method, 1, &[0, 50, 0, 11, 0, 0, 0, 0, 0, 0, 0, 0, 0]),
        503,
        "COMMAND_INVALID - unimplemented method",
    );
}

#[test]
fn names_must_be_utf8() {
    closes(
        &frame(Kind::Method, 1, &[0, 50, 0, 10, 0, 0, 1, 0xff, 0, 0, 0, 0, 0]),
        501,
        "FRAME_ERROR - Malformed UTF-8 in shortstr",
    );
}

#[test]
fn contents_out_of_order() {
    closes(
        &header(1),
        505,
        "UNEXPECTED_FRAME - expected method frame, got non method frame instead",
    );
    closes(
        &[publish_method(), frame(Kind::Body, 1, b"x")].concat(),
        505,
        "UNEXPECTED_FRAME - expected content header for class 60, got non content header frame instead",
    );
    closes(
        &[publish_method(), publish_method()].concat(),
        505,
        "UNEXPECTED_FRAME - expected content header for class 60, got non content header frame instead",
    );
    closes(
        &[publish_method(), frame(Kind::Header, 1, &[0, 50, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0])]
            .concat(),
        505,
        "UNEXPECTED_FRAME - expected content header for class 60, got one for class 50 instead",
    );
    closes(
        &[publish_method(), header(5), frame(Kind::Body, 1, b"123"), header(2)].concat(),
        505,
        "UNEXPECTED_FRAME - expected content body, got non content body frame instead",
    );
    closes(
        &[publish_method(), header(2), frame(Kind::Body, 1, b"123")].concat(),
        501,
        "FRAME_ERROR - content body frame exceeds remaining content size",
    );
    closes(
        &frame(Kind::Method, 1, &[0, 60, 0, 40, 0, 0, 0, 0, 2]),
        540,
        "NOT_IMPLEMENTED - immediate=true",
    );
}

#[test]
fn bodies_come_in_any_pieces() {
    for pieces in [vec![], vec![5_usize], vec![1, 1, 3], vec![0, 5], vec![4096, 4096, 17]] {
        let size: usize = pieces.iter().sum();
        let body: Vec<u8> = (0..size).map(|index| (index % 251) as u8).collect();
        let mut bytes = [publish_method(), header(size as u64)].concat();
        let mut at = 0;
        for piece in pieces {
            bytes.extend(frame(Kind::Body, 1, &body[at..at + piece]));
            at += piece;
        }
        // whole, byte by byte, and cut once at each place
        let mut cuts = vec![vec![bytes.len()], vec![1; bytes.len()]];
        cuts.extend((1..bytes.len().min(80)).map(|cut| vec![cut, bytes.len() - cut]));
        for cuts in cuts {
            let mut bench = Bench::open();
            let mut rest = &bytes[..];
            for cut in cuts {
                let (now, later) = rest.split_at(cut);
                bench.bytes(now);
                rest = later;
            }
            assert_eq!(bench.requests.len(), 1, "body of {size}");
            let Request::Publish(publish) = &bench.requests[0] else {
                panic!("{:?}", bench.requests[0]);
            };
            assert_eq!(publish.message.body(), body);
            assert_eq!(publish.message.exchange(), "x");
            assert_eq!(publish.message.routing_key(), "k");
        }
    }
}

#[test]
fn contents_of_two_channels_interleave() {
    let mut bench = Bench::open();
    bench.open_channel(2);
    bench.requests.clear();
    let other = |bytes: Vec<u8>| {
        let mut bytes = bytes;
        bytes[2] = 2;
        bytes
    };
    bench.bytes(&publish_method());
    bench.bytes(&other(publish_method()));
    bench.bytes(&header(2));
    bench.bytes(&other(header(3)));
    bench.bytes(&other(frame(Kind::Body, 1, b"abc")));
    bench.bytes(&frame(Kind::Body, 1, b"xy"));
    let bodies: Vec<_> = bench
        .requests
        .iter()
        .map(|request| match request {
            Request::Publish(publish) => (publish.channel, publish.message.body().to_vec()),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(bodies, [(2, b"abc".to_vec()), (1, b"xy".to_vec())]);
}

#[test]
fn large_messages_are_refused_before_their_body_comes() {
    let config = SessionConfig { message_size_max: 10, ..SessionConfig::default() };
    let mut bench = Bench::open_with(config, &capabilities());
    bench.take();
    bench.bytes(&[publish_method(), header(10), frame(Kind::Body, 1, &[0; 10])].concat());
    assert_eq!(bench.take(), []);
    // in one piece, and the header alone
    for (size, body) in [(11, frame(Kind::Body, 1, &[0; 11])), (u64::MAX, Vec::new())] {
        bench.bytes(&[publish_method(), header(size), body].concat());
        bench.expect_channel_close(
            1,
            406,
            &format!(
                "PRECONDITION_FAILED - message size {size} is larger than configured max size 10"
            ),
        );
        bench.bytes(&frame(Kind::Body, 1, b"discarded"));
        bench.method(1, close_ok());
        bench.open_channel(1);
    }
}

#[test]
fn frames_for_the_client_keep_to_its_limit() {
    let config = SessionConfig { frame_max: 4096, ..SessionConfig::default() };
    let mut bench = Bench::open_with(config, &capabilities());
    let consumer = bench.consume("c", true);
    let body: Vec<u8> = (0..20_000).map(|index| (index % 251) as u8).collect();
    bench.event(Event::Deliver(crate::harness::delivery(1, Some(consumer), 1, &body)));
    let frames = bench.take();
    let mut received = Vec::new();
    for frame in &frames[2..] {
        match frame {
            Got::Body(1, piece) => {
                assert!(piece.len() <= 4088);
                received.extend_from_slice(piece);
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(received, body);
    assert_eq!(frames.len(), 2 + 5);
}

#[test]
fn case_014_headers_that_outgrow_a_frame_are_cut() {
    use amq_protocol::types::{AMQPValue, FieldArray, FieldTable};
    let deliver = |headers: &FieldTable| {
        let config = SessionConfig { frame_max: 4096, ..SessionConfig::default() };
        let mut bench = Bench::open_with(config, &capabilities());
        let consumer = bench.consume("c", true);
        let table = wire::table::encode(headers);
        let properties = wire::properties::Properties {
            headers: Some(&table[4..]),
            delivery_mode: Some(2),
            ..Default::default()
        };
        let mut delivery = crate::harness::delivery(1, Some(consumer), 1, b"body");
        delivery.message =
            model::message::Message::from_parts("x", "k", &properties.encode(), b"body");
        bench.event(Event::Deliver(delivery));
        let frames = bench.take();
        assert_eq!(frames[2], Got::Body(1, b"body".to_vec()));
        match &frames[1] {
            Got::Header(1, 4, properties) => {
                assert!(properties.len() + 12 + 8 <= 4096);
                properties.clone()
            }
            other => panic!("{other:?}"),
        }
    };
    let mut headers = FieldTable::default();
    headers.insert("mine".into(), AMQPValue::LongInt(5));
    let death = AMQPValue::LongString(vec![b'd'; 5000].into());
    headers.insert("x-death".into(), AMQPValue::FieldArray(FieldArray::from(vec![death])));
    let properties = deliver(&headers);
    let scanned = wire::properties::Properties::scan(&properties).unwrap();
    assert!(scanned.header("mine").is_some() && scanned.header("x-death").is_none());
    assert_eq!(scanned.delivery_mode, Some(2));
    headers.insert("mine".into(), AMQPValue::LongString(vec![b'm'; 5000].into()));
    let properties = deliver(&headers);
    let scanned = wire::properties::Properties::scan(&properties).unwrap();
    assert!(scanned.headers.is_none());
    assert_eq!(scanned.delivery_mode, Some(2));
}

#[test]
fn only_the_end_is_read_after_a_connection_error() {
    let mut bench = Bench::open();
    bench.bytes(&[8, 0, 1, 0, 0, 0, 0, 0xce]);
    bench.take();
    bench.requests.clear();
    bench.publish(1, "", "q", b"lost");
    bench.method(0, AMQPClass::Connection(connection::AMQPMethod::Open(Default::default())));
    bench.method(1, AMQPClass::Channel(channel::AMQPMethod::Open(channel::Open {})));
    assert!(bench.requests.is_empty());
    assert_eq!(bench.take(), []);
    bench.method(0, AMQPClass::Connection(connection::AMQPMethod::CloseOk(connection::CloseOk {})));
    assert!(bench.session.wants_close());
}

#[test]
fn a_client_that_never_confirms_the_close_is_dropped() {
    let mut bench = Bench::open();
    bench.tick(1000);
    bench.bytes(&[8, 0, 1, 0, 0, 0, 0, 0xce]);
    bench.tick(30_999);
    assert!(!bench.session.wants_close());
    bench.tick(31_000);
    assert!(bench.session.wants_close());
}
