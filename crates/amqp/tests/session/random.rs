//! Whatever a client sends, and however it is cut: no panic, and the same outcome.

use crate::harness::{Bench, Got};
use bytes::BytesMut;
use proptest::prelude::*;
use wire::frame::{self, Kind};

/// Frames that are nearly right: known kinds, few channels, method ids that exist.
fn frames() -> impl Strategy<Value = Vec<u8>> {
    let kind = prop_oneof![8 => Just(1_u8), 1 => Just(2), 1 => Just(3), 1 => any::<u8>()];
    let ids = prop_oneof![
        4 => (Just(60_u16), prop::sample::select(vec![10_u16, 20, 30, 40, 70, 80, 90, 100, 110, 120])),
        2 => (Just(50), prop::sample::select(vec![10, 20, 30, 40, 50])),
        1 => (Just(40), prop::sample::select(vec![10, 20, 30, 40])),
        1 => (Just(20), prop::sample::select(vec![10, 20, 40, 41])),
        1 => (prop::sample::select(vec![85, 90, 10, 30]), (0_u16..8).prop_map(|n| n * 10)),
        1 => (any::<u16>(), any::<u16>()),
    ];
    let arguments =
        prop::collection::vec(prop_oneof![4 => Just(0_u8), 2 => 0..6_u8, 1 => any::<u8>()], 0..30);
    let frame =
        (kind, 0..3_u16, ids, arguments).prop_map(|(kind, channel, (class, method), arguments)| {
            let mut payload = BytesMut::new();
            payload.extend_from_slice(&class.to_be_bytes());
            payload.extend_from_slice(&method.to_be_bytes());
            payload.extend_from_slice(&arguments);
            let mut bytes = BytesMut::new();
            match Kind::of(kind) {
                Some(kind) => frame::write(&mut bytes, kind, channel, &payload),
                None => bytes.extend_from_slice(&[kind, 0, 1, 0, 0, 0, 0, frame::END]),
            }
            bytes.to_vec()
        });
    prop::collection::vec(frame, 1..12).prop_map(|frames| frames.concat())
}

fn outcome(bytes: &[u8], cuts: &[usize]) -> (Vec<String>, Vec<Got>) {
    let mut bench = Bench::open();
    bench.take();
    let mut rest = bytes;
    for cut in cuts.iter().cycle() {
        if rest.is_empty() {
            break;
        }
        let (now, later) = rest.split_at(rest.len().min(*cut));
        bench.bytes(now);
        rest = later;
    }
    let frames = bench.take();
    bench.session.on_disconnected();
    bench.bytes(b"");
    assert!(bench.session.wants_close());
    (bench.requests.iter().map(|request| format!("{request:?}")).collect(), frames)
}

proptest! {
    #[test]
    fn the_cuts_make_no_difference(
        bytes in frames(),
        cuts in prop::collection::vec(1..40_usize, 1..6),
    ) {
        prop_assert_eq!(outcome(&bytes, &[bytes.len()]), outcome(&bytes, &cuts));
    }

    #[test]
    fn arbitrary_bytes_do_no_harm(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        outcome(&bytes, &[bytes.len().max(1)]);
    }
}
