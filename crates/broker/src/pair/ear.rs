//! What the journal of a pair tells the node.

use std::io;
use std::sync::{Arc, OnceLock, Weak};

use journal::listener::Listener;
use journal::op::Lsn;
use parking_lot::Mutex;
use tokio::sync::watch;

use crate::pair::ground::Ground;
use crate::pressure::Pressure;

/// See the module head.
#[derive(Debug)]
pub(crate) struct Ear {
    name: String,
    durable: watch::Sender<Lsn>,
    ground: OnceLock<Weak<Ground>>,
    failed: watch::Sender<Option<String>>,
    pressure: Arc<Pressure>,
    room: Mutex<Room>,
}

/// Whether there is room, and who waits for it.
#[derive(Debug, Default)]
struct Room {
    full: bool,
    /// Publishers wait for room in a journal that is served. One that only copies another falls out:
    /// they do not wait for that.
    is_served: bool,
    /// It counts among those that block publishers.
    is_told: bool,
}

impl Ear {
    /// For a journal of that name; if it fails, the node is told so and stops. If it is served and has
    /// no room, publishers are blocked.
    pub(crate) fn new(
        name: &str,
        failed: watch::Sender<Option<String>>,
        pressure: Arc<Pressure>,
    ) -> Self {
        let (durable, _) = watch::channel(Lsn::default());
        let (ground, room) = (OnceLock::new(), Mutex::default());
        Self { name: name.to_owned(), durable, ground, failed, pressure, room }
    }

    /// How far it is durable.
    pub(crate) fn watch(&self) -> watch::Receiver<Lsn> {
        self.durable.subscribe()
    }

    /// From now on this ground is told too: the journal is one that is served.
    pub(crate) fn tell(&self, ground: Weak<Ground>) {
        self.ground.set(ground).expect("a journal has one ground");
        self.change(|room| room.is_served = true);
    }

    /// Whether it has no room.
    pub(crate) fn is_full(&self) -> bool {
        self.room.lock().full
    }

    fn change(&self, change: impl FnOnce(&mut Room)) {
        let mut room = self.room.lock();
        change(&mut room);
        let blocks = room.full && room.is_served;
        if std::mem::replace(&mut room.is_told, blocks) != blocks {
            self.pressure.named_journal_full(blocks);
        }
    }
}

/// The journal is closed: nobody waits for room in it any more.
impl Drop for Ear {
    fn drop(&mut self) {
        self.change(|room| room.full = false);
    }
}

impl Listener for Ear {
    fn durable(&self, lsn: Lsn) {
        self.durable.send_replace(lsn);
        if let Some(ground) = self.ground.get().and_then(Weak::upgrade) {
            ground.on_durable(lsn);
        }
    }

    fn full(&self, full: bool) {
        self.change(|room| room.full = full);
        let (journal, is_served) = (&self.name, self.room.lock().is_served);
        match (full, is_served) {
            (true, true) => tracing::warn!(
                journal,
                "the journal has no room for more messages; publishers are blocked"
            ),
            (true, false) => tracing::warn!(journal, "the copy has no room for more messages"),
            (false, _) => tracing::info!(journal, "the journal has room again"),
        }
    }

    fn failed(&self, error: &io::Error) {
        let journal = &self.name;
        tracing::error!(journal, %error, "a journal has failed; the node stops, since it can no longer keep what it confirms");
        self.failed.send_replace(Some(error.to_string()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ear(pressure: &Arc<Pressure>) -> Ear {
        Ear::new("orders", watch::channel(None).0, Arc::clone(pressure))
    }

    /// As for the node's own journal; and each blocks publishers for itself, for as long as it is open.
    #[test]
    fn a_journal_that_is_served_blocks_publishers_while_it_has_no_room() {
        let pressure = Arc::new(Pressure::new());
        let (one, other) = (ear(&pressure), ear(&pressure));
        one.tell(Weak::new());
        one.full(true);
        assert!(pressure.alarms().disk);
        other.full(true);
        // It had none before it was known to be served.
        other.tell(Weak::new());
        one.full(false);
        assert!(pressure.alarms().disk, "the other one has none");
        one.full(true);
        other.full(false);
        assert!(pressure.alarms().disk);
        drop(one);
        assert!(!pressure.alarms().disk, "it is closed");
    }

    /// A copy falls out instead: who publishes does not wait for it.
    #[test]
    fn a_copy_without_room_blocks_nobody() {
        let pressure = Arc::new(Pressure::new());
        let copy = ear(&pressure);
        copy.full(true);
        assert!(copy.is_full() && !pressure.alarms().disk);
        drop(copy);
        assert!(!pressure.is_on());
    }
}
