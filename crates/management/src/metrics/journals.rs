//! Named journals on this node: how old their copies are, what they do, and what has happened.

use activation::register::Register;
use metadata::state::State;

use super::family::{Families, float};
use crate::journals::view;
use crate::view::copy::{CopyCounts, JournalCopy};

/// A journal by its name, with the copy of this node.
type Line<'a> = (&'a str, &'a JournalCopy);

/// One of the counts.
type Count = fn(&CopyCounts) -> u64;

/// The families of one node; none if it has no copies.
pub fn node(families: &mut Families, state: &State, copies: &[JournalCopy]) {
    let lines: Vec<Line<'_>> = copies
        .iter()
        .filter_map(|copy| Some((&*state.journal_by_uid(&copy.uid)?.name, copy)))
        .collect();
    let gauges = |families: &mut Families,
                  name: &str,
                  help: &str,
                  of: &dyn Fn(&JournalCopy) -> Option<f64>| {
        let lines = lines
            .iter()
            .filter_map(|(journal, copy)| Some((vec![("journal", *journal)], of(copy)?)));
        families.gauges(&format!("leveret_journal_{name}"), help, lines);
    };
    let register = |copy: &JournalCopy| view(state, &copy.uid).register;
    let flag = |flag: bool| Some(if flag { 1.0 } else { 0.0 });
    gauges(
        families,
        "local_sequence",
        "Activation sequence of this node's copy; -1 if it is not whole",
        &|copy| Some(copy.sequence.map_or(-1.0, float)),
    );
    gauges(
        families,
        "coordinated_sequence",
        "Activation sequence of the cluster, without its sign",
        &|copy| Some(float(register(copy)?.age().get())),
    );
    gauges(
        families,
        "claim_open",
        "Whether the next sequence is claimed and not committed",
        &|copy| flag(matches!(register(copy)?, Register::Claimed(_))),
    );
    gauges(families, "active", "Whether this node serves the journal", &|copy| {
        flag(copy.is_serving())
    });
    gauges(
        families,
        "in_sync",
        "Whether this node's copy and the other one are the same",
        &|copy| flag(copy.state == "active, replicated" || copy.state == "in sync"),
    );
    gauges(families, "is_held", "Whether this node's copy waits for an operator", &|copy| {
        flag(copy.state == "held")
    });
    gauges(families, "confirms_held", "Operations whose confirms wait", &|copy| {
        Some(float(copy.held))
    });
    gauges(families, "replica_lag_bytes", "Bytes that the replica has not answered", &|copy| {
        Some(float(copy.unanswered_bytes as u64))
    });
    gauges(
        families,
        "replica_lag_seconds",
        "Age of the oldest request that the replica has not answered",
        &|copy| Some(float(copy.unanswered_ms) / 1000.0),
    );
    gauges(families, "lease_seconds", "How long the lease of the lock lasts", &|copy| {
        Some(float(copy.lease_ms?) / 1000.0)
    });
    families.gauges(
        "leveret_journal_state",
        "What this node does with the journal",
        lines.iter().map(|(journal, copy)| {
            (vec![("journal", *journal), ("state", copy.state.as_str())], 1.0)
        }),
    );
    let counters: [(&str, &str, Count); 9] = [
        ("activations", "Times that this node began to serve the journal", |counts| {
            counts.activations
        }),
        (
            "detachments",
            "Times that the sequence was raised since the replica was lost",
            |counts| counts.detachments,
        ),
        ("takeovers", "Times that this node tried to take over from the active one", |counts| {
            counts.takeovers
        }),
        ("hand_overs", "Times that this node handed the journal to its replica", |counts| {
            counts.hand_overs
        }),
        ("failbacks", "Of these, of its own accord to the node that is preferred", |counts| {
            counts.failbacks
        }),
        (
            "leases_lost",
            "Times that this node stopped serving since its lease had ended",
            |counts| counts.leases_lost,
        ),
        ("copies", "Times that this node got in sync with the active one", |counts| counts.copies),
        ("self_repairs", "Claims of its own that this node repaired", |counts| counts.self_repairs),
        ("auto_repairs", "Claims of the other node that this node repaired", |counts| {
            counts.auto_repairs
        }),
    ];
    for (name, help, of) in counters {
        let lines =
            lines.iter().map(|(journal, copy)| (vec![("journal", *journal)], of(&copy.counts)));
        families.counters(&format!("leveret_journal_{name}_total"), help, lines);
    }
}
