//! Texts as RabbitMQ 4.3 gives them.

use amq_protocol_types::{AMQPValue, FieldTable};
use model::id::ConnectionId;

use crate::command::{Command, DeclareExchange, DeclareQueue};
use crate::objects::limit::VhostLimit;
use crate::refusal::{Kind, Refusal};
use crate::scene::{
    Act, exchange, exclusive, integer, queue, state, table, text, to_exchange, to_queue,
};
use crate::state::State;

/// Declares `q` with `arguments` after it was declared with `existing`.
fn redeclare(existing: FieldTable, arguments: FieldTable) -> Result<bool, String> {
    let mut state = state();
    state.apply(Command::DeclareQueue(DeclareQueue { arguments: existing, ..queue("q") })).unwrap();
    check_queue(&state, &DeclareQueue { arguments, ..queue("q") })
}

fn check_queue(state: &State, declare: &DeclareQueue) -> Result<bool, String> {
    state
        .check_declare_queue(declare, None)
        .map(|existing| existing.is_some())
        .map_err(|refusal| refusal.to_string())
}

fn check_exchange(state: &State, declare: &DeclareExchange) -> Result<bool, String> {
    state
        .check_declare_exchange(declare, None)
        .map(|existing| existing.is_some())
        .map_err(|refusal| refusal.to_string())
}

fn declared_with(key: &str, value: AMQPValue) -> Result<bool, String> {
    check_queue(&state(), &DeclareQueue { arguments: table([(key, value)]), ..queue("q") })
}

const LOCKED: &str = "RESOURCE_LOCKED - cannot obtain exclusive access to locked queue 'q' in vhost \
                      '/'. It could be originally declared on another connection or the exclusive \
                      property value does not match that of the original declaration.";

#[test]
fn case_010_exclusive_owner_comes_before_properties() {
    let mut state = state();
    state.apply(Command::DeclareQueue(exclusive("q", 1))).unwrap();
    let other = DeclareQueue { durable: true, ..exclusive("q", 2) };
    assert_eq!(check_queue(&state, &other), Err(LOCKED.into()));
    assert_eq!(check_queue(&state, &queue("q")), Err(LOCKED.into()));
    // The owner's durable flag is ignored.
    let own = DeclareQueue { durable: true, ..exclusive("q", 1) };
    assert_eq!(check_queue(&state, &own), Ok(true));
    for connection in [None, Some(ConnectionId(2))] {
        let refusal = state.check_use_queue("/", "q", connection, None).unwrap_err();
        assert_eq!((refusal.kind, refusal.to_string()), (Kind::Locked, LOCKED.into()));
        assert!(state.check_passive_queue("/", "q", connection, None).is_err());
        assert!(state.check_delete_queue("/", "q", connection, None).is_err());
    }
    assert!(state.check_use_queue("/", "q", Some(ConnectionId(1)), None).is_ok());
}

#[test]
fn case_012_the_width_of_integers_does_not_matter() {
    let short = || table([("x-max-length", AMQPValue::ShortInt(10))]);
    let long = || table([("x-max-length", AMQPValue::LongLongInt(10))]);
    assert_eq!(redeclare(short(), long()), Ok(true));
    assert_eq!(
        redeclare(short(), table([("x-max-length", AMQPValue::LongLongInt(20))])),
        Err("PRECONDITION_FAILED - inequivalent arg 'x-max-length' for queue 'q' in vhost '/': \
             received '20' but current is '10'"
            .into())
    );
    assert_eq!(
        redeclare(FieldTable::default(), table([("x-message-ttl", integer(10))])),
        Err("PRECONDITION_FAILED - inequivalent arg 'x-message-ttl' for queue 'q' in vhost '/': \
             received the value '10' of type 'signedint' but current is none"
            .into())
    );
    assert_eq!(
        redeclare(table([("x-message-ttl", AMQPValue::LongLongInt(10))]), FieldTable::default()),
        Err("PRECONDITION_FAILED - inequivalent arg 'x-message-ttl' for queue 'q' in vhost '/': \
             received none but current is the value '10' of type 'long'"
            .into())
    );
}

#[test]
fn case_013_priorities_end_at_255() {
    assert_eq!(declared_with("x-max-priority", integer(255)), Ok(false));
    assert_eq!(declared_with("x-max-priority", integer(0)), Ok(false));
    assert_eq!(
        declared_with("x-max-priority", integer(256)),
        Err("PRECONDITION_FAILED - invalid arg 'x-max-priority' for queue 'q' in vhost '/': \
             {max_value_exceeded,256}"
            .into())
    );
}

#[test]
fn redeclaring_a_queue() {
    let mut state = state();
    state.add_queue("q");
    assert_eq!(check_queue(&state, &queue("q")), Ok(true));
    let inequivalent = |declare: DeclareQueue| check_queue(&state, &declare).unwrap_err();
    assert_eq!(
        inequivalent(DeclareQueue { durable: false, auto_delete: true, ..queue("q") }),
        "PRECONDITION_FAILED - inequivalent arg 'durable' for queue 'q' in vhost '/': received \
         'false' but current is 'true'"
    );
    assert_eq!(
        inequivalent(DeclareQueue { auto_delete: true, ..queue("q") }),
        "PRECONDITION_FAILED - inequivalent arg 'auto_delete' for queue 'q' in vhost '/': received \
         'true' but current is 'false'"
    );
    let with = |arguments| DeclareQueue { arguments, ..queue("q") };
    assert_eq!(
        inequivalent(with(table([("x-queue-type", text("quorum"))]))),
        "PRECONDITION_FAILED - inequivalent arg 'x-queue-type' for queue 'q' in vhost '/': received \
         'quorum' but current is 'classic'"
    );
    assert_eq!(
        inequivalent(with(table([("x-queue-type", integer(1))]))),
        "PRECONDITION_FAILED - inequivalent arg 'x-queue-type' for queue 'q' in vhost '/': received \
         '1' but current is 'classic'"
    );
    assert_eq!(
        inequivalent(with(table([("x-queue-master-locator", text("min-masters"))]))),
        "PRECONDITION_FAILED - inequivalent arg 'x-queue-master-locator' for queue 'q' in vhost '/': \
         received the value 'min-masters' of type 'longstr' but current is none"
    );
    assert_eq!(
        inequivalent(with(table([("x-queue-mode", text("bogus"))]))),
        "PRECONDITION_FAILED - inequivalent arg 'x-queue-mode' for queue 'q' in vhost '/': received \
         the value 'bogus' of type 'longstr' but current is none"
    );
    assert_eq!(
        inequivalent(with(table([("x-dead-letter-routing-key", integer(7))]))),
        "PRECONDITION_FAILED - inequivalent arg 'x-dead-letter-routing-key' for queue 'q' in vhost \
         '/': received the value '7' of type 'signedint' but current is none"
    );
    // The default type may be named, and unknown arguments are not compared.
    assert_eq!(check_queue(&state, &with(table([("x-queue-type", text("classic"))]))), Ok(true));
    assert_eq!(check_queue(&state, &with(table([("x-foo", integer(1))]))), Ok(true));
}

#[test]
fn arguments_of_new_queues() {
    let invalid = |key: &str, value: AMQPValue| {
        let refusal = declared_with(key, value).unwrap_err();
        let start = format!("PRECONDITION_FAILED - invalid arg '{key}' for queue 'q' in vhost '/'");
        refusal.strip_prefix(&start).unwrap().to_owned()
    };
    let big = AMQPValue::LongLongInt;
    assert_eq!(invalid("x-expires", integer(0)), ": {value_zero,0}");
    assert_eq!(invalid("x-expires", integer(-1)), ": {value_negative,-1}");
    assert_eq!(invalid("x-expires", text("a")), ": \"expected integer, got longstr\"");
    assert_eq!(invalid("x-expires", AMQPValue::Double(1.5)), ": \"expected integer, got double\"");
    assert_eq!(declared_with("x-message-ttl", integer(0)), Ok(false));
    assert_eq!(declared_with("x-message-ttl", big(315_360_000_000)), Ok(false));
    assert_eq!(invalid("x-message-ttl", big(315_360_000_001)), ": {value_too_large,315360000001}");
    assert_eq!(invalid("x-max-length", integer(-1)), ": {value_negative,-1}");
    assert_eq!(invalid("x-overflow", text("foo")), ": invalid_overflow");
    assert_eq!(invalid("x-overflow", big(1)), ": {unacceptable_type,long}");
    assert_eq!(invalid("x-dead-letter-routing-key", text("k")), ": routing_key_but_no_dlx_defined");
    assert_eq!(invalid("x-single-active-consumer", text("a")), ": {unacceptable_type,longstr}");
    assert_eq!(invalid("x-queue-version", integer(1)), ": \"unsupported queue version '1'\"");
    assert_eq!(invalid("x-queue-type", text("foo")), ": \"unsupported queue type 'foo'\"");
    assert_eq!(invalid("x-queue-type", text("stream")), ": \"unsupported queue type 'stream'\"");
    assert_eq!(invalid("x-queue-type", big(1)), ": {unacceptable_type,long}");
    assert_eq!(invalid("x-queue-leader-locator", text("foo")), ": invalid_queue_locator_arg");
    assert_eq!(invalid("x-max-age", text("1D")), " of queue type rabbit_classic_queue");
    assert_eq!(
        declared_with("x-dead-letter-exchange", big(1)),
        Err("PRECONDITION_FAILED - invalid type 'long' for arg 'x-dead-letter-exchange' in queue 'q' \
             in vhost '/'"
            .into())
    );
    for (key, value) in [
        ("x-delivery-limit", integer(5)),
        ("x-delivery-limit", integer(-1)),
        ("x-consumer-timeout", integer(1000)),
        ("x-queue-mode", text("lazy")),
        ("x-queue-type", text("")),
        ("x-queue-version", integer(2)),
        ("x-overflow", text("reject-publish-dlx")),
        ("x-foo", text("a")),
    ] {
        assert_eq!(declared_with(key, value), Ok(false), "{key}");
    }
}

#[test]
fn reserved_names() {
    let mut state = state();
    assert_eq!(
        check_queue(&state, &queue("amq.foo")),
        Err("ACCESS_REFUSED - queue name 'amq.foo' contains reserved prefix 'amq.*'".into())
    );
    let generated = DeclareQueue { generated: true, ..queue("amq.gen-x") };
    assert_eq!(check_queue(&state, &generated), Ok(false));
    // As in RabbitMQ, the name cannot be declared again.
    state.apply(Command::DeclareQueue(generated)).unwrap();
    assert!(check_queue(&state, &queue("amq.gen-x")).is_err());
    assert_eq!(
        check_exchange(&state, &exchange("amq.foo", "direct")),
        Err("ACCESS_REFUSED - exchange name 'amq.foo' contains reserved prefix 'amq.*'".into())
    );
    assert_eq!(check_exchange(&state, &exchange("amq.direct", "direct")), Ok(true));
    let refusal = state.check_delete_exchange("/", "amq.direct", false, None).unwrap_err();
    assert_eq!(
        refusal.to_string(),
        "ACCESS_REFUSED - deletion of system exchange 'amq.direct' in vhost '/' not allowed"
    );
}

#[test]
fn the_default_exchange_is_out_of_reach() {
    let state = state();
    let text = |refusal: Refusal| refusal.to_string();
    let wanted = "ACCESS_REFUSED - operation not permitted on the default exchange";
    assert_eq!(check_exchange(&state, &exchange("", "direct")).unwrap_err(), wanted);
    assert_eq!(text(state.check_passive_exchange("/", "", None).unwrap_err()), wanted);
    assert_eq!(text(state.check_delete_exchange("/", "", false, None).unwrap_err()), wanted);
    for binding in [to_queue("", "k", "q"), to_exchange("amq.direct", "k", "")] {
        assert_eq!(text(state.check_bind(&binding, None, None).unwrap_err()), wanted);
        assert_eq!(text(state.check_unbind(&binding, None, None).unwrap_err()), wanted);
    }
}

#[test]
fn redeclaring_an_exchange() {
    let mut state = state();
    state.add_exchange("e", "direct");
    assert_eq!(check_exchange(&state, &exchange("e", "direct")), Ok(true));
    let inequivalent = |declare: DeclareExchange| {
        let refusal = check_exchange(&state, &declare).unwrap_err();
        refusal.strip_prefix("PRECONDITION_FAILED - inequivalent arg ").unwrap().to_owned()
    };
    let of = "for exchange 'e' in vhost '/': received";
    assert_eq!(
        inequivalent(DeclareExchange { durable: false, ..exchange("e", "fanout") }),
        format!("'type' {of} 'fanout' but current is 'direct'")
    );
    let same = || exchange("e", "direct");
    assert_eq!(
        inequivalent(DeclareExchange { durable: false, ..same() }),
        format!("'durable' {of} 'false' but current is 'true'")
    );
    assert_eq!(
        inequivalent(DeclareExchange { auto_delete: true, ..same() }),
        format!("'auto_delete' {of} 'true' but current is 'false'")
    );
    assert_eq!(
        inequivalent(DeclareExchange { internal: true, ..same() }),
        format!("'internal' {of} 'true' but current is 'false'")
    );
    let arguments = table([("alternate-exchange", text("f"))]);
    assert_eq!(
        inequivalent(DeclareExchange { arguments, ..same() }),
        format!("'alternate-exchange' {of} the value 'f' of type 'longstr' but current is none")
    );
}

#[test]
fn new_exchanges() {
    let state = state();
    assert_eq!(
        check_exchange(&state, &exchange("e", "foo")),
        Err("PRECONDITION_FAILED - unknown exchange type 'foo'".into())
    );
    let arguments = table([("alternate-exchange", integer(1))]);
    assert_eq!(
        check_exchange(&state, &DeclareExchange { arguments, ..exchange("e", "direct") }),
        Err("PRECONDITION_FAILED - invalid type 'signedint' for arg 'alternate-exchange' in exchange \
             'e' in vhost '/'"
            .into())
    );
    assert_eq!(
        state.check_passive_exchange("/", "e", None).unwrap_err().to_string(),
        "NOT_FOUND - no exchange 'e' in vhost '/'"
    );
    assert_eq!(
        state.check_passive_queue("/", "q", None, None).unwrap_err().to_string(),
        "NOT_FOUND - no queue 'q' in vhost '/'"
    );
}

#[test]
fn deleting_an_exchange_in_use() {
    let mut state = state();
    state.add_exchange("e", "direct");
    state.add_queue("q");
    state.add_binding(to_queue("e", "k", "q"));
    let refusal = state.check_delete_exchange("/", "e", true, None).unwrap_err();
    assert_eq!(
        (refusal.kind, refusal.to_string().as_str()),
        (Kind::InUse, "PRECONDITION_FAILED - exchange 'e' in vhost '/' in use")
    );
    assert!(state.check_delete_exchange("/", "e", false, None).unwrap().is_some());
    assert!(state.check_delete_exchange("/", "none", true, None).unwrap().is_none());
    // Bindings to it do not count.
    state.add_exchange("f", "direct");
    state.add_binding(to_exchange("e", "k", "f"));
    assert!(state.check_delete_exchange("/", "f", true, None).unwrap().is_some());
}

#[test]
fn binding() {
    let mut state = state();
    state.add_queue("q");
    for (name, kind) in [("h", "headers"), ("c", "x-consistent-hash"), ("l", "x-local-random")] {
        state.add_exchange(name, kind);
    }
    let refused = |binding| state.check_bind(&binding, None, None).unwrap_err().to_string();
    assert_eq!(
        refused(to_queue("none", "", "none")),
        "NOT_FOUND - no exchange 'none' in vhost '/'"
    );
    assert_eq!(refused(to_queue("h", "", "none")), "NOT_FOUND - no queue 'none' in vhost '/'");
    assert_eq!(
        refused(to_exchange("h", "", "none")),
        "NOT_FOUND - no exchange 'none' in vhost '/'"
    );
    let matching = |value| {
        let mut binding = to_queue("h", "", "q");
        binding.arguments = table([("x-match", value)]);
        binding
    };
    assert_eq!(
        refused(matching(text("foo"))),
        "PRECONDITION_FAILED - Invalid x-match field value <<\"foo\">>; expected all, any, \
         all-with-x, or any-with-x"
    );
    assert_eq!(
        refused(matching(AMQPValue::LongLongInt(1))),
        "PRECONDITION_FAILED - Invalid x-match field type long (value 1); expected longstr"
    );
    assert_eq!(
        refused(to_queue("l", "abc", "q")),
        "PRECONDITION_FAILED - Non empty binding 'abc' key not permitted"
    );
}

#[test]
fn case_028_a_weight_is_a_positive_number() {
    let mut state = state();
    state.add_queue("q");
    state.add_exchange("c", "x-consistent-hash");
    for (key, wanted) in [
        ("abc", "The binding key must be an integer: <<\"abc\">>"),
        ("1.5", "The binding key must be an integer: <<\"1.5\">>"),
        ("", "The binding key must be an integer: <<\"\">>"),
        ("0", "The binding key must be greater than 0"),
        ("-1", "The binding key must be greater than 0"),
    ] {
        let refusal = state.refused(Command::Bind(to_queue("c", key, "q")));
        assert_eq!((refusal.code, refusal.text.as_str()), (406, wanted));
    }
    assert_eq!(state.bindings("/").count(), 0);
    assert!(state.add_binding(to_queue("c", "10", "q")).created);
}

#[test]
fn case_088_the_limit_of_queues_is_firm() {
    let mut state = state();
    let (vhost, limit) = ("/".into(), VhostLimit::MaxQueues);
    state.apply(Command::PutVhostLimit { vhost, limit, value: 2 }).unwrap();
    state.add_queue("q1");
    state.add_queue("q2");
    let refusal = state.refused(Command::DeclareQueue(queue("q3")));
    assert_eq!(
        refusal.to_string(),
        "PRECONDITION_FAILED - cannot declare queue 'q3': queue limit in vhost '/' (2) is reached"
    );
    // What exists can be declared again, and bad arguments come first.
    state.add_queue("q1");
    let bad = DeclareQueue { arguments: table([("x-expires", integer(0))]), ..queue("q3") };
    assert!(state.refused(Command::DeclareQueue(bad)).text.contains("value_zero"));
    // A negative limit is none.
    state.apply(Command::PutVhostLimit { vhost: "/".into(), limit, value: -1 }).unwrap();
    state.add_queue("q3");
}

#[test]
fn exclusive_queues_are_bound_by_their_owner() {
    let mut state = state();
    state.apply(Command::DeclareQueue(exclusive("q", 1))).unwrap();
    let access = state.access("guest", "/").unwrap();
    let binding = to_queue("amq.direct", "k", "q");
    let check =
        |state: &State, owner| state.check_bind(&binding, Some(ConnectionId(owner)), Some(&access));
    assert_eq!(check(&state, 2).unwrap_err().to_string(), LOCKED);
    assert_eq!(check(&state, 1), Ok(false));
    // What is not there is removed by anybody.
    let other = Some(ConnectionId(2));
    assert_eq!(state.check_unbind(&binding, other, Some(&access)), Ok(false));
    state.add_binding(binding.clone());
    assert!(state.check_unbind(&binding, other, Some(&access)).is_err());
}

#[test]
fn arguments_and_properties_of_new_quorum_queues() {
    let state = state();
    let with = |key: &str, value: AMQPValue| DeclareQueue {
        arguments: table([("x-queue-type", text("quorum")), (key, value)]),
        ..queue("q")
    };
    let quorum = with("x-foo", text("a"));
    assert_eq!(check_queue(&state, &quorum), Ok(false));
    for (key, value) in [
        ("x-quorum-initial-group-size", integer(5)),
        ("x-quorum-target-group-size", integer(3)),
        ("x-quorum-target-group-size", integer(0)),
        ("x-delivery-limit", integer(-1)),
        ("x-dead-letter-strategy", text("at-least-once")),
        ("x-delayed-retry-type", text("failed")),
        ("x-delayed-retry-min", integer(10)),
        ("x-queue-leader-locator", text("balanced")),
        ("x-overflow", text("reject-publish-dlx")),
        ("x-single-active-consumer", AMQPValue::Boolean(true)),
    ] {
        assert_eq!(check_queue(&state, &with(key, value)), Ok(false), "{key}");
    }
    let refused = |declare: &DeclareQueue| check_queue(&state, declare).unwrap_err();
    for (key, value, why) in [
        ("x-max-priority", integer(3), " of queue type rabbit_quorum_queue"),
        ("x-max-priority", integer(300), " of queue type rabbit_quorum_queue"),
        ("x-queue-mode", text("lazy"), " of queue type rabbit_quorum_queue"),
        ("x-max-age", text("1D"), " of queue type rabbit_quorum_queue"),
        ("x-quorum-initial-group-size", integer(0), ": {value_zero,0}"),
        ("x-quorum-initial-group-size", integer(-1), ": {value_negative,-1}"),
        ("x-quorum-target-group-size", integer(-1), ": {value_negative,-1}"),
        ("x-quorum-target-group-size", text("3"), ": \"expected integer, got longstr\""),
        ("x-dead-letter-strategy", text("often"), ": invalid_dlx_strategy"),
        ("x-expires", integer(0), ": {value_zero,0}"),
    ] {
        assert_eq!(
            refused(&with(key, value)),
            format!("PRECONDITION_FAILED - invalid arg '{key}' for queue 'q' in vhost '/'{why}")
        );
    }
    let transient = DeclareQueue { durable: false, ..quorum.clone() };
    let auto_delete = DeclareQueue { auto_delete: true, ..quorum.clone() };
    let own = DeclareQueue { exclusive_owner: Some(ConnectionId(1)), ..quorum.clone() };
    for (declare, property) in
        [(transient, "non-durable"), (auto_delete, "auto-delete"), (own, "exclusive-owner")]
    {
        assert_eq!(
            refused(&declare),
            format!(
                "PRECONDITION_FAILED - invalid property '{property}' for queue 'q' in vhost '/'"
            )
        );
    }
    let unnamed = DeclareQueue { generated: true, name: "amq.gen-x".into(), ..quorum.clone() };
    assert_eq!(
        refused(&unnamed),
        "PRECONDITION_FAILED - Cannot declare a server-named queue for type rabbit_quorum_queue"
    );
    let imported = DeclareQueue { generated: true, ..quorum };
    assert_eq!(check_queue(&state, &imported), Ok(false));
}
