//! Exchange types one by one, and all of them against a naive matcher.

mod naive;
mod properties;

use amq_protocol_types::{AMQPValue, FieldTable};

use crate::command::{Command, DeclareExchange};
use crate::objects::binding::Binding;
use crate::routes::content::{Content, NoContent};
use crate::routes::targets::RouteSet;
use crate::scene::{Act, exchange, integer, policy, state, table, text, to_exchange, to_queue};
use crate::state::State;

/// A message with these properties.
#[derive(Debug, Default)]
struct Properties {
    headers: FieldTable,
    message_id: Option<String>,
    correlation_id: Option<String>,
    timestamp: Option<u64>,
    random: u64,
}

impl Content for Properties {
    fn headers(&self) -> Option<&FieldTable> {
        Some(&self.headers)
    }

    fn message_id(&self) -> Option<&str> {
        self.message_id.as_deref()
    }

    fn correlation_id(&self) -> Option<&str> {
        self.correlation_id.as_deref()
    }

    fn timestamp(&self) -> Option<u64> {
        self.timestamp
    }

    fn random(&self) -> u64 {
        self.random
    }
}

fn with_headers<const N: usize>(fields: [(&str, AMQPValue); N]) -> Properties {
    Properties { headers: table(fields), ..Properties::default() }
}

/// Whether a topic binding matches a key.
fn topic_matches(binding: &str, key: &str) -> bool {
    let mut state = state();
    state.add_exchange("t", "topic");
    state.add_queue("q");
    state.add_binding(to_queue("t", binding, "q"));
    let matches = !state.routed("t", key, &NoContent).is_empty();
    state.drop_binding(to_queue("t", binding, "q"));
    assert!(state.routed("t", key, &NoContent).is_empty());
    matches
}

/// Whether a headers binding matches a message.
fn headers_match<const N: usize, const M: usize>(
    binding: [(&str, AMQPValue); N],
    message: [(&str, AMQPValue); M],
) -> bool {
    let mut state = state();
    state.add_queue("q");
    state.add_binding(Binding { arguments: table(binding), ..to_queue("amq.headers", "", "q") });
    !state.routed("amq.headers", "", &with_headers(message)).is_empty()
}

#[test]
fn case_023_an_empty_key_has_no_words() {
    for (binding, key, matches) in [
        ("", "", true),
        ("#", "", true),
        ("#.#", "", true),
        ("*", "", false),
        ("a.*", "", false),
        ("", "a", false),
        ("*", "a", true),
        ("*.*", ".", true),
        ("*", ".", false),
        ("a.", "a.", true),
        ("a.*", "a.", true),
        ("a", "a.", false),
    ] {
        assert_eq!(topic_matches(binding, key), matches, "{binding:?} {key:?}");
    }
    // Another exchange's bindings have nothing to do with it.
    let mut state = state();
    state.add_exchange("x", "topic");
    state.add_exchange("y", "topic");
    state.add_queue("q");
    state.add_binding(to_queue("x", "", "q"));
    assert!(state.routed("y", "", &NoContent).is_empty());
    assert_eq!(state.routed("x", "", &NoContent), ["q"]);
}

#[test]
fn case_024_hash_may_stand_for_nothing() {
    for (binding, key, matches) in [
        ("a.#.b", "a.b", true),
        ("a.#.b", "a.x.y.b", true),
        ("a.#.b", "a.x.y", false),
        ("#", "", true),
        ("#", "a.b.c", true),
        ("a.#", "a", true),
        ("a.#", "b", false),
        ("#.a", "a", true),
        ("#.a.#", "x.a.y", true),
        ("#.a.#.a.#", "a", false),
        ("#.*", "", false),
        ("#.*.#", "x", true),
        ("*.#.*", "x", false),
    ] {
        assert_eq!(topic_matches(binding, key), matches, "{binding:?} {key:?}");
    }
}

#[test]
fn many_hashes_cost_no_power_of_the_words() {
    let mut state = state();
    state.add_exchange("t", "topic");
    state.add_queue("q");
    state.add_binding(to_queue("t", &["#.a"; 40].join("."), "q"));
    let key = ["a"; 100].join(".");
    assert_eq!(state.routed("t", &key, &NoContent), ["q"]);
    assert!(state.routed("t", &format!("{key}.b"), &NoContent).is_empty());
}

#[test]
fn case_025_headers() {
    let all = || [("a", integer(1)), ("b", text("x"))];
    assert!(headers_match(all(), [("a", integer(1)), ("b", text("x")), ("c", integer(0))]));
    assert!(!headers_match(all(), [("a", integer(1))]));
    assert!(!headers_match(all(), [("a", integer(2)), ("b", text("x"))]));
    let any = || [("x-match", text("any")), ("a", integer(1)), ("b", text("x"))];
    assert!(headers_match(any(), [("b", text("x"))]));
    assert!(!headers_match(any(), [("b", text("y"))]));
    // Widths of integers do not matter, types do.
    assert!(headers_match([("a", integer(1))], [("a", AMQPValue::LongLongInt(1))]));
    assert!(!headers_match([("a", integer(1))], [("a", text("1"))]));
    // Void: the header only has to be there.
    assert!(headers_match([("a", AMQPValue::Void)], [("a", text("whatever"))]));
    assert!(!headers_match([("a", AMQPValue::Void)], [("b", text("whatever"))]));
    // Without criteria, all hold and none does.
    assert!(headers_match([], []));
    assert!(headers_match([("x-match", text("all"))], [("a", integer(1))]));
    assert!(!headers_match([("x-match", text("any"))], [("a", integer(1))]));
    // Headers that begin with x- count only if asked for.
    let x = |mode| [("x-match", text(mode)), ("x-a", integer(1))];
    assert!(!headers_match(x("any"), [("x-a", integer(1))]));
    assert!(headers_match(x("any-with-x"), [("x-a", integer(1))]));
    assert!(headers_match(x("all"), [("x-a", integer(2))]));
    assert!(!headers_match(x("all-with-x"), [("x-a", integer(2))]));
    // A message without headers.
    let mut state = state();
    state.add_queue("q");
    state.add_binding(Binding { arguments: table(all()), ..to_queue("amq.match", "", "q") });
    assert!(state.routed("amq.match", "", &NoContent).is_empty());
}

#[test]
fn case_025_each_message_to_its_own_queue() {
    let mut state = state();
    for (queue, value) in [("q1", 1), ("q2", 2)] {
        state.add_queue(queue);
        let arguments = table([("x-match", text("all")), ("type", integer(value))]);
        state.add_binding(Binding { arguments, ..to_queue("amq.headers", "", queue) });
    }
    for (queue, value) in [("q1", 1), ("q2", 2)] {
        let message = with_headers([("type", integer(value))]);
        assert_eq!(state.routed("amq.headers", "", &message), [queue]);
    }
}

#[test]
fn case_104_many_topic_bindings() {
    let mut state = state();
    state.add_exchange("t", "topic");
    state.add_queue("q");
    let binding = |number: u32| to_queue("t", &format!("a.{number}.*"), "q");
    let mut half = state.clone();
    for number in 0..20_000 {
        state.add_binding(binding(number));
        if number == 9_999 {
            half = state.clone();
        }
    }
    assert_eq!(state.routed("t", "a.19999.x", &NoContent), ["q"]);
    for number in 0..20_000 {
        state.drop_binding(binding(number));
    }
    assert_eq!(state.bindings("/").count(), 0);
    assert!(state.routed("t", "a.19999.x", &NoContent).is_empty());
    // A snapshot from before still says what it said.
    assert_eq!(half.routed("t", "a.9999.x", &NoContent), ["q"]);
    assert!(half.routed("t", "a.10000.x", &NoContent).is_empty());
}

#[test]
fn what_decides() {
    let mut state = state();
    for (name, kind, alone) in [
        ("d", "direct", true),
        ("t", "topic", true),
        ("h", "headers", false),
        ("r", "x-random", false),
        ("c", "x-consistent-hash", true),
    ] {
        state.add_exchange(name, kind);
        let vhost = state.routes().vhost("/").unwrap();
        let exchange = vhost.exchange(name).unwrap();
        let routed = vhost.route(exchange, "k", &NoContent, &mut RouteSet::new());
        assert_eq!(routed.by_keys_alone, alone, "{name}");
    }
    // One on the way that looks at headers is enough.
    state.add_binding(to_exchange("d", "k", "h"));
    let vhost = state.routes().vhost("/").unwrap();
    let exchange = vhost.exchange("d").unwrap();
    let route = |key| vhost.route(exchange, key, &NoContent, &mut RouteSet::new()).by_keys_alone;
    assert!(!route("k") && route("other"));
}

#[test]
fn direct_fanout_and_default() {
    let mut state = state();
    for name in ["q1", "q2", "q3"] {
        state.add_queue(name);
        state.add_binding(to_queue("amq.fanout", "ignored", name));
    }
    state.add_binding(to_queue("amq.direct", "k", "q1"));
    state.add_binding(to_queue("amq.direct", "k", "q2"));
    assert_eq!(state.routed("amq.fanout", "", &NoContent), ["q1", "q2", "q3"]);
    assert_eq!(state.routed("amq.direct", "k", &NoContent), ["q1", "q2"]);
    assert!(state.routed("amq.direct", "K", &NoContent).is_empty());
    assert_eq!(state.routed("", "q3", &NoContent), ["q3"]);
    assert!(state.routed("", "none", &NoContent).is_empty());
}

#[test]
fn each_queue_once_and_cycles_end() {
    let mut state = state();
    for name in ["x", "y", "z"] {
        state.add_exchange(name, "fanout");
    }
    state.add_queue("q");
    for (source, destination) in [("x", "y"), ("x", "z"), ("y", "z"), ("z", "x"), ("y", "y")] {
        state.add_binding(to_exchange(source, "", destination));
    }
    state.add_binding(to_queue("y", "", "q"));
    state.add_binding(to_queue("z", "", "q"));
    state.add_binding(to_queue("x", "1", "q"));
    for exchange in ["x", "y", "z"] {
        assert_eq!(state.routed(exchange, "k", &NoContent), ["q"]);
    }
}

#[test]
fn several_keys_are_one_message() {
    let mut state = state();
    for name in ["q1", "q2"] {
        state.add_queue(name);
        state.add_binding(to_queue("amq.direct", name, name));
    }
    let vhost = state.routes().vhost("/").unwrap();
    let mut out = RouteSet::new();
    let direct = vhost.exchange("amq.direct").unwrap();
    vhost.route_keys(direct, &["q1", "q2", "q1", "none"], &NoContent, &mut out);
    assert_eq!(out.targets().len(), 2);
}

fn with_alternate(name: &str, kind: &str, alternate: &str) -> Command {
    let arguments = table([("alternate-exchange", text(alternate))]);
    Command::DeclareExchange(DeclareExchange { arguments, ..exchange(name, kind) })
}

#[test]
fn case_033_alternate_exchanges() {
    let mut state = state();
    state.apply(with_alternate("x", "direct", "y")).unwrap();
    state.apply(with_alternate("y", "direct", "x")).unwrap();
    for name in ["q1", "q2", "q3"] {
        state.add_queue(name);
    }
    // A cycle of alternates ends; nothing matches.
    assert!(state.routed("x", "k", &NoContent).is_empty());
    state.add_binding(to_queue("y", "k", "q1"));
    let route = |state: &State, key| {
        let vhost = state.routes().vhost("/").unwrap();
        let mut out = RouteSet::new();
        vhost.route(vhost.exchange("x").unwrap(), key, &NoContent, &mut out)
    };
    assert_eq!(state.routed("x", "k", &NoContent), ["q1"]);
    assert!(route(&state, "k").via_alternate && route(&state, "k").matched);
    // A match in the exchange itself leaves the alternate out of it.
    state.add_binding(to_queue("x", "k", "q2"));
    assert_eq!(state.routed("x", "k", &NoContent), ["q2"]);
    assert!(!route(&state, "k").via_alternate);
    // Also if what matches is an exchange that knows no queue.
    state.add_exchange("dead end", "direct");
    state.add_binding(to_exchange("x", "j", "dead end"));
    state.add_binding(to_queue("y", "j", "q3"));
    assert!(state.routed("x", "j", &NoContent).is_empty());
    // An alternate that does not exist, and the default exchange as one.
    state.apply(with_alternate("m", "fanout", "none")).unwrap();
    assert!(state.routed("m", "q1", &NoContent).is_empty());
    state.apply(with_alternate("d", "fanout", "")).unwrap();
    assert_eq!(state.routed("d", "q1", &NoContent), ["q1"]);
}

#[test]
fn a_policy_sets_the_alternate_and_the_argument_wins() {
    let mut state = state();
    state.add_exchange("x", "direct");
    state.apply(with_alternate("y", "direct", "amq.direct")).unwrap();
    state.add_queue("q");
    state.add_binding(to_queue("amq.fanout", "", "q"));
    let definition = serde_json::json!({"alternate-exchange": "amq.fanout"});
    let outcome = state.apply(Command::PutPolicy(policy("p", "^[xy]$", 0, definition))).unwrap();
    assert!(outcome.routes_changed);
    assert_eq!(state.routed("x", "k", &NoContent), ["q"]);
    assert!(state.routed("y", "k", &NoContent).is_empty());
    state.add_exchange("later", "direct");
    assert!(state.routed("later", "k", &NoContent).is_empty());
    let (vhost, name) = ("/".into(), "p".into());
    assert!(state.apply(Command::DeletePolicy { vhost, name }).unwrap().routes_changed);
    assert!(state.routed("x", "k", &NoContent).is_empty());
}

/// How many of 10,000 keys go to each of the queues.
fn shares(state: &State, exchange: &str, queues: &[&str]) -> Vec<usize> {
    let mut counts = vec![0; queues.len()];
    for number in 0..10_000u64 {
        let content = Properties { random: number * 7919, ..Properties::default() };
        let routed = state.routed(exchange, &format!("key {number}"), &content);
        assert!(routed.len() <= 1);
        if let Some(name) = routed.first() {
            counts[queues.iter().position(|queue| queue == name).unwrap()] += 1;
        }
    }
    counts
}

#[test]
fn consistent_hash_keeps_the_weights() {
    let mut state = state();
    state.add_exchange("c", "x-consistent-hash");
    for (queue, weight) in [("q1", "1"), ("q2", "2"), ("q3", "7")] {
        state.add_queue(queue);
        state.add_binding(to_queue("c", weight, queue));
    }
    let counts = shares(&state, "c", &["q1", "q2", "q3"]);
    for (count, wanted) in counts.iter().zip([1000, 2000, 7000]) {
        assert!(count.abs_diff(wanted) < 200, "{counts:?}");
    }
    // Only the messages of the binding that goes move.
    let place = |state: &State, number: u64| {
        state.routed("c", &format!("key {number}"), &NoContent).pop().unwrap()
    };
    let before: Vec<_> = (0..1000).map(|number| place(&state, number)).collect();
    state.drop_binding(to_queue("c", "2", "q2"));
    for (number, before) in before.iter().enumerate() {
        let after = place(&state, number as u64);
        assert!(after == *before || before == "q2");
    }
}

#[test]
fn case_027_duplicate_bindings_of_a_consistent_hash() {
    let mut state = state();
    state.add_exchange("c", "x-consistent-hash");
    state.add_queue("q1");
    state.add_queue("q2");
    for (weight, queue) in [("1", "q1"), ("3", "q1"), ("4", "q2")] {
        state.add_binding(to_queue("c", weight, queue));
    }
    let counts = shares(&state, "c", &["q1", "q2"]);
    assert!(counts[0].abs_diff(5000) < 300, "weights of a queue add up: {counts:?}");
    state.drop_binding(to_queue("c", "3", "q1"));
    let counts = shares(&state, "c", &["q1", "q2"]);
    assert!(counts[0].abs_diff(2000) < 300, "{counts:?}");
    state.drop_binding(to_queue("c", "1", "q1"));
    assert_eq!(shares(&state, "c", &["q1", "q2"]), [0, 10_000]);
    state.drop_binding(to_queue("c", "4", "q2"));
    assert_eq!(shares(&state, "c", &["q1", "q2"]), [0, 0]);
}

#[test]
fn case_029_a_message_without_the_hashed_property() {
    for argument in [
        ("hash-header", "h"),
        ("hash-property", "message_id"),
        ("hash-property", "correlation_id"),
        ("hash-property", "timestamp"),
    ] {
        let mut state = state();
        let arguments = table([(argument.0, text(argument.1))]);
        let declare = DeclareExchange { arguments, ..exchange("c", "x-consistent-hash") };
        state.apply(Command::DeclareExchange(declare)).unwrap();
        for queue in ["q1", "q2"] {
            state.add_queue(queue);
            state.add_binding(to_queue("c", "1", queue));
        }
        let without = state.routed("c", "k", &NoContent);
        assert_eq!(without.len(), 1);
        assert_eq!(without, state.routed("c", "another key", &NoContent), "the place is stable");
        // With it, messages spread, and the key does not matter.
        let mut seen = std::collections::BTreeSet::new();
        for number in 0..100 {
            let text = format!("v{number}");
            let content = Properties {
                headers: table([("h", crate::scene::text(&text))]),
                message_id: Some(text.clone()),
                correlation_id: Some(text),
                timestamp: Some(number),
                random: 0,
            };
            let routed = state.routed("c", "k", &content);
            assert_eq!(routed, state.routed("c", "j", &content));
            seen.extend(routed);
        }
        assert_eq!(seen.len(), 2);
    }
}

#[test]
fn modulus_and_random() {
    for (kind, key) in [("x-modulus-hash", "k"), ("x-random", "k"), ("x-local-random", "")] {
        let mut state = state();
        state.add_exchange("m", kind);
        assert!(state.routed("m", "k", &NoContent).is_empty());
        for queue in ["q1", "q2", "q3", "q4"] {
            state.add_queue(queue);
            state.add_binding(to_queue("m", key, queue));
        }
        let counts = shares(&state, "m", &["q1", "q2", "q3", "q4"]);
        assert!(counts.iter().all(|count| count.abs_diff(2500) < 250), "{kind}: {counts:?}");
        state.drop_binding(to_queue("m", key, "q2"));
        assert_eq!(shares(&state, "m", &["q1", "q2", "q3", "q4"])[1], 0);
    }
}
