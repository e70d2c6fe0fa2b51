use super::*;
use crate::publish;

fn begin(body_size: u64) -> Assembly {
    let publish = publish::parse(&[0, 60, 0, 40, 0, 0, 1, b'e', 1, b'k', 0]).unwrap();
    let header = ContentHeader { class: 60, weight: 0, body_size, properties: &[0, 0] };
    Assembly::new(&publish, &header)
}

#[test]
fn a_header_is_read() {
    let payload = [0, 60, 0, 0, 0, 0, 0, 0, 0, 0, 1, 2, 0x10, 0, 2];
    let header = ContentHeader::parse(&payload).unwrap();
    let expected =
        ContentHeader { class: 60, weight: 0, body_size: 258, properties: &[0x10, 0, 2] };
    assert_eq!(header, expected);
    for cut in 0..14 {
        assert_eq!(ContentHeader::parse(&payload[..cut]), Err(HeaderTooShort), "cut at {cut}");
    }
}

#[test]
fn more_body_than_announced_is_refused() {
    let mut assembly = begin(3);
    assembly.push(b"ab").unwrap();
    assert_eq!(assembly.push(b"cd"), Err(BodyTooLong));
    assert_eq!(assembly.missing(), 1);
    assembly.push(b"c").unwrap();
    assert_eq!(assembly.finish().body(), b"abc");
}

/// A claim alone costs nothing; what comes pays for a few times its own size.
#[test]
fn a_huge_claim_reserves_little() {
    let mut assembly = begin(u64::MAX);
    assert!(assembly.buffer.capacity() < 100);
    assert_eq!(assembly.missing(), u64::MAX);
    for come in 1..2000 {
        assembly.push(&[7]).unwrap();
        assert!(assembly.buffer.capacity() < 100 + 4 * come, "after {come} bytes");
    }
}

#[test]
fn a_body_of_a_few_frames_gets_a_buffer_of_its_size() {
    let mut assembly = begin(300_000);
    for piece in [131_064, 131_064, 37_872] {
        assembly.push(&vec![7; piece]).unwrap();
    }
    let capacity = assembly.buffer.capacity();
    assert!(capacity < 300_100, "{capacity} bytes");
    assert_eq!(assembly.finish().body().len(), 300_000);
}

#[test]
fn an_empty_body_is_complete() {
    let assembly = begin(0);
    assert!(assembly.is_complete());
    let message = assembly.finish();
    assert_eq!((message.exchange(), message.routing_key()), ("e", "k"));
    assert_eq!((message.properties(), message.body()), (&[0, 0][..], &[][..]));
}
