//! When queues are looked at.

use std::collections::BTreeMap;

use membership::observed::Label;
use membership::plan::Plan;
use membership::refusal::{self, Refusal};
use membership::scheduler::{Event, Order, Outcome, PATIENCE, Scheduler, Timing};
use membership::step::{Action, Kind, Reason, Step};
use model::id::{NodeId, QueueId};
use model::time::{Millis, Timestamp};

const INTERVAL: u64 = 3_600_000;
const TRIGGER: u64 = 10_000;

const TIMING: Timing = Timing {
    enabled: true,
    interval: Millis(INTERVAL),
    trigger_interval: Millis(TRIGGER),
    concurrency: 2,
};

/// A scheduler with its clock.
struct Bench {
    scheduler: Scheduler,
    now: u64,
}

impl Bench {
    fn new(timing: Timing) -> Self {
        Self { scheduler: Scheduler::new(Timestamp(0), timing, 0), now: 0 }
    }

    /// One that leads these queues, and has looked at them.
    fn calm(queues: u64) -> Self {
        let mut bench = Self::new(TIMING);
        for queue in 0..queues {
            bench.on(Event::Led(QueueId(queue)));
        }
        bench.wait();
        assert_eq!(bench.look(&settled()), (0..queues).collect::<Vec<_>>());
        bench
    }

    fn on(&mut self, event: Event) {
        self.scheduler.on(Timestamp(self.now), event, 0);
    }

    fn order(&mut self) -> Option<Order> {
        self.scheduler.order(Timestamp(self.now))
    }

    /// Waits for the deadline.
    fn wait(&mut self) {
        self.now = self.scheduler.deadline().expect("there is something to come").0;
    }

    /// Looks at everything that is due; each has this plan.
    fn look(&mut self, plan: &Plan) -> Vec<u64> {
        let mut looked = Vec::new();
        while let Some(order) = self.order() {
            let Order::Examine(queue) = order else { panic!("{order:?}") };
            looked.push(queue.0);
            self.on(Event::Examined(queue, Box::new(plan.clone())));
        }
        looked
    }

    fn examine(&mut self, plan: &Plan) -> Option<u64> {
        let Some(Order::Examine(queue)) = self.order() else { return None };
        self.on(Event::Examined(queue, Box::new(plan.clone())));
        Some(queue.0)
    }

    fn perform(&mut self) -> Option<(u64, Step)> {
        match self.order()? {
            Order::Perform(queue, step) => Some((queue.0, step)),
            order @ Order::Examine(_) => panic!("{order:?}"),
        }
    }

    fn finish(&mut self, queue: u64, outcome: Outcome) {
        self.on(Event::Finished { queue: QueueId(queue), step: step(), outcome });
    }
}

fn step() -> Step {
    let node = Label { id: NodeId(7), name: None };
    Step { action: Action::Add { node }, reason: Reason::BelowTarget { size: 2, target: 3 } }
}

fn settled() -> Plan {
    Plan { size: 3, voters: 3, target: 3, step: None, refusals: Vec::new() }
}

fn lacking() -> Plan {
    Plan { size: 2, voters: 2, target: 3, step: Some(step()), refusals: Vec::new() }
}

fn stuck(refusal: Refusal) -> Plan {
    Plan { size: 2, voters: 2, target: 3, step: None, refusals: vec![refusal] }
}

#[test]
fn the_first_pass_comes_after_the_interval_and_so_does_the_next() {
    let mut bench = Bench::new(TIMING);
    assert_eq!(bench.scheduler.deadline(), Some(Timestamp(INTERVAL)));
    let mut bench_with = Bench::calm(3);
    // The queues were looked at when they were gained; the pass is still to come.
    assert_eq!(bench_with.now, TRIGGER);
    bench_with.wait();
    assert_eq!(bench_with.now, INTERVAL);
    assert_eq!(bench_with.look(&settled()), [0, 1, 2]);
    bench_with.wait();
    assert_eq!(bench_with.now, 2 * INTERVAL);
    bench.wait();
    assert_eq!(bench.look(&settled()), [0; 0]);
    assert_eq!(bench.scheduler.counts().passes, 1);
}

#[test]
fn the_interval_is_jittered_by_a_tenth() {
    for (jitter, expected) in [(0, 1000), (100, 1100), (-100, 900), (1000, 1100), (37, 1037)] {
        let mut scheduler = Scheduler::new(Timestamp(0), TIMING, 0);
        let at = scheduler.deadline().expect("a pass is to come");
        scheduler.on(at, Event::Touched(QueueId(1)), jitter);
        assert_eq!(scheduler.order(at), None);
        let next = scheduler.deadline().expect("a pass is to come");
        assert_eq!(next.0 - at.0, INTERVAL / 1000 * expected, "{jitter}");
    }
}

#[test]
fn a_trigger_brings_the_pass_nearer_and_further_ones_put_it_off() {
    let mut bench = Bench::calm(2);
    bench.on(Event::Trigger);
    assert_eq!(bench.scheduler.deadline(), Some(Timestamp(bench.now + TRIGGER)));
    bench.now += TRIGGER - 1;
    bench.on(Event::Trigger);
    // What the first one armed is past, and nothing happens.
    bench.now += 1;
    assert_eq!(bench.order(), None);
    bench.wait();
    assert_eq!(bench.look(&settled()), [0, 1]);
}

#[test]
fn bm_7_a_steady_stream_of_triggers_does_not_put_it_off_for_ever() {
    let mut bench = Bench::calm(1);
    let began = bench.now;
    while bench.order().is_none() {
        bench.on(Event::Trigger);
        bench.now += TRIGGER / 4;
        assert!(bench.now <= began + (PATIENCE + 1) * TRIGGER, "it is never looked at");
    }
    assert_eq!(bench.now, began + PATIENCE * TRIGGER);
}

#[test]
fn bm_10_one_timer_has_one_pass() {
    let mut bench = Bench::calm(1);
    for _ in 0..5 {
        bench.on(Event::Trigger);
    }
    bench.wait();
    assert_eq!(bench.look(&settled()), [0]);
    assert_eq!(bench.scheduler.deadline(), Some(Timestamp(bench.now + INTERVAL)));
}

#[test]
fn a_queue_that_is_gained_or_touched_is_looked_at_alone() {
    let mut bench = Bench::calm(3);
    bench.on(Event::Touched(QueueId(1)));
    bench.on(Event::Touched(QueueId(9)));
    bench.now += TRIGGER / 2;
    // A stream of these does not put it off.
    bench.on(Event::Touched(QueueId(1)));
    bench.now += TRIGGER / 2;
    assert_eq!(bench.look(&settled()), [1]);
    bench.on(Event::Touched(QueueId(2)));
    bench.on(Event::NotLed(QueueId(2)));
    bench.now += TRIGGER;
    assert_eq!(bench.look(&settled()), [0; 0]);
}

#[test]
fn after_a_step_the_queue_is_looked_at_again_soon() {
    let mut bench = Bench::calm(2);
    bench.on(Event::Touched(QueueId(1)));
    bench.wait();
    assert_eq!(bench.examine(&lacking()), Some(1));
    assert_eq!(bench.perform(), Some((1, step())));
    assert_eq!(bench.order(), None);
    bench.now += 700;
    bench.finish(1, Outcome::Done);
    bench.wait();
    assert_eq!(bench.look(&settled()), [1]);
    let counts = bench.scheduler.counts();
    assert_eq!(counts.done, BTreeMap::from([(Kind::Add, 1)]));
    assert_eq!(counts.below_target, 0);
}

#[test]
fn only_so_many_steps_run_at_once() {
    let mut bench = Bench::calm(5);
    bench.on(Event::Now);
    let mut running = Vec::new();
    for _ in 0..TIMING.concurrency {
        bench.examine(&lacking()).expect("there is room");
        running.push(bench.perform().expect("its step").0);
    }
    assert_eq!((bench.order(), &running), (None, &vec![0, 1]), "no room");
    bench.finish(0, Outcome::Done);
    assert_eq!(bench.examine(&settled()), Some(2));
    assert_eq!(bench.examine(&settled()), Some(3));
    assert_eq!(bench.examine(&settled()), Some(4));
    assert_eq!(bench.scheduler.counts().running, 1);
    // The pass has ended although a step still runs.
    assert_eq!(bench.scheduler.counts().passes, 1);
}

#[test]
fn a_queue_whose_step_runs_is_left_alone() {
    let mut bench = Bench::calm(2);
    bench.on(Event::Now);
    bench.examine(&lacking());
    bench.perform();
    bench.on(Event::Now);
    assert_eq!(bench.look(&settled()), [1, 1], "one pass after the other");
    assert_eq!(bench.scheduler.counts().passes, 2);
    bench.finish(0, Outcome::Done);
    bench.now += TRIGGER;
    assert_eq!(bench.look(&settled()), [0]);
}

#[test]
fn bm_15_failures_wait_longer_each_time_and_the_node_is_passed_over() {
    let mut bench = Bench::calm(2);
    bench.on(Event::Touched(QueueId(1)));
    bench.wait();
    assert_eq!(bench.order(), Some(Order::Examine(QueueId(1))));
    let mut waited = Vec::new();
    for _ in 0..14 {
        bench.on(Event::Examined(QueueId(1), Box::new(lacking())));
        bench.perform().expect("its step");
        bench.finish(1, Outcome::Failed);
        let failed = bench.now;
        assert_eq!(bench.scheduler.avoided(Timestamp(failed), QueueId(1)), [NodeId(7)]);
        assert_eq!(bench.scheduler.avoided(Timestamp(failed), QueueId(0)), []);
        // A pass looks at the other one meanwhile.
        bench.on(Event::Trigger);
        loop {
            match bench.order() {
                None => bench.wait(),
                Some(Order::Examine(QueueId(0))) => {
                    bench.on(Event::Examined(QueueId(0), Box::new(settled())));
                }
                Some(order) => {
                    assert_eq!(order, Order::Examine(QueueId(1)));
                    break;
                }
            }
        }
        waited.push(bench.now - failed);
    }
    assert_eq!(waited[..3], [TRIGGER, 2 * TRIGGER, 4 * TRIGGER]);
    assert!(waited.iter().all(|span| *span <= INTERVAL + TRIGGER), "{waited:?}");
    assert_eq!(bench.scheduler.counts().failed, BTreeMap::from([(Kind::Add, 14)]));
}

/// Waits until queue 1 is looked at and its step begins; others are settled. Gives how long that took.
fn begins(bench: &mut Bench) -> u64 {
    let from = bench.now;
    loop {
        match bench.order() {
            None => bench.wait(),
            Some(Order::Examine(queue)) => {
                let plan = if queue.0 == 1 { lacking() } else { settled() };
                bench.on(Event::Examined(queue, Box::new(plan)));
            }
            Some(Order::Perform(queue, _)) => {
                assert_eq!(queue, QueueId(1));
                return bench.now - from;
            }
        }
    }
}

/// One whose last step for queue 1 has failed so often.
fn failed(times: u32) -> Bench {
    let mut bench = Bench::calm(2);
    bench.on(Event::Touched(QueueId(1)));
    for time in 0..times {
        let waited = begins(&mut bench);
        assert_eq!(waited, TRIGGER << time.saturating_sub(1));
        bench.finish(1, Outcome::Failed);
    }
    assert_eq!(bench.scheduler.avoided(Timestamp(bench.now), QueueId(1)), [NodeId(7)]);
    bench
}

#[test]
fn what_was_not_begun_has_not_failed() {
    let mut bench = Bench::calm(2);
    bench.on(Event::Touched(QueueId(1)));
    for _ in 0..5 {
        assert_eq!(begins(&mut bench), TRIGGER, "soon");
        bench.finish(1, Outcome::NotBegun);
        assert_eq!(bench.scheduler.avoided(Timestamp(bench.now), QueueId(1)), []);
    }
    let counts = bench.scheduler.counts();
    assert_eq!((counts.failed, counts.done), (BTreeMap::new(), BTreeMap::new()));
    // Nor does it end what others have failed with.
    let mut bench = failed(4);
    assert_eq!(begins(&mut bench), TRIGGER << 3);
    bench.finish(1, Outcome::NotBegun);
    assert_eq!(begins(&mut bench), TRIGGER);
    bench.finish(1, Outcome::Failed);
    assert_eq!(begins(&mut bench), TRIGGER << 4);
}

#[test]
fn what_failed_is_forgotten_when_its_cause_may_be_gone() {
    for (event, expected) in
        [(Event::Now, 0), (Event::Reloaded(TIMING), TRIGGER), (Event::Up(NodeId(7)), TRIGGER)]
    {
        let mut bench = failed(6);
        bench.now += 1;
        bench.on(event.clone());
        assert_eq!(bench.scheduler.avoided(Timestamp(bench.now), QueueId(1)), [], "{event:?}");
        assert!(begins(&mut bench) <= expected, "{event:?}");
        // If it fails again it is the first time.
        bench.finish(1, Outcome::Failed);
        assert_eq!(begins(&mut bench), TRIGGER, "{event:?}");
    }
}

#[test]
fn a_node_that_is_there_again_ends_only_what_failed_on_it() {
    let mut bench = failed(6);
    bench.on(Event::Up(NodeId(8)));
    assert_eq!(bench.scheduler.avoided(Timestamp(bench.now), QueueId(1)), [NodeId(7)]);
    assert_eq!(begins(&mut bench), TRIGGER << 5);
}

#[test]
fn what_passes_by_itself_is_looked_at_again_soon_and_what_does_not_is_not() {
    for (refusal, soon) in [
        (Refusal::Changing, true),
        (Refusal::Unconfirmed, true),
        (Refusal::LogTooLarge { bytes: 2, limit: 1 }, true),
        (Refusal::NoCandidate { size: 2, target: 3 }, false),
    ] {
        let mut bench = Bench::calm(3);
        bench.on(Event::Touched(QueueId(1)));
        bench.wait();
        let kind = refusal.kind();
        assert_eq!(bench.look(&stuck(refusal)), [1]);
        let counts = bench.scheduler.counts();
        assert_eq!(counts.blocked, BTreeMap::from([(kind, 1)]));
        assert_eq!(counts.below_target, 1);
        bench.now += TRIGGER;
        assert_eq!(bench.look(&settled()), if soon { vec![1] } else { vec![] });
    }
}

#[test]
fn switched_off_it_does_nothing_and_switched_on_it_looks_at_all() {
    let off = Timing { enabled: false, ..TIMING };
    let mut bench = Bench::new(off);
    for event in [Event::Led(QueueId(4)), Event::Trigger, Event::Now, Event::Touched(QueueId(4))] {
        bench.on(event);
        assert_eq!((bench.scheduler.deadline(), bench.order()), (None, None));
    }
    bench.on(Event::Reloaded(TIMING));
    bench.wait();
    assert_eq!(bench.now, TRIGGER);
    let blocked = stuck(Refusal::NoCandidate { size: 2, target: 3 });
    assert_eq!(bench.look(&blocked), [4]);
    bench.on(Event::Now);
    bench.on(Event::Reloaded(off));
    assert_eq!((bench.scheduler.deadline(), bench.order()), (None, None));
    assert_eq!(bench.scheduler.counts().blocked, BTreeMap::<refusal::Kind, u64>::new());
}

#[test]
fn bm_16_a_queue_that_goes_while_something_is_done_for_it_is_no_matter() {
    let mut bench = Bench::calm(1);
    bench.on(Event::Now);
    assert_eq!(bench.examine(&lacking()), Some(0));
    bench.perform().expect("its step");
    bench.on(Event::NotLed(QueueId(0)));
    bench.finish(0, Outcome::Failed);
    bench.on(Event::Led(QueueId(0)));
    bench.wait();
    assert_eq!(bench.examine(&settled()), Some(0));
    // Gone between the order and the answer.
    bench.on(Event::Now);
    assert_eq!(bench.order(), Some(Order::Examine(QueueId(0))));
    bench.on(Event::NotLed(QueueId(0)));
    bench.on(Event::Examined(QueueId(0), Box::new(lacking())));
    assert_eq!(bench.order(), None);
    assert_eq!(bench.scheduler.counts().waiting, 0);
}

/// A leader may change between the beginning of a pass and its turn.
#[test]
fn a_queue_that_is_led_elsewhere_by_the_time_it_is_looked_at_keeps_no_place() {
    let mut bench = Bench::calm(8);
    bench.on(Event::Now);
    // More of them than there are places.
    for _ in 0..5 {
        let Some(Order::Examine(queue)) = bench.order() else { panic!("there are more") };
        bench.on(Event::NotLed(queue));
    }
    assert_eq!(bench.look(&settled()), [5, 6, 7]);
    assert_eq!(bench.scheduler.counts().passes, 1, "it has ended");
    bench.on(Event::Now);
    assert_eq!(bench.look(&settled()), [5, 6, 7]);
    assert_eq!(bench.scheduler.counts().passes, 2);
}

/// M9's pure half: ten thousand queues without anything to do.
#[test]
fn a_pass_over_many_queues_is_one_order_each() {
    let mut bench = Bench::calm(10_000);
    bench.on(Event::Now);
    let plan = settled();
    assert_eq!(bench.look(&plan).len(), 10_000);
    let counts = bench.scheduler.counts();
    assert_eq!((counts.passes, counts.queues, counts.examined), (1, 10_000, 20_000));
    assert_eq!(bench.scheduler.deadline(), Some(Timestamp(bench.now + INTERVAL)));
}
