//! Changes that are cut off anywhere are finished by whoever leads next.
//!
//! The group is a list of who votes, and a new member has the log at once if its node starts it. A
//! leader dies at its n-th step, before or after what that step does; then another voter leads, and
//! its keeper looks until there is nothing left to do. So every n is tried.

use std::collections::{BTreeMap, BTreeSet};

use metadata::boot::{self, DefaultUser};
use metadata::command::{DeclareQueue, PutNode};
use metadata::outcome::Outcome;
use metadata::state::State;
use quorum::status::MemberStatus;
use tokio::sync::watch;

use super::*;
use crate::cluster::keeper;

/// A whole cluster, as whoever leads sees it.
struct Scene {
    state: State,
    queue: QueueId,
    leader: NodeId,
    /// Who is in the group, and votes.
    group: BTreeMap<NodeId, bool>,
    down: BTreeSet<NodeId>,
    /// Streams whose data is gone.
    gone: BTreeSet<u64>,
    /// Nodes whose member has failed until the next start.
    failed: BTreeSet<NodeId>,
    /// What may yet be done before the leader dies, and whether the last of it takes effect.
    left: Option<(usize, bool)>,
    /// Goes down as soon as a member is recorded as started.
    falls: Option<NodeId>,
    /// Whoever leads loses its place while a change is under way.
    interrupts: bool,
    /// The group sleeps: its leader tells nobody anything.
    asleep: bool,
    /// The members of the group as one knows them who leads no more; and whether it has heard that.
    past: Option<(BTreeMap<NodeId, bool>, bool)>,
    /// Has not got the log yet.
    slow: Option<NodeId>,
    /// Another one leads as soon as a learner is wanted, and has brought it in before anybody hears.
    overtaken: bool,
}

struct Fake {
    scene: Mutex<Scene>,
    died: watch::Sender<bool>,
}

impl Fake {
    /// Counts a step; `None`: the leader died before it. `Some(true)`: it dies after it.
    fn step(&self) -> Option<bool> {
        let mut scene = self.scene.lock();
        let Some((left, takes_effect)) = &mut scene.left else { return Some(false) };
        if *left > 1 {
            *left -= 1;
            return Some(false);
        }
        takes_effect.then_some(true)
    }

    /// Does something, unless the leader dies.
    async fn act<T>(&self, what: impl FnOnce(&mut Scene) -> T) -> T {
        let step = self.step();
        let done = step.map(|_| what(&mut self.scene.lock()));
        if let (Some(false), Some(done)) = (step, done) {
            return done;
        }
        self.died.send_replace(true);
        std::future::pending().await
    }
}

impl Scene {
    fn queue(&self) -> &Queue {
        self.state.queue_by_id(self.queue).expect("it is there")
    }

    /// Whether the member that the record has on a node can have data.
    fn has_data(&self, node: NodeId) -> bool {
        let is_there =
            !self.down.contains(&node) && self.state.node(node).is_some_and(|known| !known.lost);
        let member = self.queue().member(node);
        is_there && member.is_some_and(|member| !self.gone.contains(&member.stream.0))
    }

    /// Another one leads, has found a member that is wanted, and has given it its vote.
    fn brings_in(&mut self, node: NodeId, is_heard: bool) {
        let member = *self.queue().member(node).expect("it is wanted");
        let past = self.past.replace((self.group.clone(), is_heard));
        assert_eq!(past, None, "it is overtaken once");
        self.group.insert(node, true);
        let started = Command::MembersStarted(vec![name(self.queue, &member)]);
        self.state.apply(started).expect("it has the log");
    }

    /// What is recorded of a node's member.
    fn stage(&self, node: u64) -> Option<Stage> {
        self.queue().member(NodeId(node)).map(|member| member.stage)
    }

    fn health(&self) -> (Vec<u64>, Vec<u64>) {
        let voters = self.group.iter().filter(|(_, votes)| **votes).map(|(node, _)| *node);
        let (well, ill): (Vec<NodeId>, Vec<NodeId>) = voters.partition(|node| self.has_data(*node));
        let plain = |nodes: Vec<NodeId>| nodes.iter().map(|node| node.0).collect();
        (plain(well), plain(ill))
    }
}

impl Site for Fake {
    fn me(&self) -> NodeId {
        self.scene.lock().leader
    }

    fn state(&self) -> Arc<State> {
        Arc::new(self.scene.lock().state.clone())
    }

    fn is_up(&self, node: NodeId) -> bool {
        let scene = self.scene.lock();
        !scene.down.contains(&node) && scene.state.node(node).is_some_and(|node| !node.lost)
    }

    fn status(&self, _: QueueId) -> Option<Status> {
        let scene = self.scene.lock();
        let member = |(node, is_voter): (&NodeId, &bool)| MemberStatus {
            node: *node,
            is_voter: *is_voter,
            matched: {
                let hears = (*is_voter || !scene.asleep) && scene.slow != Some(*node);
                (scene.has_data(*node) && hears).then_some(7)
            },
        };
        let role = match scene.past {
            Some((_, true)) => Role::Follower { term: 4, leader: None },
            _ => Role::Leader { term: 3 },
        };
        let group = scene.past.as_ref().map_or(&scene.group, |(group, _)| group);
        Some(Status {
            role,
            leader: Some(scene.leader),
            term: 3,
            last: Some(7),
            committed: Some(7),
            applied: Some(7),
            checkpoint: None,
            purged: None,
            log_bytes: 0,
            whole_bytes: 0,
            members: group.iter().map(member).collect(),
            is_changing: false,
            has_failed: false,
            is_asleep: scene.asleep,
        })
    }

    async fn rouse(&self, _: QueueId) {
        self.scene.lock().asleep = false;
    }

    async fn leads(&self, _: QueueId) -> bool {
        self.act(|scene| scene.past.is_none()).await
    }

    async fn change(&self, _: QueueId, change: change::Change) -> Result<(), GroupError> {
        self.act(|scene| {
            scene.asleep = false;
            if scene.interrupts {
                return Err(GroupError::Interrupted);
            }
            if let (true, change::Change::AddLearner(node)) = (scene.overtaken, change) {
                scene.brings_in(node, false);
            }
            if scene.past.is_some() {
                return Err(GroupError::Refused("nobody follows".into()));
            }
            match change {
                change::Change::AddLearner(node) => {
                    // What the node starts must not be taken for what it was.
                    let stage = scene.queue().member(node).map(|member| member.stage);
                    assert!(stage.is_some_and(is_new), "{node} starts as {stage:?}");
                    scene.group.insert(node, false);
                }
                change::Change::Promote(node) => {
                    assert!(scene.has_data(node), "{node} votes without data");
                    scene.group.insert(node, true);
                }
                change::Change::Remove(node) => {
                    scene.group.remove(&node);
                }
            }
            Ok(())
        })
        .await
    }

    async fn transfer(&self, _: QueueId, to: NodeId) -> Result<(), GroupError> {
        self.act(|scene| {
            scene.leader = to;
            Ok(())
        })
        .await
    }

    async fn submit(&self, command: Command) -> Result<Outcome, Refusal> {
        self.act(|scene| {
            if matches!(command, Command::MembersStarted(_)) {
                scene.down.extend(scene.falls);
            }
            let reformed = match &command {
                Command::Reform(member) => Some(NodeId(member.node)),
                _ => None,
            };
            let outcome = scene.state.apply(command)?;
            if let Some(alone) = reformed {
                scene.group.retain(|node, _| *node == alone);
            }
            // A node starts what it is told to; it must not be counted for what it was before.
            let counts = |member: &&Member| scene.group.get(&member.node) == Some(&true);
            let voters = scene.queue().members.iter().filter(counts);
            assert!(voters.copied().all(|member| !is_new(member.stage)));
            Ok(outcome)
        })
        .await
    }

    async fn says_lost(&self, _: QueueId, node: NodeId) -> bool {
        let scene = self.scene.lock();
        let member = scene.queue().member(node);
        member.is_some_and(|member| scene.gone.contains(&member.stream.0))
    }

    async fn says_unable(&self, queue: QueueId, node: NodeId) -> bool {
        self.scene.lock().failed.contains(&node) || self.says_lost(queue, node).await
    }
}

fn is_new(stage: Stage) -> bool {
    stage == Stage::Unstarted
}

fn put(state: &mut State, id: u64, name: &str) {
    let (name, address) = (name.into(), String::new());
    let (role, starts) = (NodeRole::Full, Vec::new());
    let put = PutNode { id, name, address, role, boot: 1, zone: None, starts };
    state.apply(Command::PutNode(put)).expect("a node can come");
}

/// Nodes 1 to 4, and a queue on 1, 2 and 3 that 1 leads.
fn scene() -> Scene {
    let mut state = State::new();
    let user = DefaultUser { name: "guest".into(), password_hash: String::new(), tags: Vec::new() };
    for command in boot::commands("/", user) {
        state.apply(command).expect("a first start");
    }
    for id in 1..=4 {
        put(&mut state, id, &format!("n{id}"));
    }
    let mut arguments = amq_protocol_types::FieldTable::default();
    let kind = amq_protocol_types::AMQPValue::LongString("quorum".into());
    arguments.insert("x-queue-type".into(), kind);
    let members: Vec<NodeId> = (1..=3).map(NodeId).collect();
    let declare = DeclareQueue {
        vhost: "/".into(),
        name: "q".into(),
        generated: false,
        durable: true,
        auto_delete: false,
        exclusive_owner: None,
        arguments,
        user: "guest".into(),
        home: NodeId(1),
        members: members.clone(),
        away: Vec::new(),
    };
    let queue = state.apply(Command::DeclareQueue(declare)).expect("it is new").queue.expect("it");
    let id = SerialQueueId(queue.id);
    let names =
        members.iter().map(|node| MemberName { queue: id, node: node.0, stream: queue.id.0 });
    state.apply(Command::MembersStarted(names.collect())).expect("they start");
    Scene {
        state,
        queue: queue.id,
        leader: NodeId(1),
        group: members.into_iter().map(|node| (node, true)).collect(),
        down: BTreeSet::new(),
        gone: BTreeSet::new(),
        failed: BTreeSet::new(),
        left: None,
        falls: None,
        interrupts: false,
        asleep: true,
        past: None,
        slow: None,
        overtaken: false,
    }
}

/// What an operator or the reconciler begins, and where it ends if it is not cut off.
struct Case {
    what: What,
    node: u64,
    scene: fn() -> Scene,
    /// Who votes before, and must vote after whatever was begun.
    ends: &'static [&'static [u64]],
}

fn wiped() -> Scene {
    let mut scene = scene();
    put(&mut scene.state, 33, "n3");
    scene
}

/// Node 3 is what it was, and its part of the queue is not.
fn hollow() -> Scene {
    let mut scene = scene();
    // Node 3's stream alone has a number of its own.
    let id = SerialQueueId(scene.queue);
    let old = MemberName { queue: id, node: 3, stream: scene.queue.0 };
    scene.state.apply(Command::RemoveMember(old)).expect("it goes");
    scene.state.apply(Command::AddMember { queue: id, node: 3 }).expect("it comes");
    let stream = scene.queue().member(NodeId(3)).expect("it is there").stream.0;
    let name = MemberName { queue: id, node: 3, stream };
    scene.state.apply(Command::MembersStarted(vec![name])).expect("it starts");
    scene.gone.insert(stream);
    scene
}

fn dead() -> Scene {
    let mut scene = scene();
    scene.down.insert(NodeId(3));
    scene
}

const CASES: &[Case] = &[
    Case { what: What::Add, node: 4, scene, ends: &[&[1, 2, 3], &[1, 2, 3, 4]] },
    // One short for good would be the loss of what nobody has asked to remove.
    Case { what: What::Add, node: 33, scene: wiped, ends: &[&[1, 2, 33]] },
    Case { what: What::Add, node: 3, scene: hollow, ends: &[&[1, 2, 3]] },
    Case {
        what: What::Delete { force: false },
        node: 3,
        scene: dead,
        ends: &[&[1, 2], &[1, 2, 3]],
    },
    Case { what: What::Delete { force: false }, node: 2, scene, ends: &[&[1, 3], &[1, 2, 3]] },
];

/// Runs a change; gives what came of it, `None` if the leader died.
async fn change(changer: &Changer<Fake>, case: &Case) -> Option<Change> {
    let queue = changer.site.scene.lock().queue;
    let mut died = changer.site.died.subscribe();
    tokio::select! {
        biased;
        ended = changer.here(queue, NodeId(case.node), case.what) => Some(ended),
        _ = died.wait_for(|died| *died) => None,
    }
}

/// Another voter leads, and its keeper looks for as long as that changes anything.
async fn succeed(changer: Changer<Fake>) -> Changer<Fake> {
    let mut scene = changer.site.scene.into_inner();
    (scene.left, scene.asleep) = (None, true);
    let well = scene.health().0;
    scene.leader = NodeId(*well.iter().find(|node| **node != scene.leader.0).expect("one is left"));
    let queue = scene.queue;
    let site = Fake { scene: Mutex::new(scene), died: watch::Sender::new(false) };
    let changer = Changer::new(site);
    for _ in 0..4 {
        keeper::pass(&changer, &[queue], true).await;
    }
    changer
}

#[tokio::test(start_paused = true)]
async fn a_change_that_is_cut_off_is_finished_or_was_never_begun() {
    let mut cuts = 0;
    for (number, case) in CASES.iter().enumerate() {
        for (step, takes_effect) in (1..30).flat_map(|step| [(step, false), (step, true)]) {
            let scene = Scene { left: Some((step, takes_effect)), ..(case.scene)() };
            let site = Fake { scene: Mutex::new(scene), died: watch::Sender::new(false) };
            let changer = Changer::new(site);
            let ended = change(&changer, case).await;
            let is_whole = ended.is_some();
            if let Some(ended) = ended {
                assert!(ended.expect("nothing stands in the way").changed, "case {number}");
            } else {
                cuts += 1;
            }
            let changer = succeed(changer).await;
            let before = changer.site.scene.lock().health();
            let is_untouched = {
                let scene = changer.site.scene.lock();
                scene.group == (case.scene)().group
            };
            if is_untouched && case.what == What::Add && !before.1.is_empty() {
                // Nothing was begun, so whoever wants it finds it as it was, and begins again.
                assert!(!is_whole);
                change(&changer, case).await.expect("nobody dies").expect("it can be done");
            }
            let scene = changer.site.scene.lock();
            let voters: Vec<u64> = scene.group.keys().map(|node| node.0).collect();
            let how = format!("case {number}, cut at {step}, {takes_effect}: {voters:?}");
            assert!(case.ends.contains(&&*voters), "{how}");
            assert!(scene.group.values().all(|votes| *votes), "{how}");
            let recorded: BTreeSet<u64> = scene.queue().nodes().map(|node| node.0).collect();
            assert_eq!(recorded, voters.iter().copied().collect(), "{how}");
            assert!(scene.queue().members.iter().all(|one| one.stage == Stage::Started), "{how}");
            if is_whole {
                break;
            }
        }
    }
    assert!(cuts > 20, "only {cuts} changes were cut off");
}

#[tokio::test(start_paused = true)]
async fn a_refused_change_changes_nothing() {
    let refuses = |scene: Scene, node: u64, what: What, expected: MemberError| async move {
        let before = (scene.state.queue_by_id(scene.queue).cloned(), scene.group.clone());
        let site = Fake { scene: Mutex::new(scene), died: watch::Sender::new(false) };
        let (changer, queue) = (Changer::new(site), before.0.as_ref().expect("it is there").id);
        assert_eq!(changer.here(queue, NodeId(node), what).await, Err(expected));
        let scene = changer.site.scene.lock();
        assert_eq!((scene.state.queue_by_id(queue).cloned(), scene.group.clone()), before);
    };
    let delete = What::Delete { force: false };
    refuses(scene(), 9, What::Add, MemberError::UnknownNode).await;
    refuses(wiped(), 3, What::Add, MemberError::UnknownNode).await;
    let away = Scene { down: [NodeId(4)].into(), ..scene() };
    refuses(away, 4, What::Add, MemberError::NodeNotRunning).await;
    // The new self of a wiped node that is away again leaves the old one where it is.
    let away = Scene { down: [NodeId(33)].into(), ..wiped() };
    refuses(away, 33, What::Add, MemberError::NodeNotRunning).await;
    let critical = Scene { down: [NodeId(2)].into(), ..wiped() };
    refuses(critical, 33, What::Add, MemberError::NoQuorum { running: 1, voters: 3 }).await;
    let would = MemberError::WouldLoseQuorum { running: 1, voters: 2 };
    // Its node runs, and it has no vote to give.
    let failed = Scene { failed: [NodeId(2)].into(), ..dead() };
    refuses(failed, 3, delete, would.clone()).await;
    refuses(dead(), 2, delete, would.clone()).await;
    // Its node runs, and it has nothing to vote with.
    refuses(hollow(), 2, delete, would).await;
    let mut last = scene();
    last.group = [(NodeId(1), true)].into();
    refuses(last, 1, delete, MemberError::LastMember).await;
}

/// Two nodes run, and have lost their parts: their votes are no majority's.
#[tokio::test(start_paused = true)]
async fn a_queue_whose_other_members_run_without_data_can_be_forced() {
    let forces = |scene: Scene| async move {
        let queue = scene.queue;
        let site = Fake { scene: Mutex::new(scene), died: watch::Sender::new(false) };
        let changer = Changer::new(site);
        let ended = changer.force_shrink(queue).await;
        let stage = changer.site.scene.lock().stage(1);
        (ended, stage)
    };
    let has = |running| Err(MemberError::HasQuorum { running, voters: 3 });
    assert_eq!(forces(scene()).await, (has(3), Some(Stage::Started)));
    assert_eq!(forces(hollow()).await, (has(2), Some(Stage::Started)));
    let (ended, stage) = forces(Scene { down: [NodeId(2)].into(), ..hollow() }).await;
    assert_eq!((ended, stage), (Ok(Changed { changed: true, size: 1 }), Some(Stage::Sole)));
    let mut scene = hollow();
    let name = MemberName { queue: SerialQueueId(scene.queue), node: 2, stream: scene.queue.0 };
    scene.state.apply(Command::MemberLost(name)).expect("it was started");
    let (ended, stage) = forces(scene).await;
    assert_eq!((ended, stage), (Ok(Changed { changed: true, size: 1 }), Some(Stage::Sole)));
}

#[tokio::test(start_paused = true)]
async fn nobody_gets_a_vote_who_cannot_give_it() {
    // The new member's node goes down in the moment before, and so does one that is needed.
    for (scene, falls, expected) in [
        (scene(), 4, MemberError::NodeNotRunning),
        (dead(), 2, MemberError::NoQuorum { running: 2, voters: 4 }),
        (hollow(), 2, MemberError::NoQuorum { running: 2, voters: 4 }),
    ] {
        let scene = Scene { falls: Some(NodeId(falls)), ..scene };
        let (before, queue) = (scene.group.clone(), scene.queue);
        let changer =
            Changer::new(Fake { scene: Mutex::new(scene), died: watch::Sender::new(false) });
        assert_eq!(changer.here(queue, NodeId(4), What::Add).await, Err(expected));
        let voters = |group: &BTreeMap<NodeId, bool>| {
            group.iter().filter(|(_, votes)| **votes).map(|(node, _)| *node).collect::<Vec<_>>()
        };
        assert_eq!(voters(&changer.site.scene.lock().group), voters(&before));
    }
}

#[tokio::test(start_paused = true)]
async fn nobody_knows_what_becomes_of_a_change_whose_leader_loses_its_place() {
    for (node, what) in [(4, What::Add), (3, What::Delete { force: false })] {
        let scene = Scene { interrupts: true, ..scene() };
        let queue = scene.queue;
        let changer =
            Changer::new(Fake { scene: Mutex::new(scene), died: watch::Sender::new(false) });
        assert_eq!(changer.here(queue, NodeId(node), what).await, Err(MemberError::TimedOut));
        // What may yet happen is not undone.
        let scene = changer.site.scene.lock();
        assert!(scene.queue().member(NodeId(node)).is_some(), "{what:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn who_was_overtaken_takes_nothing_away_from_whom_the_next_leader_counts() {
    let four = NodeId(4);
    // It hears that another one leads while it waits for the new member to have the log.
    let before = Scene { slow: Some(four), ..scene() };
    let (queue, died) = (before.queue, watch::Sender::new(false));
    let changer = Arc::new(Changer::new(Fake { scene: Mutex::new(before), died }));
    let adds = tokio::spawn({
        let changer = Arc::clone(&changer);
        async move { changer.here(queue, four, What::Add).await }
    });
    let deadline = Instant::now() + CATCH_UP;
    while changer.site.scene.lock().group.get(&four) != Some(&false) {
        assert!(Instant::now() < deadline, "no learner");
        tokio::time::sleep(LOOK).await;
    }
    changer.site.scene.lock().brings_in(four, true);
    assert_eq!(adds.await.expect("no defect"), Err(MemberError::NotLeader));
    assert_eq!(changer.site.scene.lock().stage(4), Some(Stage::Started));
    // It has not heard of it, and is refused.
    let before = Scene { overtaken: true, ..scene() };
    let died = watch::Sender::new(false);
    let changer = Changer::new(Fake { scene: Mutex::new(before), died });
    let refused = Err(MemberError::Failed("nobody follows".into()));
    assert_eq!(changer.here(queue, four, What::Add).await, refused);
    assert_eq!(changer.site.scene.lock().stage(4), Some(Stage::Started));
    // Nor does its keeper believe that the record has somebody too many.
    keeper::pass(&changer, &[queue], true).await;
    let delete = What::Delete { force: false };
    assert_eq!(changer.here(queue, four, delete).await, Err(MemberError::TimedOut));
    assert_eq!(changer.site.scene.lock().stage(4), Some(Stage::Started));
}

#[tokio::test(start_paused = true)]
async fn a_member_that_is_not_added_leaves_no_record() {
    let before = Scene { slow: Some(NodeId(4)), ..scene() };
    let (queue, died) = (before.queue, watch::Sender::new(false));
    let changer = Arc::new(Changer::new(Fake { scene: Mutex::new(before), died }));
    let adds = tokio::spawn({
        let changer = Arc::clone(&changer);
        async move { changer.here(queue, NodeId(4), What::Add).await }
    });
    let deadline = Instant::now() + CATCH_UP;
    while changer.site.scene.lock().group.len() < 4 {
        assert!(Instant::now() < deadline, "no learner");
        tokio::time::sleep(LOOK).await;
    }
    changer.site.scene.lock().down.insert(NodeId(4));
    assert_eq!(adds.await.expect("no defect"), Err(MemberError::NodeNotRunning));
    let scene = changer.site.scene.lock();
    assert_eq!((scene.stage(4), scene.group.len()), (None, 3));
}

#[test]
fn a_queue_that_is_changed_is_nobody_elses_until_that_is_over() {
    let (scene, died) = (scene(), watch::Sender::new(false));
    let queue = scene.queue;
    let changer = Changer::new(Fake { scene: Mutex::new(scene), died });
    let turn = changer.turn(queue).expect("nobody changes it");
    for _ in 0..2 {
        assert!(changer.turn(queue).is_none());
        assert!(changer.is_busy(queue));
    }
    drop(turn);
    assert!(!changer.is_busy(queue) && changer.turn(queue).is_some());
}
