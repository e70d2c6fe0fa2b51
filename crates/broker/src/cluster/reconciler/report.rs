//! What operators see of reconciliation.

use management::view::reconciliation::{
    PlanReport, PlannedMember, PlannedRefusal, PlannedStep, ReconciliationReport,
};
use membership::forecast::forecast;
use membership::observed::{Data, Member, Observed};
use membership::refusal::Refusal;
use membership::step::Step;
use model::id::QueueId;

use crate::cluster::reconciler::Reconciler;
use crate::node::tool_name;
use crate::shard;

/// More steps than any queue needs.
const FORECAST: usize = 64;

impl Reconciler {
    /// How it is getting on, on this node.
    pub(crate) fn report(&self) -> ReconciliationReport {
        let (settings, counts) = (self.settings(), self.counts());
        ReconciliationReport {
            node: tool_name(&self.cluster.name),
            now: shard::now().0,
            enabled: settings.enabled,
            auto_remove: settings.auto_remove,
            target_group_size: settings.target_group_size,
            queues: counts.queues,
            below_target: counts.below_target,
            blocked: counts.blocked.iter().map(|(kind, n)| (kind.as_str().into(), *n)).collect(),
            done: counts.done.iter().map(|(kind, n)| (kind.as_str().into(), *n)).collect(),
            failed: counts.failed.iter().map(|(kind, n)| (kind.as_str().into(), *n)).collect(),
            running: counts.running,
            waiting: counts.waiting,
            examined: counts.examined,
            passes: counts.passes,
            last_pass: counts.last_pass.map(|at| at.0),
            last_duration: counts.last_duration.map(|span| span.0),
            next_pass: counts.next_pass.map(|at| at.0),
        }
    }

    /// What this node would do about the members of a queue; `None` if it does not lead it.
    pub(crate) fn plan_report(&self, queue: QueueId) -> Option<PlanReport> {
        let (desired, observed) = self.observe(queue)?;
        if observed.leadership != membership::observed::Leadership::Here {
            return None;
        }
        let members = observed.members.iter().map(|member| planned(&observed, member));
        let unstarted = observed.unstarted.iter().map(|node| PlannedMember {
            node: observed.label(*node).to_string(),
            state: "unstarted".to_owned(),
            running: observed.node(*node).is_some_and(|node| node.is_up),
            behind: None,
        });
        let members: Vec<PlannedMember> = members.chain(unstarted).collect();
        let plans = forecast(&desired, observed, FORECAST);
        let (first, last) = (plans.first()?, plans.last()?);
        Some(PlanReport {
            leader: tool_name(&self.cluster.name),
            target: first.target,
            members,
            steps: plans.iter().filter_map(|plan| plan.step.as_ref()).map(step).collect(),
            refusals: first.refusals.iter().map(refusal).collect(),
            afterwards: last.refusals.iter().map(refusal).collect(),
            size_afterwards: last.size,
            last_failure: self.failures.lock().get(&queue).cloned(),
        })
    }
}

fn planned(observed: &Observed, member: &Member) -> PlannedMember {
    let state = match member.data {
        _ if observed.dangles(member) => "dangling",
        Data::Lost { .. } => "lost",
        Data::Kept if member.is_voter => "voter",
        Data::Kept => "learner",
    };
    let behind = member.matched.map(|matched| observed.last.saturating_sub(matched));
    PlannedMember {
        node: observed.label(member.node).to_string(),
        state: state.to_owned(),
        running: observed.runs(member),
        behind: if member.node == observed.me { Some(0) } else { behind },
    }
}

fn step(step: &Step) -> PlannedStep {
    PlannedStep {
        kind: step.action.kind().as_str().to_owned(),
        step: step.action.to_string(),
        reason: step.reason.to_string(),
    }
}

fn refusal(refusal: &Refusal) -> PlannedRefusal {
    PlannedRefusal { kind: refusal.kind().as_str().to_owned(), reason: refusal.to_string() }
}
