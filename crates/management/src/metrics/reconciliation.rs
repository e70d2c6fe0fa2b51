//! How this node keeps the groups of quorum queues whole.

use super::family::{Families, float};
use crate::view::reconciliation::ReconciliationReport;

/// The families of one node.
pub fn node(families: &mut Families, report: &ReconciliationReport) {
    families.gauge(
        "leveret_reconciliation_queues",
        "Quorum queues whose members this node looks after",
        float(report.queues),
    );
    families.gauge(
        "leveret_reconciliation_queues_below_target",
        "Of these, with fewer voters than wanted",
        float(report.below_target),
    );
    let blocked = report.blocked.iter();
    families.gauges(
        "leveret_reconciliation_queues_blocked",
        "Of these, with something in the way, by what it is",
        blocked.map(|(reason, count)| (vec![("reason", &**reason)], float(*count))),
    );
    for (name, help, steps) in [
        ("leveret_reconciliation_steps_total", "Steps that were done", &report.done),
        ("leveret_reconciliation_failures_total", "Steps that failed", &report.failed),
    ] {
        let lines = steps.iter();
        let lines = lines.map(|(kind, count)| (vec![("kind", &**kind)], *count));
        families.counters(name, help, lines);
    }
    families.gauge("leveret_reconciliation_steps_running", "Steps that run", float(report.running));
    families.counter(
        "leveret_reconciliation_passes_total",
        "Passes over all queues",
        report.passes,
    );
    if let (Some(ended), Some(took)) = (report.last_pass, report.last_duration) {
        families.gauge(
            "leveret_reconciliation_last_pass_timestamp_seconds",
            "When the last pass ended",
            float(ended) / 1000.0,
        );
        families.gauge(
            "leveret_reconciliation_last_pass_seconds",
            "How long the last pass took",
            float(took) / 1000.0,
        );
    }
}
