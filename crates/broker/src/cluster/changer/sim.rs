//! The members of quorum queues on five nodes under one seed: nodes that die, are cut off, wiped,
//! joined, drained and forgotten, policies that change, members that lose their data, publishers at
//! work, and reconciliation on each node as it is (plan, scheduler, changer, keeper) over groups that
//! are a [`model`](super::raft) of Raft's.
//!
//! ```text
//!  a storm ─► everything is mended ─► calm ─► nothing that was committed is lost, nobody voted twice,
//!                                            every queue is led, as large as rules and nodes allow,
//!                                            and recorded as it is; so is the group of the topology
//! ```
//!
//! The storm takes a member from a queue for good only while a majority of it keeps its data, so a
//! queue that is not served in the end is a defect.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Weak;

use membership::plan::{Plan, plan};
use membership::refusal::Kind;
use membership::scheduler::{Event, Order, Outcome as Ended, Scheduler};
use membership::step::{Action, Step};
use metadata::boot::{self, DefaultUser};
use metadata::command::{DeclareQueue, PutNode};
use metadata::objects::policy::{ApplyTo, Policy};
use metadata::outcome::Outcome;
use metadata::state::State;
use model::time::Timestamp;
use quorum::status::MemberStatus;

use super::raft::{Config, Group, Replica, What as Entry};
use super::*;
use crate::cluster::keeper;
use crate::cluster::reconciler::Seen;
use crate::cluster::reconciler::hearing::Hearing;
use crate::cluster::reconciler::observer::{Known, Observer};
use crate::cluster::steward::former_selves;
use crate::config::reconciliation::Reconciliation;

mod harm;
mod judge;
mod own;
mod rules;
mod tasks;

use self::harm::{harm, mend};
use self::judge::{complaint, too_small};
use self::own::Own;
use self::rules::Rule;
use self::tasks::boot;

const NODES: u64 = 5;
/// How long the storm lasts, and how long everything may take to be whole after it, in milliseconds.
const STORM: u64 = 60_000;
const CALM: u64 = 400_000;
/// How long an answer may take, and what is decided with it.
const ASKED: Duration = Duration::from_millis(500);

struct Rng(u64);

impl Rng {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ (bits >> 31)
    }

    fn below(&mut self, end: u64) -> u64 {
        self.next() % end.max(1)
    }

    fn one_in(&mut self, cases: u64) -> bool {
        self.below(cases) == 0
    }

    fn pick<T: Copy>(&mut self, of: &[T]) -> Option<T> {
        (!of.is_empty()).then(|| of[self.below(of.len() as u64) as usize])
    }
}

/// A node, as it is.
#[derive(Debug)]
struct Machine {
    name: String,
    /// Its start; 0: it is down.
    boot: u64,
    /// Which side of a cut it is on.
    side: u64,
    /// How much of the topology's log it has.
    applied: usize,
    state: State,
    /// Queues whose part it has lost.
    lost: BTreeSet<QueueId>,
}

struct World {
    rng: Rng,
    machines: BTreeMap<NodeId, Machine>,
    /// The topology's log, and who votes on it.
    commands: Vec<Command>,
    voters: BTreeSet<NodeId>,
    groups: BTreeMap<QueueId, Group>,
    settings: Reconciliation,
    boots: u64,
    messages: u64,
    confirmed: BTreeMap<QueueId, BTreeSet<u64>>,
    /// Changes that are about to be proposed: by whom, in which of its starts.
    intents: BTreeMap<QueueId, (NodeId, u64, change::Change)>,
    /// When somebody was last asked whether it has its part.
    asked: BTreeMap<QueueId, Instant>,
    joined: u64,
    /// Not kept in this run.
    broken: Option<Rule>,
    failure: Option<String>,
    tally: BTreeMap<&'static str, u64>,
    /// What happens is printed, with the time since this.
    told_since: Option<Instant>,
}

type Shared = Arc<Mutex<World>>;
impl World {
    fn fail(&mut self, what: String) {
        self.failure.get_or_insert(what);
    }

    fn count(&mut self, what: &'static str) {
        *self.tally.entry(what).or_default() += 1;
    }

    /// With `SIM_TRACE` what happens is printed.
    fn tell(&self, what: impl FnOnce() -> String) {
        if let Some(since) = self.told_since {
            println!("{:>7} {}", since.elapsed().as_millis(), what());
        }
    }

    fn is_up(&self, node: NodeId) -> bool {
        self.machines.get(&node).is_some_and(|machine| machine.boot > 0)
    }

    fn reaches(&self, from: NodeId, to: NodeId) -> bool {
        let side =
            |node: NodeId| self.machines.get(&node).filter(|it| it.boot > 0).map(|it| it.side);
        side(from).is_some() && side(from) == side(to)
    }

    /// The nodes that can change the topology: a majority of those who vote on it.
    fn may_decide(&self, node: NodeId) -> bool {
        let there = self.voters.iter().filter(|voter| self.reaches(node, **voter)).count();
        there * 2 > self.voters.len()
    }

    /// A node hears what was decided.
    fn catch_up(&mut self, node: NodeId) {
        if !self.may_decide(node) || !self.voters.contains(&node) {
            return;
        }
        let machine = self.machines.get_mut(&node).expect("it is there");
        let from = machine.applied;
        for command in &self.commands[from..] {
            drop(machine.state.apply(command.clone()));
        }
        machine.applied = self.commands.len();
        if from < self.commands.len() {
            self.configure(node);
        }
    }

    /// A node starts and ends members as the topology says, as its shards do.
    fn configure(&mut self, node: NodeId) {
        let machine = self.machines.get_mut(&node).expect("it is there");
        let state = machine.state.clone();
        let mut told = Vec::new();
        for (id, group) in &mut self.groups {
            let wanted = state.queue_by_id(*id).and_then(|queue| queue.member(node)).copied();
            let has = group.replicas.get(&node).map(|replica| replica.stream);
            if wanted.map(|member| member.stream) == has {
                if has.is_none() {
                    machine.lost.remove(id);
                }
                continue;
            }
            group.replicas.remove(&node);
            machine.lost.remove(id);
            let Some(member) = wanted else { continue };
            match member.stage {
                Stage::Unstarted | Stage::Founding => {
                    group.replicas.insert(node, Replica::empty(member.stream));
                }
                Stage::Started if self.broken == Some(Rule::LostDoNotVote) => {
                    group.replicas.insert(node, Replica::empty(member.stream));
                }
                Stage::Started | Stage::Lost | Stage::Sole => {
                    told.push(*id);
                    machine.lost.insert(*id);
                }
            }
        }
        for id in told {
            self.tell(|| format!("node {} finds no part of {id}", node.0));
        }
    }

    fn submit(&mut self, node: NodeId, command: Command) -> Result<Outcome, Refusal> {
        if !self.may_decide(node) {
            return Err(Refusal::unavailable("no majority"));
        }
        self.catch_up(node);
        let outcome = {
            let machine = self.machines.get_mut(&node).expect("it is there");
            let outcome = machine.state.apply(command.clone());
            self.tell(|| {
                let refusal = outcome.as_ref().err().map(|refusal| &refusal.text);
                format!("node {} records {command:?} {refusal:?}", node.0)
            });
            outcome?
        };
        self.commands.push(command);
        self.machines.get_mut(&node).expect("it is there").applied = self.commands.len();
        self.configure(node);
        Ok(outcome)
    }

    /// Whether every queue keeps a majority with data in every membership that may count, without
    /// this node.
    fn can_lose(&self, node: NodeId, only: Option<QueueId>) -> bool {
        let mut groups = self.groups.iter().filter(|(id, _)| only.is_none_or(|only| **id == only));
        groups.all(|(id, group)| {
            // Who has just said that it has its part does not lose it at once: of what is decided then
            // nothing could be taken back.
            if self.asked.get(id).is_some_and(|asked| asked.elapsed() < ASKED) {
                return false;
            }
            let intended = self.intents.get(id).filter(|(by, boot, _)| {
                self.machines.get(by).is_some_and(|machine| machine.boot == *boot)
            });
            let intended = intended.and_then(|(by, _, change)| {
                Some(group.replicas.get(by)?.config().0.after(*change))
            });
            let configs = group.replicas.values().map(|replica| replica.config().0).chain(intended);
            configs.filter(|config| !config.voters.is_empty()).all(|config| {
                // Who lacks what was committed cannot lead, so only those with all of it count.
                let has = |voter: &&NodeId| {
                    let replica = group.replicas.get(*voter);
                    **voter != node && replica.is_some_and(|it| it.log.len() >= group.truth.len())
                };
                let left = config.voters.iter().filter(has).count();
                !config.voters.contains(&node) || config.is_majority(left)
            })
        })
    }
}

impl World {
    /// A leader puts something into a queue's log; gives where that ends, `None` if it leads no more.
    fn append(&mut self, queue: QueueId, node: NodeId, what: Entry) -> Option<usize> {
        let leads = |group: &Group| group.replicas.get(&node).is_some_and(|own| own.leads);
        if !self.groups.get(&queue).is_some_and(leads) {
            return None;
        }
        let mut group = self.groups.remove(&queue)?;
        let end = group.replicas.get(&node).map(|own| own.log.len() + 1);
        let ended = group.append(node, what, |to| self.reaches(node, to));
        self.groups.insert(queue, group);
        if let Err(what) = ended {
            self.fail(format!("{queue}: {what}"));
        }
        end
    }

    fn elect(&mut self, queue: QueueId, node: NodeId) -> bool {
        let Some(mut group) = self.groups.remove(&queue) else { return false };
        let elected = group.elect(node, |to| self.reaches(node, to));
        if elected == Ok(true) {
            let config = group.replicas.get(&node).map(|it| it.config().0);
            self.tell(|| format!("node {} leads {queue}: {config:?}", node.0));
        }
        self.groups.insert(queue, group);
        elected.unwrap_or_else(|what| {
            self.fail(format!("{queue}: {what}"));
            false
        })
    }

    /// What Raft and the topology do by themselves.
    fn tick(&mut self) {
        let nodes: Vec<NodeId> = self.machines.keys().copied().collect();
        for node in &nodes {
            if self.is_up(*node) && self.rng.one_in(3) {
                self.catch_up(*node);
            }
        }
        let queues: Vec<QueueId> = self.groups.keys().copied().collect();
        for queue in queues {
            let leaders: Vec<NodeId> = nodes
                .iter()
                .copied()
                .filter(|node| {
                    let own = self.groups.get(&queue).and_then(|group| group.replicas.get(node));
                    self.is_up(*node) && own.is_some_and(|own| own.leads)
                })
                .collect();
            for leader in &leaders {
                let Some(mut group) = self.groups.remove(&queue) else { continue };
                let sent = group.replicate(*leader, |to| self.reaches(*leader, to));
                self.groups.insert(queue, group);
                if let Err(what) = sent {
                    self.fail(format!("{queue}: {what}"));
                }
            }
            // Who hears no leader stands for election.
            let Some(node) = self.rng.pick(&nodes).filter(|node| self.is_up(*node)) else {
                continue;
            };
            if !leaders.iter().any(|leader| self.reaches(node, *leader)) && self.rng.one_in(2) {
                self.elect(queue, node);
            }
            self.publish(queue);
        }
    }

    fn publish(&mut self, queue: QueueId) {
        let Some(leader) =
            self.groups.get(&queue).and_then(|it| it.leader(|node| self.is_up(node)))
        else {
            return;
        };
        self.messages += 1;
        let message = self.messages;
        let end = self.append(queue, leader, Entry::Message(message));
        let own = self.groups.get(&queue).and_then(|group| group.replicas.get(&leader));
        if end.is_some_and(|end| own.is_some_and(|own| own.committed >= end)) {
            self.confirmed.entry(queue).or_default().insert(message);
        }
    }

    /// On whoever leads the topology: a former self goes when its successor has its vote.
    fn steward(&mut self) {
        if self.broken == Some(Rule::FormerSelvesGo) {
            return;
        }
        let Some(decider) = self.voters.iter().copied().find(|node| self.may_decide(*node)) else {
            return;
        };
        self.catch_up(decider);
        let Some(machine) = self.machines.get(&decider) else { return };
        let state = machine.state.clone();
        let voters: Vec<NodeId> = self.voters.iter().copied().collect();
        if let Some(former) = former_selves(&state, &voters, &[]).first() {
            self.voters.remove(former);
        }
    }
}

fn put(id: NodeId, name: &str, boot: u64) -> Command {
    let (name, address) = (name.into(), String::new());
    let (role, starts) = (NodeRole::Full, Vec::new());
    Command::PutNode(PutNode { id: id.0, name, address, role, boot, zone: None, starts })
}

/// The first start of a cluster with some queues.
fn world(seed: u64, broken: Option<Rule>) -> World {
    let mut rng = Rng(seed);
    let mut commands = boot::commands(
        "/",
        DefaultUser { name: "guest".into(), password_hash: String::new(), tags: Vec::new() },
    );
    commands.extend((1..=NODES).map(|id| put(NodeId(id), &format!("n{id}"), 1)));
    let mut state = State::new();
    for command in &commands {
        state.apply(command.clone()).expect("a first start");
    }
    let mut groups = BTreeMap::new();
    for number in 0..3 {
        let size = [1, 3, 3, 5][rng.below(4) as usize];
        let members: Vec<NodeId> =
            (0..size).map(|at| NodeId((number * 2 + at) % NODES + 1)).collect();
        let mut arguments = amq_protocol_types::FieldTable::default();
        let kind = amq_protocol_types::AMQPValue::LongString("quorum".into());
        arguments.insert("x-queue-type".into(), kind);
        let declare = Command::DeclareQueue(DeclareQueue {
            vhost: "/".into(),
            name: format!("q{number}").into(),
            generated: false,
            durable: true,
            auto_delete: false,
            exclusive_owner: None,
            arguments,
            user: "guest".into(),
            home: members[0],
            members: members.clone(),
            away: Vec::new(),
        });
        let queue = state.apply(declare.clone()).expect("it is new").queue.expect("it");
        commands.push(declare);
        let voters: BTreeSet<NodeId> = members.iter().copied().collect();
        let first = (0, Entry::Members(Config { voters, ..Config::default() }));
        let founded = |node: &NodeId| {
            let mut replica = Replica::empty(queue.id.into());
            replica.log.push(first.clone());
            (*node, replica)
        };
        let replicas = members.iter().map(founded).collect();
        groups.insert(queue.id, Group::of(replicas));
    }
    let machine = |id: u64| Machine {
        name: format!("n{id}"),
        boot: 0,
        side: 0,
        applied: commands.len(),
        state: state.clone(),
        lost: BTreeSet::new(),
    };
    let settings = Reconciliation {
        enabled: true,
        auto_remove: rng.one_in(2),
        interval: Duration::from_hours(1),
        trigger_interval: Duration::from_millis(700),
        target_group_size: [0, 3, 5][rng.below(3) as usize],
        max_lag: 1000,
        max_log_size: 0,
        concurrency: 2,
    };
    World {
        rng,
        machines: (1..=NODES).map(|id| (NodeId(id), machine(id))).collect(),
        voters: (1..=NODES).map(NodeId).collect(),
        commands,
        groups,
        settings,
        boots: 0,
        messages: 0,
        confirmed: BTreeMap::new(),
        intents: BTreeMap::new(),
        asked: BTreeMap::new(),
        joined: 0,
        broken,
        failure: None,
        tally: BTreeMap::new(),
        told_since: std::env::var_os("SIM_TRACE").map(|_| Instant::now()),
    }
}

/// What came of a run.
#[derive(Debug, PartialEq, Eq)]
struct Run {
    failure: Option<String>,
    tally: BTreeMap<&'static str, u64>,
    /// Where chance stood in the end.
    chance: u64,
}

/// A whole run, with a rule that is not kept.
fn run(seed: u64, broken: Option<Rule>) -> Run {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime can be made");
    runtime.block_on(async move {
        let shared: Shared = Arc::new(Mutex::new(world(seed, broken)));
        for node in 1..=NODES {
            boot(&shared, NodeId(node));
        }
        let begin = Instant::now();
        let elapsed = || begin.elapsed().as_millis() as u64;
        let mut last = Some("it was never looked at".to_owned());
        let mut healed = false;
        while elapsed() < STORM + CALM {
            tokio::time::sleep(Duration::from_millis(50)).await;
            shared.lock().tick();
            if elapsed() < STORM {
                let due = shared.lock().rng.one_in(8);
                if due {
                    harm(&shared);
                }
            } else if !healed {
                healed = true;
                mend(&shared);
            }
            if shared.lock().rng.one_in(40) {
                shared.lock().steward();
            }
            if shared.lock().failure.is_some() {
                break;
            }
            // Nodes that were to start later have by now.
            if elapsed() > STORM + 12_000 && (elapsed() / 50).is_multiple_of(20) {
                last = complaint(&mut shared.lock());
                if last.is_none() {
                    last = too_small(&shared);
                }
                if last.is_none() {
                    break;
                }
            }
        }
        let world = shared.lock();
        let failure = world.failure.clone().or(last);
        if failure.is_some() {
            world.tell(|| judge::scene(&world));
        }
        Run { failure, tally: world.tally.clone(), chance: world.rng.0 }
    })
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// A few seeds, or the one of `SIM_SEED`, or so many as `SIM_SEEDS` says: `make sim-membership`.
#[test]
fn whatever_happens_every_queue_is_whole_in_the_end() {
    let seeds = match (number("SIM_SEED"), number("SIM_SEEDS")) {
        (Some(seed), _) => seed..seed + 1,
        (None, count) => 0..count.unwrap_or(8),
    };
    let (mut tally, mut failed) = (BTreeMap::new(), Vec::new());
    for seed in seeds.clone() {
        let run = run(seed, None);
        for (what, count) in run.tally {
            *tally.entry(what).or_insert(0) += count;
        }
        if let Some(failure) = run.failure {
            println!("seed {seed}: {failure}; again: SIM_SEED={seed} make sim-membership");
            failed.push(seed);
        }
    }
    println!("seeds {seeds:?}: {} failed; {tally:?}", failed.len());
    assert!(failed.is_empty(), "{failed:?}");
}

#[test]
fn a_seed_is_a_run() {
    for seed in 0..2 {
        assert_eq!(run(seed, None), run(seed, None), "seed {seed}");
    }
}

/// Every rule is needed: broken, it fails runs that pass with it.
#[test]
#[ignore = "takes a minute: make sim-rules"]
fn a_broken_rule_is_noticed() {
    let mut unnoticed = Vec::new();
    for rule in rules::ALL {
        let noticed = (0..100).find_map(|seed| {
            let how = run(seed, Some(rule)).failure?;
            run(seed, None).failure.is_none().then_some((seed, how))
        });
        println!("{rule:?}: {noticed:?}");
        unnoticed.extend(noticed.is_none().then_some(rule));
    }
    assert!(unnoticed.is_empty(), "{unnoticed:?} can be broken and nobody notices");
}
