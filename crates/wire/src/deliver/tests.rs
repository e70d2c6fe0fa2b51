use super::*;
use crate::frame::{FrameRef, Kind};
use crate::testing::{frame_max, message, sent, short};
use amq_protocol::frame::{AMQPContentHeader, AMQPFrame, gen_frame};
use amq_protocol::protocol::AMQPClass;
use amq_protocol::protocol::basic::{self, AMQPMethod, parse_properties};
use proptest::prelude::*;

/// What `amq-protocol` makes of a method and a message.
fn theirs(channel: u16, method: AMQPMethod, message: &Message, frame_max: u32) -> Vec<u8> {
    let properties = parse_properties(message.properties()).unwrap().1;
    let body_size = message.body().len() as u64;
    let header = AMQPContentHeader { class_id: 60, body_size, properties };
    let mut frames = vec![
        AMQPFrame::Method(channel, AMQPClass::Basic(method)),
        AMQPFrame::Header(channel, header),
    ];
    for piece in message.body().chunks(content::piece_max(frame_max)) {
        frames.push(AMQPFrame::Body(channel, piece.to_vec()));
    }
    let mut bytes = Vec::new();
    for frame in &frames {
        bytes = gen_frame(frame)(bytes.into()).unwrap().write;
    }
    bytes
}

#[test]
fn golden_bytes() {
    let message = Message::from_parts("", "q", &[0, 0], b"x");
    let deliver = Deliver { consumer_tag: "t", delivery_tag: 258, redelivered: true };
    let mut out = Output::new();
    write_deliver(&mut out, 3, &deliver, &message, 0);
    let expected = [
        &[1, 0, 3, 0, 0, 0, 18, 0, 60, 0, 60, 1, b't'][..],
        &[0, 0, 0, 0, 0, 0, 1, 2, 1, 0, 1, b'q', 0xCE],
        &[2, 0, 3, 0, 0, 0, 14, 0, 60, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0xCE],
        &[3, 0, 3, 0, 0, 0, 1, b'x', 0xCE],
    ]
    .concat();
    assert_eq!(&sent(&mut out)[..], &expected[..]);
}

#[test]
fn large_bodies_are_shared() {
    let body = vec![7; 300_000];
    let message = Message::from_parts("", "q", &[0, 0], &body);
    let deliver = Deliver { consumer_tag: "t", delivery_tag: 1, redelivered: false };
    let mut out = Output::new();
    write_deliver(&mut out, 1, &deliver, &message, 131_072);
    let shared = message.body_bytes();
    let range = shared.as_ptr_range();
    let mut slices = [std::io::IoSlice::new(&[]); 16];
    let count = bytes::Buf::chunks_vectored(&out, &mut slices);
    let inside = slices[..count].iter().filter(|slice| range.contains(&slice.as_ptr())).count();
    assert_eq!(inside, 3);
}

#[test]
fn other_methods_are_no_deliveries() {
    assert!(parse_deliver(&[0, 60, 0, 71, 0]).is_none());
    assert!(parse_deliver(&[0, 60, 0, 60]).is_none());
    assert!(parse_deliver(&[]).is_none());
}

proptest! {
    #[test]
    fn deliver_is_what_amq_protocol_writes(
        message in message(), tag in short(), delivery_tag in any::<u64>(),
        redelivered in any::<bool>(), channel in any::<u16>(), frame_max in frame_max(),
    ) {
        let deliver = Deliver { consumer_tag: &tag, delivery_tag, redelivered };
        let mut out = Output::new();
        write_deliver(&mut out, channel, &deliver, &message, frame_max);
        let bytes = sent(&mut out);
        let method = AMQPMethod::Deliver(basic::Deliver {
            consumer_tag: tag.as_str().into(),
            delivery_tag,
            redelivered,
            exchange: message.exchange().into(),
            routing_key: message.routing_key().into(),
        });
        prop_assert_eq!(&bytes[..], &theirs(channel, method, &message, frame_max)[..]);
        let FrameRef { kind, payload, .. } = frame::peek(&bytes, 0).unwrap().unwrap();
        prop_assert_eq!(kind, Kind::Method);
        prop_assert_eq!(parse_deliver(payload), Some((deliver, message.route())));
        for cut in 0..payload.len() {
            prop_assert_eq!(parse_deliver(&payload[..cut]), None);
        }
    }

    #[test]
    fn get_ok_is_what_amq_protocol_writes(
        message in message(), delivery_tag in any::<u64>(), redelivered in any::<bool>(),
        message_count in any::<u32>(), channel in any::<u16>(), frame_max in frame_max(),
    ) {
        let mut out = Output::new();
        write_get_ok(
            &mut out, channel, delivery_tag, redelivered, message_count, &message, frame_max);
        let method = AMQPMethod::GetOk(basic::GetOk {
            delivery_tag,
            redelivered,
            exchange: message.exchange().into(),
            routing_key: message.routing_key().into(),
            message_count,
        });
        prop_assert_eq!(&sent(&mut out)[..], &theirs(channel, method, &message, frame_max)[..]);
    }

    #[test]
    fn return_is_what_amq_protocol_writes(
        message in message(), reply_code in any::<u16>(), text in short(),
        channel in any::<u16>(), frame_max in frame_max(),
    ) {
        let mut out = Output::new();
        write_return(&mut out, channel, reply_code, &text, &message, frame_max);
        let method = AMQPMethod::Return(basic::Return {
            reply_code,
            reply_text: text.as_str().into(),
            exchange: message.exchange().into(),
            routing_key: message.routing_key().into(),
        });
        prop_assert_eq!(&sent(&mut out)[..], &theirs(channel, method, &message, frame_max)[..]);
    }
}
