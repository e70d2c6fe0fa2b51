//! The table, row by row, and that it is total.

use super::*;
use crate::register::{Adopted, Incarnation};
use crate::standing::Record;

const SET: Incarnation = Incarnation(7);

fn class(register: Option<i64>, standing: Standing, vacant: bool, founder: bool) -> Class {
    let incarnation = (standing != Standing::Empty).then_some(SET);
    let own = Own { record: Record { standing, incarnation }, vacant, founder };
    let register = register.map(|number| Register::from_signed(number).unwrap());
    classify(&own, &View { register, incarnation: SET, adopted: None, holder: None })
}

fn valid(age: u64) -> Standing {
    Standing::Valid(Age::new(age).unwrap())
}

fn check(register: i64, own: u64, wanted: Class) {
    for vacant in [false, true] {
        for founder in [false, true] {
            assert_eq!(class(Some(register), valid(own), vacant, founder), wanted);
        }
    }
}

#[test]
fn rows_1_to_7() {
    check(5, 5, Class::InSync);
    check(5, 4, Class::Stale);
    check(5, 0, Class::Stale);
    check(-5, 4, Class::MaybeInSync);
    check(-5, 5, Class::SelfRepair);
    check(-1, 1, Class::SelfRepair);
    check(-5, 3, Class::Stale);
    check(5, 6, Class::Held(Held::LocalAhead));
    check(0, 1, Class::Held(Held::LocalAhead));
    check(-5, 6, Class::Held(Held::LocalAhead));
}

#[test]
fn row_8_absent_is_not_zero() {
    for standing in [Standing::Empty, Standing::Syncing, valid(0), valid(5)] {
        for (vacant, founder) in [(true, true), (false, true), (true, false), (false, false)] {
            let wanted = Class::Held(Held::QuorumDataLost);
            assert_eq!(class(None, standing, vacant, founder), wanted);
        }
    }
    // Another data set: also if its number would fit.
    let record = Record { standing: valid(5), incarnation: Some(Incarnation(6)) };
    let own = Own { record, vacant: false, founder: true };
    let register = Register::from_signed(5);
    let view = View { register, incarnation: SET, adopted: None, holder: None };
    assert_eq!(classify(&own, &view), Class::Held(Held::QuorumDataLost));
    // What was begun is worth nothing in any of them.
    let own = Own { record: Record { standing: Standing::Syncing, ..record }, ..own };
    assert_eq!(classify(&own, &view), Class::Syncing);
}

#[test]
fn row_9_only_the_founder_begins() {
    for (standing, register) in [(Standing::Empty, 0), (valid(0), 0), (valid(0), -1)] {
        let wanted = if register == 0 { Class::InSync } else { Class::MaybeInSync };
        assert_eq!(class(Some(register), standing, true, true), wanted);
        assert_eq!(class(Some(register), standing, true, false), Class::Blank);
    }
    assert_eq!(class(Some(-1), Standing::Empty, true, true), Class::Blank);
    assert_eq!(class(Some(1), Standing::Empty, true, true), Class::Blank);
    // A journal that had data before it got a register (see ADR 0031).
    assert_eq!(class(Some(0), valid(0), false, true), Class::InSync);
    assert_eq!(class(Some(-1), valid(0), false, true), Class::MaybeInSync);
}

#[test]
fn row_10_data_without_a_state_file_is_never_copied_over() {
    for register in [0, -1, 1, -5, 5] {
        for founder in [false, true] {
            let wanted = Class::Held(Held::NeedsAdoption);
            assert_eq!(class(Some(register), Standing::Empty, false, founder), wanted);
        }
    }
    assert_eq!(class(Some(0), valid(0), false, false), Class::Held(Held::NeedsAdoption));
}

#[test]
fn a_copy_that_was_begun_is_never_a_candidate() {
    for register in [0, -1, 1, -5, 5] {
        assert_eq!(class(Some(register), Standing::Syncing, false, true), Class::Syncing);
    }
}

#[test]
fn a_mark_wins() {
    let marked = Standing::Marked(Mark::Operator, Age::new(5));
    for register in [None, Some(5), Some(-6)] {
        let wanted = Class::Held(Held::Marked(Mark::Operator));
        assert_eq!(class(register, marked, false, true), wanted);
    }
}

/// A copy that is newer than a forced value stays set aside, also when the register has come to the
/// same number: it is another history (ADR 0032).
#[test]
fn a_forced_value_begins_a_new_life() {
    let before = Incarnation(6);
    let adopted = Some(Adopted { incarnation: before, age: Age::new(5).unwrap() });
    let class = |register: i64, own: u64, incarnation: Incarnation| {
        let record = Record { standing: valid(own), incarnation: Some(incarnation) };
        let own = Own { record, vacant: false, founder: true };
        let register = Register::from_signed(register);
        classify(&own, &View { register, incarnation: SET, adopted, holder: None })
    };
    assert_eq!(class(5, 5, before), Class::InSync);
    assert_eq!(class(-6, 5, before), Class::MaybeInSync);
    assert_eq!(class(5, 4, before), Class::Stale);
    for register in [5, -6, 6, -7, 7, 9] {
        assert_eq!(class(register, 6, before), Class::Held(Held::LocalAhead), "{register}");
        assert_eq!(class(register, 5, Incarnation(5)), Class::Held(Held::QuorumDataLost));
    }
    assert_eq!(class(6, 6, SET), Class::InSync);
    assert_eq!(class(6, 5, before), Class::Stale);
}

/// Whatever the numbers: a candidate is at most one step away from the register, and what may be
/// copied over is behind it.
#[test]
fn candidates_are_near_and_the_worthless_behind() {
    for register in -8..=8_i64 {
        for own in 0..=8_u64 {
            let class = class(Some(register), valid(own), false, true);
            let distance = register.abs() - own.cast_signed();
            match class {
                Class::InSync => assert!(register >= 0 && distance == 0),
                Class::SelfRepair => assert!(register < 0 && distance == 0),
                Class::MaybeInSync => assert!(register < 0 && distance == 1),
                Class::Stale => assert!(distance > i64::from(register < 0)),
                Class::Held(Held::LocalAhead) => assert!(distance < 0),
                other => panic!("{register} {own}: {other:?}"),
            }
        }
    }
}
