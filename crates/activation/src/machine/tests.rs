//! Single reactions of the machine. What whole pairs do is in `check`.

use super::*;
use crate::register::Register;

const TOKEN: Token = Token(7);

fn age(number: u64) -> Age {
    Age::new(number).unwrap()
}

/// A machine in a phase, with a whole copy of age 5.
fn at(phase: Phase) -> Machine {
    let record = Record { standing: Standing::Valid(age(5)), incarnation: Some(Incarnation(1)) };
    let own = Own { record, vacant: false, founder: false };
    let settings = Settings { paired: true, allow_failback: true };
    Machine { phase, ..Machine::new(settings, own) }
}

fn step(machine: &mut Machine, event: Event) -> Vec<Output> {
    let mut out = Vec::new();
    machine.step(event, &mut out);
    out.retain(|output| !matches!(output, Output::Tell(_)));
    out
}

fn view(register: i64) -> View {
    let register = Register::from_signed(register);
    View { register, incarnation: Incarnation(1), adopted: None, holder: Some(TOKEN) }
}

fn active(mode: Mode) -> Machine {
    at(Phase::Active { token: TOKEN, mode })
}

/// Who waits for the quorum, for the lock or for a source can be stopped at once.
#[test]
fn ba_17_waiting_can_be_stopped() {
    for phase in [
        Phase::Waiting,
        Phase::Reading { linearizable: false },
        Phase::Pausing,
        Phase::Acquiring,
        Phase::Succeeding { age: age(5) },
        Phase::Held(Held::QuorumDataLost),
    ] {
        let mut machine = at(phase);
        assert_eq!(step(&mut machine, Event::Stop), []);
        assert_eq!(machine.phase, Phase::Stopped);
    }
    let mut machine = at(Phase::Confirming(TOKEN));
    assert_eq!(step(&mut machine, Event::Stop), [Output::Release(TOKEN)]);
    // The lock comes when nobody wants it any more.
    assert_eq!(step(&mut machine, Event::Acquired(Token(8))), [Output::Release(Token(8))]);
}

/// A stop while the state file is being written ends when the write is answered.
#[test]
fn ba_13_a_stop_waits_for_the_file() {
    let mut machine = at(Phase::Passive(Passive::Copying));
    step(&mut machine, Event::SyncDone { age: age(6) });
    assert_eq!(step(&mut machine, Event::Stop), [Output::Leave]);
    assert_ne!(machine.phase, Phase::Stopped);
    let standing = Standing::Valid(age(6));
    step(&mut machine, Event::Written(Record { standing, incarnation: Some(Incarnation(1)) }));
    assert_eq!(machine.phase, Phase::Stopped);
    assert_eq!(machine.own.record.standing, standing);
}

/// A stale copy is told at once, also if the lock is busy: it is not even asked for.
#[test]
fn ba_10_stale_does_not_wait_for_the_lock() {
    let mut machine = at(Phase::Stopped);
    step(&mut machine, Event::Start);
    assert_eq!(step(&mut machine, Event::Read(view(6))), [Output::Seek]);
    let mut machine = at(Phase::Confirming(TOKEN));
    let outputs = step(&mut machine, Event::Read(view(6)));
    assert_eq!(outputs, [Output::Release(TOKEN), Output::Seek]);
}

/// A value that a late read shows is looked at again before it means anything.
#[test]
fn ba_4_ahead_is_read_again() {
    let mut machine = at(Phase::Stopped);
    step(&mut machine, Event::Start);
    let again = [Output::Read { linearizable: true }];
    assert_eq!(step(&mut machine, Event::Read(view(4))), again);
    assert_eq!(step(&mut machine, Event::Read(view(5))), [Output::Acquire]);
    let mut machine = at(Phase::Reading { linearizable: true });
    assert_eq!(step(&mut machine, Event::Read(view(4))), [Output::Arm(Timer::Recheck)]);
    assert_eq!(machine.phase, Phase::Held(Held::LocalAhead));
    // It passes by itself.
    assert_eq!(step(&mut machine, Event::Timer(Timer::Recheck)), again);
    assert_eq!(step(&mut machine, Event::Read(view(5))), [Output::Acquire]);
}

#[test]
fn one_replica_at_a_time() {
    let mut machine = active(Mode::Unreplicated);
    let registration = Event::Registration { preferred: false };
    assert_eq!(step(&mut machine, registration), [Output::Accept]);
    assert_eq!(step(&mut machine, registration), [Output::Decline]);
    assert_eq!(step(&mut at(Phase::Loading(TOKEN)), registration), [Output::Decline]);
}

/// Confirms stay held from the moment the replica is told that it is whole.
#[test]
fn ba_3_the_hand_over_to_in_sync_holds_confirms() {
    let mut machine = active(Mode::Syncing { preferred: false });
    assert_eq!(machine.gate(), Gate::Alone);
    let outputs = step(&mut machine, Event::CopySent);
    assert_eq!(outputs, [Output::Gate(Gate::Hold), Output::SendSyncDone(age(5))]);
    let outputs = step(&mut machine, Event::ReplicaLost);
    let (from, to) = (Register::Committed(age(5)), Register::Claimed(age(6)));
    assert_eq!(
        outputs,
        [Output::DropReplica, Output::Swap { from, to, incarnation: Incarnation(1), token: TOKEN }]
    );
    assert_eq!(machine.gate(), Gate::Hold);
}

/// After the loss of a replica, what it has answered may go, and the rest after the commit.
#[test]
fn ba_1_confirms_wait_for_the_commit() {
    let mut machine = active(Mode::Replicated { failback: false });
    step(&mut machine, Event::ReplicaLost);
    assert_eq!(machine.gate(), Gate::Replica);
    step(&mut machine, Event::Swapped { to: Register::Claimed(age(6)) });
    let written = Record { standing: Standing::Valid(age(6)), incarnation: Some(Incarnation(1)) };
    step(&mut machine, Event::Written(written));
    assert_eq!(machine.gate(), Gate::Replica);
    let outputs = step(&mut machine, Event::Swapped { to: Register::Committed(age(6)) });
    assert_eq!(outputs, [Output::Gate(Gate::Alone)]);
}

/// Before anything else, also before the lock can go.
#[test]
fn ba_9_the_gate_closes_first() {
    let mut machine = active(Mode::Replicated { failback: false });
    let outputs = step(&mut machine, Event::Stop);
    assert_eq!(outputs, [Output::Gate(Gate::Closed), Output::SendStopCalled, Output::Close]);
    // Nothing is raised while it stops.
    assert_eq!(step(&mut machine, Event::ReplicaLost), []);
    let outputs = step(&mut machine, Event::Closed);
    assert_eq!(outputs, [Output::SendHandOver, Output::Release(TOKEN)]);
    assert_eq!(machine.phase, Phase::Stopped);
}

/// The lock is never taken again to go on as before.
#[test]
fn ba_19_a_lost_lock_ends_it() {
    for mode in [Mode::Unreplicated, Mode::Replicated { failback: false }] {
        let mut machine = active(mode);
        let outputs = step(&mut machine, Event::LeaseEnded);
        assert_eq!(outputs.first(), Some(&Output::Gate(Gate::Closed)));
        let outputs = step(&mut machine, Event::Closed);
        let read = Output::Read { linearizable: false };
        assert_eq!(outputs, [Output::Release(TOKEN), read]);
    }
}

/// CP-34, second half: without a broken connection the replica takes over by the clock.
#[test]
fn a_replica_that_was_told_of_a_stop_takes_over() {
    let mut machine = at(Phase::Passive(Passive::InSync));
    assert_eq!(step(&mut machine, Event::StopCalled), [Output::Arm(Timer::Takeover)]);
    let outputs = step(&mut machine, Event::Timer(Timer::Takeover));
    assert_eq!(outputs, [Output::Leave, Output::Read { linearizable: false }]);
    // Once: what comes later finds another phase.
    assert_eq!(step(&mut machine, Event::HandedOver), []);
    assert_eq!(step(&mut machine, Event::ActiveLost), []);
    assert_eq!(step(&mut machine, Event::Timer(Timer::Takeover)), []);
}

/// Whoever is not in sync is no candidate when the active node goes.
#[test]
fn only_in_sync_takes_over() {
    let record = Record { standing: Standing::Syncing, incarnation: Some(Incarnation(1)) };
    let mut machine = at(Phase::Passive(Passive::Copying));
    machine.own.record = record;
    step(&mut machine, Event::ActiveLost);
    assert_eq!(step(&mut machine, Event::Read(view(5))), [Output::Seek]);
}

#[test]
fn a_replica_that_loses_the_quorum_leaves_and_keeps_its_age() {
    let mut machine = at(Phase::Passive(Passive::InSync));
    let outputs = step(&mut machine, Event::QuorumLost);
    assert_eq!(outputs, [Output::Leave, Output::Arm(Timer::Retry)]);
    assert_eq!(machine.own.record.standing, Standing::Valid(age(5)));
    step(&mut machine, Event::Timer(Timer::Retry));
    assert_eq!(step(&mut machine, Event::Read(view(5))), [Output::Acquire]);
}

#[test]
fn what_an_active_node_never_sends_is_refused() {
    let mut machine = at(Phase::Passive(Passive::Copying));
    assert_eq!(step(&mut machine, Event::SyncDone { age: Age::ZERO }), [Output::Leave]);
    assert_eq!(machine.phase, Phase::Held(Held::Refused));
}

/// CP-45, and what `allow_failback` does.
#[test]
fn failback() {
    let preferred = Mode::MaybeInSync { preferred: true };
    let mut machine = active(preferred);
    let outputs = step(&mut machine, Event::ReplicaInSync);
    assert_eq!(outputs, [Output::Gate(Gate::Replica), Output::Arm(Timer::Announcement)]);
    let mut late = machine;
    assert_eq!(step(&mut late, Event::Timer(Timer::Announcement)), []);
    assert_eq!(step(&mut late, Event::BackupAnnounced), [], "it was given up");
    let outputs = step(&mut machine, Event::BackupAnnounced);
    assert_eq!(outputs, [Output::Gate(Gate::Closed), Output::SendStopCalled, Output::Close]);
    let outputs = step(&mut machine, Event::Closed);
    assert_eq!(outputs[..2], [Output::SendHandOver, Output::Release(TOKEN)]);
    // It takes part again when the successor has committed, or has taken too long.
    let retry = [Output::Arm(Timer::Retry)];
    for (register, wanted) in [(5, &retry[..]), (-6, &retry[..])] {
        let outputs = step(&mut machine, Event::Timer(Timer::Retry));
        assert_eq!(outputs, [Output::Read { linearizable: false }]);
        assert_eq!(step(&mut machine, Event::Read(view(register))), wanted);
    }
    let mut slow = machine;
    let read = [Output::Read { linearizable: false }];
    assert_eq!(step(&mut slow, Event::Timer(Timer::Successor)), read);
    step(&mut machine, Event::Timer(Timer::Retry));
    assert_eq!(step(&mut machine, Event::Read(view(6))), read);
    assert_eq!(step(&mut machine, Event::Read(view(6))), [Output::Seek]);

    let mut refused = active(preferred);
    refused.settings.allow_failback = false;
    assert_eq!(step(&mut refused, Event::ReplicaInSync), [Output::Gate(Gate::Replica)]);
    assert_eq!(step(&mut refused, Event::BackupAnnounced), []);

    // It is taken back while the node waits, and counts for the next replica when it is given again.
    let mut machine = active(preferred);
    step(&mut machine, Event::ReplicaInSync);
    machine.set_allow_failback(false);
    machine.set_allow_failback(true);
    assert_eq!(step(&mut machine, Event::BackupAnnounced), []);
    let mut machine = active(preferred);
    machine.set_allow_failback(false);
    assert_eq!(step(&mut machine, Event::ReplicaInSync), [Output::Gate(Gate::Replica)]);
}

/// A failed write ends the node; the lock goes, so that another one can repair (CP-7).
#[test]
fn a_failed_write_stops_the_node() {
    let why = Why::ReplicaLost;
    let mut machine = at(Phase::Raising { token: TOKEN, step: Step::File, why });
    let outputs = step(&mut machine, Event::WriteFailed);
    assert_eq!(outputs, [Output::Gate(Gate::Closed), Output::Release(TOKEN), Output::Fail]);
    assert_eq!(step(&mut machine, Event::WriteFailed), []);
}

/// Queues are loaded before the age is raised: a copy that cannot be loaded changes nothing.
#[test]
fn a_failed_load_gives_the_lock_back() {
    let mut machine = at(Phase::Loading(TOKEN));
    assert_eq!(step(&mut machine, Event::LoadFailed), [Output::Release(TOKEN)]);
    assert_eq!(machine.phase, Phase::Held(Held::Unloadable));
}

/// For want of room nothing is wrong with the copy: it is tried again, and reported once.
#[test]
fn a_load_without_room_is_tried_again() {
    let mut machine = at(Phase::Loading(TOKEN));
    let mut told = Vec::new();
    machine.step(Event::NoRoom, &mut told);
    let recheck = Output::Arm(Timer::Recheck);
    let held = Output::Tell(Notice::Held(Held::NoRoom, None));
    assert_eq!(told, [Output::Release(TOKEN), held, recheck]);
    assert_eq!(machine.phase, Phase::Held(Held::NoRoom));
    let outputs = step(&mut machine, Event::Timer(Timer::Recheck));
    assert_eq!(outputs, [Output::Read { linearizable: true }]);
    assert_eq!(step(&mut machine, Event::Read(view(5))), [Output::Acquire]);
    step(&mut machine, Event::Acquired(TOKEN));
    assert_eq!(step(&mut machine, Event::Read(view(5))), [Output::Load]);
    told.clear();
    machine.step(Event::NoRoom, &mut told);
    assert_eq!(told, [Output::Release(TOKEN), recheck]);
    // A journal on its own has no register to look at.
    let mut machine = at(Phase::Single { serving: false });
    machine.settings.paired = false;
    assert_eq!(step(&mut machine, Event::NoRoom), [recheck]);
    assert_eq!(step(&mut machine, Event::Timer(Timer::Recheck)), [Output::Load]);
    assert_eq!(step(&mut machine, Event::Loaded), [Output::Gate(Gate::Alone), Output::Serve]);
}

/// A state file that cannot be read is an operator's business, and nothing is done with the copy.
#[test]
fn an_unreadable_file_is_held() {
    let mut machine = at(Phase::Stopped);
    assert_eq!(step(&mut machine, Event::Unreadable), []);
    assert_eq!(machine.phase, Phase::Held(Held::Unreadable));
    assert_eq!(step(&mut machine, Event::Timer(Timer::Recheck)), []);
}

/// A journal on its own needs nobody; paired, it goes on being served.
#[test]
fn pairing_does_not_interrupt() {
    let own = Own { record: Record::NONE, vacant: false, founder: false };
    let mut machine = Machine::new(Settings { paired: false, allow_failback: false }, own);
    assert_eq!(step(&mut machine, Event::Start), [Output::Load]);
    let outputs = step(&mut machine, Event::Loaded);
    assert_eq!(outputs, [Output::Gate(Gate::Alone), Output::Serve]);
    assert!(!machine.needs_lease());
    let zero = Record { standing: Standing::Valid(Age::ZERO), incarnation: None };
    assert_eq!(step(&mut machine, Event::Pair), [Output::Write(zero)]);
    assert_eq!(step(&mut machine, Event::Written(zero)), [Output::CreateRegister]);
    // The quorum may take its time.
    assert_eq!(step(&mut machine, Event::Unavailable), [Output::Arm(Timer::Retry)]);
    assert_eq!(step(&mut machine, Event::Timer(Timer::Retry)), [Output::CreateRegister]);
    assert_eq!(step(&mut machine, Event::Created(Incarnation(1))), [Output::Acquire]);
    let (from, to) = (Register::Committed(Age::ZERO), Register::Claimed(age(1)));
    let outputs = step(&mut machine, Event::Acquired(TOKEN));
    assert_eq!(outputs, [Output::Swap { from, to, incarnation: Incarnation(1), token: TOKEN }]);
    let one = Record { standing: Standing::Valid(age(1)), incarnation: Some(Incarnation(1)) };
    assert_eq!(step(&mut machine, Event::Swapped { to }), [Output::Write(one)]);
    assert!(!machine.needs_lease());
    let outputs = step(&mut machine, Event::Written(one));
    let (from, to) = (Register::Claimed(age(1)), Register::Committed(age(1)));
    assert_eq!(outputs, [Output::Swap { from, to, incarnation: Incarnation(1), token: TOKEN }]);
    assert_eq!(step(&mut machine, Event::Swapped { to }), []);
    assert_eq!(machine.phase, Phase::Active { token: TOKEN, mode: Mode::Unreplicated });
    assert!(machine.needs_lease());
}

/// A journal that an operator brought back has a state file of a register that is gone. Its ages say
/// nothing to the new one: a founder that stops half-way goes on by itself with this one too.
#[test]
fn a_journal_that_was_brought_back_is_paired_anew() {
    for old in [6, 0] {
        let record =
            Record { standing: Standing::Valid(age(old)), incarnation: Some(Incarnation(7)) };
        let own = Own { record, vacant: false, founder: false };
        let mut machine = Machine::new(Settings { paired: false, allow_failback: false }, own);
        step(&mut machine, Event::Start);
        step(&mut machine, Event::Loaded);
        let zero = Record { standing: Standing::Valid(Age::ZERO), incarnation: None };
        assert_eq!(step(&mut machine, Event::Pair), [Output::Write(zero)]);
        assert_eq!(step(&mut machine, Event::Written(zero)), [Output::CreateRegister]);
        assert_eq!(step(&mut machine, Event::Created(Incarnation(1))), [Output::Acquire]);
        step(&mut machine, Event::Acquired(TOKEN));
        let outputs = step(&mut machine, Event::Unavailable);
        assert_eq!(outputs, [Output::Gate(Gate::Closed), Output::Close]);
        step(&mut machine, Event::Closed);
        assert_eq!(step(&mut machine, Event::Read(view(0))), [Output::Acquire]);
        // So does a new process, which has the file alone.
        let own = Own { founder: true, ..machine.own };
        let mut machine = Machine::new(Settings { paired: true, allow_failback: false }, own);
        step(&mut machine, Event::Start);
        assert_eq!(step(&mut machine, Event::Read(view(0))), [Output::Acquire]);
    }
}

/// Half-way through its pairing, a founder serves again by itself (ADR 0031).
#[test]
fn a_pairing_that_stopped_goes_on() {
    for (register, wanted) in [(0, Step::Claim), (-1, Step::RepairFile)] {
        let record = Record { standing: Standing::Valid(Age::ZERO), incarnation: None };
        let own = Own { record, vacant: false, founder: true };
        let mut machine = Machine::new(Settings { paired: true, allow_failback: false }, own);
        step(&mut machine, Event::Start);
        assert_eq!(step(&mut machine, Event::Read(view(register))), [Output::Acquire]);
        step(&mut machine, Event::Acquired(TOKEN));
        assert_eq!(step(&mut machine, Event::Read(view(register))), [Output::Load]);
        step(&mut machine, Event::Loaded);
        assert!(matches!(machine.phase, Phase::Raising { step, .. } if step == wanted));
    }
}

/// Notices are what operators read.
#[test]
fn notices_say_both_values() {
    let notice = Notice::NotCandidate(crate::class::Class::Stale, Register::from_signed(6));
    assert_eq!(notice.to_string(), "this copy is stale (coordinated 6), so it is not served");
    let notice = Notice::Held(Held::QuorumDataLost, None);
    assert!(notice.to_string().contains("(coordinated absent)"), "{notice}");
}

/// A disk that hangs is no error: the replica, which has finished what this node has not, gets its turn.
/// Nobody gives way to one that is not in sync.
#[test]
fn a_node_whose_disk_hangs_gives_way() {
    let mut machine = active(Mode::Replicated { failback: false });
    let outputs = step(&mut machine, Event::Stalled);
    assert_eq!(outputs, [Output::Gate(Gate::Closed), Output::DropReplica, Output::Close]);
    // When it goes on after all the lock is the other's: this node does not ask for it, for a time.
    let outputs = step(&mut machine, Event::Closed);
    let timers = [Output::Arm(Timer::Successor), Output::Arm(Timer::Retry)];
    assert_eq!(outputs, [Output::Release(TOKEN), timers[0], timers[1]]);
    assert_eq!(machine.phase, Phase::Succeeding { age: age(5) });
    // Somebody has claimed the next age: that is it.
    step(&mut machine, Event::Timer(Timer::Retry));
    let outputs = step(&mut machine, Event::Read(view(6)));
    assert_eq!(outputs, [Output::Read { linearizable: false }]);
    // Nobody has: it tries again.
    machine.phase = Phase::Succeeding { age: age(5) };
    let outputs = step(&mut machine, Event::Timer(Timer::Successor));
    assert_eq!(outputs, [Output::Read { linearizable: false }]);
    // An order to stop is stronger.
    let mut machine = active(Mode::Replicated { failback: false });
    step(&mut machine, Event::Stalled);
    step(&mut machine, Event::Stop);
    assert_eq!(step(&mut machine, Event::Closed), [Output::Release(TOKEN)]);
    assert_eq!(machine.phase, Phase::Stopped);
    for mode in [Mode::Unreplicated, Mode::Syncing { preferred: true }] {
        assert_eq!(step(&mut active(mode), Event::Stalled), []);
    }
}
