//! One test per rule, named after what is promised.

use model::id::{ConsumerId, Seq};
use model::time::{Millis, Timestamp};
use queue::command::{Arrival, Command, Outcome, Reply, Subscription};
use queue::effect::{Effect, Reason};
use queue::queue::Queue;
use queue::settings::{Overflow, Settings};

use crate::rig::{
    Rig, active, classic, dead, deliver, noted, quorum, redeliver, release, terms, unnoted,
};

// Order and turns

#[test]
fn messages_leave_in_the_order_of_arrival() {
    let mut rig = Rig::new(classic());
    rig.publish_many(3);
    assert_eq!(rig.consume(terms(1)), [deliver(1, 1), deliver(1, 2), deliver(1, 3)]);
    assert_eq!(rig.publish(), [deliver(1, 4)]);
    assert_eq!(rig.counts(), (0, 4));
    assert_eq!(rig.settle_run(1, 1, 3, Outcome::Accept), [release(1, 3)]);
    assert_eq!(rig.counts(), (0, 1));
}

#[test]
fn a_returned_message_takes_its_old_place_in_a_classic_queue() {
    let mut rig = Rig::new(classic());
    rig.publish_many(4);
    rig.consume_prefetch(1, 3);
    rig.settle_command(Some(1), 3, 3, Outcome::Return, true);
    assert_eq!(rig.settle(1, 1, Outcome::Return), [redeliver(1, 1, 0), redeliver(1, 3, 0)]);
    rig.gone(1);
    assert_eq!(rig.order(), [1, 2, 3, 4]);
}

#[test]
fn returned_messages_come_first_and_in_the_order_of_return_in_a_quorum_queue() {
    let mut rig = Rig::new(quorum());
    rig.publish_many(4);
    rig.publish_priority(31);
    rig.consume_prefetch(1, 4);
    assert_eq!(rig.queue.oldest_ready(), Some(Seq(4)));
    rig.cancel(1);
    for seq in [3, 1, 5, 2] {
        assert_eq!(rig.settle(1, seq, Outcome::Return), []);
    }
    rig.publish_priority(31);
    let received: Vec<Effect> = rig.consume(terms(2));
    let expected = [3, 1, 5, 2].map(|seq| redeliver(2, seq, 0));
    assert_eq!(received[..4], expected);
    assert_eq!(received[4..], [deliver(2, 6), deliver(2, 4)]);
}

#[test]
fn several_runs_that_come_back_together_go_out_in_order() {
    let mut rig = Rig::new(classic());
    rig.publish_many(3);
    rig.consume_prefetch(1, 3);
    rig.consume(terms(2));
    assert_eq!(rig.settle_command(Some(1), 3, 3, Outcome::Return, true), []);
    assert_eq!(rig.settle_command(Some(1), 1, 1, Outcome::Return, true), []);
    assert_eq!(rig.counts(), (2, 1));
    let last = rig.settle_command(Some(1), 2, 2, Outcome::Return, false);
    let seqs: Vec<u64> = last.iter().map(seq_of).collect();
    assert_eq!(seqs, [1, 2, 3]);
}

#[test]
fn what_a_settlement_held_back_is_done_by_any_next_command() {
    let mut rig = Rig::new(classic());
    rig.publish();
    rig.consume_prefetch(1, 1);
    rig.settle_command(Some(1), 1, 1, Outcome::Return, true);
    assert_eq!(rig.apply(Command::Touch), [redeliver(1, 1, 0)]);
}

#[test]
fn higher_priorities_leave_first_and_are_capped_at_the_maximum() {
    let mut rig = Rig::new(Settings { max_priority: Some(5), ..classic() });
    for priority in [0, 5, 3, 9, 5] {
        rig.publish_priority(priority);
    }
    rig.publish();
    assert_eq!(rig.order(), [2, 4, 5, 3, 1, 6]);
}

#[test]
fn priorities_mean_nothing_without_a_maximum() {
    let mut rig = Rig::new(classic());
    for priority in [0, 5, 3] {
        rig.publish_priority(priority);
    }
    assert_eq!(rig.order(), [1, 2, 3]);
}

#[test]
fn a_quorum_queue_has_32_levels_and_4_is_the_default() {
    let mut rig = Rig::new(quorum());
    for priority in [3, 200, 31, 5] {
        rig.publish_priority(priority);
    }
    rig.publish();
    let effects = rig.consume(terms(1));
    assert_eq!(effects.iter().map(seq_of).collect::<Vec<_>>(), [2, 3, 4, 5, 1]);
}

#[test]
fn equal_consumers_take_turns() {
    let mut rig = Rig::new(classic());
    for consumer in 1..=3 {
        rig.consume(terms(consumer));
    }
    for seq in 1..=9 {
        assert_eq!(rig.publish(), [deliver((seq - 1) % 3 + 1, seq)]);
    }
}

#[test]
fn a_prefetch_limits_what_is_held_and_zero_does_not() {
    let mut rig = Rig::new(classic());
    rig.consume_prefetch(1, 2);
    rig.publish_many(3);
    assert_eq!(rig.counts(), (1, 2));
    assert_eq!(rig.settle(1, 2, Outcome::Accept), [release(2, 2), deliver(1, 3)]);
    rig.publish_many(100);
    assert_eq!(rig.counts(), (100, 2));
    rig.consume_prefetch(2, 0);
    assert_eq!(rig.counts(), (0, 102));
}

#[test]
fn a_consumer_without_acknowledgement_holds_nothing_and_needs_no_credit() {
    let mut rig = Rig::new(classic());
    rig.publish_many(2);
    let eager = Subscription { no_ack: true, prefetch: 1, granted: true, ..terms(1) };
    assert_eq!(rig.consume(eager), [deliver(1, 1), deliver(1, 2), release(1, 2)]);
    assert_eq!(rig.publish(), [deliver(1, 3), release(3, 3)]);
    assert_eq!(rig.counts(), (0, 0));
}

#[test]
fn releases_of_one_buffer_are_joined_across_commands() {
    let mut rig = Rig::new(classic());
    rig.consume(Subscription { no_ack: true, ..terms(1) });
    let mut effects = Vec::new();
    for seq in 1..=3 {
        let arrival = Arrival { seq: Seq(seq), bytes: 0, priority: None, ttl: None };
        rig.queue.apply(Timestamp(1_000), Command::Enqueue(arrival), &mut effects);
    }
    assert_eq!(effects, [deliver(1, 1), deliver(1, 2), deliver(1, 3), release(1, 3)]);
}

// Flow

#[test]
fn a_full_window_pauses_a_consumer_until_deliveries_have_left() {
    let mut rig = Rig::new(classic());
    let weight = u64::from(10 + Subscription::DELIVERY_OVERHEAD);
    let window_bytes = u32::try_from(weight * 2).unwrap();
    rig.consume(Subscription { window_bytes, no_ack: true, ..terms(1) });
    rig.publish_many(4);
    assert_eq!(rig.counts(), (2, 0));
    let sent = Command::Sent { consumer: ConsumerId(1), messages: 1, bytes: 10 };
    assert_eq!(rig.apply(sent.clone()), [deliver(1, 3), release(3, 3)]);
    rig.publish();
    assert_eq!(rig.apply(sent), [deliver(1, 4), release(4, 4)]);
}

#[test]
fn bodies_without_bytes_fill_the_window_too() {
    let mut rig = Rig::new(classic());
    rig.consume(Subscription { window_bytes: 1_000, ..terms(1) });
    for _ in 0..100 {
        rig.publish_with(0, None, None);
    }
    assert_eq!(rig.counts(), (84, 16));
}

#[test]
fn more_sent_than_delivered_is_no_credit() {
    let mut rig = Rig::new(classic());
    rig.consume(Subscription { window_bytes: 1, ..terms(1) });
    let sent = Command::Sent { consumer: ConsumerId(1), messages: u32::MAX, bytes: u64::MAX };
    rig.apply(sent);
    rig.publish_many(2);
    assert_eq!(rig.counts(), (1, 1));
}

#[test]
fn a_granted_consumer_is_told_once_and_gets_what_it_grants() {
    let mut rig = Rig::new(classic());
    rig.consume(Subscription { granted: true, ..terms(1) });
    let demand = Effect::Demand { consumer: ConsumerId(1) };
    assert_eq!(rig.publish(), [demand]);
    assert_eq!(rig.publish(), []);
    assert_eq!(rig.publish(), []);
    assert_eq!(rig.grant(1, 2), [deliver(1, 1), deliver(1, 2), demand]);
    let unused = Effect::GrantUnused { consumer: ConsumerId(1), count: 4 };
    assert_eq!(rig.grant(1, 5), [deliver(1, 3), unused]);
    assert_eq!(rig.publish(), [demand]);
    assert_eq!(rig.counts(), (1, 3));
}

#[test]
fn a_consumer_that_is_limited_later_keeps_what_it_holds_and_then_needs_grants() {
    let mut rig = Rig::new(classic());
    rig.consume(terms(1));
    rig.publish_many(2);
    let limit = |consumer| Command::Limit { consumer: ConsumerId(consumer) };
    assert_eq!(rig.apply(limit(1)), []);
    assert_eq!(rig.counts(), (0, 2));
    let demand = Effect::Demand { consumer: ConsumerId(1) };
    assert_eq!(rig.publish(), [demand]);
    assert_eq!(rig.apply(limit(1)), [], "once is enough");
    assert_eq!(rig.settle(1, 1, Outcome::Accept), [release(1, 1)]);
    assert_eq!(rig.grant(1, 1), [deliver(1, 3)]);
    // One that waits at its own limit asks at once.
    rig.cancel(1);
    rig.publish_many(2);
    rig.consume_prefetch(2, 1);
    assert_eq!(rig.apply(limit(2)), [Effect::Demand { consumer: ConsumerId(2) }]);
    // Nobody, one that has ended, one that settles nothing: no matter.
    rig.cancel(2);
    rig.consume(Subscription { no_ack: true, ..terms(3) });
    for consumer in [1, 2, 3, 9] {
        assert_eq!(rig.apply(limit(consumer)), []);
    }
    assert_eq!(rig.publish(), [deliver(3, 6), release(6, 6)]);
}

#[test]
fn a_grant_for_nobody_comes_back() {
    let mut rig = Rig::new(classic());
    rig.publish();
    let unused = |count| [Effect::GrantUnused { consumer: ConsumerId(1), count }];
    assert_eq!(rig.grant(1, 3), unused(3));
    rig.consume(Subscription { granted: true, ..terms(1) });
    rig.grant(1, 1);
    rig.cancel(1);
    rig.publish();
    assert_eq!(rig.grant(1, 2), unused(2));
}

#[test]
fn of_two_granted_consumers_each_hears_of_waiting_messages() {
    let mut rig = Rig::new(classic());
    rig.consume(Subscription { granted: true, ..terms(1) });
    rig.publish();
    let demand = |consumer| Effect::Demand { consumer: ConsumerId(consumer) };
    assert_eq!(rig.consume(Subscription { granted: true, ..terms(2) }), [demand(2)]);
}

// Settling

#[test]
fn a_flag_and_a_count_tell_of_earlier_deliveries() {
    let mut rig = Rig::new(Settings { delivery_limit: Some(20), ..classic() });
    rig.publish();
    rig.consume_prefetch(1, 1);
    assert_eq!(rig.settle(1, 1, Outcome::Return), [redeliver(1, 1, 0)]);
    assert_eq!(rig.settle(1, 1, Outcome::Retry), [noted(1), redeliver(1, 1, 1)]);
    rig.consume(terms(2));
    assert_eq!(rig.gone(1), [noted(1), redeliver(2, 1, 2)]);
    let head = rig.queue.head(Seq(1)).unwrap();
    assert!(head.delivered && head.delivery_count == 2);
}

#[test]
fn discarded_messages_are_released_or_dead_lettered() {
    for dead_letter in [false, true] {
        let mut rig = Rig::new(Settings { dead_letter, ..classic() });
        rig.publish_many(2);
        rig.consume(terms(1));
        let gone = if dead_letter {
            vec![dead(1, Reason::Rejected), dead(2, Reason::Rejected)]
        } else {
            vec![release(1, 2)]
        };
        assert_eq!(rig.settle_run(1, 1, 2, Outcome::Discard), gone);
        assert_eq!(rig.counts(), (0, 0));
    }
}

#[test]
fn only_the_holder_settles() {
    let mut rig = Rig::new(classic());
    rig.publish_many(2);
    rig.consume_prefetch(1, 1);
    rig.consume_prefetch(2, 1);
    assert_eq!(rig.settle_run(1, 2, 2, Outcome::Accept), []);
    assert_eq!(rig.settle_run(3, 1, 2, Outcome::Accept), []);
    assert_eq!(rig.settle_command(None, 1, 2, Outcome::Accept, false), []);
    assert_eq!(rig.counts(), (0, 2));
    assert_eq!(rig.settle_run(1, 0, u64::MAX, Outcome::Accept), [release(1, 1)]);
    assert_eq!(rig.settle(1, 1, Outcome::Return), [], "settling twice does nothing");
}

#[test]
fn a_message_that_fails_more_often_than_allowed_is_gone() {
    for (settings, outcome) in [(classic(), Outcome::Retry), (quorum(), Outcome::Lost)] {
        let limited = Settings { delivery_limit: Some(2), dead_letter: true, ..settings };
        let mut rig = Rig::new(limited);
        rig.publish();
        rig.consume_prefetch(1, 1);
        for _ in 0..5 {
            assert_eq!(rig.settle(1, 1, Outcome::Return), [redeliver(1, 1, 0)]);
        }
        assert_eq!(unnoted(rig.settle(1, 1, outcome)), [redeliver(1, 1, 1)]);
        assert_eq!(unnoted(rig.settle(1, 1, outcome)), [redeliver(1, 1, 2)]);
        assert_eq!(rig.settle(1, 1, outcome), [dead(1, Reason::DeliveryLimit)]);
        assert_eq!(rig.counts(), (0, 0));
    }
}

#[test]
fn without_a_delivery_limit_nothing_is_noted() {
    let mut rig = Rig::new(classic());
    rig.publish();
    rig.consume(terms(1));
    assert_eq!(rig.settle(1, 1, Outcome::Retry), [redeliver(1, 1, 1)]);
}

#[test]
fn a_delivery_limit_of_zero_allows_one_delivery() {
    let mut rig = Rig::new(Settings { delivery_limit: Some(0), ..classic() });
    rig.publish();
    rig.consume(terms(1));
    assert_eq!(rig.settle(1, 1, Outcome::Retry), [release(1, 1)]);
}

#[test]
fn what_a_cancelled_consumer_holds_stays_unsettled_and_can_be_settled() {
    let mut rig = Rig::new(classic());
    rig.publish_many(3);
    rig.consume(terms(1));
    rig.cancel(1);
    assert_eq!(rig.queue.consumers(), 0);
    assert_eq!(rig.counts(), (0, 3));
    assert_eq!(rig.publish(), []);
    assert_eq!(rig.settle_run(1, 1, 2, Outcome::Accept), [release(1, 2)]);
    assert_eq!(rig.settle(1, 3, Outcome::Return), []);
    assert_eq!(rig.counts(), (2, 0));
    assert_eq!(rig.queue.held_by(ConsumerId(1)), 0);
}

#[test]
fn cancelling_twice_or_nobody_is_fine() {
    let mut rig = Rig::new(Settings { auto_delete: true, ..classic() });
    rig.publish();
    rig.consume(terms(1));
    assert_eq!(rig.cancel(9), []);
    assert_eq!(rig.cancel(1), [Effect::LastConsumerGone]);
    assert_eq!(rig.cancel(1), []);
    assert_eq!(rig.counts(), (0, 1));
    assert_eq!(rig.gone(1), []);
    assert_eq!(rig.counts(), (1, 0), "its messages can still come back");
    assert_eq!(rig.gone(1), []);
}

// Getting

#[test]
fn get_takes_one_and_tells_what_remains() {
    let mut rig = Rig::new(classic());
    assert_eq!(rig.get(), Reply::Empty);
    rig.publish_many(2);
    let got = |seq, redelivered, remaining| Reply::Got {
        seq: Seq(seq),
        redelivered,
        delivery_count: 0,
        remaining,
    };
    assert_eq!(rig.get(), got(1, false, 1));
    assert_eq!(rig.counts(), (1, 1));
    rig.settle_command(None, 1, 1, Outcome::Return, false);
    assert_eq!(rig.get(), got(1, true, 1));
    assert_eq!(rig.settle_command(None, 1, 1, Outcome::Accept, false), [release(1, 1)]);
    assert_eq!(rig.apply(Command::Get { no_ack: true }), [release(2, 2)]);
    assert_eq!(rig.reply, got(2, false, 0));
    assert_eq!(rig.counts(), (0, 0));
}

#[test]
fn get_is_refused_with_a_single_active_consumer_of_a_quorum_queue() {
    let mut rig = Rig::new(Settings { single_active_consumer: true, ..quorum() });
    rig.publish();
    assert_eq!(rig.get(), Reply::SingleActive);
    assert_eq!(rig.counts(), (1, 0));
    let mut rig = Rig::new(Settings { single_active_consumer: true, ..classic() });
    rig.publish();
    assert_eq!(
        rig.get(),
        Reply::Got { seq: Seq(1), redelivered: false, delivery_count: 0, remaining: 0 }
    );
}

// Waiting too long

#[test]
fn a_message_expires_at_the_sooner_of_both_limits() {
    let ttl = |ms| Settings { message_ttl: Some(Millis(ms)), ..classic() };
    for (settings, own, at) in [
        (ttl(100), Some(50), 1_050),
        (ttl(100), Some(500), 1_100),
        (ttl(100), None, 1_100),
        (classic(), Some(70), 1_070),
    ] {
        let mut rig = Rig::new(settings);
        rig.publish_with(10, None, own);
        assert_eq!(rig.queue.next_deadline(), Some(Timestamp(at)));
        rig.now = at - 1;
        assert_eq!(rig.tick(), []);
        rig.now = at;
        assert_eq!(rig.tick(), [release(1, 1)]);
        assert_eq!(rig.queue.next_deadline(), None);
    }
}

#[test]
fn expiry_dead_letters_in_order() {
    let mut rig =
        Rig::new(Settings { message_ttl: Some(Millis(5)), dead_letter: true, ..classic() });
    rig.publish_many(3);
    assert_eq!(rig.pass(5), [1, 2, 3].map(|seq| dead(seq, Reason::Expired)));
}

#[test]
fn without_time_to_wait_a_message_is_delivered_at_once_or_expires() {
    let mut rig = Rig::new(Settings { dead_letter: true, ..classic() });
    assert_eq!(rig.publish_ttl(0), [dead(1, Reason::Expired)]);
    assert_eq!(rig.reply, Reply::Enqueued);
    rig.consume_prefetch(1, 1);
    assert_eq!(rig.publish_ttl(0), [deliver(1, 2)]);
    assert_eq!(rig.publish_ttl(0), [dead(3, Reason::Expired)]);
}

#[test]
fn a_returned_message_keeps_its_deadline() {
    let mut rig = Rig::new(classic());
    rig.publish_ttl(100);
    rig.consume(terms(1));
    rig.now += 60;
    rig.cancel(1);
    rig.settle(1, 1, Outcome::Return);
    assert_eq!(rig.queue.next_deadline(), Some(Timestamp(1_100)));
    rig.consume(terms(2));
    rig.now += 100;
    rig.cancel(2);
    assert_eq!(rig.settle(2, 1, Outcome::Return), [release(1, 1)], "held past its deadline");
}

#[test]
fn an_expired_message_is_never_delivered_even_if_no_tick_came() {
    let mut rig = Rig::new(classic());
    rig.publish_ttl(10);
    rig.publish();
    rig.now += 10;
    assert_eq!(rig.consume(terms(1)), [release(1, 1), deliver(1, 2)]);
}

#[test]
fn a_changed_time_to_live_does_not_touch_what_is_here() {
    let mut rig = Rig::new(classic());
    rig.publish();
    rig.configure(Settings { message_ttl: Some(Millis(1)), ..classic() });
    assert_eq!(rig.pass(1_000), []);
    rig.configure(classic());
    rig.publish();
    assert_eq!(rig.pass(1_000), []);
    assert_eq!(rig.counts(), (2, 0));
}

// Too many

#[test]
fn the_oldest_goes_when_there_are_too_many() {
    let limited = Settings { max_length: Some(2), dead_letter: true, ..classic() };
    let mut rig = Rig::new(limited);
    rig.publish_many(2);
    assert_eq!(rig.publish(), [dead(1, Reason::MaxLen)]);
    assert_eq!(rig.reply, Reply::Enqueued);
    assert_eq!(rig.order(), [2, 3]);
}

#[test]
fn the_oldest_of_the_lowest_priority_goes_first() {
    let mut rig = Rig::new(Settings { max_length: Some(2), max_priority: Some(9), ..classic() });
    rig.publish_priority(1);
    rig.publish_priority(5);
    assert_eq!(rig.publish_priority(5), [release(1, 1)]);
    assert_eq!(rig.publish_priority(0), [release(4, 4)], "the arrival itself is the lowest");
    assert_eq!(rig.publish_priority(7), [release(2, 2)]);
    assert_eq!(rig.order(), [5, 3]);
}

#[test]
fn bytes_count_bodies_of_ready_messages_only() {
    let mut rig = Rig::new(Settings { max_length_bytes: Some(25), ..classic() });
    rig.publish_many(2);
    rig.consume_prefetch(1, 2);
    rig.publish_many(2);
    assert_eq!(rig.counts(), (2, 2));
    assert_eq!((rig.queue.ready_bytes(), rig.queue.unsettled_bytes()), (20, 20));
    assert_eq!(rig.publish(), [release(3, 3)]);
    assert_eq!(rig.publish_with(26, None, None), [release(4, 6)], "larger than all room");
}

#[test]
fn a_full_queue_refuses_publishes_if_told_so() {
    let mut rig = Rig::new(Settings {
        max_length: Some(1),
        overflow: Overflow::RejectPublish,
        dead_letter: true,
        ..classic()
    });
    rig.publish();
    assert_eq!(rig.publish(), []);
    assert_eq!(rig.reply, Reply::Rejected);
    assert_eq!(rig.order(), [1]);
    rig.get();
    rig.publish();
    assert_eq!(rig.reply, Reply::Enqueued);
    rig.settle_command(None, 1, 1, Outcome::Return, false);
    assert_eq!(rig.counts(), (2, 0), "what comes back is never refused or dropped");
}

#[test]
fn a_refused_publish_can_be_dead_lettered() {
    let mut rig = Rig::new(Settings {
        max_length_bytes: Some(10),
        overflow: Overflow::RejectPublishDlx,
        dead_letter: true,
        ..classic()
    });
    rig.publish();
    assert_eq!(rig.publish(), [dead(2, Reason::MaxLen)]);
    assert_eq!(rig.reply, Reply::Rejected);
    rig.configure(Settings { dead_letter: false, ..rig.queue.settings().clone() });
    assert_eq!(rig.publish(), []);
    assert_eq!(rig.reply, Reply::Rejected);
}

#[test]
fn a_quorum_queue_drops_the_oldest_instead() {
    let mut rig = Rig::new(Settings {
        max_length: Some(1),
        overflow: Overflow::RejectPublishDlx,
        dead_letter: true,
        ..quorum()
    });
    rig.publish();
    assert_eq!(rig.publish(), [dead(1, Reason::MaxLen)]);
    assert_eq!(rig.reply, Reply::Enqueued);
}

#[test]
fn a_message_that_can_be_delivered_at_once_needs_no_room() {
    let mut rig = Rig::new(Settings { max_length: Some(0), ..classic() });
    assert_eq!(rig.publish(), [release(1, 1)]);
    rig.consume_prefetch(1, 1);
    assert_eq!(rig.publish(), [deliver(1, 2)]);
    assert_eq!(rig.publish(), [release(3, 3)]);
}

#[test]
fn a_lowered_limit_applies_at_once() {
    let mut rig = Rig::new(classic());
    rig.publish_many(5);
    assert_eq!(rig.configure(Settings { max_length: Some(2), ..classic() }), [release(1, 3)]);
}

#[test]
fn when_messages_come_back_to_a_full_queue_the_oldest_go() {
    let limited = |settings| Settings { max_length: Some(1), ..settings };
    let mut rig = Rig::new(limited(classic()));
    rig.consume_prefetch(1, 1);
    rig.publish_many(2);
    assert_eq!(rig.settle(1, 1, Outcome::Return), [release(1, 1), deliver(1, 2)]);

    let mut rig = Rig::new(limited(quorum()));
    rig.consume_prefetch(1, 1);
    rig.publish_many(2);
    assert_eq!(rig.settle(1, 1, Outcome::Return), [redeliver(1, 1, 0)], "delivered first");
    assert_eq!(rig.counts(), (1, 1));
}

// Exclusive and single consumers

#[test]
fn an_exclusive_consumer_is_alone() {
    let exclusive = |consumer| Subscription { exclusive: true, ..terms(consumer) };
    let mut rig = Rig::new(classic());
    rig.consume(terms(1));
    rig.consume(exclusive(2));
    assert_eq!(rig.reply, Reply::ExclusiveUse);
    rig.cancel(1);
    rig.consume(exclusive(2));
    assert_eq!(rig.reply, Reply::Done);
    for refused in [terms(3), exclusive(4)] {
        rig.consume(refused);
        assert_eq!(rig.reply, Reply::ExclusiveUse);
    }
    assert_eq!(rig.publish(), [deliver(2, 1)]);
    rig.cancel(2);
    rig.consume(terms(3));
    assert_eq!(rig.reply, Reply::Done, "what it still holds excludes nobody");
}

#[test]
fn exclusive_and_single_active_exclude_each_other() {
    let mut rig = Rig::new(Settings { single_active_consumer: true, ..classic() });
    rig.consume(Subscription { exclusive: true, ..terms(1) });
    assert_eq!(rig.reply, Reply::ExclusiveUse);
}

#[test]
fn the_single_active_consumer_is_the_first_of_a_classic_queue() {
    let mut rig = Rig::new(Settings { single_active_consumer: true, ..classic() });
    assert_eq!(rig.consume_prefetch(1, 1), [active(Some(1))]);
    assert_eq!(rig.consume(Subscription { priority: 9, ..terms(2) }), []);
    assert_eq!(rig.consume(terms(3)), []);
    assert_eq!(rig.publish(), [deliver(1, 1)]);
    assert_eq!(rig.publish(), [], "the others only wait");
    assert_eq!(rig.cancel(2), []);
    assert_eq!(rig.cancel(1), [active(Some(3)), deliver(3, 2)]);
    assert_eq!(rig.cancel(3), [active(None)]);
    assert_eq!(rig.queue.active(), None);
}

#[test]
fn in_a_quorum_queue_a_better_consumer_takes_over_when_the_active_one_is_done() {
    let mut rig = Rig::new(Settings { single_active_consumer: true, ..quorum() });
    rig.publish_many(2);
    assert_eq!(rig.consume_prefetch(1, 1), [active(Some(1)), deliver(1, 1)]);
    assert_eq!(rig.consume(Subscription { priority: 1, ..terms(2) }), []);
    assert_eq!(rig.publish(), []);
    let taken_over = [release(1, 1), active(Some(2)), deliver(2, 2), deliver(2, 3)];
    assert_eq!(rig.settle(1, 1, Outcome::Accept), taken_over);
    let idle = Subscription { priority: 2, ..terms(3) };
    rig.settle_run(2, 2, 3, Outcome::Accept);
    assert_eq!(rig.consume(idle), [active(Some(3))]);
}

#[test]
fn a_better_consumer_that_leaves_again_takes_nothing_over() {
    let mut rig = Rig::new(Settings { single_active_consumer: true, ..quorum() });
    rig.publish_many(2);
    rig.consume_prefetch(1, 1);
    rig.consume(Subscription { priority: 1, ..terms(2) });
    assert_eq!(rig.cancel(2), []);
    assert_eq!(rig.settle(1, 1, Outcome::Accept), [release(1, 1), deliver(1, 2)]);
}

// Holding too long

#[test]
fn a_consumer_that_holds_for_too_long_loses_it_and_gets_no_more() {
    for (settings, count) in [(classic(), 1), (quorum(), 0)] {
        let limit = Settings { consumer_timeout: Some(Millis(100)), ..settings };
        let mut rig = Rig::new(limit);
        rig.consume(terms(1));
        rig.publish_many(2);
        let timed_out = Effect::TimedOut { consumer: ConsumerId(1), returned: 2 };
        let effects = rig.pass(100);
        assert_eq!(effects[0], timed_out);
        assert_eq!(rig.counts(), (2, 0));
        assert_eq!(rig.publish(), []);
        assert_eq!(rig.settle(1, 1, Outcome::Accept), [], "it is not its message any more");
        let again = rig.settle(1, 2, Outcome::Accept);
        assert_eq!(again, [redeliver(1, 1, count), redeliver(1, 2, count), deliver(1, 3)]);
    }
}

#[test]
fn a_subscriptions_own_timeout_takes_precedence() {
    let mut rig = Rig::new(Settings { consumer_timeout: Some(Millis(100)), ..classic() });
    rig.consume(Subscription { timeout: Some(Millis(500)), ..terms(1) });
    rig.publish();
    assert_eq!(rig.pass(499), []);
    assert!(matches!(rig.pass(1)[..], [Effect::TimedOut { returned: 1, .. }, ..]));
}

#[test]
fn a_consumer_that_settles_in_time_never_times_out() {
    let mut rig = Rig::new(Settings { consumer_timeout: Some(Millis(100)), ..classic() });
    rig.consume(terms(1));
    rig.publish();
    for seq in 2..20 {
        assert_eq!(rig.pass(60), []);
        rig.publish();
        rig.settle(1, seq - 1, Outcome::Accept);
    }
}

#[test]
fn messages_of_a_cancelled_consumer_time_out_too() {
    let mut rig = Rig::new(Settings { consumer_timeout: Some(Millis(100)), ..classic() });
    rig.consume(terms(1));
    rig.publish();
    rig.cancel(1);
    assert!(matches!(rig.pass(100)[..], [Effect::TimedOut { returned: 1, .. }, ..]));
    assert_eq!(rig.counts(), (1, 0));
    assert_eq!(rig.queue.held_by(ConsumerId(1)), 0);
}

#[test]
fn a_timeout_that_is_set_later_counts_from_the_delivery() {
    let mut rig = Rig::new(classic());
    rig.consume(terms(1));
    rig.publish();
    rig.now += 90;
    rig.configure(Settings { consumer_timeout: Some(Millis(100)), ..classic() });
    assert_eq!(rig.queue.next_deadline(), Some(Timestamp(1_100)));
}

// The queue as a whole

#[test]
fn an_idle_queue_expires() {
    let mut rig = Rig::new(Settings { expires: Some(Millis(100)), ..classic() });
    rig.publish();
    rig.now += 50;
    rig.get();
    rig.now += 50;
    rig.apply(Command::Touch);
    assert_eq!(rig.queue.next_deadline(), Some(Timestamp(1_200)));
    rig.consume(terms(1));
    assert_eq!(rig.queue.next_deadline(), None);
    rig.now += 500;
    rig.cancel(1);
    assert_eq!(rig.pass(99), []);
    assert_eq!(rig.pass(1), [Effect::Expired]);
    assert_eq!(rig.pass(10_000), [], "it says so once");
}

#[test]
fn an_auto_delete_queue_goes_with_its_last_consumer() {
    let mut rig = Rig::new(Settings { auto_delete: true, ..classic() });
    rig.publish();
    rig.get();
    assert_eq!(rig.tick(), [], "never if it never had one");
    rig.consume(terms(1));
    rig.consume(terms(2));
    assert_eq!(rig.cancel(1), []);
    assert_eq!(rig.cancel(2), [Effect::LastConsumerGone]);
}

#[test]
fn purge_removes_what_is_ready_and_only_that() {
    let mut rig = Rig::new(Settings { dead_letter: true, ..classic() });
    rig.publish_many(5);
    rig.consume_prefetch(1, 2);
    rig.cancel(1);
    rig.settle(1, 1, Outcome::Return);
    assert_eq!(rig.apply(Command::Purge), [release(1, 1), release(3, 5)]);
    assert_eq!(rig.reply, Reply::Count(4));
    assert_eq!(rig.counts(), (0, 1));
    assert_eq!(rig.apply(Command::Purge), []);
    assert_eq!(rig.reply, Reply::Count(0));
}

#[test]
fn delete_tells_which_condition_failed() {
    let mut rig = Rig::new(classic());
    let delete = |if_unused, if_empty| Command::Delete { if_unused, if_empty };
    rig.consume_prefetch(1, 1);
    rig.publish_many(3);
    assert_eq!(rig.apply(delete(true, false)), []);
    assert_eq!(rig.reply, Reply::InUse);
    rig.apply(delete(false, true));
    assert_eq!(rig.reply, Reply::NotEmpty);
    rig.apply(delete(true, true));
    assert_eq!(rig.reply, Reply::NotEmpty);
    let cancelled = Effect::ConsumerCancelled { consumer: ConsumerId(1) };
    assert_eq!(rig.apply(delete(false, false)), [cancelled]);
    assert_eq!(rig.reply, Reply::Count(2));
    assert_eq!(rig.counts(), (0, 0));
    assert_eq!(rig.queue.consumers(), 0);
}

#[test]
fn unsettled_messages_and_cancelled_consumers_do_not_prevent_deletion() {
    let mut rig = Rig::new(classic());
    rig.publish();
    rig.consume(terms(1));
    rig.cancel(1);
    assert_eq!(rig.apply(Command::Delete { if_unused: true, if_empty: true }), []);
    assert_eq!(rig.reply, Reply::Count(0));
    assert_eq!(rig.settle(1, 1, Outcome::Return), [], "late settlements find nothing");
    assert_eq!(rig.counts(), (0, 0));
}

#[test]
fn heads_bring_everything_back_after_a_restart() {
    let mut rig = Rig::new(Settings { max_priority: Some(9), ..classic() });
    rig.publish_priority(3);
    rig.publish_priority(9);
    rig.publish_ttl(50);
    rig.publish_priority(3);
    rig.get();
    rig.settle_command(None, 2, 2, Outcome::Retry, false);
    rig.get();
    rig.restart();
    assert_eq!(rig.counts(), (4, 0));
    assert_eq!(rig.queue.ready_bytes(), 40);
    assert_eq!(rig.queue.next_deadline(), Some(Timestamp(1_050)));
    let all = [redeliver(1, 2, 1), deliver(1, 1), deliver(1, 4), deliver(1, 3)];
    assert_eq!(rig.consume(terms(1)), all);
}

#[test]
fn a_restored_message_may_be_flagged_whatever_its_head_says() {
    let mut queue = Queue::restore(classic(), Timestamp(0));
    let arrival = Arrival { seq: Seq(7), bytes: 1, priority: None, ttl: None };
    let head = queue.arrival_head(Timestamp(0), &arrival).encode();
    queue.restore_message(Seq(7), &head, true).unwrap();
    assert!(queue.restore_message(Seq(8), &head[..19], true).is_err());
    let mut effects = Vec::new();
    queue.apply(Timestamp(0), Command::Consume(terms(1)), &mut effects);
    assert_eq!(effects, [redeliver(1, 7, 0)]);
    assert_eq!(queue.highest_delivered(), Some(Seq(7)));
}

#[test]
fn a_name_that_comes_twice_changes_nothing() {
    let mut rig = Rig::new(classic());
    rig.publish_many(2);
    let again = Arrival { seq: Seq(1), bytes: 0, priority: None, ttl: None };
    assert_eq!(rig.apply(Command::Enqueue(again)), []);
    assert_eq!((rig.reply, rig.counts()), (Reply::Repeated, (2, 0)));
    let head = rig.queue.arrival_head(Timestamp(0), &again).encode();
    assert!(rig.queue.restore_message(Seq(2), &head, false).is_err());
}

#[test]
fn what_a_consumer_holds_is_told_in_the_order_of_delivery() {
    let mut rig = Rig::new(Settings { delivery_limit: Some(9), ..quorum() });
    rig.publish_many(4);
    rig.consume_prefetch(1, 3);
    rig.settle(1, 2, Outcome::Lost);
    let held = |rig: &Rig, consumer| {
        let holdings = rig.queue.holdings(ConsumerId(consumer));
        holdings.map(|held| (held.seq.0, held.redelivered, held.delivery_count)).collect::<Vec<_>>()
    };
    let all = [(1, false, 0), (3, false, 0), (2, true, 1)];
    assert_eq!(held(&rig, 1), all);
    rig.cancel(1);
    assert_eq!(held(&rig, 1), all);
    assert_eq!(held(&rig, 2), []);
}

#[test]
fn settings_can_turn_single_active_on_and_off() {
    let mut rig = Rig::new(classic());
    rig.consume(terms(1));
    rig.consume(terms(2));
    let single = Settings { single_active_consumer: true, ..classic() };
    assert_eq!(rig.configure(single), [active(Some(1))]);
    rig.publish_many(3);
    assert_eq!(rig.queue.held_by(ConsumerId(1)), 3);
    assert_eq!(rig.configure(classic()), []);
    rig.publish_many(2);
    assert_eq!(rig.queue.held_by(ConsumerId(2)), 1);
}

fn seq_of(effect: &Effect) -> u64 {
    match effect {
        Effect::Deliver { seq, .. } => seq.0,
        other => panic!("not a delivery: {other:?}"),
    }
}
