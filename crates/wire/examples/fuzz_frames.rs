//! Fuzzes the frame decoder: `fuzz_frames SECONDS [SEED]`.
//!
//! Takes good byte sequences, breaks them in a few places and decodes what is left, as the broker
//! would. Stops with a panic on a panic, on an input that takes longer than 200 ms, on a fast
//! path that sees something else than the slow path, and on a value that does not survive being
//! written and read again.

#[path = "fuzz/mutation.rs"]
mod mutation;

use bytes::BytesMut;
use wire::content::{Assembly, ContentHeader};
use wire::frame::{self, Kind};
use wire::properties::Properties;
use wire::{ack, deliver, method, publish};

/// Reads bytes as a server does: whole publishes first, then frame by frame.
fn read_frames(bytes: &[u8], frame_max: u32) -> u64 {
    let mut buffer = BytesMut::from(bytes);
    let mut pending: Option<(Vec<u8>, Option<Assembly>)> = None;
    let mut found = 0;
    loop {
        if pending.is_none() {
            let before = buffer.clone();
            if let Some(whole) = publish::decode_whole(&mut buffer, frame_max) {
                found += 1;
                let mut slow = before.clone();
                let first = frame::decode(&mut slow, frame_max).expect("seen by the fast path");
                let first = first.expect("whole");
                let parsed = publish::parse(&first.payload).expect("seen by the fast path");
                assert_eq!(parsed.route, whole.message.route());
                let _ = Properties::scan(whole.message.properties());
                continue;
            }
        }
        let frame = match frame::decode(&mut buffer, frame_max) {
            Ok(Some(frame)) => frame,
            Ok(None) => return found,
            Err(error) => {
                assert!(!error.to_string().is_empty());
                return found;
            }
        };
        found += 1;
        match frame.kind {
            Kind::Method => {
                let settled = ack::parse(&frame.payload).is_some();
                let _ = deliver::parse_deliver(&frame.payload);
                match method::parse(&frame.payload) {
                    Ok(class) => {
                        let mut out = BytesMut::new();
                        method::write_method(&mut out, frame.channel, &class);
                        let again = frame::decode(&mut out, 0).expect("just written");
                        let again = again.expect("just written");
                        let read = method::parse(&again.payload).expect("just written");
                        // a number that is not itself is not equal to itself
                        assert_eq!(format!("{read:?}"), format!("{class:?}"));
                    }
                    Err(error) => {
                        assert!(!settled, "{error}");
                        assert!(!error.to_string().is_empty());
                    }
                }
                pending = publish::parse(&frame.payload)
                    .is_ok_and(|_| method::ids(&frame.payload) == Some(publish::IDS))
                    .then(|| (frame.payload.to_vec(), None));
            }
            Kind::Header => {
                let header = ContentHeader::parse(&frame.payload);
                if let (Some((method, assembly)), Ok(header)) = (&mut pending, header) {
                    let _ = Properties::scan(header.properties);
                    let parsed = publish::parse(method).expect("parsed before");
                    *assembly = Some(Assembly::new(&parsed, &header));
                } else {
                    pending = None;
                }
            }
            Kind::Body => {
                if let Some((_, Some(assembly))) = &mut pending
                    && assembly.push(&frame.payload).is_err()
                {
                    pending = None;
                }
            }
            Kind::Heartbeat => {}
        }
        if pending
            .as_ref()
            .is_some_and(|(_, assembly)| assembly.as_ref().is_some_and(Assembly::is_complete))
            && let Some((_, Some(assembly))) = pending.take()
        {
            let message = assembly.finish();
            assert!(message.body().len() <= bytes.len());
        }
    }
}

fn frames(tables: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    for table in tables {
        let headers = Properties {
            headers: Some(table),
            delivery_mode: Some(2),
            expiration: Some(b"1000"),
            correlation_id: Some(b"id"),
            ..Properties::default()
        };
        for (properties, body, frame_max) in
            [(headers.encode(), &b"hello"[..], 0), (vec![0, 0], b"a longer body", 12)]
        {
            let mut out = BytesMut::new();
            publish::write(&mut out, 1, "amq.topic", "a.b", true, &properties, body, frame_max);
            publish::write(&mut out, 1, "", "q", false, &[0x10, 0, 2], b"", 0);
            all.push(out.to_vec());
        }
        for start in [
            &b"\x00\x0a\x00\x0b"[..],
            b"\x00\x32\x00\x0a\x00\x00\x01q\x02",
            b"\x00\x28\x00\x0a\x00\x00\x01e\x05topic\x02",
            b"\x00\x3c\x00\x14\x00\x00\x01q\x01t\x00",
            b"\x00\x28\x00\x1e\x00\x00\x01d\x01s\x01k\x00",
        ] {
            let mut payload = start.to_vec();
            payload.extend_from_slice(&u32::try_from(table.len()).expect("short").to_be_bytes());
            payload.extend_from_slice(table);
            if start[1] == 10 {
                payload.extend_from_slice(b"\x05PLAIN\x00\x00\x00\x04\x00a\x00b\x05en_US");
            }
            let mut out = Vec::new();
            frame::write(&mut out, Kind::Method, 1, &payload);
            all.push(out);
        }
    }
    let mut out = BytesMut::new();
    for settlement in [
        ack::Settlement::Ack { delivery_tag: 1, multiple: true },
        ack::Settlement::Nack { delivery_tag: 2, multiple: false, requeue: true },
        ack::Settlement::Reject { delivery_tag: 3, requeue: false },
    ] {
        ack::write(&mut out, 1, settlement);
    }
    out.extend_from_slice(&frame::HEARTBEAT);
    all.push(out.to_vec());
    all
}

fn main() {
    mutation::run(&frames(&mutation::tables()), |choice, bytes| {
        read_frames(bytes, [0, 64, 4096, 131_072][choice % 4])
    });
}
