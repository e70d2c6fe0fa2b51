//! The contract of locks and registers, on the machine and on what it becomes by a dump, by the
//! store, and by a replay.

use proptest::prelude::*;

use super::*;
use crate::command::{Command, PutNode};
use crate::objects::node::NodeRole;
use crate::refusal::Kind;
use crate::scene::{records, state};
use crate::state::State;
use crate::store::{self, Kv, Memory, Rocks, dump};

const LEASE: u64 = 2000;

fn ask(state: &mut State, change: Coordination) -> Answer {
    state.apply(Command::Coordinate(change)).unwrap().answer.unwrap()
}

fn acquire(state: &mut State, id: &str, node: u64, attempt: u64) -> Answer {
    ask(state, Coordination::Acquire { id: id.into(), node, boot: 1, attempt, lease_ms: LEASE })
}

fn granted(answer: &Answer) -> u64 {
    let Answer::Granted { token } = answer else { panic!("{answer:?}") };
    *token
}

fn release(state: &mut State, id: &str, token: u64) -> Answer {
    ask(state, Coordination::Release { id: id.into(), token })
}

fn create(state: &mut State, id: &str) -> Answer {
    ask(state, Coordination::Create { id: id.into(), founder: 1, incarnation: 9 })
}

fn swap(state: &mut State, id: &str, expected: i64, new: i64, token: u64) -> Answer {
    ask(state, Coordination::CompareAndSet { id: id.into(), incarnation: 9, expected, new, token })
}

fn value(state: &State, id: &str) -> Option<i64> {
    state.coordinated(id).register.map(|register| register.value)
}

fn holder(state: &State, id: &str) -> Option<u64> {
    state.coordinated(id).holder
}

/// Does the same on a machine, and after each step on its copies: read from a dump, from each store,
/// and from a replay of the encoded commands.
fn on_each(test: impl Fn(&mut State)) {
    for way in 0..4 {
        let mut state = state();
        test(&mut state);
        let copy = match way {
            0 => state.clone(),
            1 => {
                let mut bytes = bytes::BytesMut::new();
                dump::write(&state, &mut bytes);
                dump::read(&bytes).unwrap()
            }
            2 => through(&Memory::new(), &state),
            _ => {
                let folder = tempfile::tempdir().unwrap();
                through(&Rocks::open(folder.path()).unwrap(), &state)
            }
        };
        assert_eq!(records(&copy), records(&state));
        assert_eq!((copy.last_token, copy.data_set), (state.last_token, state.data_set));
        for lock in state.locks() {
            assert_eq!(copy.coordinated(&lock.id), state.coordinated(&lock.id));
        }
    }
}

fn through(kv: &dyn Kv, state: &State) -> State {
    store::save_all(kv, state, 1).unwrap();
    store::load(kv).unwrap().unwrap().0
}

#[test]
fn one_holder_at_a_time() {
    on_each(|state| {
        let token = granted(&acquire(state, "j", 1, 1));
        assert_eq!(acquire(state, "j", 2, 1), Answer::Busy { node: 1 });
        assert_eq!(holder(state, "j"), Some(token));
        // Other ids are other locks.
        granted(&acquire(state, "k", 2, 1));
        assert_eq!(release(state, "j", token), Answer::Done);
        assert_eq!(holder(state, "j"), None);
        granted(&acquire(state, "j", 2, 2));
    });
}

/// An answer that was lost is given again; another attempt of the holder is not let in.
#[test]
fn an_attempt_may_be_repeated() {
    on_each(|state| {
        let token = granted(&acquire(state, "j", 1, 1));
        assert_eq!(acquire(state, "j", 1, 1), Answer::Granted { token });
        assert_eq!(acquire(state, "j", 1, 2), Answer::Busy { node: 1 });
        assert_eq!(state.lock("j").unwrap().holder.as_ref().unwrap().renewals, 0);
    });
}

/// Grants grow for ever, over all locks, over removal, and over every way of storing them.
#[test]
fn tokens_never_come_again() {
    on_each(|state| {
        let mut last = state.last_token;
        for round in 1..5 {
            for id in ["j", "k"] {
                let token = granted(&acquire(state, id, 1, round));
                assert!(token > last);
                last = token;
                release(state, id, token);
            }
            ask(state, Coordination::Remove { id: "j".into() });
        }
    });
    let mut state = state();
    let first = granted(&acquire(&mut state, "j", 1, 1));
    let mut copy = through(&Memory::new(), &state);
    release(&mut copy, "j", first);
    assert!(granted(&acquire(&mut copy, "j", 1, 2)) > first);
}

/// Whoever is not the holder changes nothing.
#[test]
fn only_the_holder_releases_and_renews() {
    on_each(|state| {
        assert_eq!(release(state, "j", 1), Answer::NotHeld);
        let old = granted(&acquire(state, "j", 1, 1));
        release(state, "j", old);
        assert_eq!(release(state, "j", old), Answer::NotHeld);
        let token = granted(&acquire(state, "j", 2, 1));
        assert_eq!(release(state, "j", old), Answer::NotHeld);
        let renew = |token| Coordination::Renew { id: "j".into(), token };
        assert_eq!(ask(state, renew(old)), Answer::NotHeld);
        assert_eq!(ask(state, renew(token)), Answer::Done);
        assert_eq!(holder(state, "j"), Some(token));
    });
}

/// A lease ends only for the grant and the renewals that the leader counted for.
#[test]
fn a_renewal_wins_over_an_expiry() {
    on_each(|state| {
        let token = granted(&acquire(state, "j", 1, 1));
        let expire = |renewals| Coordination::Expire { id: "j".into(), token, renewals };
        ask(state, Coordination::Renew { id: "j".into(), token });
        assert_eq!(ask(state, expire(0)), Answer::Renewed);
        assert_eq!(holder(state, "j"), Some(token));
        assert_eq!(ask(state, expire(1)), Answer::Done);
        assert_eq!(holder(state, "j"), None);
        // Twice, and for a grant that is over.
        assert_eq!(ask(state, expire(1)), Answer::NotHeld);
        let next = granted(&acquire(state, "j", 2, 1));
        assert_eq!(ask(state, expire(1)), Answer::NotHeld);
        assert_eq!(holder(state, "j"), Some(next));
    });
}

/// A node that starts anew has no process left that could hold a lock.
#[test]
fn a_new_start_frees_the_locks_of_the_last() {
    let put = |id, boot| {
        let (name, address, role) = ("n".into(), "n:1".into(), NodeRole::Full);
        Command::PutNode(PutNode { id, name, address, role, boot, starts: Vec::new(), zone: None })
    };
    on_each(|state| {
        state.apply(put(1, 1)).unwrap();
        let token = granted(&acquire(state, "j", 1, 1));
        state.apply(put(1, 1)).unwrap();
        assert_eq!(holder(state, "j"), Some(token), "the same start");
        state.apply(put(1, 2)).unwrap();
        assert_eq!(holder(state, "j"), None);
        // A wiped node is another one, and its old process may be alive.
        let token = granted(&acquire(state, "j", 1, 2));
        state.apply(put(2, 3)).unwrap();
        assert_eq!(holder(state, "j"), Some(token));
    });
}

#[test]
fn absent_is_not_zero() {
    on_each(|state| {
        assert_eq!(value(state, "j"), None);
        let token = granted(&acquire(state, "j", 1, 1));
        let absent = Answer::NotSet { found: None, why: NotSet::Absent };
        assert_eq!(swap(state, "j", 0, 1, token), absent);
        assert_eq!(create(state, "j"), Answer::Set { incarnation: 9 });
        assert_eq!(value(state, "j"), Some(0));
        // Repeated; and by somebody else, or in another life.
        assert_eq!(create(state, "j"), Answer::Set { incarnation: 9 });
        for (founder, incarnation) in [(2, 9), (1, 8)] {
            let answer = ask(state, Coordination::Create { id: "j".into(), founder, incarnation });
            assert_eq!(answer, Answer::NotSet { found: Some(0), why: NotSet::OtherLife });
        }
    });
}

/// BA-2: compared and set at once, and only by the grant in force.
#[test]
fn compare_and_set_is_atomic_and_fenced() {
    on_each(|state| {
        create(state, "j");
        let not = |found, why| Answer::NotSet { found: Some(found), why };
        assert_eq!(swap(state, "j", 0, -1, 0), not(0, NotSet::Fenced), "nobody has the lock");
        let old = granted(&acquire(state, "j", 1, 1));
        assert_eq!(swap(state, "j", 0, -1, old), Answer::Set { incarnation: 9 });
        assert_eq!(swap(state, "j", 0, -1, old), not(-1, NotSet::Different));
        // The lock of another id does not count.
        let other = granted(&acquire(state, "k", 1, 1));
        assert_eq!(swap(state, "j", -1, 1, other), not(-1, NotSet::Fenced));
        release(state, "j", old);
        let token = granted(&acquire(state, "j", 2, 1));
        // Late, and right by its value: the one that it would have cheated is not.
        assert_eq!(swap(state, "j", -1, 1, old), not(-1, NotSet::Fenced));
        assert_eq!(swap(state, "j", -1, 1, token), Answer::Set { incarnation: 9 });
        assert_eq!(value(state, "j"), Some(1));
    });
}

#[test]
fn force_begins_a_new_life_and_respects_the_lock() {
    let force = |seen| Coordination::Force {
        id: "j".into(),
        seen: Some(seen),
        value: 5,
        incarnation: 10,
        adopts: 9,
        founder: 3,
    };
    on_each(|state| {
        create(state, "j");
        let token = granted(&acquire(state, "j", 1, 1));
        swap(state, "j", 0, -1, token);
        let locked = Answer::NotSet { found: Some(-1), why: NotSet::Locked };
        assert_eq!(ask(state, force((-1, 9))), locked);
        release(state, "j", token);
        // Somebody went on from what the operator has seen, and has ended.
        let changed = Answer::NotSet { found: Some(-1), why: NotSet::Different };
        assert_eq!(ask(state, force((0, 9))), changed);
        assert_eq!(ask(state, force((-1, 8))), changed);
        assert_eq!(ask(state, force((-1, 9))), Answer::Set { incarnation: 10 });
        assert_eq!(
            ask(state, force((-1, 9))),
            Answer::NotSet { found: Some(5), why: NotSet::Different }
        );
        let register = state.coordinated("j").register.unwrap().clone();
        let adopted = Some(crate::objects::register::Adopted { incarnation: 9, value: 5 });
        assert_eq!((register.value, register.adopted, register.founder), (5, adopted, 1));
        // What was asked in the life before has no effect.
        let token = granted(&acquire(state, "j", 1, 2));
        let answer = swap(state, "j", 5, -6, token);
        assert_eq!(answer, Answer::NotSet { found: Some(5), why: NotSet::OtherLife });
    });
}

/// After a recovery from one node, nobody has a lock, and what registers held is not found until
/// an operator has decided.
#[test]
fn another_data_set_hides_registers() {
    on_each(|state| {
        create(state, "j");
        let token = granted(&acquire(state, "j", 1, 1));
        ask(state, Coordination::NewDataSet { incarnation: 77 });
        assert_eq!((value(state, "j"), holder(state, "j")), (None, None));
        assert_eq!(state.coordinated("j").data_set, 77);
        assert_eq!(state.registers().count(), 1, "operators see it");
        let answer = swap(state, "j", 0, -1, token);
        assert_eq!(answer, Answer::NotSet { found: None, why: NotSet::Absent });
        let answer = create(state, "j");
        assert_eq!(answer, Answer::NotSet { found: Some(0), why: NotSet::OtherLife });
        assert!(granted(&acquire(state, "j", 1, 2)) > token);
    });
}

#[test]
fn senseless_requests_are_refused() {
    let mut state = state();
    let long = "x".repeat(256);
    for id in ["", long.as_str()] {
        let id: Name = id.into();
        let refusal = state
            .apply(Command::Coordinate(Coordination::Create { id, founder: 1, incarnation: 1 }))
            .unwrap_err();
        assert_eq!(refusal.kind, Kind::Invalid);
    }
    for lease_ms in [0, 199, 600_001] {
        let (id, node, boot, attempt) = ("j".into(), 1, 1, 1);
        let asked = Coordination::Acquire { id, node, boot, attempt, lease_ms };
        let refusal = state.apply(Command::Coordinate(asked)).unwrap_err();
        assert_eq!(
            refusal.text,
            format!("a lease of {lease_ms} ms is not within 200 and 600000 ms")
        );
    }
}

fn changes() -> impl Strategy<Value = Coordination> {
    let id = || prop_oneof![Just(Name::from("j")), Just(Name::from("k"))];
    prop_oneof![
        (id(), 1_u64..3, 1_u64..3, 1_u64..4).prop_map(|(id, node, boot, attempt)| {
            Coordination::Acquire { id, node, boot, attempt, lease_ms: LEASE }
        }),
        (id(), 0_u64..8).prop_map(|(id, token)| Coordination::Renew { id, token }),
        (id(), 0_u64..8).prop_map(|(id, token)| Coordination::Release { id, token }),
        (id(), 0_u64..8, 0_u64..2).prop_map(|(id, token, renewals)| Coordination::Expire {
            id,
            token,
            renewals
        }),
        (id(), 8_u64..10)
            .prop_map(|(id, incarnation)| { Coordination::Create { id, founder: 1, incarnation } }),
        (id(), -2_i64..3, -2_i64..3, 0_u64..8).prop_map(|(id, expected, new, token)| {
            Coordination::CompareAndSet { id, incarnation: 9, expected, new, token }
        }),
        (id(), proptest::option::of(-2_i64..3), 0_i64..3).prop_map(|(id, seen, value)| {
            Coordination::Force {
                id,
                seen: seen.map(|value| (value, 9)),
                value,
                incarnation: 9,
                adopts: 8,
                founder: 1,
            }
        }),
        id().prop_map(|id| Coordination::Remove { id }),
        (5_u64..7).prop_map(|incarnation| Coordination::NewDataSet { incarnation }),
    ]
}

proptest! {
    /// Whatever is asked: grants only grow, a register changes only by its holder or by force, and
    /// a replica that read the commands from the log is equal.
    #[test]
    fn grants_grow_and_registers_are_fenced(
        changes in proptest::collection::vec(changes(), 0..60)
    ) {
        let mut state = state();
        let mut replica = state.clone();
        let kv = Memory::new();
        store::save_all(&kv, &state, 0).unwrap();
        for (applied, change) in (1..).zip(changes) {
            let before = state.clone();
            let command = Command::Coordinate(change.clone());
            let decoded = Command::decode(&command.encode()).unwrap();
            let outcome = state.apply(command).unwrap();
            replica.apply(decoded).unwrap();
            store::save(&kv, &outcome, applied).unwrap();
            match outcome.answer.unwrap() {
                Answer::Granted { token } if token > before.last_token => {}
                Answer::Granted { token } => {
                    // The repetition of an attempt.
                    let Coordination::Acquire { id, .. } = &change else { panic!() };
                    prop_assert_eq!(before.coordinated(id).holder, Some(token));
                }
                Answer::Set { .. } if matches!(change, Coordination::CompareAndSet { .. }) => {
                    let Coordination::CompareAndSet { id, expected, new, token, .. } = &change
                    else { panic!() };
                    prop_assert_eq!(before.coordinated(id).holder, Some(*token));
                    prop_assert_eq!(value(&before, id), Some(*expected));
                    prop_assert_eq!(value(&state, id), Some(*new));
                }
                Answer::NotSet { .. } | Answer::NotHeld | Answer::Busy { .. } | Answer::Renewed => {
                    prop_assert_eq!(records(&state), records(&before));
                }
                Answer::Set { .. } | Answer::Done => {}
            }
        }
        prop_assert_eq!(records(&replica), records(&state));
        prop_assert_eq!(records(&store::load(&kv).unwrap().unwrap().0), records(&state));
    }
}
