//! `quorum_queue.continuous_membership_reconciliation.*`: how groups of quorum queues are kept whole.

use std::time::Duration;

use membership::desired::{Caution, Desired, Target};
use membership::scheduler::Timing;
use model::time::Millis;

use super::Effective;
use super::value::Span;

/// What all of its keys begin with.
const PREFIX: &str = "quorum_queue.continuous_membership_reconciliation";
const INTERVAL: &str = "quorum_queue.continuous_membership_reconciliation.interval";
const TRIGGER_INTERVAL: &str = "quorum_queue.continuous_membership_reconciliation.trigger_interval";

/// Continuous membership reconciliation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reconciliation {
    /// Whether there is any.
    pub enabled: bool,
    /// Whether members are removed whose node has left the cluster.
    pub auto_remove: bool,
    /// Between two passes without a reason, from 1 s.
    pub interval: Duration,
    /// Between a reason and a pass, from 100 ms, at most `interval`.
    pub trigger_interval: Duration,
    /// Members wanted at least; 0: no matter.
    pub target_group_size: u64,
    /// Entries that a member may be behind when another one is added.
    pub max_lag: u64,
    /// Bytes that are copied to a new member at most, of messages and log; 0: any.
    pub max_log_size: u64,
    /// Steps at once, from 1.
    pub concurrency: usize,
}

impl Reconciliation {
    /// What is wanted of a queue; its policies and arguments say the rest of the target.
    pub fn desired(&self, target: Target) -> Desired {
        Desired {
            enabled: self.enabled,
            auto_remove: self.auto_remove,
            target: Target { configured: self.target_group_size, ..target },
            caution: Some(Caution { lag: self.max_lag, log_bytes: self.max_log_size }),
        }
    }

    /// How often it acts.
    pub fn timing(&self) -> Timing {
        Timing {
            enabled: self.enabled,
            interval: millis(self.interval),
            trigger_interval: millis(self.trigger_interval),
            concurrency: self.concurrency,
        }
    }

    /// What is wrong with the values together, and where.
    pub(super) fn complaint(&self) -> Option<(&'static str, String)> {
        (self.trigger_interval > self.interval).then(|| {
            let (own, limit) = (Span(self.trigger_interval), Span(self.interval));
            (
                TRIGGER_INTERVAL,
                format!("{TRIGGER_INTERVAL}: {own} is more than {INTERVAL}, {limit}"),
            )
        })
    }
}

impl Effective {
    pub(super) fn reconciliation(&self) -> Reconciliation {
        let name = |key: &str| format!("{PREFIX}.{key}");
        let concurrency = self.count(&name("concurrency"));
        Reconciliation {
            enabled: self.flag(&name("enabled")),
            auto_remove: self.flag(&name("auto_remove")),
            interval: self.time(INTERVAL),
            trigger_interval: self.time(TRIGGER_INTERVAL),
            target_group_size: self.count(&name("target_group_size")),
            max_lag: self.count(&name("max_lag")),
            max_log_size: self.size(&name("max_log_size")),
            concurrency: usize::try_from(concurrency).expect("its bound is small"),
        }
    }
}

fn millis(span: Duration) -> Millis {
    Millis(u64::try_from(span.as_millis()).unwrap_or(u64::MAX))
}
