//! The slow way: look at every binding.

use std::collections::BTreeSet;

use amq_protocol_types::{AMQPValue, FieldTable};

use crate::arguments;
use crate::objects::binding::{Binding, Destination};
use crate::objects::exchange::ExchangeKind;
use crate::state::State;

/// The names of the queues that a message goes to.
pub(super) fn route(
    state: &State,
    exchange: &str,
    key: &str,
    headers: &FieldTable,
) -> BTreeSet<String> {
    let mut queues = BTreeSet::new();
    let mut seen = BTreeSet::new();
    let mut todo = vec![exchange.to_owned()];
    while let Some(name) = todo.pop() {
        if !seen.insert(name.clone()) {
            continue;
        }
        let Some(exchange) = state.exchange("/", &name) else { continue };
        if name.is_empty() {
            queues.extend(state.queue("/", key).map(|queue| queue.name.to_string()));
            continue;
        }
        let matching: Vec<_> = state
            .bindings("/")
            .filter(|binding| *binding.source == *name)
            .filter(|binding| matches(exchange.kind, binding, key, headers))
            .collect();
        if matching.is_empty()
            && let Some(alternate) = arguments::string(&exchange.arguments, "alternate-exchange")
        {
            todo.push(alternate.into_owned());
        }
        for binding in matching {
            match &binding.destination {
                Destination::Queue(name) => drop(queues.insert(name.to_string())),
                Destination::Exchange(name) => todo.push(name.to_string()),
            }
        }
    }
    queues
}

fn matches(kind: ExchangeKind, binding: &Binding, key: &str, headers: &FieldTable) -> bool {
    match kind {
        ExchangeKind::Direct => *binding.routing_key == *key,
        ExchangeKind::Fanout => true,
        ExchangeKind::Topic => {
            let words = |key: &str| -> Vec<String> {
                if key.is_empty() { vec![] } else { key.split('.').map(str::to_owned).collect() }
            };
            topic(&words(&binding.routing_key), &words(key))
        }
        ExchangeKind::Headers => criteria(&binding.arguments, headers),
        _ => panic!("types that choose are tested on their own"),
    }
}

fn topic(pattern: &[String], words: &[String]) -> bool {
    match (pattern.first().map(String::as_str), words.first()) {
        (None, None) => true,
        (Some("#"), _) => {
            topic(&pattern[1..], words) || (!words.is_empty() && topic(pattern, &words[1..]))
        }
        (Some("*"), Some(_)) => topic(&pattern[1..], &words[1..]),
        (Some(wanted), Some(word)) => wanted == word && topic(&pattern[1..], &words[1..]),
        _ => false,
    }
}

fn criteria(binding: &FieldTable, headers: &FieldTable) -> bool {
    let mode = arguments::string(binding, "x-match").unwrap_or("all".into());
    let mut results = binding
        .inner()
        .iter()
        .filter(|(key, _)| key.as_str() != "x-match")
        .filter(|(key, _)| mode.ends_with("-with-x") || !key.as_str().starts_with("x-"))
        .map(|(key, wanted)| match headers.inner().get(key) {
            None => false,
            Some(_) if *wanted == AMQPValue::Void => true,
            Some(value) => arguments::value_equal(wanted, value),
        });
    if mode.starts_with("any") { results.any(|holds| holds) } else { results.all(|holds| holds) }
}
