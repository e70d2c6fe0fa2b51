//! Random topologies against the naive matcher, and old snapshots that stay as they were.

use std::collections::BTreeSet;

use amq_protocol_types::{AMQPValue, FieldTable};
use proptest::prelude::*;
use proptest::sample::select;

use super::{Properties, naive};
use crate::command::{Command, DeclareExchange};
use crate::objects::binding::{Binding, Destination};
use crate::routes::Routes;
use crate::routes::targets::RouteSet;
use crate::scene::{exchange, integer, queue, state, table, text, to_queue};
use crate::state::State;

const KINDS: [&str; 4] = ["direct", "fanout", "topic", "headers"];

fn exchange_name() -> impl Strategy<Value = String> {
    (0..6u8).prop_map(|number| format!("x{number}"))
}

fn queue_name() -> impl Strategy<Value = String> {
    (0..5u8).prop_map(|number| format!("q{number}"))
}

fn key() -> impl Strategy<Value = String> {
    proptest::collection::vec(select(vec!["a", "b", "", "*", "#"]), 0..5)
        .prop_map(|words| words.join("."))
}

fn value() -> impl Strategy<Value = AMQPValue> {
    prop_oneof![
        (0..2).prop_map(integer),
        (0..2i64).prop_map(AMQPValue::LongLongInt),
        select(vec!["a", "b"]).prop_map(text),
        Just(AMQPValue::Void),
        any::<bool>().prop_map(AMQPValue::Boolean),
    ]
}

fn headers() -> impl Strategy<Value = FieldTable> {
    let field = (select(vec!["h", "i", "x-h"]), value());
    proptest::collection::vec(field, 0..3).prop_map(|fields| {
        let mut out = FieldTable::default();
        for (key, value) in fields {
            out.insert(key.into(), value);
        }
        out
    })
}

fn arguments() -> impl Strategy<Value = FieldTable> {
    let mode = proptest::option::of(select(vec!["all", "any", "all-with-x", "any-with-x"]));
    (headers(), mode).prop_map(|(mut table, mode)| {
        if let Some(mode) = mode {
            table.insert("x-match".into(), text(mode));
        }
        table
    })
}

fn binding() -> impl Strategy<Value = Binding> {
    let destination = prop_oneof![
        3 => queue_name().prop_map(|name| Destination::Queue(name.into())),
        1 => exchange_name().prop_map(|name| Destination::Exchange(name.into())),
    ];
    (exchange_name(), destination, key(), arguments()).prop_map(
        |(source, destination, key, arguments)| Binding {
            destination,
            arguments,
            ..to_queue(&source, &key, "")
        },
    )
}

fn command() -> impl Strategy<Value = Command> {
    let alternate = proptest::option::of(prop_oneof![exchange_name(), Just(String::new())]);
    prop_oneof![
        3 => (exchange_name(), select(KINDS.to_vec()), alternate, any::<bool>()).prop_map(
            |(name, kind, alternate, auto_delete)| {
                let arguments = match alternate {
                    Some(name) => table([("alternate-exchange", text(&name))]),
                    None => FieldTable::default(),
                };
                let declare = DeclareExchange { auto_delete, arguments, ..exchange(&name, kind) };
                Command::DeclareExchange(declare)
            }
        ),
        2 => queue_name().prop_map(|name| Command::DeclareQueue(queue(&name))),
        8 => binding().prop_map(Command::Bind),
        2 => binding().prop_map(Command::Unbind),
        1 => exchange_name().prop_map(|name| Command::DeleteExchange {
            vhost: "/".into(),
            name: name.into(),
            if_unused: false,
        }),
        1 => queue_name().prop_map(|name| Command::DeleteQueue {
            vhost: "/".into(),
            name: name.into(),
            id: None,
        }),
    ]
}

fn routed(
    state: &State,
    routes: &Routes,
    exchange: &str,
    key: &str,
    content: &Properties,
) -> BTreeSet<String> {
    let vhost = routes.vhost("/").unwrap();
    let mut out = RouteSet::new();
    let Some(exchange) = vhost.exchange(exchange) else { return BTreeSet::new() };
    vhost.route(exchange, key, content, &mut out);
    let names: BTreeSet<_> = out
        .targets()
        .iter()
        .map(|target| state.queue_by_id(target.id).expect("no route to what is gone"))
        .map(|queue| queue.name.to_string())
        .collect();
    assert_eq!(names.len(), out.targets().len(), "each queue once");
    names
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn routes_are_what_bindings_say(
        commands in proptest::collection::vec(command(), 1..60),
        messages in proptest::collection::vec((exchange_name(), key(), headers()), 1..12),
        unbind in proptest::collection::vec(any::<proptest::sample::Index>(), 0..12),
    ) {
        let mut state = state();
        for command in commands {
            drop(state.apply(command));
        }
        let answers = |state: &State, routes: &Routes| -> Vec<BTreeSet<String>> {
            messages
                .iter()
                .map(|(exchange, key, headers)| {
                    let content = Properties { headers: headers.clone(), ..Properties::default() };
                    routed(state, routes, exchange, key, &content)
                })
                .collect()
        };
        let expected = |state: &State| -> Vec<BTreeSet<String>> {
            messages
                .iter()
                .map(|(exchange, key, headers)| naive::route(state, exchange, key, headers))
                .collect()
        };
        prop_assert_eq!(answers(&state, state.routes()), expected(&state));
        // Remove some of what is there; the snapshot from before still says what it said.
        let before = state.clone();
        let old = answers(&before, before.routes());
        for index in unbind {
            let bindings: Vec<std::sync::Arc<Binding>> = state.bindings("/").cloned().collect();
            if !bindings.is_empty() {
                let doomed = index.get(&bindings).as_ref().clone();
                state.apply(Command::Unbind(doomed)).unwrap();
            }
        }
        prop_assert_eq!(answers(&state, state.routes()), expected(&state));
        prop_assert_eq!(answers(&before, before.routes()), old);
    }
}
