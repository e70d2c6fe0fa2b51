//! What the journal of a pair tells the node.

use std::io;
use std::sync::{OnceLock, Weak};

use journal::listener::Listener;
use journal::op::Lsn;
use tokio::sync::watch;

use crate::pair::ground::Ground;

/// See the module head.
#[derive(Debug)]
pub(crate) struct Ear {
    name: String,
    durable: watch::Sender<Lsn>,
    ground: OnceLock<Weak<Ground>>,
    failed: watch::Sender<Option<String>>,
}

impl Ear {
    /// For a journal of that name; if it fails, the node is told so and stops.
    pub(crate) fn new(name: &str, failed: watch::Sender<Option<String>>) -> Self {
        let (durable, _) = watch::channel(Lsn::default());
        Self { name: name.to_owned(), durable, ground: OnceLock::new(), failed }
    }

    /// How far it is durable.
    pub(crate) fn watch(&self) -> watch::Receiver<Lsn> {
        self.durable.subscribe()
    }

    /// From now on this ground is told too.
    pub(crate) fn tell(&self, ground: Weak<Ground>) {
        self.ground.set(ground).expect("a journal has one ground");
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
        let journal = &self.name;
        if full {
            tracing::warn!(
                journal,
                "the journal has no room for more messages; their confirms wait"
            );
        } else {
            tracing::info!(journal, "the journal has room again");
        }
    }

    fn failed(&self, error: &io::Error) {
        let journal = &self.name;
        tracing::error!(journal, %error, "a journal has failed; the node stops, since it can no longer keep what it confirms");
        self.failed.send_replace(Some(error.to_string()));
    }
}
