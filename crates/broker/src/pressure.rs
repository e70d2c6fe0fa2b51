//! Whether publishers have to stop, whatever the reason: memory, disk, a journal without room, here or
//! on another node.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};

use model::id::NodeId;
use parking_lot::Mutex;
use tokio::sync::watch;

use crate::limits::alarms::Alarms;

/// See the module head.
#[derive(Debug)]
pub(crate) struct Pressure {
    on: AtomicBool,
    causes: Mutex<Causes>,
    /// The reason, as `connection.blocked` gives it.
    reason: watch::Sender<Option<&'static str>>,
    /// This node's own.
    own: watch::Sender<Alarms>,
}

#[derive(Debug, Default)]
struct Causes {
    sampled: Alarms,
    journal_full: bool,
    /// How many named journals that are served here have no room.
    named_full: usize,
    /// Of other nodes: those that have any.
    elsewhere: BTreeMap<NodeId, Alarms>,
}

impl Default for Pressure {
    fn default() -> Self {
        Self::new()
    }
}

impl Pressure {
    pub(crate) fn new() -> Self {
        Self {
            on: AtomicBool::new(false),
            causes: Mutex::default(),
            reason: watch::Sender::new(None),
            own: watch::Sender::new(Alarms::default()),
        }
    }

    /// Whether publishers have to stop.
    pub(crate) fn is_on(&self) -> bool {
        self.on.load(Ordering::Acquire)
    }

    /// The alarms of this node that are on.
    pub(crate) fn alarms(&self) -> Alarms {
        self.causes.lock().own()
    }

    /// The alarms of another node that are on, as far as it has told.
    pub(crate) fn alarms_of(&self, node: NodeId) -> Alarms {
        self.causes.lock().elsewhere.get(&node).copied().unwrap_or_default()
    }

    /// Follows the reason.
    pub(crate) fn subscribe(&self) -> watch::Receiver<Option<&'static str>> {
        self.reason.subscribe()
    }

    /// Follows the alarms of this node.
    pub(crate) fn subscribe_own(&self) -> watch::Receiver<Alarms> {
        self.own.subscribe()
    }

    /// The alarms that another node has told of; none if it is lost.
    pub(crate) fn elsewhere(&self, node: NodeId, alarms: Alarms) {
        self.change(|causes| {
            if alarms.any() {
                causes.elsewhere.insert(node, alarms);
            } else {
                causes.elsewhere.remove(&node);
            }
        });
    }

    /// The alarms that samples of memory and disk give.
    pub(crate) fn sampled(&self, alarms: Alarms) {
        self.change(|causes| causes.sampled = alarms);
    }

    /// The journal has no room for messages, or has again.
    pub(crate) fn journal_full(&self, full: bool) {
        self.change(|causes| causes.journal_full = full);
    }

    /// One more named journal that is served here has no room for messages, or one less.
    pub(crate) fn named_journal_full(&self, full: bool) {
        self.change(|causes| {
            causes.named_full =
                if full { causes.named_full + 1 } else { causes.named_full.saturating_sub(1) };
        });
    }

    fn change(&self, change: impl FnOnce(&mut Causes)) {
        let mut causes = self.causes.lock();
        change(&mut causes);
        let (own, reason) = (causes.own(), causes.all().reason());
        self.on.store(reason.is_some(), Ordering::Release);
        self.reason.send_if_modified(|old| std::mem::replace(old, reason) != reason);
        self.own.send_if_modified(|old| std::mem::replace(old, own) != own);
    }
}

impl Causes {
    fn own(&self) -> Alarms {
        Alarms {
            disk: self.sampled.disk || self.journal_full || self.named_full > 0,
            ..self.sampled
        }
    }

    fn all(&self) -> Alarms {
        self.elsewhere.values().fold(self.own(), |all, one| Alarms {
            memory: all.memory || one.memory,
            disk: all.disk || one.disk,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn publishers_go_on_when_the_last_cause_is_gone() {
        let pressure = Pressure::new();
        pressure.journal_full(true);
        pressure.sampled(Alarms { memory: true, disk: true });
        assert_eq!(*pressure.subscribe().borrow(), Some("low on memory & disk"));
        pressure.sampled(Alarms::default());
        assert_eq!(*pressure.subscribe().borrow(), Some("low on disk"));
        assert!(pressure.is_on());
        pressure.journal_full(false);
        assert_eq!(*pressure.subscribe().borrow(), None);
        assert!(!pressure.is_on());
    }

    #[test]
    fn publishers_go_on_when_the_last_journal_has_room() {
        let pressure = Pressure::new();
        for (full, is_on) in [(true, true), (true, true), (false, true), (false, false)] {
            pressure.named_journal_full(full);
            assert_eq!((pressure.alarms().disk, pressure.is_on()), (is_on, is_on));
        }
        pressure.named_journal_full(true);
        pressure.journal_full(true);
        pressure.journal_full(false);
        assert_eq!(*pressure.subscribe().borrow(), Some("low on disk"), "each for itself");
    }

    #[test]
    fn other_nodes_alarms_count_like_ones_own_and_are_not_ones_own() {
        let pressure = Pressure::new();
        let (mut own, mut reason) = (pressure.subscribe_own(), pressure.subscribe());
        let [memory, disk] =
            [(true, false), (false, true)].map(|(memory, disk)| Alarms { memory, disk });
        let (b, c) = (NodeId(2), NodeId(3));
        pressure.elsewhere(b, disk);
        pressure.elsewhere(c, memory);
        assert_eq!(*reason.borrow_and_update(), Some("low on memory & disk"));
        assert_eq!((pressure.alarms(), pressure.alarms_of(c)), (Alarms::default(), memory));
        assert!(!own.has_changed().expect("it is there"), "nothing to tell others");
        // Its owner is lost, or says that it is over.
        pressure.elsewhere(c, Alarms::default());
        assert_eq!(*reason.borrow_and_update(), Some("low on disk"));
        pressure.sampled(disk);
        assert!(!reason.has_changed().expect("it is there"), "clients know already");
        assert_eq!(*own.borrow_and_update(), disk);
        pressure.elsewhere(b, Alarms::default());
        assert!(pressure.is_on());
        pressure.sampled(Alarms::default());
        assert_eq!(*reason.borrow_and_update(), None);
        assert!(!pressure.is_on());
    }
}
