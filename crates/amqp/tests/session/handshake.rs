//! Protocol header, login, negotiation.

use crate::harness::{Bench, Got, capabilities, open, start_ok, tune_ok};
use amq_protocol::protocol::{AMQPClass, connection};
use amq_protocol::types::{AMQPValue, FieldTable, ShortString};
use amqp::config::{Offer, SessionConfig};
use amqp::request::{Error, Mechanism, Reply, Request};

const HEADER: &[u8] = b"AMQP\x00\x00\x09\x01";

fn started() -> Bench {
    let mut bench = Bench::fresh(SessionConfig::default());
    bench.bytes(HEADER);
    bench.take();
    bench
}

fn tuning() -> Bench {
    let mut bench = started();
    bench.method(0, start_ok(&capabilities()));
    bench.take();
    bench
}

#[test]
fn wrong_protocol_headers_are_answered_with_ours() {
    for (header, reason) in [
        (&b"AMQP\x00\x01\x00\x00"[..], "protocol version 0.1.0.0 is not supported"),
        (b"AMQP\x03\x01\x00\x00", "protocol version 3.1.0.0 is not supported"),
        (
            b"GET / HTTP/1.1\r\n\r\n",
            "looks like an HTTP request: the HTTP API listens on another port",
        ),
        (
            &[0x16, 3, 1, 2, 0, 1, 0, 1, 252, 3, 3],
            "looks like a TLS client hello: TLS connections go to another port",
        ),
        (b"\0\0\0\0\0\0\0\0\0", r"bad protocol header '\x00\x00\x00\x00\x00\x00\x00\x00'"),
    ] {
        let mut bench = Bench::fresh(SessionConfig::default());
        bench.bytes(header);
        assert_eq!(bench.take_bytes(), HEADER);
        assert!(bench.session.wants_close());
        assert_eq!(bench.session.end_reason(), Some(reason));
    }
}

#[test]
fn nothing_is_sent_before_the_header_is_whole() {
    let mut bench = Bench::fresh(SessionConfig::default());
    bench.bytes(&HEADER[..7]);
    assert!(bench.take_bytes().is_empty());
    bench.bytes(&HEADER[7..]);
    assert_eq!(bench.take().len(), 1);
}

#[test]
fn the_older_header_is_taken() {
    let mut bench = Bench::fresh(SessionConfig::default());
    bench.bytes(b"AMQP\x01\x01\x00\x09");
    assert!(matches!(
        bench.take_method(0),
        AMQPClass::Connection(connection::AMQPMethod::Start(_))
    ));
}

#[test]
fn all_capabilities_are_advertised() {
    let mut bench = Bench::fresh(SessionConfig::default());
    bench.bytes(HEADER);
    let AMQPClass::Connection(connection::AMQPMethod::Start(start)) = bench.take_method(0) else {
        panic!("not started");
    };
    let Some(AMQPValue::FieldTable(capabilities)) =
        start.server_properties.inner().get("capabilities")
    else {
        panic!("no capabilities");
    };
    let names: Vec<_> = capabilities.inner().keys().map(ShortString::as_str).collect();
    assert_eq!(
        names,
        [
            "authentication_failure_close",
            "basic.nack",
            "connection.blocked",
            "consumer_cancel_notify",
            "consumer_priorities",
            "direct_reply_to",
            "exchange_exchange_bindings",
            "per_consumer_qos",
            "publisher_confirms"
        ]
    );
    assert_eq!(start.locales.as_bytes(), b"en_US");
    assert_eq!(
        start.server_properties.inner().get("product"),
        Some(&AMQPValue::LongString("RabbitMQ".into()))
    );
}

fn login(mechanism: &str, response: &[u8], offers: Vec<Offer>) -> Bench {
    let config = SessionConfig { mechanisms: offers, ..SessionConfig::default() };
    let mut bench = Bench::fresh(config);
    bench.bytes(HEADER);
    bench.take();
    bench.method(
        0,
        AMQPClass::Connection(connection::AMQPMethod::StartOk(connection::StartOk {
            client_properties: capabilities(),
            mechanism: mechanism.into(),
            response: response.to_vec().into(),
            locale: "en_US".into(),
        })),
    );
    bench
}

#[test]
fn every_mechanism_is_read() {
    let all = || vec![Offer::Plain, Offer::Amqplain, Offer::External, Offer::Anonymous];
    let password =
        |name| Mechanism::Password { name, user: "joe".to_owned(), password: b"se\0cret".to_vec() };
    for (mechanism, response, expected) in [
        ("PLAIN", &b"\0joe\0se\0cret"[..], password("PLAIN")),
        ("PLAIN", b"other\0joe\0se\0cret", password("PLAIN")),
        (
            "AMQPLAIN",
            b"\x05LOGINS\0\0\0\x03joe\x08PASSWORDS\0\0\0\x07se\0cret",
            password("AMQPLAIN"),
        ),
        ("EXTERNAL", b"", Mechanism::External),
        ("ANONYMOUS", b"anything", Mechanism::Anonymous),
    ] {
        let mut bench = login(mechanism, response, all());
        match bench.requests.remove(0) {
            Request::Authenticate { mechanism, .. } => assert_eq!(mechanism, expected),
            other => panic!("{other:?}"),
        }
        assert!(matches!(
            bench.take_method(0),
            AMQPClass::Connection(connection::AMQPMethod::Tune(_))
        ));
    }
}

#[test]
fn unknown_mechanisms_are_refused() {
    let mut bench = login("EXTERNAL", b"", vec![Offer::Plain]);
    bench.expect_close(503, "COMMAND_INVALID - unknown authentication mechanism 'EXTERNAL'");
    assert!(bench.requests.is_empty());
}

#[test]
fn malformed_responses_are_refused_logins() {
    for (mechanism, response) in
        [("PLAIN", &b"joe"[..]), ("PLAIN", b""), ("AMQPLAIN", b"\x05LOGIN"), ("AMQPLAIN", b"")]
    {
        let mut bench = login(mechanism, response, vec![Offer::Plain, Offer::Amqplain]);
        let text = format!(
            "ACCESS_REFUSED - Login was refused using authentication mechanism {mechanism}. For details see the broker logfile."
        );
        bench.expect_close(403, &text);
        assert!(bench.requests.is_empty());
    }
}

#[test]
fn a_refused_login_is_told_to_a_capable_client() {
    let mut bench = started();
    bench.replies.push(Reply::Refused(Error::new(403, "user 'guest' - invalid credentials")));
    bench.method(0, start_ok(&capabilities()));
    bench.expect_close(
        403,
        "ACCESS_REFUSED - Login was refused using authentication mechanism PLAIN. For details see the broker logfile.",
    );
    assert!(!bench.session.wants_close());
    bench.method(0, AMQPClass::Connection(connection::AMQPMethod::CloseOk(connection::CloseOk {})));
    assert!(bench.session.wants_close());
    assert_eq!(
        bench.session.end_reason(),
        Some("login refused: user 'guest' - invalid credentials")
    );
}

#[test]
fn a_refused_login_of_another_client_ends_in_silence_after_a_while() {
    let mut bench = started();
    bench.replies.push(Reply::Refused(Error::new(403, "no")));
    bench.method(0, start_ok(&FieldTable::default()));
    assert_eq!(bench.take(), []);
    bench.tick(2_999);
    assert!(!bench.session.wants_close());
    bench.bytes(b"more");
    bench.tick(3_000);
    assert!(bench.session.wants_close());
    assert_eq!(bench.take(), []);
}

#[test]
fn limits_may_be_lowered_and_not_raised() {
    let refused = |channel_max, frame_max, text: &str| {
        let mut bench = tuning();
        bench.method(0, tune_ok(channel_max, frame_max, 0));
        bench.expect_close(530, &format!("NOT_ALLOWED - {text}"));
    };
    refused(
        2047,
        131_073,
        "negotiated frame_max = 131073 is higher than the maximum allowed value (131072)",
    );
    refused(2047, 0, "negotiated frame_max = 0 is higher than the maximum allowed value (131072)");
    refused(
        2047,
        4095,
        "negotiated frame_max = 4095 is lower than the minimum allowed value (4096)",
    );
    refused(
        2048,
        131_072,
        "negotiated channel_max = 2048 is higher than the maximum allowed value (2047)",
    );
    refused(
        0,
        131_072,
        "negotiated channel_max = 0 (no limit) is higher than the maximum allowed value (2047)",
    );
    let mut bench = tuning();
    bench.method(0, tune_ok(1, 4096, 5));
    bench.method(0, open("v"));
    assert!(matches!(
        bench.take_method(0),
        AMQPClass::Connection(connection::AMQPMethod::OpenOk(_))
    ));
    let status = bench.session.status();
    assert_eq!((status.channel_max, status.frame_max, status.heartbeat), (1, 4096, 5));
    assert_eq!((status.user.as_str(), status.vhost.as_str()), ("guest", "v"));
}

#[test]
fn a_refused_vhost_closes() {
    let mut bench = tuning();
    bench.method(0, tune_ok(1, 4096, 5));
    bench.replies.push(Reply::Refused(Error::not_allowed("vhost v not found")));
    bench.method(0, open("v"));
    bench.expect_close(530, "NOT_ALLOWED - vhost v not found");
}

#[test]
fn methods_in_the_wrong_state_are_channel_errors() {
    let mut bench = started();
    bench.method(0, open("/"));
    bench.expect_close(504, "CHANNEL_ERROR - unexpected method in connection state starting");
    let mut bench = tuning();
    bench.method(0, open("/"));
    bench.expect_close(504, "CHANNEL_ERROR - unexpected method in connection state tuning");
    let mut bench = Bench::open();
    bench.method(0, open("/"));
    bench.expect_close(504, "CHANNEL_ERROR - unexpected method in connection state running");
}

#[test]
fn channels_must_wait_for_the_handshake() {
    let mut bench = tuning();
    bench.bytes(&[1, 0, 1, 0, 0, 0, 5, 0, 20, 0, 10, 0, 0xce]);
    bench.expect_close(505, "UNEXPECTED_FRAME - type 1, all octets = <<0,20,0,10,0>>");
}

#[test]
fn a_start_ok_larger_than_the_first_limit_is_refused() {
    let mut bench = started();
    let mut properties = capabilities();
    properties.insert("noise".into(), AMQPValue::LongString(vec![7; 9000].into()));
    bench.method(0, start_ok(&properties));
    let frames = bench.take();
    let Some(Got::Method(0, AMQPClass::Connection(connection::AMQPMethod::Close(close)))) =
        frames.last()
    else {
        panic!("not closed: {frames:?}");
    };
    assert_eq!(close.reply_code, 501);
    assert!(close.reply_text.as_str().contains("{frame_too_large,"), "{}", close.reply_text);
}

#[test]
fn the_handshake_must_end_in_time() {
    let mut bench = tuning();
    bench.tick(9_999);
    assert!(!bench.session.wants_close());
    bench.tick(10_000);
    assert!(bench.session.wants_close());
    assert_eq!(bench.session.end_reason(), Some("handshake timeout"));
    let mut bench = Bench::open_with(
        SessionConfig { handshake_timeout_ms: 10, ..SessionConfig::default() },
        &capabilities(),
    );
    bench.tick(11);
    assert!(!bench.session.wants_close());
}

#[test]
fn a_new_secret_is_passed_on() {
    let update = || {
        AMQPClass::Connection(connection::AMQPMethod::UpdateSecret(connection::UpdateSecret {
            new_secret: "s".into(),
            reason: "r".into(),
        }))
    };
    let mut bench = Bench::open();
    bench.method(0, update());
    assert!(matches!(
        bench.take_method(0),
        AMQPClass::Connection(connection::AMQPMethod::UpdateSecretOk(_))
    ));
    bench.replies.push(Reply::Refused(Error::not_allowed("no")));
    bench.method(0, update());
    bench.expect_close(530, "NOT_ALLOWED - no");
}
