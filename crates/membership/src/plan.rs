//! From what is wanted and what there is to the next step.
//!
//! ```text
//!  may this node plan?  nodes known → leads → not in maintenance → no change under way
//!  then the first of    a lost member is replaced
//!                       a dangling one is removed, if that is wanted
//!                       a member that could not be started at the declaration is added
//!                       a member that has caught up gets its vote
//!                       one more is added, while there are fewer than the target
//! ```
//!
//! Removals come first: to grow while dead members count makes the group even, or unable to commit.

use crate::desired::{Caution, Desired};
use crate::observed::{Data, Leadership, Member, Node, Observed};
use crate::placement;
use crate::refusal::Refusal;
use crate::step::{Action, Reason, Step};

/// What is done next for a queue, and what stands in the way of more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// All members.
    pub size: u64,
    /// Those with a vote.
    pub voters: u64,
    /// How many there should be at least; 0: no matter.
    pub target: u64,
    /// The next step.
    pub step: Option<Step>,
    /// Why that is all. None and no step: nothing is to be done.
    pub refusals: Vec<Refusal>,
}

impl Plan {
    /// Whether nothing is to be done until something else happens.
    pub fn is_settled(&self) -> bool {
        self.step.is_none() && !self.refusals.iter().any(Refusal::passes)
    }

    /// Whether fewer members than wanted have a vote.
    pub fn is_below_target(&self) -> bool {
        self.voters < self.target
    }
}

/// The plan for a queue.
pub fn plan(desired: &Desired, observed: &Observed) -> Plan {
    let mut planner = Planner { desired, observed, refusals: Vec::new() };
    let step = match planner.gate() {
        Ok(()) => planner.step(),
        Err(refusal) => {
            planner.refusals.push(refusal);
            None
        }
    };
    Plan {
        size: observed.size(),
        voters: observed.members.iter().filter(|member| member.is_voter).count() as u64,
        target: desired.target.effective(),
        step,
        refusals: planner.refusals,
    }
}

struct Planner<'p> {
    desired: &'p Desired,
    observed: &'p Observed,
    refusals: Vec<Refusal>,
}

impl Planner<'_> {
    /// Whether this node may plan anything for this queue now.
    fn gate(&self) -> Result<(), Refusal> {
        let Self { desired, observed, .. } = self;
        if !desired.enabled {
            return Err(Refusal::Disabled);
        }
        if observed.nodes.is_empty() {
            return Err(Refusal::NodesUnknown);
        }
        match observed.leadership {
            Leadership::Here => {}
            Leadership::Elsewhere(leader) => {
                let leader = leader.map(|leader| observed.label(leader));
                return Err(Refusal::NotLeader { leader });
            }
            Leadership::Unconfirmed => return Err(Refusal::Unconfirmed),
        }
        let me = observed.node(observed.me);
        if me.is_some_and(|me| me.is_drained) {
            return Err(Refusal::Maintenance { node: observed.label(observed.me) });
        }
        if desired.caution.is_none() {
            return Ok(());
        }
        if me.is_none() {
            return Err(Refusal::NotInCluster);
        }
        if observed.is_changing {
            return Err(Refusal::Changing);
        }
        Ok(())
    }

    fn step(&mut self) -> Option<Step> {
        if let Some(step) = self.replace().or_else(|| self.remove()) {
            return Some(step);
        }
        // Nothing is added in a pass that has something to remove.
        let observed = self.observed;
        let removes = self.desired.auto_remove && self.dangling().next().is_some();
        let lost = observed.members.iter().any(|member| member.data != Data::Kept);
        if removes || lost {
            return None;
        }
        self.start().or_else(|| self.promote()).or_else(|| self.grow())
    }

    /// Members whose node has left the cluster, or was wiped first and has left then.
    fn dangling(&self) -> impl Iterator<Item = &Member> {
        let observed = self.observed;
        observed.members.iter().filter(move |member| match member.data {
            Data::Kept => observed.node(member.node).is_none(),
            Data::Lost { now } => observed.node(now).is_none(),
        })
    }

    /// A lost member whose node is there gets a new one in its place.
    fn replace(&mut self) -> Option<Step> {
        let observed = self.observed;
        let mut refusals = Vec::new();
        let mut step = None;
        for member in &observed.members {
            let Data::Lost { now } = member.data else { continue };
            let Some(node) = observed.node(now) else { continue };
            match self.replacement(member, node) {
                Ok(found) => {
                    step = Some(found);
                    break;
                }
                Err(refusal) => refusals.push(refusal),
            }
        }
        self.refusals.append(&mut refusals);
        step
    }

    fn replacement(&self, member: &Member, node: &Node) -> Result<Step, Refusal> {
        let observed = self.observed;
        let lost = observed.label(member.node);
        self.may_go(member)?;
        let remove = |reason| Step { action: Action::Remove { node: lost.clone() }, reason };
        if node.id != member.node && observed.member(node.id).is_some() {
            return Ok(remove(Reason::Superseded));
        }
        if !node.keeps_queues {
            return Ok(remove(Reason::Homeless));
        }
        self.is_ready(node)?;
        if let Some(caution) = &self.desired.caution {
            if let Some(learner) = self.learner() {
                return Err(Refusal::MemberWithoutVote { node: observed.label(learner.node) });
            }
            self.is_small(caution)?;
        }
        let with = observed.label(node.id);
        Ok(Step { action: Action::Replace { lost, with }, reason: Reason::Lost })
    }

    /// A dangling member goes, if that is wanted.
    fn remove(&mut self) -> Option<Step> {
        let mut refusals = Vec::new();
        let mut step = None;
        for member in self.dangling() {
            let node = self.observed.label(member.node);
            if !self.desired.auto_remove {
                refusals.push(Refusal::Dangling { node });
                continue;
            }
            match self.may_go(member) {
                Ok(()) => {
                    step = Some(Step { action: Action::Remove { node }, reason: Reason::Dangling });
                    break;
                }
                Err(refusal) => refusals.push(refusal),
            }
        }
        self.refusals.append(&mut refusals);
        step
    }

    /// A node that was down when the queue was declared gets its member.
    fn start(&mut self) -> Option<Step> {
        let observed = self.observed;
        let mut refusals = Vec::new();
        let mut step = None;
        for id in &observed.unstarted {
            let Some(node) = observed.node(*id) else { continue };
            if observed.member(*id).is_some() || !node.keeps_queues {
                continue;
            }
            match self.is_ready(node).and_then(|()| self.is_calm()) {
                Ok(()) => {
                    let node = observed.label(*id);
                    step = Some(Step { action: Action::Add { node }, reason: Reason::Unstarted });
                    break;
                }
                Err(refusal) => refusals.push(refusal),
            }
        }
        self.refusals.append(&mut refusals);
        step
    }

    /// A member that was added and that nobody gives its vote: who did it may be gone.
    fn promote(&self) -> Option<Step> {
        let caution = self.desired.caution.as_ref()?;
        let learner = self.learner()?;
        let near = self.behind(learner).is_some_and(|behind| behind <= caution.lag);
        let runs = self.observed.runs(learner);
        let node = self.observed.label(learner.node);
        (near && runs)
            .then_some(Step { action: Action::Promote { node }, reason: Reason::Unpromoted })
    }

    /// One more member, while there are fewer than wanted.
    fn grow(&mut self) -> Option<Step> {
        let observed = self.observed;
        let size = observed.size();
        let target = self.desired.target.effective();
        if size >= target {
            return None;
        }
        let candidates: Vec<&Node> = observed
            .nodes
            .iter()
            .filter(|node| {
                let is_free = node.is_up && !node.is_drained && node.keeps_queues;
                is_free && observed.member(node.id).is_none()
            })
            .collect();
        let mut refusals = Vec::new();
        if candidates.is_empty() {
            refusals.push(Refusal::NoCandidate { size, target });
        } else if size % 2 == 1 && candidates.len() < 2 {
            refusals.push(Refusal::EvenSize { size, target });
        }
        let usable: Vec<&Node> = candidates
            .iter()
            .copied()
            .filter(|node| self.desired.caution.is_none() || !observed.avoided.contains(&node.id))
            .collect();
        if let (Some(first), true) = (candidates.first(), usable.is_empty()) {
            refusals.push(Refusal::Avoided { node: observed.label(first.id) });
        }
        let is_stuck = self.is_calm().err();
        // Of a dangling member it was said already.
        let is_repeated = is_stuck.as_ref().is_some_and(|stuck| match stuck {
            Refusal::MemberDown { node } => {
                self.refusals.contains(&Refusal::Dangling { node: node.clone() })
            }
            _ => false,
        });
        let may = refusals.is_empty() && is_stuck.is_none();
        refusals.extend(is_stuck.filter(|_| !is_repeated));
        self.refusals.append(&mut refusals);
        if !may {
            return None;
        }
        let chosen = placement::choose(&usable, observed)?;
        Some(Step {
            action: Action::Add { node: observed.label(chosen) },
            reason: Reason::BelowTarget { size, target },
        })
    }

    /// Whether all other members are as they should be, so that one can be added.
    fn is_calm(&self) -> Result<(), Refusal> {
        let observed = self.observed;
        let others = || observed.members.iter().filter(|member| member.node != observed.me);
        // Those that may come back first: of the dangling ones there is a word already.
        let mut down: Vec<&Member> = others().filter(|member| !observed.runs(member)).collect();
        down.sort_by_key(|member| observed.dangles(member));
        if let Some(down) = down.first() {
            return Err(Refusal::MemberDown { node: observed.label(down.node) });
        }
        let Some(caution) = &self.desired.caution else { return Ok(()) };
        if let Some(learner) = self.learner() {
            return Err(Refusal::MemberWithoutVote { node: observed.label(learner.node) });
        }
        for member in others() {
            let behind = self.behind(member);
            if behind.is_none_or(|behind| behind > caution.lag) {
                let node = observed.label(member.node);
                return Err(Refusal::MemberLags { node, behind, limit: caution.lag });
            }
        }
        self.is_small(caution)
    }

    /// Whether a node can be given a member now.
    fn is_ready(&self, node: &Node) -> Result<(), Refusal> {
        let label = || self.observed.label(node.id);
        if !node.is_up {
            return Err(Refusal::NodeDown { node: label() });
        }
        if node.is_drained {
            return Err(Refusal::NodeDrained { node: label() });
        }
        if self.observed.avoided.contains(&node.id) {
            return Err(Refusal::Avoided { node: label() });
        }
        Ok(())
    }

    /// Whether the log can be copied.
    fn is_small(&self, caution: &Caution) -> Result<(), Refusal> {
        let bytes = self.observed.whole_bytes;
        if caution.log_bytes != 0 && bytes > caution.log_bytes {
            return Err(Refusal::LogTooLarge { bytes, limit: caution.log_bytes });
        }
        Ok(())
    }

    /// Whether the others are a majority of themselves without a member.
    fn may_go(&self, member: &Member) -> Result<(), Refusal> {
        if self.desired.caution.is_none() || !member.is_voter {
            return Ok(());
        }
        let observed = self.observed;
        let others: Vec<&Member> = observed
            .members
            .iter()
            .filter(|other| other.is_voter && other.node != member.node)
            .collect();
        let running = others.iter().filter(|other| observed.runs(other)).count() as u64;
        let left = others.len() as u64;
        if running * 2 > left {
            return Ok(());
        }
        Err(Refusal::NoMajority { node: observed.label(member.node), running, left })
    }

    /// The first member without a vote that has its data.
    fn learner(&self) -> Option<&Member> {
        let mut members = self.observed.members.iter();
        members.find(|member| !member.is_voter && member.data == Data::Kept)
    }

    /// How many entries a member is behind.
    fn behind(&self, member: &Member) -> Option<u64> {
        if member.node == self.observed.me {
            return Some(0);
        }
        member.matched.map(|matched| self.observed.last.saturating_sub(matched))
    }
}
