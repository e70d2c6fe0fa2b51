use super::*;
use crate::testing::mutate;
use amq_protocol::frame::{AMQPFrame, WriteContext, gen_frame};
use proptest::prelude::*;

fn kinds() -> impl Strategy<Value = Kind> {
    prop::sample::select(vec![Kind::Method, Kind::Header, Kind::Body, Kind::Heartbeat])
}

fn bytes_of(frames: &[(Kind, u16, Vec<u8>)]) -> Vec<u8> {
    let mut all = Vec::new();
    for (kind, channel, payload) in frames {
        write(&mut all, *kind, *channel, payload);
    }
    all
}

fn decode_all(bytes: &[u8], frame_max: u32) -> (Vec<Frame>, Option<FrameError>, usize) {
    let mut buffer = BytesMut::from(bytes);
    let mut frames = Vec::new();
    loop {
        match decode(&mut buffer, frame_max) {
            Ok(Some(frame)) => frames.push(frame),
            Ok(None) => return (frames, None, buffer.len()),
            Err(error) => return (frames, Some(error), buffer.len()),
        }
    }
}

#[test]
fn golden_bytes() {
    assert_eq!(bytes_of(&[(Kind::Heartbeat, 0, vec![])]), HEARTBEAT);
    assert_eq!(
        bytes_of(&[(Kind::Body, 0x0102, b"hi".to_vec())]),
        [3, 1, 2, 0, 0, 0, 2, b'h', b'i', 0xCE]
    );
}

#[test]
fn errors_say_what_rabbitmq_says() {
    let check = |bytes: &[u8], text: &str| {
        let (_, error, rest) = decode_all(bytes, 4096);
        assert_eq!(error.unwrap().to_string(), text);
        assert_eq!(rest, bytes.len(), "the buffer is left as it was");
    };
    check(&[1, 0, 1, 0, 0, 16, 1], "type 1, all octets = <<>>: {frame_too_large,4097,4088}");
    check(
        &[3, 0, 1, 0, 0, 0, 2, b'h', b'"', 0],
        r#"type 3, all octets = <<"h\"">>: {invalid_frame_end_marker,0}"#,
    );
    check(&[4, 0, 0, 0, 0, 0, 1, 0, 0xCE], "type 4, all octets = <<0>>: unknown_frame");
    let mut long = vec![4, 0, 0, 0, 0, 0, 17];
    long.extend_from_slice(&[1; 17]);
    long.push(0xCE);
    check(&long, "type 4, first 16 octets = <<1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1>>: unknown_frame");
}

#[test]
fn payloads_up_to_frame_max_are_taken() {
    let bytes = bytes_of(&[(Kind::Body, 1, vec![7; 4096])]);
    assert!(matches!(decode_all(&bytes, 4096), (frames, None, 0) if frames.len() == 1));
    let bytes = bytes_of(&[(Kind::Body, 1, vec![7; 4097])]);
    assert!(matches!(
        decode_all(&bytes, 4096).1,
        Some(FrameError::TooLarge { channel: 1, size: 4097, max: 4088, .. })
    ));
    assert!(matches!(decode_all(&bytes, 0), (frames, None, 0) if frames.len() == 1));
}

#[test]
fn greetings() {
    let check = |bytes: &[u8], expected: Option<Greeting>| {
        assert_eq!(decode_greeting(&mut BytesMut::from(bytes)), expected);
    };
    check(&PROTOCOL_HEADER, Some(Greeting::Amqp));
    check(&[b'A', b'M', b'Q', b'P', 1, 1, 0, 9], Some(Greeting::Amqp));
    check(b"GET / HT", Some(Greeting::Unknown(*b"GET / HT")));
    check(b"AMQP\x00\x01\x00\x00", Some(Greeting::Unknown(*b"AMQP\x00\x01\x00\x00")));
    check(b"AMQP\x00", None);
}

proptest! {
    /// Frames come out as they went in, wherever the bytes are cut, and as `amq-protocol` has them.
    #[test]
    fn round_trip(
        frames in prop::collection::vec(
            (kinds(), any::<u16>(), prop::collection::vec(any::<u8>(), 0..40)), 0..6),
        cut in any::<prop::sample::Index>(),
    ) {
        let bytes = bytes_of(&frames);
        let cut = cut.index(bytes.len() + 1);
        let mut buffer = BytesMut::new();
        let mut read = Vec::new();
        for part in [&bytes[..cut], &bytes[cut..]] {
            buffer.extend_from_slice(part);
            while let Some(frame) = decode(&mut buffer, 0).unwrap() {
                read.push((frame.kind, frame.channel, frame.payload.to_vec()));
            }
        }
        prop_assert!(buffer.is_empty());
        prop_assert_eq!(&read, &frames);
        for (kind, channel, payload) in frames {
            if kind == Kind::Body {
                let mut ours = Vec::new();
                write(&mut ours, kind, channel, &payload);
                let frame = AMQPFrame::Body(channel, payload);
                let theirs =
                    gen_frame(&frame)(WriteContext::from(Vec::new())).unwrap().write;
                prop_assert_eq!(ours, theirs);
            }
        }
    }

    #[test]
    fn no_input_panics(
        frames in prop::collection::vec(
            (kinds(), any::<u16>(), prop::collection::vec(any::<u8>(), 0..40)), 0..4),
        changes in prop::collection::vec(any::<(u16, u8)>(), 0..6),
        frame_max in prop::sample::select(vec![0, 16, 4096]),
    ) {
        let mut bytes = bytes_of(&frames);
        mutate(&mut bytes, &changes);
        let (frames, error, rest) = decode_all(&bytes, frame_max);
        let taken: usize = frames.iter().map(|frame| frame.payload.len() + OVERHEAD).sum();
        prop_assert_eq!(taken + rest, bytes.len());
        if let Some(error) = error {
            prop_assert!(error.to_string().starts_with("type "));
        }
    }
}
