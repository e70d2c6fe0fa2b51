//! The replica's side alone. Both sides together are in `sender::tests`.

use bytes::Bytes;

use super::*;

const JOURNAL: JournalUid = JournalUid(7);

fn piece(offset: u64) -> Request {
    Request::Piece { file: 1, offset, bytes: Bytes::from_static(b"piece") }
}

fn batch(position: u64) -> Request {
    Request::Batch { position, bytes: Bytes::from_static(b"batch") }
}

fn whole() -> Request {
    Request::Whole { age: Age::new(3).unwrap() }
}

fn hear(receiver: &mut Receiver, number: u64, request: Request) -> Vec<Effect> {
    let mut out = Vec::new();
    receiver.heard(Downward::Request(Number(number), request), &mut out);
    out
}

/// A receiver that may overwrite its copy.
fn copying() -> Receiver {
    let mut out = Vec::new();
    let mut receiver = Receiver::new(JOURNAL, &mut out);
    receiver.heard(Downward::Accepted, &mut out);
    receiver.copy(&mut out);
    assert_eq!(out, [Effect::Send(Upward::Register { journal: JOURNAL }), Effect::Accepted]);
    receiver
}

fn durable(receiver: &mut Receiver, number: u64) -> Vec<Effect> {
    let mut out = Vec::new();
    receiver.durable(Number(number), &mut out);
    out
}

fn answer(number: u64) -> Effect {
    Effect::Send(Upward::Durable(Number(number)))
}

/// BA-8: nothing is overwritten before the state file says so.
#[test]
fn nothing_is_stored_before_the_copy_is_marked() {
    let mut out = Vec::new();
    let mut receiver = Receiver::new(JOURNAL, &mut out);
    receiver.heard(Downward::Accepted, &mut out);
    assert_eq!(hear(&mut receiver, 1, piece(0)), []);
    assert_eq!(hear(&mut receiver, 2, batch(9)), []);
    let mut out = Vec::new();
    receiver.copy(&mut out);
    let stored = [Effect::Store(Number(1), piece(0)), Effect::Store(Number(2), batch(9))];
    assert_eq!(out, stored);
}

/// BR-1: an answer follows the sync, and one sync answers many.
#[test]
fn answers_follow_the_disk() {
    let mut receiver = copying();
    for number in 1..=3 {
        assert_eq!(
            hear(&mut receiver, number, piece(number)),
            [Effect::Store(Number(number), piece(number))]
        );
    }
    assert_eq!(durable(&mut receiver, 2), [answer(2)]);
    assert_eq!(durable(&mut receiver, 2), []);
    // A4 of the copy: whole only when all of it is durable.
    assert_eq!(hear(&mut receiver, 4, whole()), []);
    assert_eq!(durable(&mut receiver, 3), [answer(4), Effect::SyncDone(Age::new(3).unwrap())]);
    let mut out = Vec::new();
    receiver.in_sync(&mut out);
    assert_eq!(out, [Effect::Send(Upward::InSync)]);
}

#[test]
fn holes_end_the_connection() {
    let ended = [Effect::Ended(End::Senseless)];
    assert_eq!(hear(&mut copying(), 2, piece(0)), ended, "a number is missing");
    let mut receiver = copying();
    hear(&mut receiver, 1, batch(5));
    assert_eq!(hear(&mut receiver, 1, batch(6)), ended, "a number comes twice");
    let mut receiver = copying();
    hear(&mut receiver, 1, batch(5));
    assert_eq!(hear(&mut receiver, 2, batch(7)), ended, "a batch is missing");
    assert_eq!(hear(&mut receiver, 3, batch(8)), [], "once");
    let mut receiver = copying();
    hear(&mut receiver, 1, whole());
    assert_eq!(hear(&mut receiver, 2, piece(0)), ended, "a piece after the whole");
    let mut receiver = copying();
    hear(&mut receiver, 1, whole());
    assert_eq!(hear(&mut receiver, 2, whole()), ended, "whole twice");
}

#[test]
fn a_refusal_is_passed_on() {
    let mut out = Vec::new();
    let mut receiver = Receiver::new(JOURNAL, &mut out);
    out.clear();
    receiver.heard(Downward::Refused, &mut out);
    receiver.closed(&mut out);
    assert_eq!(out, [Effect::NotAccepted]);
}

#[test]
fn the_end_is_told_once() {
    let mut receiver = copying();
    let mut out = Vec::new();
    receiver.heard(Downward::StopCalled, &mut out);
    receiver.heard(Downward::HandedOver, &mut out);
    receiver.closed(&mut out);
    receiver.heard(Downward::Accepted, &mut out);
    assert_eq!(out, [Effect::StopCalled, Effect::HandedOver]);
}
