//! The pairs of this node, for those who have something for them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use activation::file::JournalUid;
use bytes::Bytes;
use management::view::copy::Amendment;
use model::id::{NodeId, QueueId};
use parking_lot::Mutex;
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::{Notify, oneshot};

use crate::config;
use crate::inbox::Inbox;
use crate::pair::driver::{Amended, HandedOver, Input, Report};
use crate::pair::line::Session;
use crate::shard::command::{Batch, Command};

/// See the module head.
#[derive(Debug, Default)]
pub(crate) struct Pairs {
    inner: Mutex<Inner>,
    /// A journal has changed in a state that is not published yet.
    is_changed: AtomicBool,
    /// The same of queues and bindings.
    is_redeclared: AtomicBool,
    /// Woken when a journal has changed, once everybody can see it.
    pub(crate) changed: Notify,
}

#[derive(Debug, Default)]
struct Inner {
    drivers: BTreeMap<JournalUid, UnboundedSender<Input>>,
    /// Shards of journals that are open here.
    inboxes: BTreeMap<JournalUid, Arc<Inbox>>,
    reports: BTreeMap<JournalUid, Report>,
    /// What the configuration said when it was read again.
    settings: Option<config::Journal>,
}

impl Pairs {
    /// A journal has changed; to be told when the new state is published.
    pub(crate) fn mark_changed(&self) {
        self.is_changed.store(true, Ordering::Release);
    }

    /// A state was published.
    pub(crate) fn tell_changes(&self) {
        if self.is_changed.swap(false, Ordering::AcqRel) {
            self.changed.notify_one();
        }
        if self.is_redeclared.swap(false, Ordering::AcqRel) {
            for driver in self.inner.lock().drivers.values() {
                drop(driver.send(Input::Redeclared));
            }
        }
    }

    /// A journal has a driver now; what is for it goes there.
    pub(crate) fn enter(&self, journal: JournalUid, driver: UnboundedSender<Input>) {
        let mut inner = self.inner.lock();
        if let Some(settings) = inner.settings {
            drop(driver.send(Input::Reloaded(settings)));
        }
        inner.drivers.insert(journal, driver);
    }

    /// The configuration was read again.
    pub(crate) fn reload(&self, settings: config::Journal) {
        let mut inner = self.inner.lock();
        inner.settings = Some(settings);
        for driver in inner.drivers.values() {
            drop(driver.send(Input::Reloaded(settings)));
        }
    }

    /// Its driver has ended.
    pub(crate) fn leave(&self, journal: JournalUid) {
        let mut inner = self.inner.lock();
        inner.drivers.remove(&journal);
        inner.inboxes.remove(&journal);
        inner.reports.remove(&journal);
    }

    /// Its queues are open here, or about to be: what is for them waits in this inbox.
    pub(crate) fn open(&self, journal: JournalUid, inbox: Arc<Inbox>) {
        self.inner.lock().inboxes.insert(journal, inbox);
    }

    /// Its queues are open here no more.
    pub(crate) fn close(&self, journal: JournalUid) {
        self.inner.lock().inboxes.remove(&journal);
    }

    /// All shards of journals that are open here.
    pub(crate) fn inboxes(&self) -> Vec<Arc<Inbox>> {
        self.inner.lock().inboxes.values().map(Arc::clone).collect()
    }

    /// Posts to the shard of a journal, if it is open here.
    pub(crate) fn post(&self, journal: JournalUid, command: impl FnOnce() -> Command) {
        let inbox = self.inner.lock().inboxes.get(&journal).map(Arc::clone);
        if let Some(inbox) = inbox {
            inbox.post(Batch::one(command()));
        }
    }

    /// Posts to all of them.
    pub(crate) fn post_all(&self, command: impl Fn() -> Command) {
        for inbox in self.inboxes() {
            inbox.post(Batch::one(command()));
        }
    }

    /// Orders of some node for a queue of a journal. If it is not open here they are lost, and come
    /// again when it is known who serves it.
    pub(crate) fn orders(&self, journal: JournalUid, queue: QueueId, batch: Bytes) {
        self.post(journal, || Command::Orders { queue, batch });
    }

    /// A word of another node.
    pub(crate) fn word(&self, from: NodeId, word: Bytes) {
        let Some((session, message)) = Session::read(from, word) else {
            return tracing::warn!(%from, "a word of a pair that is none");
        };
        if let Some(driver) = self.inner.lock().drivers.get(&session.journal) {
            // A driver that has just ended needs no words.
            drop(driver.send(Input::Word(session, message)));
        }
    }

    /// A node is connected or lost.
    pub(crate) fn node(&self, node: NodeId, up: bool) {
        for driver in self.inner.lock().drivers.values() {
            drop(driver.send(if up { Input::Up } else { Input::Down(node) }));
        }
    }

    /// Queues, or bindings to them, have changed in a state that is not published yet.
    pub(crate) fn mark_redeclared(&self) {
        self.is_redeclared.store(true, Ordering::Release);
    }

    /// Hands all journals that are served here to their replicas; what came of each.
    pub(crate) async fn hand_over_all(&self) -> Vec<(JournalUid, HandedOver)> {
        let drivers = self.inner.lock().drivers.clone();
        let mut asked = Vec::new();
        for (journal, driver) in drivers {
            let (answer, answered) = oneshot::channel();
            drop(driver.send(Input::HandOver(answer)));
            asked.push((journal, answered));
        }
        let mut done = Vec::new();
        for (journal, answered) in asked {
            let handed_over = answered.await.unwrap_or(Ok(false));
            done.push((journal, handed_over));
        }
        done
    }

    /// Changes a copy that is not in use.
    pub(crate) async fn amend(&self, journal: JournalUid, amendment: Amendment) -> Amended {
        let (answer, answered) = oneshot::channel();
        let driver = self.inner.lock().drivers.get(&journal).cloned();
        let sent = driver.map(|driver| driver.send(Input::Amend(amendment, answer)));
        if !matches!(sent, Some(Ok(()))) {
            return Err("there is no copy of the journal here".to_owned());
        }
        answered.await.unwrap_or_else(|_| Err("the journal is being closed here".to_owned()))
    }

    /// How a journal is.
    pub(crate) fn report(&self, journal: JournalUid, report: Report) {
        self.inner.lock().reports.insert(journal, report);
    }

    /// How all of them are.
    pub(crate) fn reports(&self) -> BTreeMap<JournalUid, Report> {
        self.inner.lock().reports.clone()
    }
}

/// The uid of a journal of the metadata, where it stands in text.
pub(crate) fn uid(text: &str) -> Option<JournalUid> {
    u128::from_str_radix(text, 16).ok().map(JournalUid)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Who is woken before the state can be seen looks at the old one, and never again.
    #[tokio::test]
    async fn changes_are_told_when_they_can_be_seen() {
        let pairs = Pairs::default();
        pairs.mark_changed();
        let mut told = Box::pin(pairs.changed.notified());
        let waiting = tokio::time::timeout(std::time::Duration::ZERO, &mut told).await;
        assert!(waiting.is_err(), "it is not published yet");
        pairs.tell_changes();
        told.await;
        pairs.tell_changes();
        let again = tokio::time::timeout(std::time::Duration::ZERO, pairs.changed.notified()).await;
        assert!(again.is_err(), "once");
    }

    #[test]
    fn uids_are_read_from_the_metadata() {
        assert_eq!(
            uid("0123456789abcdef0011223344556677").unwrap().to_string(),
            "0123456789abcdef0011223344556677"
        );
        assert_eq!(uid("no uid"), None);
    }
}
