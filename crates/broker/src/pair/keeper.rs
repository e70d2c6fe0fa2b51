//! Gives every journal that is on this node its driver, and takes it away again.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use activation::file::JournalUid;
use activation::standing::Own;
use bytes::Bytes;
use metadata::objects::journal::Journal as JournalEntry;
use metadata::state::State;
use model::id::NodeId;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

use crate::cluster::Cluster;
use crate::pair::driver::{Driver, Input, Parts};
use crate::pair::folder::Found;
use crate::pair::line::Line;
use crate::pair::quorum::Quorum;
use crate::pair::stage::Yard;
use crate::pair::{aside, registry};
use crate::shard::command;
use crate::vital;

/// After which a driver that could not be started is tried again.
const AGAIN: Duration = Duration::from_secs(2);

/// A driver that runs.
#[derive(Debug)]
struct Running {
    sender: mpsc::UnboundedSender<Input>,
    task: JoinHandle<()>,
}

/// Drivers that were told to stop, and whose journals are not closed yet: a disk that hangs may take as
/// long as it likes, and other journals do not wait for that.
type Ending = BTreeMap<JournalUid, JoinHandle<()>>;

/// See the module head. Runs as long as the node, or until it is told to stop.
pub(crate) async fn run(yard: Yard, mut stop: oneshot::Receiver<oneshot::Sender<()>>) {
    let mut running: BTreeMap<JournalUid, Running> = BTreeMap::new();
    let mut ending = Ending::new();
    loop {
        let all_are = look(&yard, &mut running, &mut ending).await;
        let again = async {
            if all_are {
                std::future::pending::<()>().await;
            }
            tokio::time::sleep(AGAIN).await;
        };
        tokio::select! {
            biased;
            answer = &mut stop => {
                end(std::mem::take(&mut running)).await;
                for task in std::mem::take(&mut ending).into_values() {
                    drop(task.await);
                }
                if let Ok(to) = answer {
                    command::answer(to, ());
                }
                return;
            }
            () = yard.pairs.changed.notified() => {}
            () = again => {}
        }
    }
}

/// Starts and stops drivers; whether every journal has the one that it should have.
async fn look(
    yard: &Yard,
    running: &mut BTreeMap<JournalUid, Running>,
    ending: &mut Ending,
) -> bool {
    ending.retain(|_, task| !task.is_finished());
    let me = yard.me.node;
    let state = yard.router.state();
    let mut wanted = BTreeMap::new();
    for entry in state.journals().filter(|entry| is_wanted(entry, me)) {
        if let Some(uid) = registry::uid(&entry.uid) {
            wanted.insert(uid, Arc::clone(entry));
        }
    }
    let gone: Vec<JournalUid> =
        running.keys().filter(|uid| !wanted.contains_key(uid)).copied().collect();
    for uid in gone {
        if let Some(one) = running.remove(&uid) {
            ending.insert(uid, aside::spawn(end(BTreeMap::from([(uid, one)]))));
        }
    }
    let mut all_are = true;
    for (uid, entry) in wanted {
        if ending.contains_key(&uid) {
            // Two drivers of a journal would be in one folder.
            all_are = false;
            continue;
        }
        if let Some(one) = running.get(&uid) {
            drop(one.sender.send(Input::Changed));
            continue;
        }
        match start(yard, uid, &entry).await {
            Ok(one) => {
                running.insert(uid, one);
            }
            Err(reason) => {
                tracing::warn!(journal = %entry.name, %reason, "a journal cannot be begun yet");
                all_are = false;
            }
        }
    }
    all_are
}

/// A backup begins when the journal has its register.
fn is_wanted(entry: &JournalEntry, me: NodeId) -> bool {
    entry.is_on(me) && (entry.paired || entry.node == me)
}

async fn start(yard: &Yard, uid: JournalUid, known: &JournalEntry) -> Result<Running, String> {
    // What this node knew when it was stopped may be old: whether the journal has a register by now
    // decides whether it may be served without a lock.
    let (id, lease) = (known.uid.clone(), model::time::Millis(0));
    let asked = Quorum::new(Arc::clone(&yard.topology), id, yard.me, lease);
    if asked.read(true).await == activation::event::Event::Unavailable {
        return Err("no majority of the cluster answers".into());
    }
    let state: Arc<State> = yard.router.state();
    let me = yard.me.node;
    let entry = state.journal(&known.name).map(Arc::clone);
    let entry = entry.filter(|entry| entry.uid == known.uid && is_wanted(entry, me));
    let entry = entry.ok_or("it is not on this node any more")?;
    let (works, name) = (Arc::clone(&yard.works), entry.name.clone());
    let opened = aside::blocking(move || works.folder(&name, uid));
    let (folder, found) = opened
        .await
        .map_err(|error| error.to_string())?
        .map_err(|error| format!("its folder: {error}"))?;
    let own = own(&state, &entry, me, &found);
    let (driver, inputs) = Driver::new(Parts {
        yard: yard.clone(),
        line: Arc::clone(&yard.line),
        folder,
        entry,
        uid,
        own,
        damage: found.damage,
        saved: found.saved,
    });
    let sender = driver.sender();
    yard.pairs.enter(uid, sender.clone());
    let task = vital::spawn("the driver of a journal", &yard.failed, driver.run(inputs));
    Ok(Running { sender, task })
}

/// What the activation has to know of a copy.
pub(crate) fn own(state: &State, entry: &JournalEntry, me: NodeId, found: &Found) -> Own {
    let founder = match state.coordinated(&entry.uid).register {
        Some(register) => register.founder == me.0,
        None => entry.node == me,
    };
    Own { record: found.record, vacant: found.vacant, founder }
}

/// Stops drivers, and waits until their journals are closed.
async fn end(running: BTreeMap<JournalUid, Running>) {
    let mut waiting = Vec::new();
    for Running { sender, task } in running.into_values() {
        let (answer, answered) = oneshot::channel();
        drop(sender.send(Input::Stop(answer)));
        waiting.push((answered, task));
    }
    for (answered, task) in waiting {
        drop(answered.await);
        drop(task.await);
    }
}

impl Line for Cluster {
    fn send(&self, to: NodeId, word: Bytes) -> bool {
        self.pair_word(to, word)
    }

    fn is_up(&self, node: NodeId) -> bool {
        self.up.lock().contains_key(&node)
    }

    fn has_quorum(&self) -> bool {
        self.metadata_leader().is_some()
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;
    use crate::pair::sim::bare_yard;
    use crate::pair::works::{Shelf, Works};
    use crate::replicated::numbered::Sender;

    #[derive(Debug)]
    struct Nothing;

    impl Line for Nothing {
        fn send(&self, _: NodeId, _: Bytes) -> bool {
            false
        }

        fn is_up(&self, _: NodeId) -> bool {
            false
        }

        fn has_quorum(&self) -> bool {
            false
        }
    }

    impl Works for Nothing {
        fn folder(&self, _: &str, _: JournalUid) -> io::Result<(Arc<dyn Shelf>, Found)> {
            unreachable!("no journal is on this node")
        }
    }

    /// A driver whose journal does not come to be closed holds nobody up.
    #[tokio::test]
    async fn journals_end_each_on_its_own() {
        let me = Sender { node: NodeId(1), boot: 1 };
        let yard = bare_yard(me, Arc::new(Nothing), Arc::new(Nothing));
        let (mut running, mut ending) = (BTreeMap::new(), Ending::new());
        let mut told = Vec::new();
        for uid in 1..=2 {
            let (sender, inputs) = mpsc::unbounded_channel();
            let task = tokio::spawn(async {});
            running.insert(JournalUid(uid), Running { sender, task });
            told.push(inputs);
        }
        let looked = look(&yard, &mut running, &mut ending);
        assert!(tokio::time::timeout(Duration::from_secs(20), looked).await.unwrap());
        assert!(running.is_empty() && ending.len() == 2);
        let mut answers = Vec::new();
        for inputs in &mut told {
            let input = tokio::time::timeout(Duration::from_secs(20), inputs.recv());
            let Some(Input::Stop(answer)) = input.await.unwrap() else { panic!("it is not told") };
            answers.push(answer);
        }
        // The second one has closed its journal.
        command::answer(answers.pop().unwrap(), ());
        while !ending[&JournalUid(2)].is_finished() {
            tokio::task::yield_now().await;
        }
        assert!(look(&yard, &mut running, &mut ending).await);
        assert_eq!(ending.keys().collect::<Vec<_>>(), [&JournalUid(1)]);
    }
}
