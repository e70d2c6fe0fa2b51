use super::*;
use proptest::prelude::*;

fn frame(kind: Kind, channel: u8, correlation: u64, payload: &[u8]) -> Frame {
    Frame { kind, channel, correlation, payload: Bytes::copy_from_slice(payload) }
}

fn encode(frames: &[Frame]) -> BytesMut {
    let mut out = BytesMut::new();
    for frame in frames {
        frame.put_header(&mut out);
        out.put_slice(&frame.payload);
    }
    out
}

/// Feeds the bytes in pieces of the given sizes and collects the frames.
fn decode(bytes: &[u8], pieces: &[usize]) -> (Vec<Frame>, Result<usize, FrameError>) {
    let mut input = BytesMut::new();
    let mut frames = Vec::new();
    let mut rest = bytes;
    let mut pieces = pieces.iter().cycle();
    loop {
        loop {
            match front(&input) {
                Ok(Front::Whole(kind)) => frames.push(cut(&mut input, kind)),
                Ok(Front::Partial(missing)) => {
                    assert!(missing > 0);
                    break;
                }
                Err(error) => return (frames, Err(error)),
            }
        }
        if rest.is_empty() {
            return (frames, Ok(input.len()));
        }
        let count = rest.len().min(*pieces.next().unwrap());
        input.extend_from_slice(&rest[..count]);
        rest = &rest[count..];
    }
}

fn frames() -> impl Strategy<Value = Vec<Frame>> {
    let payload = prop::collection::vec(any::<u8>(), 0..300);
    let frame = (0..7u8, any::<u8>(), any::<u64>(), payload).prop_map(
        |(code, channel, correlation, payload)| match Kind::from_wire(code + 1).unwrap() {
            kind @ (Kind::Message | Kind::Request | Kind::Answer | Kind::Part) => {
                frame(kind, channel, correlation, &payload)
            }
            kind @ (Kind::Dropped | Kind::Ping | Kind::Pong) => {
                frame(kind, channel, correlation, b"")
            }
        },
    );
    prop::collection::vec(frame, 0..20)
}

proptest! {
    #[test]
    fn what_is_written_is_read(frames in frames(), pieces in prop::collection::vec(1..200usize, 1..9)) {
        let bytes = encode(&frames);
        prop_assert_eq!(bytes.len(), frames.iter().map(Frame::len).sum::<usize>());
        prop_assert_eq!(decode(&bytes, &pieces), (frames, Ok(0)));
    }

    #[test]
    fn truncated_frames_are_waited_for(frames in frames(), cut in any::<prop::sample::Index>()) {
        let bytes = encode(&frames);
        let kept = cut.index(bytes.len() + 1);
        let (read, rest) = decode(&bytes[..kept], &[64]);
        let rest = rest.expect("a part of a frame is no error");
        prop_assert_eq!(read.as_slice(), &frames[..read.len()]);
        prop_assert_eq!(read.iter().map(Frame::len).sum::<usize>() + rest, kept);
    }

    #[test]
    fn garbage_does_no_harm(bytes in prop::collection::vec(any::<u8>(), 0..600), piece in 1..50usize) {
        let (frames, _) = decode(&bytes, &[piece]);
        prop_assert!(frames.iter().map(Frame::len).sum::<usize>() <= bytes.len());
    }
}

#[test]
fn bad_frames_are_known_by_their_first_bytes() {
    let max = 10 + PART;
    let bytes = max + 1;
    let too_long = u32::try_from(bytes).unwrap().to_be_bytes();
    assert_eq!(front(&too_long), Err(FrameError::TooLong { bytes, max }));
    assert_eq!(front(b"GET / HTTP/1.1"), Err(FrameError::TooLong { bytes: 0x4745_5420, max }));
    assert_eq!(front(&[0, 0, 0, 9]), Err(FrameError::TooShort(9)));
    assert_eq!(front(&[0, 0, 0, 10, 8]), Err(FrameError::UnknownKind(8)));
    assert_eq!(front(&[0, 0, 0, 11, 5]), Err(FrameError::UnwantedPayload(Kind::Ping)));
    let longest = u32::try_from(max).unwrap().to_be_bytes();
    assert_eq!(front(&[&longest[..], &[1]].concat()), Ok(Front::Partial(max - 1)));
    assert_eq!(front(&[]), Ok(Front::Partial(HEADER)));
}

#[test]
fn parts_are_joined_up_to_what_a_payload_can_be() {
    let mut parts = Parts::default();
    let alone = Bytes::from_static(b"alone");
    let joined = parts.join(alone.clone()).unwrap();
    assert_eq!(joined.as_ptr(), alone.as_ptr(), "what comes alone is not copied");
    parts.push(b"one ").unwrap();
    parts.push(b"two ").unwrap();
    assert_eq!(parts.join(Bytes::from_static(b"three")).unwrap(), "one two three");
    assert_eq!(parts.join(alone.clone()).unwrap(), alone, "nothing is left");
    let Parts(begun) = &mut parts;
    begun.resize(PAYLOAD_MAX, 0);
    assert_eq!(parts.push(b"x"), Err(FrameError::TooManyParts(PAYLOAD_MAX + 1)));
    assert_eq!(parts.join(alone), Err(FrameError::TooManyParts(PAYLOAD_MAX + 5)));
}

#[test]
fn payloads_are_slices_of_the_buffer() {
    let mut input = encode(&[frame(Kind::Message, 1, 0, b"abc"), frame(Kind::Ping, 0, 0, b"")]);
    let place = input.as_ptr() as usize;
    let read = cut(&mut input, Kind::Message);
    assert_eq!(read.payload.as_ptr() as usize, place + HEADER);
    assert_eq!(front(&input), Ok(Front::Whole(Kind::Ping)));
}
