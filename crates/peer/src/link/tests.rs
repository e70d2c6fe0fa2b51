use super::*;
use crate::identity::Identity;
use bytes::Bytes;
use model::id::NodeId;
use proptest::prelude::*;
use std::collections::BTreeMap;

const SILENCE: Duration = Duration::from_secs(2);

fn claim(id: u64, boot: u64, instance: u64) -> Arc<Claim> {
    let (name, address) = ("peer".into(), "peer:1".to_owned());
    let identity = Identity { name, id: NodeId(id), boot, address, facts: Bytes::new() };
    Arc::new(Claim { identity, instance })
}

/// A link and the time that it lives in.
struct Subject {
    link: Link,
    now: Instant,
}

impl Subject {
    /// One that has just begun its first dial.
    fn new() -> Self {
        let now = Instant::now();
        let mut subject = Self { link: Link::new(SILENCE, 0, now), now };
        assert_eq!(subject.step(Event::Tick), [Output::Dial]);
        subject
    }

    /// One that is up.
    fn up(claim: &Arc<Claim>) -> Self {
        let mut subject = Self::new();
        assert_eq!(subject.connected(Side::In, claim), []);
        assert_eq!(subject.connected(Side::Out, claim), [Output::Up(Arc::clone(claim))]);
        subject
    }

    fn step(&mut self, event: Event) -> Vec<Output> {
        let mut out = Vec::new();
        self.link.step(self.now, event, &mut out);
        out
    }

    fn connected(&mut self, side: Side, claim: &Arc<Claim>) -> Vec<Output> {
        self.connected_in(1, side, claim)
    }

    fn connected_in(&mut self, session: u64, side: Side, claim: &Arc<Claim>) -> Vec<Output> {
        self.link.judge(claim, session).expect("it may come in");
        self.step(Event::Connected { side, claim: Arc::clone(claim), session })
    }

    /// Lets time pass, with all ticks in it, until one of them asks for something else than pings.
    fn pass(&mut self, time: Duration) -> Vec<Output> {
        let end = self.now + time;
        while self.link.wake_at() <= end {
            self.now = self.now.max(self.link.wake_at());
            let out = self.step(Event::Tick);
            if out.iter().any(|output| !matches!(output, Output::Ping(_))) {
                return out;
            }
        }
        self.now = end;
        Vec::new()
    }
}

#[test]
fn a_dead_process_is_down_when_the_redial_is_refused() {
    let peer = claim(1, 1, 1);
    let mut subject = Subject::up(&peer);
    let lost = subject.step(Event::Lost { side: Side::In });
    assert_eq!(lost, [Output::Close(Side::Out), Output::Dial]);
    // the other side was closed by the link itself, so its end is nothing new
    assert_eq!(subject.step(Event::Lost { side: Side::Out }), []);
    let failed = subject.step(Event::DialFailed(DialFailure::Refused));
    assert_eq!(failed, [Output::Down(peer, Loss::Refused)]);
    // then it is tried again, with pauses that double up to a bound
    let mut pauses = Vec::new();
    for _ in 0..7 {
        let begin = subject.now;
        assert_eq!(subject.pass(Duration::from_mins(1)), [Output::Dial]);
        pauses.push((subject.now - begin).as_millis());
        assert_eq!(subject.step(Event::DialFailed(DialFailure::Refused)), []);
    }
    assert_eq!(pauses, [100, 200, 400, 800, 1600, 2000, 2000]);
}

#[test]
fn a_redial_that_succeeds_is_not_enough() {
    let peer = claim(1, 1, 1);
    let mut subject = Subject::up(&peer);
    subject.step(Event::Lost { side: Side::Out });
    assert_eq!(subject.connected(Side::Out, &peer), []);
    // it hears answers to its pings, but is not dialled
    let mut outputs = Vec::new();
    while outputs.is_empty() {
        outputs = subject.pass(SILENCE / 8);
        subject.link.heard(Side::Out, subject.now);
    }
    assert_eq!(outputs[0], Output::Down(Arc::clone(&peer), Loss::Gone));
    assert_eq!(subject.connected(Side::In, &peer), [Output::Up(peer)]);
}

#[test]
fn a_broken_connection_that_stands_again_is_a_reset() {
    let peer = claim(1, 1, 1);
    let mut subject = Subject::up(&peer);
    subject.step(Event::Lost { side: Side::Out });
    assert_eq!(subject.connected(Side::In, &peer), []);
    let up = subject.connected(Side::Out, &peer);
    assert_eq!(up, [Output::Down(Arc::clone(&peer), Loss::Reset), Output::Up(peer)]);
}

#[test]
fn a_peer_that_dials_again_has_lost_the_old_connection() {
    let peer = claim(1, 1, 1);
    let mut subject = Subject::up(&peer);
    let again = subject.connected(Side::In, &peer);
    assert_eq!(again, [Output::Close(Side::Out), Output::Close(Side::In), Output::Dial]);
}

#[test]
fn a_connection_of_a_former_session_does_not_pair_with_one_of_a_later() {
    let peer = claim(1, 1, 1);
    let mut subject = Subject::up(&peer);
    let session = subject.link.session();
    subject.step(Event::Lost { side: Side::In });
    assert_eq!(subject.link.session(), session + 1, "a session has ended");
    // The peer took the redial, ended its session, closed what it had and dialled: the last is here
    // before the end of the first.
    assert_eq!(subject.connected_in(1, Side::Out, &peer), []);
    let dialled = subject.connected_in(2, Side::In, &peer);
    assert_eq!(dialled, [Output::Close(Side::Out), Output::Dial]);
    let judged = subject.link.judge(&peer, 1).map_err(|refusal| refusal.reason);
    assert_eq!(judged, Err(Reason::Stale));
    assert_eq!(subject.step(Event::DialFailed(DialFailure::Overtaken)), []);
    assert_eq!(subject.pass(BACKOFF_MAX), [Output::Dial]);
    let up = subject.connected_in(2, Side::Out, &peer);
    assert_eq!(up, [Output::Down(Arc::clone(&peer), Loss::Reset), Output::Up(peer)]);
    assert_eq!(subject.link.session(), session + 1);
}

#[test]
fn a_later_start_replaces_the_former_at_once() {
    let (old, new) = (claim(1, 1, 1), claim(1, 2, 2));
    let mut subject = Subject::up(&old);
    let arrived = subject.connected(Side::In, &new);
    let closed = [Output::Close(Side::Out), Output::Close(Side::In)];
    assert_eq!(arrived[..2], closed);
    assert_eq!(arrived[2..], [Output::Down(old, Loss::Restarted), Output::Dial]);
    assert_eq!(subject.connected(Side::Out, &new), [Output::Up(new)]);
}

#[test]
fn another_node_under_the_name_waits_until_the_former_is_gone() {
    let (old, wiped) = (claim(1, 5, 1), claim(2, 1, 2));
    let mut subject = Subject::up(&old);
    let judged =
        |subject: &Subject, claim: &Claim| subject.link.judge(claim, 1).map_err(|no| no.reason);
    assert_eq!(judged(&subject, &wiped), Err(Reason::NameTaken));
    assert_eq!(judged(&subject, &claim(1, 5, 2)), Err(Reason::DuplicateIdentity));
    assert_eq!(judged(&subject, &claim(1, 4, 2)), Err(Reason::LaterStart));
    subject.step(Event::Lost { side: Side::In });
    assert_eq!(subject.connected(Side::In, &wiped), [Output::Down(old, Loss::Restarted)]);
    assert_eq!(subject.connected(Side::Out, &wiped), [Output::Up(wiped)]);
}

#[test]
fn silence_of_one_side_is_enough_and_pings_go_out_each_quarter() {
    for silent in Side::BOTH {
        let peer = claim(1, 1, 1);
        let mut subject = Subject::up(&peer);
        let begin = subject.now;
        let mut pings = 0;
        let down = loop {
            subject.now = subject.link.wake_at();
            let out = subject.step(Event::Tick);
            let speaking = Side::BOTH.into_iter().find(|side| *side != silent).unwrap();
            subject.link.heard(speaking, subject.now);
            pings += out.iter().filter(|output| **output == Output::Ping(silent)).count();
            if let Some(Output::Down(_, why)) = out.last() {
                break *why;
            }
        };
        // at a quarter, a half and three quarters
        assert_eq!((down, pings), (Loss::Silent, 3));
        assert_eq!(subject.now - begin, SILENCE);
        assert_eq!(subject.pass(Duration::from_secs(1)), [Output::Dial]);
    }
}

#[test]
fn who_was_late_itself_does_not_blame_the_peer() {
    let peer = claim(1, 1, 1);
    let mut subject = Subject::up(&peer);
    // stopped for a minute
    subject.now += Duration::from_mins(1);
    assert_eq!(subject.step(Event::Tick), [Output::Ping(Side::Out), Output::Ping(Side::In)]);
    // and a peer that is dead meanwhile is found out all the same
    let begin = subject.now;
    let out = subject.pass(Duration::from_mins(1));
    assert_eq!(out.last(), Some(&Output::Down(peer, Loss::Silent)));
    assert_eq!(subject.now - begin, SILENCE);
}

#[test]
fn always_being_late_is_no_excuse() {
    let mut subject = Subject::up(&claim(1, 1, 1));
    let mut ticks = 0;
    while subject.link.up().is_some() {
        subject.now = subject.link.wake_at() + SILENCE;
        subject.step(Event::Tick);
        ticks += 1;
    }
    assert_eq!(ticks, LATE_MAX + 1);
}

#[test]
fn removal_closes_all_and_tells() {
    let peer = claim(1, 1, 1);
    let mut subject = Subject::up(&peer);
    let out = subject.step(Event::Removed);
    let closed = [Output::Close(Side::Out), Output::Close(Side::In)];
    assert_eq!(out[..2], closed);
    assert_eq!(out[2..], [Output::Down(peer, Loss::Removed)]);
}

#[test]
fn the_end_of_one_who_was_lost_without_a_word_is_told_once_it_is_sure() {
    let (peer, new) = (claim(1, 1, 1), claim(1, 2, 2));
    let refused = || Event::DialFailed(DialFailure::Refused);
    let gone = || {
        let mut subject = Subject::up(&peer);
        subject.step(Event::Lost { side: Side::In });
        // A dying process has still taken the connection, or its machine is cut off.
        let failed = subject.step(Event::DialFailed(DialFailure::Other));
        assert_eq!(failed, [Output::Down(Arc::clone(&peer), Loss::Gone)]);
        assert_eq!(subject.pass(BACKOFF_MAX), [Output::Dial]);
        subject
    };
    // Nothing listens there any more.
    let mut subject = gone();
    assert_eq!(subject.step(Event::DialFailed(DialFailure::Other)), []);
    assert_eq!(subject.pass(BACKOFF_MAX), [Output::Dial]);
    assert_eq!(subject.step(refused()), [Output::Ended(Arc::clone(&peer))]);
    assert_eq!(subject.pass(BACKOFF_MAX), [Output::Dial]);
    assert_eq!(subject.step(refused()), [], "it is told once");
    // Another process has taken its place.
    let mut subject = gone();
    assert_eq!(subject.connected(Side::In, &new), [Output::Ended(Arc::clone(&peer))]);
    assert_eq!(subject.connected(Side::Out, &new), [Output::Up(Arc::clone(&new))]);
    // Half a connection to the same one proves that it lived then, and no more.
    let mut subject = gone();
    assert_eq!(subject.connected(Side::Out, &peer), []);
    assert_eq!(subject.step(Event::Lost { side: Side::Out }), []);
    assert_eq!(subject.pass(BACKOFF_MAX), [Output::Dial]);
    assert_eq!(subject.step(refused()), [Output::Ended(Arc::clone(&peer))]);
    // The same process is back: there is nothing to tell, not even when it is lost again.
    let mut subject = gone();
    assert_eq!(subject.connected(Side::Out, &peer), []);
    assert_eq!(subject.connected(Side::In, &peer), [Output::Up(Arc::clone(&peer))]);
    subject.step(Event::Lost { side: Side::In });
    assert_eq!(subject.step(refused()), [Output::Down(peer, Loss::Refused)]);
}

/// Two nodes and a bad network between them, in steps of milliseconds.
struct World {
    base: Instant,
    now: u64,
    nodes: [WorldNode; 2],
    /// What will happen, by time and by the order in which it was caused.
    queue: BTreeMap<(u64, u64), Happening>,
    counter: u64,
    /// Nothing arrives.
    cut: bool,
    delays: Vec<u64>,
}

struct WorldNode {
    link: Link,
    claim: Arc<Claim>,
    /// The connections of both sides, by number; `None` while there is none.
    sides: [Option<u64>; 2],
    told_up: bool,
}

#[derive(Debug)]
enum Happening {
    /// The dial of a node reaches the other.
    Reaches {
        dialler: usize,
        connection: u64,
        session: u64,
    },
    /// The welcome reaches the dialler, or its patience is over.
    Welcome {
        dialler: usize,
        connection: u64,
        session: u64,
    },
    TimedOut {
        dialler: usize,
        connection: u64,
    },
    /// The end of a connection is noticed by a node.
    End {
        node: usize,
        connection: u64,
    },
    Ping {
        node: usize,
        connection: u64,
    },
    Pong {
        node: usize,
        connection: u64,
    },
}

impl World {
    fn new(delays: Vec<u64>) -> Self {
        let base = Instant::now();
        let node = |id| WorldNode {
            link: Link::new(SILENCE, 0, base),
            claim: claim(id, 1, id),
            sides: [None, None],
            told_up: false,
        };
        Self {
            base,
            now: 0,
            nodes: [node(0), node(1)],
            queue: BTreeMap::new(),
            counter: 0,
            cut: false,
            delays,
        }
    }

    fn later(&mut self, happening: Happening) {
        self.counter += 1;
        let delay = self.delays[usize::try_from(self.counter).unwrap() % self.delays.len()];
        self.at(self.now + delay, happening);
    }

    fn at(&mut self, time: u64, happening: Happening) {
        self.counter += 1;
        self.queue.insert((time, self.counter), happening);
    }

    fn side_of(&self, node: usize, connection: u64) -> Option<Side> {
        Side::BOTH
            .into_iter()
            .find(|side| self.nodes[node].sides[*side as usize] == Some(connection))
    }

    fn step(&mut self, node: usize, event: Event, new: Option<(Side, u64)>) {
        let now = self.base + Duration::from_millis(self.now);
        let mut out = Vec::new();
        self.nodes[node].link.step(now, event, &mut out);
        for output in &out {
            if let Output::Close(side) = output {
                let closed = self.nodes[node].sides[*side as usize].take();
                let connection = closed.expect("only what stands is closed");
                self.later(Happening::End { node: 1 - node, connection });
            }
        }
        if let Some((side, connection)) = new {
            let before = self.nodes[node].sides[side as usize].replace(connection);
            assert_eq!(before, None, "what stood there was closed");
        }
        for output in out {
            match output {
                Output::Close(_) => {}
                Output::Dial => {
                    self.counter += 1;
                    let connection = self.counter;
                    let session = self.nodes[node].link.session();
                    self.later(Happening::Reaches { dialler: node, connection, session });
                    let patience = self.now + 2000;
                    self.at(patience, Happening::TimedOut { dialler: node, connection });
                }
                Output::Ping(side) => {
                    let connection = self.nodes[node].sides[side as usize].expect("it stands");
                    self.later(Happening::Ping { node: 1 - node, connection });
                }
                Output::Up(claim) => {
                    assert!(!std::mem::replace(&mut self.nodes[node].told_up, true));
                    assert_eq!(claim, self.nodes[1 - node].claim);
                }
                Output::Down(..) => {
                    assert!(std::mem::take(&mut self.nodes[node].told_up));
                }
                Output::Ended(_) => panic!("both processes live"),
            }
        }
    }

    fn happen(&mut self, happening: &Happening, pending: &mut [Option<u64>; 2]) {
        match *happening {
            Happening::Reaches { dialler, connection, session } if !self.cut => {
                let (node, claim) = (1 - dialler, Arc::clone(&self.nodes[dialler].claim));
                if self.nodes[node].link.judge(&claim, session).is_err() {
                    self.later(Happening::End { node: dialler, connection });
                    return;
                }
                let event = Event::Connected { side: Side::In, claim, session };
                self.step(node, event, Some((Side::In, connection)));
                let session = self.nodes[node].link.session();
                self.later(Happening::Welcome { dialler, connection, session });
            }
            Happening::Welcome { dialler, connection, session }
                if !self.cut && pending[dialler] == Some(connection) =>
            {
                pending[dialler] = None;
                let claim = Arc::clone(&self.nodes[1 - dialler].claim);
                if self.nodes[dialler].link.judge(&claim, session).is_err() {
                    self.step(dialler, Event::DialFailed(DialFailure::Overtaken), None);
                    self.later(Happening::End { node: 1 - dialler, connection });
                    return;
                }
                let event = Event::Connected { side: Side::Out, claim, session };
                self.step(dialler, event, Some((Side::Out, connection)));
            }
            Happening::TimedOut { dialler, connection } if pending[dialler] == Some(connection) => {
                pending[dialler] = None;
                self.step(dialler, Event::DialFailed(DialFailure::Other), None);
                self.later(Happening::End { node: 1 - dialler, connection });
            }
            Happening::End { node, connection } if !self.cut => {
                if let Some(side) = self.side_of(node, connection) {
                    self.nodes[node].sides[side as usize] = None;
                    self.step(node, Event::Lost { side }, None);
                } else if pending[node] == Some(connection) {
                    pending[node] = None;
                    self.step(node, Event::DialFailed(DialFailure::Other), None);
                }
            }
            Happening::Ping { node, connection } | Happening::Pong { node, connection }
                if !self.cut =>
            {
                if let Some(side) = self.side_of(node, connection) {
                    let now = self.base + Duration::from_millis(self.now);
                    self.nodes[node].link.heard(side, now);
                    if let Happening::Ping { .. } = happening {
                        self.later(Happening::Pong { node: 1 - node, connection });
                    }
                } else if pending[node] != Some(connection) {
                    // what comes for a closed connection is answered by a reset
                    self.later(Happening::End { node: 1 - node, connection });
                }
            }
            // swallowed by the network, or no longer waited for
            _ => {}
        }
    }

    /// Lets the time pass. `pending`: the dials under way.
    fn run(&mut self, until: u64, pending: &mut [Option<u64>; 2]) {
        loop {
            let ticks = [0, 1].map(|node: usize| {
                let wake = self.nodes[node].link.wake_at().saturating_duration_since(self.base);
                u64::try_from(wake.as_micros().div_ceil(1000)).unwrap().max(self.now)
            });
            let tick = ticks[0].min(ticks[1]);
            let next = self.queue.keys().next().map_or(u64::MAX, |(time, _)| *time);
            if tick.min(next) > until {
                self.now = until;
                return;
            }
            self.now = tick.min(next);
            let known = self.counter;
            if next <= tick {
                let (_, happening) = self.queue.pop_first().unwrap();
                self.happen(&happening, pending);
            } else {
                self.step(usize::from(ticks[1] < ticks[0]), Event::Tick, None);
            }
            // dials that have begun in this step
            for ((_, counter), happening) in &self.queue {
                if let Happening::TimedOut { dialler, connection } = happening
                    && *counter > known
                {
                    pending[*dialler] = Some(*connection);
                }
            }
        }
    }

    /// A connection that stands breaks: both ends notice, each in its time.
    fn break_one(&mut self, node: usize, side: Side) {
        if let Some(connection) = self.nodes[node].sides[side as usize] {
            self.later(Happening::End { node, connection });
            self.later(Happening::End { node: 1 - node, connection });
        }
    }
}

#[derive(Debug, Clone)]
enum Trouble {
    Break(usize, bool),
    Cut,
    Heal,
}

proptest! {
    // Rare orders matter, and a case takes a tenth of a millisecond.
    #![proptest_config(ProptestConfig::with_cases(5000))]

    /// Whatever happens, both are up some time after it has stopped, and stay so.
    #[test]
    fn two_nodes_find_each_other_again(
        delays in prop::collection::vec(1..150u64, 1..12),
        troubles in prop::collection::vec(
            (0..3000u64, prop_oneof![
                4 => (0..2usize, any::<bool>()).prop_map(|(node, side)| Trouble::Break(node, side)),
                1 => Just(Trouble::Cut),
                1 => Just(Trouble::Heal),
            ]),
            0..30,
        ),
    ) {
        let mut world = World::new(delays);
        let mut pending = [None, None];
        for (pause, trouble) in troubles {
            world.run(world.now + pause, &mut pending);
            match trouble {
                Trouble::Break(node, true) => world.break_one(node, Side::Out),
                Trouble::Break(node, false) => world.break_one(node, Side::In),
                Trouble::Cut => world.cut = true,
                Trouble::Heal => world.cut = false,
            }
        }
        world.cut = false;
        world.run(world.now + 12_000, &mut pending);
        prop_assert!(world.nodes.iter().all(|node| node.told_up), "not up after all has healed");
        let standing = world.nodes.each_ref().map(|node| node.sides);
        world.run(world.now + 20_000, &mut pending);
        prop_assert!(world.nodes.iter().all(|node| node.told_up));
        prop_assert_eq!(standing, world.nodes.each_ref().map(|node| node.sides), "it keeps breaking");
        prop_assert_eq!(standing[0][0], standing[1][1]);
        prop_assert_eq!(standing[0][1], standing[1][0]);
    }
}
