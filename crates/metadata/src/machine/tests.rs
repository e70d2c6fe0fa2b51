//! What commands do to the state.

use std::sync::Arc;

use amq_protocol_types::AMQPValue;
use model::id::{ConnectionId, NodeId, QueueId};
use model::time::Millis;
use serde_json::{Value, json};

use crate::command::{Command, DeclareExchange, DeclareQueue, SerialQueueId};
use crate::effective::{Overflow, QueueSettings, Retried};
use crate::objects::binding::{Binding, Destination};
use crate::objects::limit::{UserLimit, VhostLimit};
use crate::objects::parameter::{GlobalParameter, Parameter};
use crate::objects::policy::{ApplyTo, Policy};
use crate::objects::user::User;
use crate::objects::vhost::Vhost;
use crate::outcome::Outcome;
use crate::refusal::Kind;
use crate::routes::content::NoContent;
use crate::scene::{
    Act, exchange, exclusive, integer, policy, queue, records, state, table, text, to_exchange,
    to_queue,
};
use crate::state::State;

fn delete_queue(state: &mut State, name: &str, id: Option<QueueId>) -> Outcome {
    let id = id.map(SerialQueueId);
    state.apply(Command::DeleteQueue { vhost: "/".into(), name: name.into(), id }).unwrap()
}

fn delete_exchange(state: &mut State, name: &str) -> Outcome {
    let (vhost, name) = ("/".into(), name.into());
    state.apply(Command::DeleteExchange { vhost, name, if_unused: false }).unwrap()
}

fn auto_delete(name: &str) -> Command {
    Command::DeclareExchange(DeclareExchange { auto_delete: true, ..exchange(name, "fanout") })
}

/// The settings of a queue declared with these arguments, under these policies.
fn settings<const N: usize>(
    arguments: [(&str, AMQPValue); N],
    policies: &[Policy],
    operator_policies: &[Policy],
) -> QueueSettings {
    let mut state = state();
    for policy in policies {
        state.apply(Command::PutPolicy(policy.clone())).unwrap();
    }
    for policy in operator_policies {
        state.apply(Command::PutOperatorPolicy(policy.clone())).unwrap();
    }
    let declare = DeclareQueue { arguments: table(arguments), ..queue("q") };
    let queue = state.apply(Command::DeclareQueue(declare)).unwrap().queue.unwrap();
    state.effective_queue(&queue)
}

#[test]
fn a_first_boot() {
    let state = state();
    let names: Vec<_> = state.exchanges("/").map(|one| (&*one.name, one.kind.as_str())).collect();
    assert_eq!(
        names,
        [
            ("", "direct"),
            ("amq.direct", "direct"),
            ("amq.fanout", "fanout"),
            ("amq.headers", "headers"),
            ("amq.match", "headers"),
            ("amq.rabbitmq.trace", "topic"),
            ("amq.topic", "topic"),
        ]
    );
    assert!(state.exchange("/", "amq.rabbitmq.trace").unwrap().internal);
    assert_eq!(state.vhost("/").unwrap().default_queue_type.as_deref(), Some("classic"));
    assert!(state.access("guest", "/").is_ok());
    assert_eq!(state.routes().vhost("/").unwrap().exchange("").unwrap().kind.as_str(), "direct");
}

#[test]
fn ids_are_never_reused() {
    let mut state = state();
    let first = state.add_queue("q");
    assert_eq!(first.id, State::FIRST_QUEUE);
    // Another declaration finds it.
    let outcome = state.apply(Command::DeclareQueue(queue("q"))).unwrap();
    assert!(!outcome.created && outcome.queues_created.is_empty() && outcome.records.is_empty());
    assert_eq!(outcome.queue.unwrap().id, first.id);
    delete_queue(&mut state, "q", None);
    let second = state.add_queue("q");
    assert!(second.id > first.id);
    // What was meant for the old one does not reach the new one.
    assert_eq!(delete_queue(&mut state, "q", Some(first.id)), Outcome::default());
    assert!(delete_queue(&mut state, "q", Some(second.id)).deleted);
    // Deleting what is not there is nothing.
    assert_eq!(delete_queue(&mut state, "q", None), Outcome::default());
    assert_eq!(delete_exchange(&mut state, "none"), Outcome::default());
}

#[test]
fn the_default_type_is_shown() {
    let mut state = state();
    let queue = state.add_queue("q");
    assert_eq!(queue.arguments, table([("x-queue-type", text("classic"))]));
}

#[test]
fn case_089_an_absent_type_is_never_wrong() {
    let mut state = state();
    let vhost = |default: Option<&str>| {
        let default_queue_type = default.map(str::to_owned);
        Command::PutVhost(Vhost { default_queue_type, ..Vhost::named("/") })
    };
    let kinds = ["quorum", "classic", "classic"];
    for (number, default) in [Some("quorum"), Some("classic"), None].into_iter().enumerate() {
        state.apply(vhost(default)).unwrap();
        for (earlier, kind) in kinds.iter().enumerate().take(number + 1) {
            let declare = queue(&format!("q{earlier}"));
            let queue = state.apply(Command::DeclareQueue(declare)).unwrap().queue.unwrap();
            assert_eq!(queue.kind.as_str(), *kind);
        }
    }
    let refusal = state.refused(vhost(Some("foo")));
    assert_eq!((refusal.kind, &*refusal.text), (Kind::Invalid, "foo is not a valid queue type"));
    let refusal = state.refused(vhost(Some("")));
    assert_eq!(refusal.text, "default_queue_type must not be an empty string");
}

#[test]
fn a_queue_that_cannot_be_of_the_default_type_is_classic() {
    let mut state = state();
    let default_queue_type = Some("quorum".to_owned());
    state.apply(Command::PutVhost(Vhost { default_queue_type, ..Vhost::named("/") })).unwrap();
    let declares = [
        (queue("plain"), "quorum"),
        (DeclareQueue { durable: false, ..queue("transient") }, "classic"),
        (DeclareQueue { auto_delete: true, ..queue("auto") }, "classic"),
        (exclusive("own", 7), "classic"),
    ];
    for (declare, kind) in declares {
        assert_eq!(state.kind_of_new_queue(&declare).as_str(), kind);
        let queue = state.apply(Command::DeclareQueue(declare)).unwrap().queue.unwrap();
        assert_eq!(queue.kind.as_str(), kind);
        assert_eq!(queue.arguments, table([("x-queue-type", text(kind))]));
    }
}

#[test]
fn a_quorum_queue_has_the_members_that_were_chosen_where_it_was_declared() {
    let mut state = state();
    let declare = |name: &str, members: &[u64]| DeclareQueue {
        arguments: table([("x-queue-type", text("quorum"))]),
        home: NodeId(7),
        members: members.iter().map(|id| NodeId(*id)).collect(),
        ..queue(name)
    };
    for (name, given, expected) in [("q", &[7, 8, 9][..], &[7, 8, 9][..]), ("alone", &[], &[7])] {
        let queue =
            state.apply(Command::DeclareQueue(declare(name, given))).unwrap().queue.unwrap();
        assert_eq!(
            queue.nodes().collect::<Vec<_>>(),
            expected.iter().map(|id| NodeId(*id)).collect::<Vec<_>>()
        );
    }
    // It comes back from a dump.
    let mut bytes = bytes::BytesMut::new();
    crate::store::dump::write(&state, &mut bytes);
    let copy = crate::store::dump::read(&bytes).unwrap();
    assert_eq!(records(&copy), records(&state));
    assert!(crate::store::dump::read(&bytes[..bytes.len() - 1]).is_err());
}

#[test]
fn quorum_queues_have_a_delivery_limit_unless_they_say_otherwise() {
    let quorum = |limit: Option<i32>| {
        let mut arguments = table([("x-queue-type", text("quorum"))]);
        if let Some(limit) = limit {
            arguments.insert("x-delivery-limit".into(), integer(limit));
        }
        arguments
    };
    let effective = |arguments, definition| {
        let mut state = state();
        if let Some(definition) = definition {
            state.apply(Command::PutPolicy(policy("p", ".*", 0, definition))).unwrap();
        }
        let declare = DeclareQueue { arguments, ..queue("q") };
        let queue = state.apply(Command::DeclareQueue(declare)).unwrap().queue.unwrap();
        state.effective_queue(&queue)
    };
    let limit = |argument, definition| effective(quorum(argument), definition).delivery_limit;
    assert_eq!(limit(None, None), Some(20));
    assert_eq!(limit(Some(-1), None), None);
    assert_eq!(limit(Some(3), None), Some(3));
    assert_eq!(limit(None, Some(json!({"delivery-limit": 5}))), Some(5));
    assert_eq!(limit(None, Some(json!({"delivery-limit": -1}))), None);
    assert_eq!(limit(Some(3), Some(json!({"delivery-limit": 5}))), Some(3));
    assert_eq!(effective(table([]), None).delivery_limit, None, "a classic queue has none");
    // Here the policy wins, and what a quorum queue does not know is its default.
    let mut arguments = quorum(None);
    arguments.insert("x-overflow".into(), text("reject-publish-dlx"));
    assert_eq!(effective(arguments.clone(), None).overflow, Overflow::DropHead);
    let reject = effective(arguments, Some(json!({"overflow": "reject-publish"})));
    assert_eq!(reject.overflow, Overflow::RejectPublish);
}

#[test]
fn delayed_retry_comes_from_arguments_and_both_policies() {
    let retry = |arguments: Vec<(&'static str, AMQPValue)>, policies: [Option<Value>; 2]| {
        let mut state = state();
        let [own, operator] = policies;
        if let Some(definition) = own {
            state.apply(Command::PutPolicy(policy("p", ".*", 0, definition))).unwrap();
        }
        if let Some(definition) = operator {
            state.apply(Command::PutOperatorPolicy(policy("o", ".*", 0, definition))).unwrap();
        }
        let mut table = table([("x-queue-type", text("quorum"))]);
        for (key, value) in arguments {
            table.insert(key.into(), value);
        }
        let declare = DeclareQueue { arguments: table, ..queue("q") };
        let queue = state.apply(Command::DeclareQueue(declare)).unwrap().queue.unwrap();
        let settings = state.effective_queue(&queue);
        settings.delayed_retry.map(|retry| (retry.which, retry.min.0, retry.max.0))
    };
    let (which, min, max) = ("x-delayed-retry-type", "x-delayed-retry-min", "x-delayed-retry-max");
    assert_eq!(retry(vec![], [None, None]), None);
    assert_eq!(retry(vec![(which, text("all"))], [None, None]), None, "it does not say how long");
    assert_eq!(retry(vec![(min, integer(5))], [None, None]), None, "nor this which");
    let all = vec![(which, text("all")), (min, integer(5)), (max, integer(9))];
    assert_eq!(retry(all.clone(), [None, None]), Some((Retried::All, 5, 9)));
    let no_max = vec![(which, text("failed")), (min, integer(5))];
    assert_eq!(retry(no_max, [None, None]), Some((Retried::Failed, 5, 5)));
    let off = vec![(which, text("disabled")), (min, integer(5))];
    assert_eq!(retry(off, [None, None]), None);
    let own = json!({"delayed-retry-type": "returned", "delayed-retry-min": 7,
                     "delayed-retry-max": 70});
    let operator = json!({"delayed-retry-type": "failed", "delayed-retry-min": 6,
                          "delayed-retry-max": 60});
    assert_eq!(retry(vec![], [Some(own.clone()), None]), Some((Retried::Returned, 7, 70)));
    let both = [Some(own), Some(operator)];
    assert_eq!(retry(vec![], both.clone()), Some((Retried::Failed, 7, 60)));
    assert_eq!(retry(all, both), Some((Retried::All, 7, 9)));
}

#[test]
fn policies_of_delayed_retry_are_checked_together() {
    let refused = |definition: Value| {
        let refusal = state().apply(Command::PutPolicy(policy("p", ".*", 0, definition)));
        refusal.unwrap_err().text.trim_end().to_owned()
    };
    let failed = |text: &str| format!("Validation failed\n\n{text}");
    for (definition, why) in [
        (
            json!({"delayed-retry-type": "all"}),
            "delayed-retry-min is required when delayed-retry-type is all",
        ),
        (
            json!({"delayed-retry-min": 1000, "delayed-retry-max": 500}),
            "delayed-retry-max (500) must not be smaller than delayed-retry-min (1000)",
        ),
        (
            json!({"delayed-retry-type": "foo", "delayed-retry-min": 1}),
            "<<\"foo\">> is not a valid delayed retry type. Must be one of: all, failed, returned, disabled",
        ),
        (
            json!({"delayed-retry-min": 0}),
            "0 is not a valid delayed retry minimum delay. Must be a positive integer",
        ),
        (
            json!({"delayed-retry-max": "x"}),
            "<<\"x\">> is not a valid delayed retry maximum delay. Must be a positive integer",
        ),
    ] {
        assert_eq!(refused(definition), failed(why));
    }
    for fine in [json!({"delayed-retry-type": "disabled"}), json!({"delayed-retry-max": 1})] {
        state().apply(Command::PutPolicy(policy("p", ".*", 0, fine))).unwrap();
    }
}

#[test]
fn case_030_bindings_are_idempotent_and_exact() {
    let mut state = state();
    state.add_exchange("e", "direct");
    state.add_queue("q");
    let binding = to_queue("e", "a/b~", "q");
    let with = |value| Binding { arguments: table([("x", value)]), ..binding.clone() };
    assert!(state.add_binding(binding.clone()).created);
    assert_eq!(state.add_binding(binding.clone()), Outcome::default());
    assert!(state.add_binding(with(integer(1))).created);
    // The same by value, so the same.
    let wide = with(AMQPValue::LongLongInt(1));
    assert!(!state.add_binding(wide.clone()).created);
    assert_eq!(wide.properties_key(), with(integer(1)).properties_key());
    assert!(state.add_binding(with(integer(2))).created);
    assert_eq!(state.bindings_from("/", "e").count(), 3);
    assert_eq!(binding.properties_key(), "a%2Fb%7E");
    assert_eq!(to_queue("e", "", "q").properties_key(), "~");
    assert!(with(integer(1)).properties_key().starts_with("a%2Fb%7E~"));
    // Each is found by its key and goes alone; the queue is reached until the last is gone.
    let destination = Destination::Queue("q".into());
    for one in [binding.clone(), with(integer(2)), wide] {
        assert_eq!(state.routed("e", "a/b~", &NoContent), ["q"]);
        let key = one.properties_key();
        let found = state.binding_by_properties("/", "e", &destination, &key).unwrap();
        let found = Binding::clone(found);
        assert_eq!(found.properties_key(), key);
        assert!(state.drop_binding(found).deleted);
        assert_eq!(state.drop_binding(one), Outcome::default());
    }
    assert!(state.routed("e", "a/b~", &NoContent).is_empty());
    // A new exchange of the name has no bindings of the old one.
    state.add_binding(binding.clone());
    delete_exchange(&mut state, "e");
    state.add_exchange("e", "direct");
    assert_eq!(state.bindings_from("/", "e").count(), 0);
    assert!(state.add_binding(binding).created);
}

#[test]
fn case_026_an_exchange_takes_its_bindings_along() {
    let mut state = state();
    state.add_exchange("x", "fanout");
    state.add_exchange("y", "fanout");
    state.add_queue("q");
    state.add_binding(to_exchange("x", "", "y"));
    state.add_binding(to_queue("y", "", "q"));
    assert_eq!(state.routed("x", "", &NoContent), ["q"]);
    let outcome = delete_exchange(&mut state, "y");
    assert_eq!(outcome.bindings_deleted.len(), 2);
    assert_eq!(state.bindings_from("/", "x").count(), 0);
    assert_eq!(state.bindings_to("/", &Destination::Queue("q".into())).count(), 0);
    assert!(state.routed("x", "", &NoContent).is_empty());
    state.add_exchange("y", "fanout");
    assert!(state.routed("x", "", &NoContent).is_empty());
}

#[test]
fn auto_delete_exchanges_go_with_their_last_binding() {
    let mut state = state();
    let chain = ["a", "b", "c"];
    for name in chain {
        state.apply(auto_delete(name)).unwrap();
        // One that never had a binding stays.
        assert!(state.exchange("/", name).is_some());
    }
    state.add_queue("q");
    state.add_queue("r");
    state.add_binding(to_exchange("a", "", "b"));
    state.add_binding(to_exchange("b", "", "c"));
    state.add_binding(to_queue("c", "", "q"));
    state.add_binding(to_queue("c", "", "r"));
    delete_queue(&mut state, "q", None);
    assert!(chain.iter().all(|name| state.exchange("/", name).is_some()));
    let outcome = delete_queue(&mut state, "r", None);
    assert!(chain.iter().all(|name| state.exchange("/", name).is_none()));
    assert_eq!(outcome.exchanges_deleted.len(), 3);
    assert_eq!(outcome.bindings_deleted.len(), 3);
    assert_eq!(state.bindings("/").count(), 0);
    // Also by unbinding, and when it is deleted itself nothing is done twice.
    state.apply(auto_delete("a")).unwrap();
    state.add_queue("q");
    state.add_binding(to_queue("a", "", "q"));
    assert_eq!(state.drop_binding(to_queue("a", "", "q")).exchanges_deleted.len(), 1);
    state.apply(auto_delete("a")).unwrap();
    state.add_binding(to_queue("a", "", "q"));
    assert_eq!(delete_exchange(&mut state, "a").exchanges_deleted.len(), 1);
    // A cycle of them.
    state.apply(auto_delete("a")).unwrap();
    state.apply(auto_delete("b")).unwrap();
    state.add_binding(to_exchange("a", "", "b"));
    state.add_binding(to_exchange("b", "", "a"));
    assert_eq!(state.drop_binding(to_exchange("a", "", "b")).exchanges_deleted.len(), 2);
}

#[test]
fn a_long_chain_of_auto_delete_exchanges() {
    let mut state = state();
    for number in 0..20_000 {
        state.apply(auto_delete(&number.to_string())).unwrap();
        if number > 0 {
            let (from, to) = ((number - 1).to_string(), number.to_string());
            state.add_binding(to_exchange(&from, "", &to));
        }
    }
    state.add_queue("q");
    state.add_binding(to_queue("19999", "", "q"));
    assert_eq!(state.routed("0", "", &NoContent), ["q"]);
    assert_eq!(delete_queue(&mut state, "q", None).exchanges_deleted.len(), 20_000);
}

#[test]
fn exclusive_queues_go_with_their_connection() {
    let mut state = state();
    for (name, owner) in [("a", 1), ("b", 2), ("c", 1)] {
        state.apply(Command::DeclareQueue(exclusive(name, owner))).unwrap();
    }
    state.add_binding(to_queue("amq.fanout", "", "a"));
    let owner = ConnectionId(1);
    assert_eq!(state.exclusive_queues(owner).count(), 2);
    let outcome = state.apply(Command::DeleteExclusiveQueues { owner }).unwrap();
    let names: Vec<_> = outcome.queues_deleted.iter().map(|queue| &*queue.name).collect();
    assert_eq!(names, ["a", "c"]);
    assert_eq!(outcome.bindings_deleted.len(), 1);
    assert!(state.queue("/", "b").is_some());
    assert_eq!(state.apply(Command::DeleteExclusiveQueues { owner }), Ok(Outcome::default()));
}

#[test]
fn what_does_not_survive_a_restart() {
    let mut state = state();
    state.add_queue("durable");
    let transient = DeclareQueue { durable: false, ..queue("transient") };
    state.apply(Command::DeclareQueue(transient)).unwrap();
    state
        .apply(Command::DeclareQueue(DeclareQueue { durable: true, ..exclusive("exclusive", 1) }))
        .unwrap();
    state.add_exchange("e", "fanout");
    let transient = DeclareExchange { durable: false, ..exchange("t", "fanout") };
    state.apply(Command::DeclareExchange(transient)).unwrap();
    for (source, queue) in
        [("e", "durable"), ("e", "transient"), ("e", "exclusive"), ("t", "durable")]
    {
        state.add_binding(to_queue(source, "", queue));
    }
    state.add_binding(to_exchange("e", "", "t"));
    let outcome = state.apply(Command::Restarted).unwrap();
    assert_eq!((outcome.queues_deleted.len(), outcome.exchanges_deleted.len()), (2, 1));
    let left: Vec<_> = state.bindings("/").map(|binding| binding.destination.name()).collect();
    assert_eq!(left, [&Arc::from("durable")]);
    assert_eq!(state.routed("e", "", &NoContent), ["durable"]);
    assert_eq!(state.apply(Command::Restarted), Ok(Outcome::default()));
}

#[test]
fn deleting_a_vhost() {
    let mut state = state();
    let before = records(&state);
    state.apply(Command::PutVhost(Vhost { protected: true, ..Vhost::named("v") })).unwrap();
    let inside = |declare: DeclareQueue| DeclareQueue { vhost: "v".into(), ..declare };
    for declare in [inside(queue("q")), inside(exclusive("x", 1))] {
        state.apply(Command::DeclareQueue(declare)).unwrap();
    }
    state.add_binding(Binding { vhost: "v".into(), ..to_queue("amq.direct", "k", "q") });
    let put = Policy { vhost: "v".into(), ..policy("p", "", 0, json!({"max-length": 1})) };
    state.apply(Command::PutPolicy(put.clone())).unwrap();
    state.apply(Command::PutOperatorPolicy(put)).unwrap();
    let delete = || Command::DeleteVhost { name: "v".into() };
    let refusal = state.refused(delete());
    assert_eq!(refusal.kind, Kind::Protected);
    state.apply(Command::PutVhost(Vhost::named("v"))).unwrap();
    let outcome = state.apply(delete()).unwrap();
    assert_eq!(outcome.vhost_deleted.as_deref(), Some("v"));
    assert_eq!((outcome.queues_deleted.len(), outcome.exchanges_deleted.len()), (2, 7));
    assert!(state.routes().vhost("v").is_none() && state.all_queues().next().is_none());
    assert_eq!(state.exclusive_queues(ConnectionId(1)).count(), 0);
    // Only the counter of queue ids remembers it.
    assert_eq!(records(&state).len(), before.len());
    assert_eq!(state.refused(delete()).kind, Kind::NotFound);
    let gone = state.refused(Command::DeclareQueue(inside(queue("q"))));
    assert_eq!(gone.kind, Kind::NotFound);
}

#[test]
fn deleting_a_user() {
    let mut state = state();
    state.add_user("u", ".*", ".*", ".*");
    let (user, limit) = (Arc::<str>::from("u"), UserLimit::MaxChannels);
    state.apply(Command::PutUserLimit { user: user.clone(), limit, value: 3 }).unwrap();
    assert_eq!(state.user_limit("u", limit), Some(3));
    let outcome = state.apply(Command::DeleteUser { name: user.clone() }).unwrap();
    assert_eq!(outcome.user_changed, Some(user.clone()));
    assert!(state.permission("/", "u").is_none());
    assert_eq!(state.user_limits("u").count(), 0);
    assert_eq!(state.refused(Command::DeleteUser { name: user.clone() }).kind, Kind::NotFound);
    let missing = state.refused(Command::PutUserLimit { user, limit, value: 3 });
    assert_eq!(missing.kind, Kind::NotFound);
}

#[test]
fn the_policy_of_the_highest_priority_applies_alone() {
    let low = policy("low", "^q", 1, json!({"max-length": 10, "message-ttl": 5}));
    let high = policy("high", "q$", 2, json!({"max-length": 20}));
    let other = policy("other", "^x", 9, json!({"max-length": 1}));
    let effective = settings([], &[low.clone(), high, other], &[]);
    assert_eq!(effective.policy.as_deref(), Some("high"));
    assert_eq!((effective.max_length, effective.ttl), (Some(20), None));
    // Among equals, the first by name; and apply-to must fit.
    let same = policy("also low", "", 1, json!({"max-length": 30}));
    assert_eq!(settings([], &[low.clone(), same], &[]).policy.as_deref(), Some("also low"));
    for (apply_to, applies) in [
        (ApplyTo::Queues, true),
        (ApplyTo::ClassicQueues, true),
        (ApplyTo::QuorumQueues, false),
        (ApplyTo::Exchanges, false),
        (ApplyTo::Streams, false),
    ] {
        let effective = settings([], &[Policy { apply_to, ..low.clone() }], &[]);
        assert_eq!(effective.policy.is_some(), applies, "{apply_to:?}");
    }
    // One that the queue cannot honour leaves the place to the next.
    let foreign = policy("foreign", "", 5, json!({"max-age": "1D", "max-length": 1}));
    assert_eq!(settings([], &[low, foreign], &[]).policy.as_deref(), Some("low"));
}

#[test]
fn arguments_policies_and_operator_policies_merge() {
    let own = policy(
        "p",
        "",
        0,
        json!({"max-length": 10, "expires": 1000, "overflow": "drop-head", "delivery-limit": -1,
               "dead-letter-exchange": "policy", "consumer-timeout": 7}),
    );
    let operator = policy(
        "o",
        "",
        0,
        json!({"max-length": 20, "expires": 500, "overflow": "reject-publish",
               "delivery-limit": 4, "message-ttl": 9}),
    );
    let effective = settings(
        [("x-max-length", integer(5)), ("x-dead-letter-exchange", text("argument"))],
        std::slice::from_ref(&own),
        std::slice::from_ref(&operator),
    );
    assert_eq!(effective.max_length, Some(5));
    assert_eq!(effective.expires, Some(Millis(500)));
    assert_eq!(effective.ttl, Some(Millis(9)));
    assert_eq!(effective.overflow, Overflow::RejectPublish);
    assert_eq!(effective.delivery_limit, Some(4));
    assert_eq!(effective.consumer_timeout, Some(Millis(7)));
    assert_eq!(effective.dead_letter_exchange.as_deref(), Some("argument"));
    assert_eq!(effective.operator_policy.as_deref(), Some("o"));
    assert_eq!(
        json!(effective.effective_policy_definition),
        json!({"max-length": 10, "expires": 500, "overflow": "reject-publish", "delivery-limit": 4,
               "dead-letter-exchange": "policy", "consumer-timeout": 7, "message-ttl": 9})
    );
    let effective = settings([("x-overflow", text("reject-publish-dlx"))], &[own], &[operator]);
    assert_eq!(effective.overflow, Overflow::RejectPublishDlx);
    assert_eq!(effective.max_length, Some(10));
    let plain = settings([("x-max-priority", integer(0))], &[], &[]);
    assert_eq!(plain, QueueSettings::default());
}

#[test]
fn case_047_a_replaced_policy_leaves_nothing_behind() {
    let mut state = state();
    let queue = state.add_queue("q");
    state.add_queue("unrelated");
    let put = |definition| Command::PutPolicy(policy("p", "^q$", 0, definition));
    let outcome = state.apply(put(json!({"max-length": 5}))).unwrap();
    assert_eq!((outcome.created, outcome.queues_changed), (true, vec![queue.id]));
    assert_eq!(state.effective_queue(&queue).max_length, Some(5));
    let outcome = state.apply(put(json!({"message-ttl": 5}))).unwrap();
    assert_eq!((outcome.created, outcome.queues_changed), (false, vec![queue.id]));
    assert_eq!(state.effective_queue(&queue).max_length, None);
    // A pattern that matches no more touches those that it matched.
    let moved = Command::PutPolicy(policy("p", "^x$", 0, json!({"max-length": 5})));
    assert_eq!(state.apply(moved).unwrap().queues_changed, [queue.id]);
    assert_eq!(state.effective_queue(&queue), QueueSettings::default());
}

#[test]
fn bad_policies() {
    let mut state = state();
    let mut refused = |policy: Policy, operator: bool| {
        let command =
            if operator { Command::PutOperatorPolicy(policy) } else { Command::PutPolicy(policy) };
        let refusal = state.refused(command);
        assert_eq!(refusal.kind, Kind::Invalid);
        let text = refusal.text.strip_prefix("Validation failed\n\n").unwrap();
        text.strip_suffix('\n').unwrap().to_owned()
    };
    for (definition, operator, wanted) in [
        (json!({}), false, "no policy provided"),
        (
            json!({"foo": 1, "bar": "x"}),
            false,
            "[{<<\"bar\">>,<<\"x\">>},{<<\"foo\">>,1}] are not recognised policy settings",
        ),
        (json!({"max-length": -1}), false, "-1 is not a valid maximum length"),
        (json!({"max-length": "a"}), true, "<<\"a\">> is not a valid maximum length"),
        (json!({"overflow": "x"}), false, "<<\"x\">> is not a valid overflow value"),
        (json!({"expires": 0}), false, "0 is not a valid queue expiry"),
        (json!({"dead-letter-exchange": 1}), false, "1 is not a valid dead letter exchange name"),
        (
            json!({"alternate-exchange": "x"}),
            true,
            "[{<<\"alternate-exchange\">>,<<\"x\">>}] are not recognised policy settings",
        ),
    ] {
        assert_eq!(refused(policy("p", "", 0, definition), operator), wanted);
    }
    let pattern = refused(policy("p", "(", 0, json!({"max-length": 1})), false);
    assert!(pattern.starts_with("pattern should be regular expression but is invalid: "));
    let elsewhere = Policy { vhost: "v".into(), ..policy("p", "", 0, json!({"max-length": 1})) };
    assert_eq!(state.refused(Command::PutPolicy(elsewhere)).kind, Kind::NotFound);
}

#[test]
fn limits_and_parameters() {
    let mut state = state();
    let put = |value| Command::PutVhostLimit {
        vhost: "/".into(),
        limit: VhostLimit::MaxConnections,
        value,
    };
    assert!(state.apply(put(5)).unwrap().created);
    assert_eq!(state.vhost_limit("/", VhostLimit::MaxConnections), Some(5));
    assert!(!state.apply(put(-1)).unwrap().created);
    assert_eq!(state.vhost_limit("/", VhostLimit::MaxConnections), None);
    assert_eq!(state.vhost_limits("/").collect::<Vec<_>>(), [(VhostLimit::MaxConnections, -1)]);
    let delete = |limit| Command::DeleteVhostLimit { vhost: "/".into(), limit };
    assert!(state.apply(delete(None)).unwrap().deleted);
    assert!(!state.apply(delete(None)).unwrap().deleted);
    assert_eq!(state.refused(delete(Some(VhostLimit::MaxQueues))).kind, Kind::NotFound);

    let parameter = Parameter {
        component: "shovel".into(),
        vhost: "/".into(),
        name: "s".into(),
        value: json!({"src-uri": "amqp://"}),
    };
    assert!(state.apply(Command::PutParameter(parameter.clone())).unwrap().created);
    assert_eq!(**state.parameter("shovel", "/", "s").unwrap(), parameter);
    let (component, vhost, name) = (parameter.component, parameter.vhost, parameter.name);
    let delete = Command::DeleteParameter { component, vhost, name };
    assert!(state.apply(delete.clone()).unwrap().deleted);
    assert_eq!(state.refused(delete).kind, Kind::NotFound);

    let global = GlobalParameter { name: "cluster_name".into(), value: json!("c") };
    assert!(state.apply(Command::PutGlobalParameter(global.clone())).unwrap().created);
    assert_eq!(state.global_parameter("cluster_name").unwrap().value, json!("c"));
    let delete = Command::DeleteGlobalParameter { name: global.name };
    assert!(state.apply(delete.clone()).unwrap().deleted);
    assert_eq!(state.refused(delete).kind, Kind::NotFound);
}

#[test]
fn tracing() {
    let mut state = state();
    let set = |vhost: &str, on| Command::SetTracing { vhost: vhost.into(), on };
    state.apply(set("/", true)).unwrap();
    assert!(state.vhost("/").unwrap().tracing);
    state.apply(set("/", false)).unwrap();
    assert!(!state.vhost("/").unwrap().tracing);
    assert_eq!(state.refused(set("v", true)).kind, Kind::NotFound);
}

#[test]
fn replacing_a_user() {
    let mut state = state();
    let user = User::clone(state.user("guest").unwrap());
    let outcome = state.apply(Command::PutUser(User { tags: vec![], ..user.clone() })).unwrap();
    assert!(!outcome.created);
    assert!(!state.user("guest").unwrap().is_administrator());
    assert_eq!(
        state.refused(Command::PutUser(User { name: "".into(), ..user })).kind,
        Kind::Invalid
    );
}
