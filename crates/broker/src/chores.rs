//! What shards cannot do themselves: deleting queues that nobody needs any more.
//!
//! All of them are under way at once. One that has to wait, because nobody leads its queue at the
//! moment, delays no other; there are never more than there are queues.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use model::id::QueueId;
use tokio::sync::mpsc;

use crate::node::Node;
use crate::shard::command::{Command, Deleted};
use crate::shard::desk::Chore;

/// What is asked for about a queue whose last chore is still under way.
type Again = Option<&'static str>;

impl Node {
    /// Performs chores until those who ask for them are gone, and those under way are done.
    pub(crate) async fn do_chores(self: Arc<Self>, chores: mpsc::UnboundedReceiver<Chore>) {
        perform(chores, |queue, why| {
            let node = Arc::clone(&self);
            async move { node.delete_unused(queue, why).await }
        })
        .await;
    }

    /// Deletes a queue, unless somebody uses it.
    async fn delete_unused(&self, queue: QueueId, why: &'static str) {
        let known = self.router.state().queue_by_id(queue).map(Arc::clone);
        let moves = known.as_ref().is_some_and(|known| known.journal.is_some());
        if let Some(known) = known {
            tracing::debug!(queue = %known.name, vhost = %known.vhost, why, "queue deleted");
        }
        // Somebody may have subscribed since: then it is in use again, and stays.
        let delete = |answer| Command::Delete { queue, if_unused: true, if_empty: false, answer };
        match self.ask(queue, delete).await {
            Some(Deleted::InUse) => return,
            // Its journal has moved meanwhile: whoever serves it now decides anew.
            Some(Deleted::NoQueue) | None if moves => return,
            _ => {}
        }
        if let Err(refusal) = self.delete_by_id(queue).await {
            tracing::error!(%queue, %refusal, "cannot delete a queue");
        }
    }
}

/// Lets `act` perform every chore, those of one queue one after the other.
async fn perform<F: Future<Output = ()>>(
    mut chores: mpsc::UnboundedReceiver<Chore>,
    act: impl Fn(QueueId, &'static str) -> F,
) {
    let mut queues: BTreeMap<QueueId, Again> = BTreeMap::new();
    let mut under_way = FuturesUnordered::new();
    let begin = |queue, why| act(queue, why).map(move |()| queue);
    let mut open = true;
    while open || !under_way.is_empty() {
        tokio::select! {
            chore = chores.recv(), if open => match chore {
                None => open = false,
                Some(Chore::DeleteQueue { queue, why }) => {
                    if let Some(again) = queues.get_mut(&queue) {
                        // The one under way may have found the queue in use, which it is no more.
                        *again = Some(why);
                    } else {
                        queues.insert(queue, None);
                        under_way.push(begin(queue, why));
                    }
                }
            },
            Some(queue) = under_way.next() => {
                if let Some(why) = queues.remove(&queue).flatten() {
                    queues.insert(queue, None);
                    under_way.push(begin(queue, why));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use tokio::sync::Notify;

    use super::*;

    fn delete(queue: u64, why: &'static str) -> Chore {
        Chore::DeleteQueue { queue: QueueId(queue), why }
    }

    #[tokio::test]
    async fn one_that_waits_delays_no_other_and_those_of_a_queue_follow_each_other() {
        let (chores, to_do) = mpsc::unbounded_channel();
        let (begun, done) = (RefCell::new(Vec::new()), RefCell::new(Vec::new()));
        let (leader, moved) = (Notify::new(), Notify::new());
        let work = perform(to_do, |queue, why| {
            begun.borrow_mut().push((queue.0, why));
            let (leader, done, moved) = (&leader, &done, &moved);
            async move {
                if queue.0 == 1 && why == "first" {
                    leader.notified().await;
                }
                done.borrow_mut().push((queue.0, why));
                moved.notify_one();
            }
        });
        let story = async {
            for chore in [delete(1, "first"), delete(2, "first"), delete(1, "second")] {
                chores.send(chore).expect("somebody performs them");
            }
            chores.send(delete(3, "first")).expect("somebody performs them");
            while done.borrow().len() < 2 {
                moved.notified().await;
            }
            let mut others = done.borrow().clone();
            others.sort_unstable();
            assert_eq!(others, [(2, "first"), (3, "first")], "the first waits for its leader");
            assert!(!begun.borrow().contains(&(1, "second")), "its queue has one at a time");
            drop(chores);
            leader.notify_one();
        };
        tokio::join!(work, story);
        assert_eq!(done.into_inner()[2..], [(1, "first"), (1, "second")], "none is left out");
    }
}
