//! The black-box cases of the list of known bugs of brokers that are rules of the queue alone,
//! by their number there.

use model::id::{ConsumerId, Seq};
use model::time::{Millis, Timestamp};
use queue::command::{Command, Outcome, Subscription};
use queue::effect::{Effect, Reason};
use queue::settings::{Overflow, Settings};

use crate::rig::{Rig, active, classic, dead, deliver, quorum, redeliver, release, terms, unnoted};

#[test]
fn case_008_cancelled_consumers_messages_stay_unacknowledged() {
    let mut rig = Rig::new(classic());
    rig.publish_many(3);
    rig.consume(terms(1));
    rig.cancel(1);
    assert_eq!(rig.counts(), (0, 3));
    assert_eq!(rig.settle_run(1, 1, 3, Outcome::Accept), [release(1, 3)]);
    assert_eq!(rig.counts(), (0, 0));
}

#[test]
fn case_009_cancel_with_deliveries_in_flight_loses_and_doubles_nothing() {
    for settings in [classic(), quorum()] {
        let mut rig = Rig::new(settings);
        rig.publish_many(10);
        rig.consume_prefetch(1, 5);
        rig.cancel(1);
        let others = rig.consume_prefetch(2, 5);
        assert_eq!(others, [6, 7, 8, 9, 10].map(|seq| deliver(2, seq)));
        assert_eq!(rig.settle_run(1, 1, 5, Outcome::Accept), [release(1, 5)]);
        assert_eq!(rig.settle_run(2, 6, 10, Outcome::Accept), [release(6, 10)]);
        assert_eq!(rig.counts(), (0, 0));
    }
}

#[test]
fn case_017_purge_and_publish_interleave() {
    let mut rig = Rig::new(classic());
    for _ in 0..100 {
        rig.publish_many(10);
        assert_eq!(rig.apply(Command::Purge).len(), 1);
    }
    assert_eq!(rig.counts(), (0, 0));
}

#[test]
fn case_034_expired_messages_of_a_low_priority_are_never_delivered() {
    let mut rig = Rig::new(Settings { max_priority: Some(9), dead_letter: true, ..classic() });
    rig.publish_with(10, Some(1), Some(100));
    rig.publish_with(10, Some(9), Some(60_000));
    rig.now += 100;
    let effects = rig.consume_prefetch(1, 1);
    assert_eq!(effects, [dead(1, Reason::Expired), deliver(1, 2)]);
    assert_eq!(rig.counts(), (0, 1));
}

#[test]
fn case_035_a_short_time_to_live_behind_a_long_one_is_dropped_at_the_head() {
    let mut rig = Rig::new(classic());
    rig.publish_ttl(60_000);
    rig.publish_ttl(1_000);
    assert_eq!(rig.pass(2_000), []);
    assert_eq!(rig.counts(), (2, 0), "it waits behind the other");
    assert_eq!(rig.consume_prefetch(1, 1), [deliver(1, 1), release(2, 2)]);
    assert_eq!(rig.settle(1, 1, Outcome::Accept), [release(1, 1)], "but it is never delivered");
}

/// Our choice is what RabbitMQ documents for every queue, and what it does for classic queues:
/// declaring a queue again is use.
#[test]
fn case_036_redeclaring_keeps_a_queue_alive() {
    for settings in [classic(), quorum()] {
        let mut rig = Rig::new(Settings { expires: Some(Millis(5_000)), ..settings });
        let mut expired = false;
        for _ in 0..10 {
            expired |= rig.pass(2_000).contains(&Effect::Expired);
            rig.apply(Command::Touch);
        }
        assert!(!expired, "it was in use");
        assert!(rig.pass(5_000).contains(&Effect::Expired));
    }
}

#[test]
fn case_037_only_ready_messages_count_against_a_length() {
    let mut rig = Rig::new(Settings { max_length: Some(10), ..classic() });
    rig.publish_many(10);
    rig.consume_prefetch(1, 10);
    rig.publish_many(10);
    assert_eq!(rig.counts(), (10, 10));
    rig.publish();
    assert_eq!(rig.counts(), (10, 10));
    assert_eq!(rig.settle_run(1, 1, 10, Outcome::Accept)[0], release(1, 10), "none of them lost");
}

#[test]
fn case_045_dead_letters_come_in_the_order_of_the_queue_for_every_reason() {
    const COUNT: u64 = 1_000;
    let dead_letters = |effects: &[Effect], reason| {
        let seqs = effects.iter().filter_map(|effect| match effect {
            Effect::DeadLetter { seq, reason: given } => {
                assert_eq!(*given, reason);
                Some(seq.0)
            }
            _ => None,
        });
        assert!(seqs.eq(1..=COUNT), "{reason:?}");
    };
    for settings in [classic(), quorum()] {
        let settings = Settings { dead_letter: true, ..settings };

        let mut rig = Rig::new(Settings { max_length: Some(0), ..settings.clone() });
        let effects: Vec<_> = (0..COUNT).flat_map(|_| rig.publish()).collect();
        dead_letters(&effects, Reason::MaxLen);

        let mut rig = Rig::new(settings.clone());
        rig.publish_many(COUNT);
        let lowered = rig.configure(Settings { max_length: Some(0), ..settings.clone() });
        dead_letters(&lowered, Reason::MaxLen);

        let mut rig = Rig::new(Settings { message_ttl: Some(Millis(10)), ..settings.clone() });
        rig.publish_many(COUNT);
        dead_letters(&rig.pass(10), Reason::Expired);

        let mut rig = Rig::new(settings.clone());
        rig.publish_many(COUNT);
        rig.consume(terms(1));
        dead_letters(&rig.settle_run(1, 1, COUNT, Outcome::Discard), Reason::Rejected);

        let mut rig = Rig::new(Settings { delivery_limit: Some(0), ..settings.clone() });
        rig.publish_many(COUNT);
        rig.consume(terms(1));
        dead_letters(&rig.gone(1), Reason::DeliveryLimit);
    }
}

#[test]
fn case_047_a_limit_that_a_policy_no_longer_sets_is_gone() {
    let mut rig = Rig::new(classic());
    rig.publish_many(5);
    rig.configure(Settings { max_length: Some(5), ..classic() });
    assert_eq!(rig.publish(), [release(1, 1)]);
    rig.configure(Settings { message_ttl: Some(Millis(60_000)), ..classic() });
    rig.publish_many(5);
    assert_eq!(rig.counts(), (10, 0));
    rig.configure(Settings { max_length: Some(5), overflow: Overflow::RejectPublish, ..classic() });
    assert_eq!(rig.counts(), (10, 0), "refusing publishes drops nothing that is here");
}

#[test]
fn case_048_the_delivery_count_survives_a_restart() {
    for settings in [classic(), quorum()] {
        let settings = Settings { delivery_limit: Some(3), dead_letter: true, ..settings };
        let mut rig = Rig::new(settings);
        rig.publish();
        rig.consume_prefetch(1, 1);
        assert_eq!(unnoted(rig.settle(1, 1, Outcome::Retry)), [redeliver(1, 1, 1)]);
        assert_eq!(unnoted(rig.settle(1, 1, Outcome::Retry)), [redeliver(1, 1, 2)]);
        rig.restart();
        assert_eq!(rig.consume_prefetch(2, 1), [redeliver(2, 1, 2)]);
        assert_eq!(unnoted(rig.settle(2, 1, Outcome::Retry)), [redeliver(2, 1, 3)]);
        assert_eq!(rig.settle(2, 1, Outcome::Retry), [dead(1, Reason::DeliveryLimit)]);
    }
}

#[test]
fn case_049_lost_connections_leave_nothing_unacknowledged() {
    let mut rig = Rig::new(classic());
    rig.publish_many(20);
    for consumer in 1..=500 {
        rig.consume_prefetch(consumer, 7);
        assert_eq!(rig.counts(), (13, 7));
        if consumer % 2 == 0 {
            rig.gone(consumer);
        } else {
            // As a session does it: the consumer ends, then what it held comes back.
            rig.cancel(consumer);
            rig.settle_run(consumer, 1, 3, Outcome::Lost);
            rig.settle_run(consumer, 4, 7, Outcome::Lost);
            rig.settle_run(consumer, 1, 7, Outcome::Lost);
        }
        assert_eq!(rig.counts(), (20, 0));
    }
    assert_eq!(rig.order(), (1..=20).collect::<Vec<_>>());
}

#[test]
fn case_051_deleting_a_queue_dead_letters_nothing() {
    let mut rig = Rig::new(Settings { dead_letter: true, ..classic() });
    rig.publish_many(3);
    rig.consume_prefetch(1, 1);
    let effects = rig.apply(Command::Delete { if_unused: false, if_empty: false });
    assert_eq!(effects, [Effect::ConsumerCancelled { consumer: ConsumerId(1) }]);
}

#[test]
fn case_052_delivery_resumes_when_one_of_two_timed_out_consumers_settles() {
    for (settings, count) in [(classic(), 1), (quorum(), 0)] {
        let mut rig = Rig::new(Settings {
            single_active_consumer: true,
            consumer_timeout: Some(Millis(3_000)),
            ..settings
        });
        rig.consume(terms(1));
        rig.consume(terms(2));
        rig.publish();
        let first = rig.pass(3_000);
        let timed_out = |consumer| Effect::TimedOut { consumer: ConsumerId(consumer), returned: 1 };
        assert_eq!(first[0], timed_out(1));
        assert_eq!(first[first.len() - 2..], [active(Some(2)), redeliver(2, 1, count)]);
        let second = rig.pass(3_000);
        assert_eq!(second[0], timed_out(2));
        assert_eq!(second.last(), Some(&active(None)), "all have timed out");
        assert_eq!(rig.counts(), (1, 0));
        let resumed = rig.settle(1, 1, Outcome::Accept);
        assert_eq!(resumed, [active(Some(1)), redeliver(1, 1, 2 * count)]);
    }
}

#[test]
fn what_an_unreachable_active_consumer_held_comes_first_and_has_not_failed() {
    for settings in [classic(), quorum()] {
        let mut rig = Rig::new(Settings { single_active_consumer: true, ..settings });
        rig.consume_prefetch(1, 2);
        rig.consume(terms(2));
        rig.publish_many(3);
        let effects = rig.unreachable(1);
        let expected = [active(Some(2)), redeliver(2, 1, 0), redeliver(2, 2, 0), deliver(2, 3)];
        assert_eq!(effects, expected);
    }
}

#[test]
fn case_053_the_second_consumer_takes_over_and_gets_the_lost_messages_first() {
    for settings in [classic(), quorum()] {
        let mut rig = Rig::new(Settings { single_active_consumer: true, ..settings });
        rig.consume_prefetch(1, 2);
        rig.consume(terms(2));
        rig.publish_many(4);
        let effects = rig.gone(1);
        let expected =
            [active(Some(2)), redeliver(2, 1, 1), redeliver(2, 2, 1), deliver(2, 3), deliver(2, 4)];
        assert_eq!(effects, expected);
    }
}

#[test]
fn case_054_equal_consumers_get_equal_shares() {
    let mut rig = Rig::new(classic());
    for consumer in 1..=3 {
        rig.consume_prefetch(consumer, 10);
    }
    let mut shares = [0; 4];
    let mut effects: Vec<Effect> = (0..300).flat_map(|_| rig.publish()).collect();
    while !effects.is_empty() {
        let mut next = Vec::new();
        for effect in effects {
            if let Effect::Deliver { consumer, seq, .. } = effect {
                shares[usize::try_from(consumer.0).unwrap()] += 1;
                next.extend(rig.settle(consumer.0, seq.0, Outcome::Accept));
            }
        }
        effects = next;
    }
    assert_eq!(shares, [0, 100, 100, 100]);
}

#[test]
fn case_055_a_lower_priority_gets_messages_only_while_higher_ones_are_full() {
    let mut rig = Rig::new(classic());
    for (consumer, priority) in [(1, 0), (2, 1), (3, 2)] {
        rig.consume(Subscription { priority, prefetch: 4, ..terms(consumer) });
    }
    let mut receivers = Vec::new();
    for _ in 0..13 {
        for effect in rig.publish() {
            if let Effect::Deliver { consumer, .. } = effect {
                receivers.push(consumer.0);
            }
        }
    }
    assert_eq!(receivers, [3, 3, 3, 3, 2, 2, 2, 2, 1, 1, 1, 1]);
    assert_eq!(rig.settle(1, 9, Outcome::Accept), [release(9, 9), deliver(1, 13)]);
    rig.settle(3, 1, Outcome::Accept);
    rig.settle(1, 13, Outcome::Accept);
    assert_eq!(rig.publish(), [deliver(3, 14)]);
}

#[test]
fn case_056_a_rejected_first_message_comes_next_again() {
    for settings in [classic(), quorum()] {
        let mut rig = Rig::new(settings);
        rig.publish_many(3);
        rig.consume_prefetch(1, 1);
        assert_eq!(rig.settle(1, 1, Outcome::Return), [redeliver(1, 1, 0)]);
        assert_eq!(rig.settle(1, 1, Outcome::Accept), [release(1, 1), deliver(1, 2)]);
    }
}

/// The session stops granting while it holds more than the lowered limit; the queue then must not
/// ask for grants again and again.
#[test]
fn case_057_a_consumer_that_grants_nothing_is_asked_once() {
    let mut rig = Rig::new(classic());
    rig.consume(Subscription { granted: true, ..terms(1) });
    rig.publish();
    rig.grant(1, 1);
    let demand = Effect::Demand { consumer: ConsumerId(1) };
    assert_eq!(rig.publish(), [demand]);
    for _ in 0..100 {
        assert_eq!(rig.publish(), []);
        assert_eq!(rig.tick(), []);
    }
    rig.settle(1, 1, Outcome::Accept);
    assert_eq!(rig.grant(1, 1), [deliver(1, 2), demand]);
}

#[test]
fn case_058_a_message_that_is_not_acknowledged_in_time_goes_to_another() {
    for (settings, count) in [(classic(), 1), (quorum(), 0)] {
        let mut rig = Rig::new(settings);
        let impatient = |consumer| Subscription {
            timeout: Some(Millis(3_000)),
            prefetch: 1,
            ..terms(consumer)
        };
        rig.consume(impatient(1));
        rig.publish();
        rig.consume(impatient(2));
        let effects = rig.pass(3_000);
        assert_eq!(effects[0], Effect::TimedOut { consumer: ConsumerId(1), returned: 1 });
        assert_eq!(effects.last(), Some(&redeliver(2, 1, count)));
        assert_eq!(rig.now, 4_000);
        rig.cancel(1);
        assert_eq!(rig.settle(1, 1, Outcome::Accept), [], "too late");
        assert_eq!(rig.settle(2, 1, Outcome::Accept), [release(1, 1)]);
    }
}

/// Each message has its own time: acknowledging others does not help the one that is kept.
#[test]
fn case_059_one_message_kept_past_the_timeout_counts_while_others_are_acknowledged() {
    let mut rig = Rig::new(Settings { consumer_timeout: Some(Millis(1_000)), ..classic() });
    rig.consume_prefetch(1, 2);
    rig.publish();
    for seq in 2..11 {
        rig.publish();
        assert_eq!(rig.pass(100), []);
        rig.settle(1, seq, Outcome::Accept);
    }
    let effects = rig.pass(100);
    assert_eq!(effects[0], Effect::TimedOut { consumer: ConsumerId(1), returned: 1 });
    assert_eq!(rig.queue.oldest_ready(), Some(Seq(1)));
}

/// A node that dies takes its consumers along; the driver says so for each.
#[test]
fn case_060_when_a_consumers_node_dies_every_unsettled_message_comes_back() {
    let mut rig = Rig::new(quorum());
    rig.publish_many(1_000);
    rig.consume(terms(1));
    assert_eq!(rig.counts(), (0, 1_000));
    rig.gone(1);
    assert_eq!(rig.counts(), (1_000, 0));
    rig.consume(terms(2));
    assert_eq!(rig.settle_run(2, 1, 1_000, Outcome::Accept), [release(1, 1_000)]);
    assert_eq!(rig.counts(), (0, 0));
}

#[test]
fn case_065_consuming_and_cancelling_leaves_no_trace() {
    let mut rig = Rig::new(classic());
    for consumer in 1..=20_000 {
        assert_eq!(rig.consume(terms(consumer)), []);
        assert_eq!(rig.cancel(consumer), []);
    }
    assert_eq!(format!("{:?}", rig.queue).len(), {
        let mut fresh = Rig::new(classic());
        fresh.consume(terms(20_000));
        fresh.cancel(20_000);
        // The number of subscriptions there ever were is the only difference.
        format!("{:?}", fresh.queue).len() + "20000".len() - "1".len()
    });
}

#[test]
fn case_101_the_next_consumer_becomes_active_when_the_active_one_is_cancelled() {
    let mut rig = Rig::new(Settings { single_active_consumer: true, ..classic() });
    rig.consume(terms(1));
    rig.consume(terms(2));
    assert_eq!(rig.queue.active(), Some(ConsumerId(1)));
    assert_eq!(rig.cancel(1), [active(Some(2))]);
    assert_eq!(rig.queue.active(), Some(ConsumerId(2)));
}

#[test]
fn case_102_a_better_consumer_becomes_active_and_receives_what_the_worse_one_returns() {
    let mut rig = Rig::new(Settings { single_active_consumer: true, ..quorum() });
    rig.consume(terms(1));
    rig.publish();
    assert_eq!(rig.consume(Subscription { priority: 5, ..terms(2) }), []);
    assert_eq!(rig.settle(1, 1, Outcome::Return), [active(Some(2)), redeliver(2, 1, 0)]);
}

#[test]
fn case_112_a_machine_that_is_fed_the_same_commands_is_the_same() {
    let mut rigs = [Rig::new(quorum()), Rig::new(quorum())];
    let states = rigs.each_mut().map(|rig| {
        rig.publish_many(50);
        rig.consume_prefetch(1, 20);
        rig.settle_run(1, 3, 9, Outcome::Retry);
        rig.publish_ttl(100);
        rig.pass(500);
        format!("{:?}", rig.queue)
    });
    assert_eq!(states[0], states[1]);
    assert_eq!(rigs[0].queue.next_deadline(), None::<Timestamp>);
}
