//! One contract for both stores, and states that go through them.

use std::sync::Arc;

use proptest::prelude::*;
use serde_json::json;

use crate::command::{Command, DeclareQueue};
use crate::coordination::Coordination;
use crate::objects::binding::Binding;
use crate::objects::limit::{UserLimit, VhostLimit};
use crate::objects::parameter::{GlobalParameter, Parameter};
use crate::objects::permission::TopicPermission;
use crate::objects::vhost::Vhost;
use crate::outcome::Outcome;
use crate::routes::content::NoContent;
use crate::scene::{
    Act, exchange, exclusive, integer, policy, queue, records, state, table, to_exchange, to_queue,
};
use crate::state::State;
use crate::store::{self, Failure, Kv, Memory, Rocks, Write};

/// Runs a test on each store.
fn on_each(test: impl Fn(&dyn Kv)) {
    test(&Memory::new());
    let directory = tempfile::tempdir().unwrap();
    test(&Rocks::open(directory.path()).unwrap());
}

fn pairs(kv: &dyn Kv, prefix: &[u8]) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut out = Vec::new();
    kv.scan(prefix, &mut |key, value| {
        out.push((key.to_vec(), value.to_vec()));
        true
    })
    .unwrap();
    out
}

#[test]
fn contract_get_put_delete() {
    on_each(|kv| {
        assert_eq!(kv.get(b"k").unwrap(), None);
        kv.put(b"k", b"1").unwrap();
        kv.put(b"k", b"2").unwrap();
        assert_eq!(kv.get(b"k").unwrap().as_deref(), Some(&b"2"[..]));
        kv.put(b"empty", b"").unwrap();
        assert_eq!(kv.get(b"empty").unwrap().as_deref(), Some(&b""[..]));
        kv.delete(b"k").unwrap();
        kv.delete(b"k").unwrap();
        assert_eq!(kv.get(b"k").unwrap(), None);
        kv.flush().unwrap();
        assert_eq!(kv.get(b"empty").unwrap().as_deref(), Some(&b""[..]));
    });
}

#[test]
fn contract_scan_is_ordered_and_ends() {
    on_each(|kv| {
        for key in ["b2", "a", "b1", "b\u{ff}", "c", "b"] {
            kv.put(key.as_bytes(), key.as_bytes()).unwrap();
        }
        let keys = |prefix: &[u8]| -> Vec<_> {
            pairs(kv, prefix).into_iter().map(|(key, _)| String::from_utf8(key).unwrap()).collect()
        };
        assert_eq!(keys(b"b"), ["b", "b1", "b2", "b\u{ff}"]);
        assert_eq!(keys(b"").len(), 6);
        assert!(keys(b"d").is_empty());
        let mut seen = 0;
        kv.scan(b"", &mut |_, _| {
            seen += 1;
            seen < 2
        })
        .unwrap();
        assert_eq!(seen, 2);
    });
}

#[test]
fn contract_batches_in_order() {
    on_each(|kv| {
        let put = |key: &str, value: &str| Write::Put(key.into(), value.into());
        kv.write(vec![put("a", "1"), Write::Delete("a".into()), put("b", "1"), put("b", "2")])
            .unwrap();
        assert_eq!(pairs(kv, b""), [(b"b".to_vec(), b"2".to_vec())]);
        kv.write(vec![]).unwrap();
    });
}

#[test]
fn rocks_keeps_what_was_written_and_admits_one_owner() {
    let directory = tempfile::tempdir().unwrap();
    let kv = Rocks::open(directory.path()).unwrap();
    kv.put(b"k", b"v").unwrap();
    let Failure { reason } = Rocks::open(directory.path()).unwrap_err();
    assert!(reason.starts_with("cannot open the store"), "{reason}");
    drop(kv);
    let kv = Rocks::open(directory.path()).unwrap();
    assert_eq!(kv.get(b"k").unwrap().as_deref(), Some(&b"v"[..]));
}

/// A state with one of everything.
fn everything() -> Vec<Command> {
    let user = |command: fn(Arc<str>) -> Command| command("u".into());
    let mut odd = table([("x", integer(1))]);
    odd.insert("f".into(), amq_protocol_types::AMQPValue::Double(f64::NAN));
    odd.insert("b".into(), amq_protocol_types::AMQPValue::LongString(vec![0xff, 0].into()));
    vec![
        Command::PutVhost(Vhost { tags: vec!["a".into()], ..Vhost::named("v\0/ü") }),
        user(|name| {
            Command::PutUser(crate::objects::user::User {
                name,
                password_hash: "AAAA".into(),
                hashing_algorithm: crate::objects::user::HashingAlgorithm::Sha512,
                tags: vec!["monitoring".into(), "custom".into()],
            })
        }),
        user(|user| {
            Command::PutPermission(crate::objects::permission::Permission {
                vhost: "/".into(),
                user,
                configure: "^a".into(),
                write: String::new(),
                read: ".*".into(),
            })
        }),
        user(|user| {
            Command::PutTopicPermission(TopicPermission {
                vhost: "/".into(),
                user,
                exchange: "amq.topic".into(),
                write: "^{username}".into(),
                read: ".*".into(),
            })
        }),
        user(|user| Command::PutUserLimit { user, limit: UserLimit::MaxChannels, value: 3 }),
        Command::PutVhostLimit { vhost: "/".into(), limit: VhostLimit::MaxQueues, value: 30 },
        Command::PutPolicy(policy("p", "^q", 1, json!({"alternate-exchange": "amq.fanout"}))),
        Command::PutOperatorPolicy(policy("p", "^q", 1, json!({"max-length": 2}))),
        Command::PutParameter(Parameter {
            component: "c".into(),
            vhost: "/".into(),
            name: "n".into(),
            value: json!([1, 2.5, null]),
        }),
        Command::PutGlobalParameter(GlobalParameter {
            name: "cluster_name".into(),
            value: json!("c"),
        }),
        Command::DeclareExchange(exchange("qx", "topic")),
        Command::DeclareExchange(exchange("y", "headers")),
        Command::DeclareQueue(DeclareQueue { arguments: odd.clone(), ..queue("q1") }),
        Command::DeclareQueue(exclusive("q2", 7)),
        Command::Bind(to_queue("qx", "a.*", "q1")),
        Command::Bind(to_exchange("qx", "a.#", "y")),
        Command::Bind(Binding { arguments: odd, ..to_queue("y", "", "q2") }),
        Command::Bind(to_queue("amq.fanout", "", "q2")),
        Command::Coordinate(Coordination::Acquire {
            id: "j".into(),
            node: u64::MAX,
            boot: 1,
            attempt: 1,
            lease_ms: 2000,
        }),
        Command::Coordinate(Coordination::Create { id: "j".into(), founder: 7, incarnation: 1 }),
        Command::Coordinate(Coordination::Renew { id: "j".into(), token: 1 }),
        Command::Coordinate(Coordination::CompareAndSet {
            id: "j".into(),
            incarnation: 1,
            expected: 0,
            new: -1,
            token: 1,
        }),
        Command::Coordinate(Coordination::Release { id: "j".into(), token: 1 }),
        Command::Coordinate(Coordination::Force {
            id: "k".into(),
            seen: None,
            value: i64::MAX,
            incarnation: u64::MAX,
            adopts: 3,
            founder: 7,
        }),
        Command::Coordinate(Coordination::NewDataSet { incarnation: 5 }),
    ]
}

fn load(kv: &dyn Kv) -> (State, u64) {
    store::load(kv).unwrap().unwrap()
}

/// What is stored is the state, and what is read is what was stored.
fn check_round_trip(kv: &dyn Kv, state: &State, applied: u64) {
    let (read, position) = load(kv);
    assert_eq!(position, applied);
    assert_eq!(records(&read), records(state));
    let queues = |state: &State| -> Vec<_> { state.all_queues().map(|queue| queue.id).collect() };
    assert_eq!(queues(&read), queues(state));
}

#[test]
fn one_of_everything_goes_through_the_store() {
    on_each(|kv| {
        assert!(store::load(kv).unwrap().is_none());
        let mut state = state();
        store::save_all(kv, &state, 3).unwrap();
        for (applied, command) in (4..).zip(everything()) {
            let outcome = state.apply(command).unwrap();
            store::save(kv, &outcome, applied).unwrap();
            check_round_trip(kv, &state, applied);
        }
        assert_eq!(store::applied(kv).unwrap(), Some(3 + everything().len() as u64));
        let (mut read, _) = load(kv);
        assert_eq!(read.routed("qx", "a.b", &NoContent), state.routed("qx", "a.b", &NoContent));
        assert_eq!(read.routed("qx", "none", &NoContent), ["q2"], "alternate by policy");
        assert!(read.access("u", "/").unwrap().has_topic_permissions());
        // The counter of ids goes on even if the last queue is gone.
        for state in [&mut read, &mut state] {
            state.apply(Command::Restarted).unwrap();
        }
        assert_eq!(read.add_queue("new").id, state.add_queue("new").id);
        // Writing the whole drops what is no longer there.
        state.apply(Command::DeleteVhost { name: "/".into() }).unwrap();
        store::save_all(kv, &state, 99).unwrap();
        check_round_trip(kv, &state, 99);
    });
}

#[test]
fn a_refused_command_moves_the_position() {
    let kv = Memory::new();
    store::save_all(&kv, &state(), 3).unwrap();
    store::save(&kv, &Outcome::default(), 4).unwrap();
    assert_eq!(store::applied(&kv).unwrap(), Some(4));
}

#[test]
fn damaged_records_are_named() {
    let kv = Memory::new();
    store::save_all(&kv, &state(), 3).unwrap();
    for (key, value, wanted) in [
        (
            &b"N\0\x01/\0\x01q"[..],
            &b"\x01{"[..],
            "the record N\\x00\\x01/\\x00\\x01q cannot be read",
        ),
        (b"D\0\x01u", b"\x02{}", "version 2, and this node knows 1"),
        (b"Z", b"", "a kind of object that this version does not know"),
        (b"F", b"", "empty"),
        (
            b"N\0\x01v\0\x01q",
            b"\x01{\"id\":2000,\"vhost\":\"v\",\"name\":\"q\",\"kind\":\"classic\",\"durable\":true,\
              \"auto_delete\":false,\"user_who_performed_action\":\"u\"}",
            "its vhost is missing",
        ),
        (
            b"O",
            b"\x01{\"vhost\":\"/\",\"source\":\"amq.direct\",\"destination\":{\"queue\":\"none\"},\
              \"routing_key\":\"k\"}",
            "one of its ends is missing",
        ),
    ] {
        kv.put(key, value).unwrap();
        let Failure { reason } = store::load(&kv).unwrap_err();
        assert!(reason.contains(wanted), "{reason}");
        kv.delete(key).unwrap();
    }
    assert!(store::load(&kv).unwrap().is_some());
}

/// A parameter as deep as is accepted comes back from the journal and from the store.
#[test]
fn what_is_accepted_can_be_read_again() {
    let nested = |levels: usize| (1..levels).fold(json!(1), |inner, _| json!([inner]));
    let put = |value| {
        let parameter =
            Parameter { component: "shovel".into(), vhost: "/".into(), name: "s".into(), value };
        Command::PutParameter(parameter)
    };
    let put_global =
        |value| Command::PutGlobalParameter(GlobalParameter { name: "g".into(), value });
    let kv = Memory::new();
    let mut state = state();
    store::save_all(&kv, &state, 0).unwrap();
    for (applied, command) in [(1, put(nested(64))), (2, put_global(nested(64)))] {
        assert_eq!(Command::decode(&command.encode()).as_ref(), Ok(&command));
        let outcome = state.apply(command).unwrap();
        store::save(&kv, &outcome, applied).unwrap();
        check_round_trip(&kv, &state, applied);
    }
    for command in [put(nested(65)), put_global(nested(65)), put(nested(127))] {
        let refusal = state.refused(command);
        assert_eq!(refusal.kind, crate::refusal::Kind::Invalid);
        assert_eq!(refusal.text, "the value is nested deeper than 64");
    }
}

proptest! {
    /// A leader has what a client wrote, its followers what they read from the journal.
    #[test]
    fn every_number_comes_back_exactly(number in any::<f64>()) {
        let value = json!({"n": number});
        let command =
            Command::PutGlobalParameter(GlobalParameter { name: "g".into(), value });
        prop_assert_eq!(Command::decode(&command.encode()), Ok(command));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, ..ProptestConfig::default() })]

    /// Commands in any order, many of them refused: the records that outcomes carry are always
    /// those of the state, and a replay of encoded commands ends in the same state.
    #[test]
    fn outcomes_keep_the_store_equal(
        picks in proptest::collection::vec((any::<proptest::sample::Index>(), 0..8u8), 0..60)
    ) {
        let kv = Memory::new();
        let mut state = state();
        let mut replica = state.clone();
        store::save_all(&kv, &state, 0).unwrap();
        let (vhost, name) = (Arc::<str>::from("/"), Arc::<str>::from("p"));
        for (applied, (pick, kind)) in (1..).zip(picks) {
            let made = pick.get(&everything()).clone();
            let command = match (kind, made) {
                (0, Command::DeclareQueue(one)) => {
                    Command::DeleteQueue { vhost: one.vhost, name: one.name, id: None }
                }
                (0, Command::DeclareExchange(one)) => {
                    Command::DeleteExchange { vhost: one.vhost, name: one.name, if_unused: true }
                }
                (0 | 1, Command::Bind(binding)) => Command::Unbind(binding),
                (0, Command::PutPolicy(_)) => {
                    Command::DeletePolicy { vhost: vhost.clone(), name: name.clone() }
                }
                (0, Command::PutUser(user)) => Command::DeleteUser { name: user.name },
                (0, Command::PutVhost(one)) => Command::DeleteVhost { name: one.name },
                (0, Command::PutGlobalParameter(_)) => Command::Restarted,
                (_, made) => made,
            };
            let decoded = Command::decode(&command.encode()).unwrap();
            let outcome = state.apply(command).unwrap_or_default();
            prop_assert_eq!(records(&state), {
                let outcome = replica.apply(decoded).unwrap_or_default();
                drop(outcome);
                records(&replica)
            });
            store::save(&kv, &outcome, applied).unwrap();
            check_round_trip(&kv, &state, applied);
        }
    }
}
