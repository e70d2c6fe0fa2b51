use super::*;
use crate::content::{Assembly, ContentHeader};
use crate::testing::{body, frame_max, message, mutate, short};
use amq_protocol::frame::{AMQPContentHeader, AMQPFrame, gen_frame};
use amq_protocol::protocol::basic::{self, parse_properties};
use amq_protocol::protocol::{AMQPClass, basic::AMQPMethod};
use proptest::prelude::*;

fn same(left: &Message, right: &Message) -> bool {
    left.route() == right.route()
        && left.properties() == right.properties()
        && left.body() == right.body()
}

fn written(channel: u16, mandatory: bool, message: &Message, frame_max: u32) -> BytesMut {
    let mut out = BytesMut::new();
    write(
        &mut out,
        channel,
        message.exchange(),
        message.routing_key(),
        mandatory,
        message.properties(),
        message.body(),
        frame_max,
    );
    out
}

/// The slow way: frame by frame.
fn assembled(mut bytes: BytesMut, frame_max: u32) -> (u16, bool, Message) {
    let mut next = || frame::decode(&mut bytes, frame_max).unwrap().unwrap();
    let method = next();
    let publish = parse(&method.payload).unwrap();
    let header = next();
    let content = ContentHeader::parse(&header.payload).unwrap();
    let mut assembly = Assembly::new(&publish, &content);
    while !assembly.is_complete() {
        let piece = next();
        assert_eq!(piece.kind, Kind::Body);
        assembly.push(&piece.payload).unwrap();
    }
    let (channel, mandatory) = (method.channel, publish.mandatory);
    let message = assembly.finish();
    assert!(bytes.is_empty());
    (channel, mandatory, message)
}

#[test]
fn golden_bytes() {
    let message = Message::from_parts("e", "kk", &[0x10, 0, 2], b"hi");
    let expected = [
        &[1, 0, 1, 0, 0, 0, 12, 0, 60, 0, 40, 0, 0, 1, b'e', 2, b'k', b'k', 1, 0xCE][..],
        &[2, 0, 1, 0, 0, 0, 15, 0, 60, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0x10, 0, 2, 0xCE],
        &[3, 0, 1, 0, 0, 0, 2, b'h', b'i', 0xCE],
    ]
    .concat();
    assert_eq!(written(1, true, &message, 0), expected);
}

#[test]
fn whatever_is_not_one_whole_publish_is_left_alone() {
    let message = Message::from_parts("e", "k", &[0, 0], b"body");
    let whole = written(1, false, &message, 0);
    for cut in 0..whole.len() {
        let mut buffer = BytesMut::from(&whole[..cut]);
        assert!(decode_whole(&mut buffer, 0).is_none(), "cut at {cut}");
        assert_eq!(buffer, whole[..cut]);
    }
    let with = |at: usize, byte: u8| {
        let mut buffer = whole.clone();
        buffer[at] = byte;
        decode_whole(&mut buffer, 0).is_some()
    };
    let method_len = 7 + 11 + 1;
    assert!(with(0, 1), "nothing changed");
    assert!(!with(2, 2), "method of another channel");
    assert!(!with(10, 41), "another method");
    assert!(!with(14, 0xff), "exchange is not UTF-8");
    assert!(!with(method_len, 3), "no header frame");
    assert!(!with(method_len + 8, 50), "header of another class");
    assert!(!with(method_len + 10, 1), "weight");
    assert!(!with(method_len + 18, 5), "body size");
    assert!(decode_whole(&mut whole.clone(), 8).is_none(), "longer than frame_max");
}

#[test]
fn wrong_arguments_are_syntax_errors() {
    let text = |payload: &[u8]| parse(payload).unwrap_err().to_string();
    assert_eq!(text(&[0, 60, 0, 40, 0, 0, 3, b'e']), "arguments of method 60.40 malformed");
    assert_eq!(text(&[0, 60, 0, 40, 0, 0, 1, 0xff, 0, 0]), "arguments of method 60.40 malformed");
    assert_eq!(
        text(&[0, 60, 0, 40, 0, 0, 0, 0, 0, 0]),
        "arguments of method 60.40 followed by more bytes"
    );
}

proptest! {
    /// Both ways of reading give what was written, and `amq-protocol` writes the same bytes.
    #[test]
    fn round_trip(
        message in message(),
        channel in any::<u16>(),
        mandatory in any::<bool>(),
        frame_max in frame_max(),
    ) {
        // header frames are never split, so frame_max is only the body's here
        let bytes = written(channel, mandatory, &message, frame_max);
        let (to, required, slow) = assembled(bytes.clone(), 0);
        prop_assert_eq!((to, required), (channel, mandatory));
        prop_assert!(same(&slow, &message));
        let one_piece = message.body().len() <= content::piece_max(frame_max);
        let mut buffer = bytes.clone();
        match decode_whole(&mut buffer, 0) {
            Some(fast) => {
                prop_assert!(one_piece && buffer.is_empty());
                prop_assert_eq!((fast.channel, fast.mandatory), (channel, mandatory));
                prop_assert!(!fast.immediate);
                prop_assert!(same(&fast.message, &message));
            }
            None => prop_assert!(!one_piece),
        }
        let properties = parse_properties(message.properties()).unwrap().1;
        let method = AMQPClass::Basic(AMQPMethod::Publish(basic::Publish {
            exchange: message.exchange().into(),
            routing_key: message.routing_key().into(),
            mandatory,
            immediate: false,
        }));
        let header = AMQPContentHeader {
            class_id: 60,
            body_size: message.body().len() as u64,
            properties,
        };
        let mut frames = vec![
            AMQPFrame::Method(channel, method),
            AMQPFrame::Header(channel, header),
        ];
        for piece in message.body().chunks(content::piece_max(frame_max)) {
            frames.push(AMQPFrame::Body(channel, piece.to_vec()));
        }
        let mut theirs = Vec::new();
        for frame in &frames {
            theirs = gen_frame(frame)(theirs.into()).unwrap().write;
        }
        prop_assert_eq!(&bytes[..], &theirs[..]);
    }

    /// On broken bytes the fast way never takes what the slow way would refuse.
    #[test]
    fn no_input_panics(
        (exchange, key, body) in (short(), short(), body()),
        changes in prop::collection::vec(any::<(u16, u8)>(), 0..6),
    ) {
        let message = Message::from_parts(&exchange, &key, &[0x10, 0, 1], &body);
        let mut bytes = written(1, false, &message, 0).to_vec();
        mutate(&mut bytes, &changes);
        let mut buffer = BytesMut::from(&bytes[..]);
        if let Some(whole) = decode_whole(&mut buffer, 0) {
            let taken = bytes.len() - buffer.len();
            let (_, _, slow) = assembled(BytesMut::from(&bytes[..taken]), 0);
            prop_assert!(same(&slow, &whole.message));
        } else {
            prop_assert_eq!(&buffer[..], &bytes[..]);
        }
    }
}
