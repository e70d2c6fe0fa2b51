//! Delayed retry, and the other rules of time that quorum queues have for themselves.

use model::id::ConsumerId;
use model::time::{Millis, Timestamp};
use queue::command::{Command, Outcome, Reply, Subscription};
use queue::effect::{Effect, Reason};
use queue::settings::{DelayedRetry, Overflow, Retried, Settings};

use crate::rig::{Rig, active, classic, dead, deliver, quorum, redeliver, release, terms};

fn retry(which: Retried) -> Settings {
    let delayed_retry = Some(DelayedRetry { which, min: Millis(100), max: Millis(250) });
    Settings { delayed_retry, ..quorum() }
}

fn timed_out(consumer: u64, returned: u64) -> Effect {
    Effect::TimedOut { consumer: ConsumerId(consumer), returned }
}

#[test]
fn what_failed_waits_the_longer_the_more_often_it_failed() {
    let mut rig = Rig::new(retry(Retried::Failed));
    rig.publish();
    rig.consume_prefetch(1, 1);
    for (count, delay) in [(1, 100), (2, 200), (3, 250), (4, 250)] {
        assert_eq!(rig.settle(1, 1, Outcome::Retry), []);
        assert_eq!((rig.counts(), rig.queue.delayed(), rig.queue.delayed_bytes()), ((0, 0), 1, 10));
        assert_eq!(rig.queue.next_deadline(), Some(Timestamp(rig.now + delay)));
        assert_eq!(rig.pass(delay - 1), []);
        assert_eq!(rig.pass(1), [redeliver(1, 1, count)]);
        assert_eq!((rig.queue.delayed(), rig.queue.delayed_bytes()), (0, 0));
    }
    assert_eq!(rig.settle(1, 1, Outcome::Return), [redeliver(1, 1, 4)], "it did not fail");
    assert_eq!(rig.gone(1), [], "it is lost, which is a failure");
    assert_eq!(rig.queue.delayed(), 1);
}

#[test]
fn what_did_not_fail_waits_if_told_so() {
    let mut rig = Rig::new(retry(Retried::Returned));
    rig.publish();
    rig.consume(Subscription { prefetch: 1, timeout: Some(Millis(500)), ..terms(1) });
    assert_eq!(rig.settle(1, 1, Outcome::Retry), [redeliver(1, 1, 1)]);
    assert_eq!(rig.settle(1, 1, Outcome::Return), []);
    assert_eq!(rig.pass(100), [redeliver(1, 1, 1)]);
    assert_eq!(rig.pass(500), [timed_out(1, 1)]);
    assert_eq!(rig.queue.delayed(), 1);

    let mut rig = Rig::new(retry(Retried::All));
    rig.publish_many(2);
    rig.consume_prefetch(1, 2);
    assert_eq!(rig.settle(1, 2, Outcome::Return), []);
    assert_eq!(rig.settle(1, 1, Outcome::Retry), []);
    assert_eq!(rig.pass(100), [redeliver(1, 1, 1), redeliver(1, 2, 0)], "in order of name");
}

#[test]
fn what_is_due_comes_first_in_the_order_of_time() {
    let mut rig = Rig::new(retry(Retried::All));
    rig.publish_many(3);
    rig.consume_prefetch(1, 3);
    rig.settle(1, 3, Outcome::Return);
    rig.now += 1;
    rig.settle_run(1, 1, 2, Outcome::Return);
    rig.cancel(1);
    rig.publish_priority(31);
    assert_eq!(rig.pass(200), []);
    assert_eq!(rig.consume(terms(2)).len(), 4);
    let order: Vec<u64> = rig.queue.holdings(ConsumerId(2)).map(|held| held.seq.0).collect();
    assert_eq!(order, [3, 1, 2, 4]);
}

#[test]
fn what_is_due_comes_back_even_if_no_tick_came() {
    let mut rig = Rig::new(retry(Retried::All));
    rig.publish();
    rig.consume(terms(1));
    rig.settle(1, 1, Outcome::Return);
    rig.now += 100;
    assert_eq!(rig.publish(), [redeliver(1, 1, 0), deliver(1, 2)]);
    rig.settle_run(1, 1, 2, Outcome::Return);
    rig.now += 100;
    assert_eq!(rig.settle(1, 1, Outcome::Accept), [redeliver(1, 1, 0), redeliver(1, 2, 0)]);
}

#[test]
fn too_many_failures_end_a_message_at_once() {
    let settings = Settings { delivery_limit: Some(1), dead_letter: true, ..retry(Retried::All) };
    let mut rig = Rig::new(settings);
    rig.publish();
    rig.consume(terms(1));
    assert_eq!(rig.settle(1, 1, Outcome::Retry), []);
    assert_eq!(rig.pass(100), [redeliver(1, 1, 1)]);
    assert_eq!(rig.settle(1, 1, Outcome::Retry), [dead(1, Reason::DeliveryLimit)]);
}

#[test]
fn a_delayed_message_expires_when_it_is_due() {
    let mut rig = Rig::new(Settings { dead_letter: true, ..retry(Retried::All) });
    rig.publish_ttl(50);
    rig.consume(terms(1));
    rig.settle(1, 1, Outcome::Return);
    assert_eq!(rig.pass(99), []);
    assert_eq!(rig.pass(1), [dead(1, Reason::Expired)]);
}

#[test]
fn delayed_messages_count_for_the_limits() {
    let limited = |overflow| Settings { max_length: Some(2), overflow, ..retry(Retried::All) };
    for overflow in [Overflow::DropHead, Overflow::RejectPublish] {
        let mut rig = Rig::new(limited(overflow));
        rig.publish_many(2);
        rig.consume_prefetch(1, 2);
        rig.settle_run(1, 1, 2, Outcome::Return);
        rig.cancel(1);
        let effects = rig.publish();
        match overflow {
            Overflow::DropHead => assert_eq!(effects, [release(3, 3)], "nothing else is ready"),
            _ => assert_eq!((rig.reply, effects), (Reply::Rejected, vec![])),
        }
        assert_eq!((rig.counts(), rig.queue.delayed()), ((0, 0), 2));
        rig.configure(Settings { max_length: Some(1), ..limited(overflow) });
        assert_eq!(rig.queue.delayed(), 2, "only what is ready is dropped");
    }
    let mut rig = Rig::new(Settings { max_length_bytes: Some(25), ..retry(Retried::All) });
    rig.publish_many(2);
    rig.consume_prefetch(1, 2);
    rig.settle_run(1, 1, 2, Outcome::Return);
    rig.cancel(1);
    assert_eq!(rig.publish(), [release(3, 3)]);
}

#[test]
fn purging_removes_delayed_messages_too_and_deleting_counts_them() {
    let mut rig = Rig::new(retry(Retried::All));
    rig.publish_many(4);
    rig.consume_prefetch(1, 2);
    rig.settle(1, 2, Outcome::Return);
    rig.cancel(1);
    let if_empty = Command::Delete { if_unused: false, if_empty: true };
    let purged = rig.apply(Command::Purge);
    let unsettled = rig.queue.unsettled();
    assert_eq!((rig.reply, unsettled), (Reply::Count(2), 2));
    assert_eq!(purged, [release(2, 2), release(4, 4)]);
    rig.settle_run(1, 1, 3, Outcome::Return);
    rig.apply(if_empty);
    assert_eq!(rig.reply, Reply::NotEmpty);
    rig.apply(Command::Delete { if_unused: true, if_empty: false });
    assert_eq!((rig.reply, rig.queue.delayed()), (Reply::Count(2), 0));
    assert_eq!(rig.queue.next_deadline(), None);
}

#[test]
fn classic_queues_delay_nothing() {
    let delayed_retry = retry(Retried::All).delayed_retry;
    let mut rig = Rig::new(Settings { delayed_retry, ..classic() });
    rig.publish();
    rig.consume(terms(1));
    assert_eq!(rig.settle(1, 1, Outcome::Return), [redeliver(1, 1, 0)]);
}

#[test]
fn delays_that_are_turned_off_end_for_new_returns_only() {
    let mut rig = Rig::new(retry(Retried::All));
    rig.publish_many(2);
    rig.consume(terms(1));
    rig.settle(1, 1, Outcome::Return);
    rig.configure(quorum());
    assert_eq!(rig.settle(1, 2, Outcome::Return), [redeliver(1, 2, 0)]);
    assert_eq!(rig.pass(99), []);
    assert_eq!(rig.pass(1), [redeliver(1, 1, 0)]);
}

#[test]
fn only_what_is_late_leaves_a_consumer_of_a_quorum_queue() {
    let settings = Settings { consumer_timeout: Some(Millis(100)), ..quorum() };
    let mut rig = Rig::new(settings);
    rig.consume(terms(1));
    rig.publish();
    rig.pass(60);
    rig.publish();
    assert_eq!(rig.pass(40), [timed_out(1, 1)]);
    assert_eq!((rig.counts(), rig.queue.held_by(ConsumerId(1))), ((1, 1), 1));
    assert_eq!(rig.settle(1, 2, Outcome::Accept), [release(2, 2)], "the other one is still its");
    assert_eq!(rig.publish(), [], "but it gets nothing");
    assert_eq!(rig.settle(1, 1, Outcome::Accept), [redeliver(1, 1, 0), deliver(1, 3)]);
    // Late again, one after the other.
    rig.pass(10);
    rig.publish();
    assert_eq!(rig.pass(200), [timed_out(1, 2), timed_out(1, 1)]);
    assert_eq!(rig.settle_run(1, 1, 3, Outcome::Accept), []);
    assert_eq!(rig.settle(1, 4, Outcome::Return).len(), 3);
}

#[test]
fn a_single_active_consumer_that_is_late_hands_over_and_may_come_back() {
    let mut rig = Rig::new(Settings {
        single_active_consumer: true,
        consumer_timeout: Some(Millis(100)),
        ..quorum()
    });
    rig.consume(terms(1));
    rig.publish();
    rig.consume(terms(2));
    assert_eq!(rig.pass(100), [timed_out(1, 1), active(Some(2)), redeliver(2, 1, 0)]);
    assert_eq!(rig.pass(100), [timed_out(2, 1), active(None)]);
    assert_eq!(rig.settle(1, 1, Outcome::Accept), [active(Some(1)), redeliver(1, 1, 0)]);
    assert_eq!(rig.settle(2, 1, Outcome::Accept), [], "the first one stays active");
}

#[test]
fn a_quorum_queue_does_not_expire_while_something_may_be_settled() {
    for (settings, waits) in [(quorum(), true), (classic(), false)] {
        let mut rig = Rig::new(Settings { expires: Some(Millis(1_000)), ..settings });
        rig.publish_many(2);
        rig.consume_prefetch(1, 1);
        rig.cancel(1);
        if waits {
            assert_eq!(rig.pass(5_000), []);
            rig.settle(1, 1, Outcome::Accept);
            assert_eq!(rig.pass(999), []);
            assert_eq!(rig.pass(1), [Effect::Expired]);
            rig.get();
            assert_eq!(rig.pass(5_000), []);
            rig.settle_command(None, 2, 2, Outcome::Accept, false);
            assert_eq!(rig.pass(999), []);
            assert_eq!(rig.pass(1), [Effect::Expired]);
        } else {
            assert_eq!(rig.pass(1_000), [Effect::Expired]);
        }
    }
}

#[test]
fn what_a_lost_node_held_comes_back_without_having_failed() {
    let mut rig = Rig::new(Settings { delivery_limit: Some(0), ..quorum() });
    rig.publish_many(2);
    rig.consume(terms(1));
    rig.consume(terms(2));
    // As the driver does it: the consumer ends first, so that nothing goes to it again.
    assert_eq!(rig.cancel(1), []);
    let back = [redeliver(2, 1, 0), redeliver(2, 2, 0)];
    assert_eq!(rig.settle_run(1, 0, u64::MAX, Outcome::Return), back);
    assert_eq!(rig.queue.consumers(), 1);
}
