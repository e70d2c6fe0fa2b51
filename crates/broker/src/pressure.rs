//! Whether publishers have to stop, whatever the reason: memory, disk, a journal without room.

use std::sync::atomic::{AtomicBool, Ordering};

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
}

#[derive(Debug, Default)]
struct Causes {
    sampled: Alarms,
    journal_full: bool,
}

impl Pressure {
    pub(crate) fn new() -> Self {
        Self {
            on: AtomicBool::new(false),
            causes: Mutex::default(),
            reason: watch::Sender::new(None),
        }
    }

    /// Whether publishers have to stop.
    pub(crate) fn is_on(&self) -> bool {
        self.on.load(Ordering::Acquire)
    }

    /// The alarms that are on.
    pub(crate) fn alarms(&self) -> Alarms {
        self.causes.lock().alarms()
    }

    /// Follows the reason.
    pub(crate) fn subscribe(&self) -> watch::Receiver<Option<&'static str>> {
        self.reason.subscribe()
    }

    /// The alarms that samples of memory and disk give.
    pub(crate) fn sampled(&self, alarms: Alarms) {
        self.change(|causes| causes.sampled = alarms);
    }

    /// The journal has no room for messages, or has again.
    pub(crate) fn journal_full(&self, full: bool) {
        self.change(|causes| causes.journal_full = full);
    }

    fn change(&self, change: impl FnOnce(&mut Causes)) {
        let mut causes = self.causes.lock();
        change(&mut causes);
        let reason = causes.alarms().reason();
        self.on.store(reason.is_some(), Ordering::Release);
        self.reason.send_if_modified(|old| std::mem::replace(old, reason) != reason);
    }
}

impl Causes {
    fn alarms(&self) -> Alarms {
        Alarms { disk: self.sampled.disk || self.journal_full, ..self.sampled }
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
}
