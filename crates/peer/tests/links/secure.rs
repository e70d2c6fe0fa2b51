//! Links over TLS.

use crate::node::{DEADLINE, Heard, Place, With, error, options, two};
use bytes::Bytes;
use model::id::NodeId;
use peer::options::Options;
use peer::tls::TlsFiles;
use std::path::Path;

fn tls(mut options: Options, name: &str, authorities: &str, mutual: bool) -> Options {
    let testdata = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata");
    options.tls = Some(TlsFiles {
        certificate: testdata.join(format!("{name}.pem")),
        key: testdata.join(format!("{name}.key")),
        authorities: testdata.join(authorities),
        mutual,
    });
    options
}

#[tokio::test]
async fn nodes_with_certificates_talk() {
    for mutual in [true, false] {
        let (a, b) = two(|options| tls(options, "node", "ca.pem", mutual)).await;
        // more than the buffers of TLS and of the socket hold
        let payload: Bytes = (0..20_000_000u32).map(|n| n.to_be_bytes()[3]).collect();
        a.send(NodeId(2), 1, payload.clone()).unwrap();
        let Heard::Messages(_, _, messages) = b.ear.next().await else { panic!("no message") };
        assert!(messages == [payload.clone()]);
        let (question, ()) = tokio::join!(a.request(NodeId(2), 1, payload, DEADLINE), async {
            let (payload, answer) = b.ear.request().await;
            answer.send(payload);
        });
        assert_eq!(question.unwrap().len(), 20_000_000);
    }
}

#[tokio::test]
async fn who_is_not_certified_is_kept_out() {
    let place = Place::new();
    let a = tls(options("a", 1, 1, &place), "node", "ca.pem", true).start().await;
    let dial = |options: Options| options.peer("a", place.1);
    let place = Place::new();
    let node = || options("b", 2, 1, &place);

    // one that does not trust a's authority
    let b = dial(tls(node(), "node", "other-ca.pem", true)).start().await;
    error(&b, "a", "TLS: invalid peer certificate: UnknownIssuer").await;
    b.stop().await;
    // one that trusts it, and has a certificate of another
    let b = dial(tls(node(), "stranger", "ca.pem", true)).start().await;
    error(&b, "a", "UnknownCA").await;
    b.stop().await;
    // one in the clear
    let b = dial(node()).start().await;
    error(&b, "a", "").await;
    b.stop().await;
    assert!(a.ear.silent());
    // and one that belongs
    let b = dial(tls(node(), "node", "ca.pem", true)).start().await;
    a.ear.up().await;
    b.ear.up().await;
}

#[tokio::test]
async fn a_certificate_must_be_good_for_the_address() {
    let place = Place::new();
    let mut a = tls(options("a", 1, 1, &place), "node", "ca.pem", true);
    // the certificate is for 127.0.0.1 and localhost
    a.listen = ([127, 0, 0, 2], 0).into();
    let a = a.start().await;
    let place = Place::new();
    let b = tls(options("b", 2, 1, &place), "node", "ca.pem", true).peer("a", a.local_addr());
    let b = b.start().await;
    error(&b, "a", "not valid for name").await;
    assert!(a.ear.silent() && b.ear.silent());
}
