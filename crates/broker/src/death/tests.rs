//! Dead-letter headers, against the rules of RabbitMQ's guide.

use super::*;

fn message(headers: Vec<(&str, AMQPValue)>, expiration: Option<&str>) -> Message {
    let mut fields = FieldTable::default();
    for (name, value) in headers {
        fields.insert(name.into(), value);
    }
    let headers = table::encode(&fields);
    let properties = Properties {
        headers: Some(&headers[TABLE_LEN..]),
        delivery_mode: Some(2),
        expiration: expiration.map(str::as_bytes),
        ..Properties::default()
    };
    Message::from_parts("source", "key", &properties.encode(), b"body")
}

fn headers(message: &Message) -> FieldTable {
    header_table(&Properties::scan(message.properties()).unwrap())
}

fn death(queue: &str, reason: Reason) -> Death<'_> {
    Death { queue, reason, time: 1_700_000_000, routing_key: None }
}

fn list(values: &[&str]) -> AMQPValue {
    AMQPValue::FieldArray(FieldArray::from(values.iter().map(|v| text(v)).collect::<Vec<_>>()))
}

#[test]
fn a_first_death_is_recorded_whole() {
    let dead =
        dead_letter(&message(vec![], Some("50")), "dlx", death("q", Reason::Expired)).message;
    let headers = headers(&dead);
    let deaths = tables(headers.inner().get("x-death"));
    assert_eq!(deaths.len(), 1);
    assert_eq!(deaths[0].inner().get("count"), Some(&AMQPValue::LongLongInt(1)));
    assert_eq!(deaths[0].inner().get("time"), Some(&AMQPValue::Timestamp(1_700_000_000)));
    assert_eq!(long_text(&deaths[0], "original-expiration"), b"50");
    assert_eq!(long_text(&deaths[0], "exchange"), b"source");
    assert_eq!(strings(deaths[0].inner().get("routing-keys")), ["key"]);
    assert_eq!(long_text(&headers, "x-first-death-queue"), b"q");
    assert_eq!(long_text(&headers, "x-last-death-reason"), b"expired");
    let properties = Properties::scan(dead.properties()).unwrap();
    assert_eq!(properties.expiration, None);
    assert_eq!(properties.delivery_mode, Some(2));
    assert_eq!((dead.exchange(), dead.routing_key(), dead.body()), ("dlx", "key", &b"body"[..]));
}

#[test]
fn the_same_death_counts_up_and_moves_to_the_front() {
    let once = dead_letter(&message(vec![], None), "x", death("a", Reason::Expired)).message;
    let twice = dead_letter(&once, "x", death("b", Reason::Rejected)).message;
    let thrice = dead_letter(&twice, "x", death("a", Reason::Expired)).message;
    let headers = headers(&thrice);
    let deaths = tables(headers.inner().get("x-death"));
    assert_eq!(deaths.len(), 2);
    assert_eq!(long_text(&deaths[0], "queue"), b"a");
    assert_eq!(deaths[0].inner().get("count"), Some(&AMQPValue::LongLongInt(2)));
    assert_eq!(long_text(&headers, "x-first-death-queue"), b"a");
    assert_eq!(long_text(&headers, "x-last-death-queue"), b"a");
}

#[test]
fn case_041_what_a_client_wrote_into_x_death_does_not_count() {
    let dead = dead_letter(&message(vec![], None), "x", death("a", Reason::Rejected)).message;
    let republished = Message::from_parts("x", "k", dead.properties(), b"again");
    let again = dead_letter(&republished, "x", death("a", Reason::Rejected)).message;
    let headers = headers(&again);
    let deaths = tables(headers.inner().get("x-death"));
    assert_eq!(deaths.len(), 1);
    assert_eq!(deaths[0].inner().get("count"), Some(&AMQPValue::LongLongInt(1)));
}

#[test]
fn case_042_malformed_x_death_is_replaced() {
    for malformed in [
        text("nonsense"),
        AMQPValue::FieldArray(FieldArray::default()),
        AMQPValue::FieldArray(FieldArray::from(vec![AMQPValue::FieldTable(FieldTable::default())])),
        AMQPValue::Void,
    ] {
        let poisoned = message(vec![("x-death", malformed)], None);
        let dead = dead_letter(&poisoned, "x", death("a", Reason::MaxLen)).message;
        assert_eq!(tables(headers(&dead).inner().get("x-death")).len(), 1);
    }
}

#[test]
fn carbon_copies_route_unless_the_queue_has_a_key() {
    let copied = message(vec![("CC", list(&["c1"])), ("BCC", list(&["b1"]))], None);
    let dead = dead_letter(&copied, "x", death("q", Reason::Rejected));
    assert_eq!(dead.routing_keys, ["key", "c1", "b1"]);
    assert!(headers(&dead.message).contains_key("CC"));
    assert!(!headers(&dead.message).contains_key("BCC"));
    let keyed = Death { routing_key: Some("dl"), ..death("q", Reason::Rejected) };
    let dead = dead_letter(&copied, "x", keyed);
    assert_eq!(dead.routing_keys, ["dl"]);
    assert!(!headers(&dead.message).contains_key("CC"));
    assert_eq!(dead.message.routing_key(), "dl");
}

#[test]
fn case_039_cycles_without_a_rejection_are_cut() {
    let in_q1 = dead_letter(&message(vec![], None), "", death("q1", Reason::Expired)).message;
    assert!(!is_cycle(&in_q1, "q2", Reason::Expired));
    let in_q2 = dead_letter(&in_q1, "", death("q2", Reason::Expired)).message;
    assert!(is_cycle(&in_q2, "q1", Reason::Expired));
    let rejected = dead_letter(&in_q1, "", death("q2", Reason::Rejected)).message;
    assert!(!is_cycle(&rejected, "q1", Reason::Rejected));
    let later = dead_letter(&rejected, "", death("q3", Reason::Expired)).message;
    assert!(!is_cycle(&later, "q1", Reason::Expired), "a rejection lies between");
}

#[test]
fn names_longer_than_a_route_has_room_for_are_cut() {
    let key = "\u{fc}".repeat(200);
    let death = Death { routing_key: Some(&key), ..death("q", Reason::Expired) };
    let dead = dead_letter(&message(vec![], None), &"x".repeat(300), death);
    assert_eq!(dead.message.exchange(), "x".repeat(255));
    assert_eq!(dead.message.routing_key(), "\u{fc}".repeat(127));
    assert_eq!(dead.routing_keys, [key], "it is routed by the whole key");
}
