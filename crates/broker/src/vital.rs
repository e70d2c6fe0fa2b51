//! Tasks without which a node cannot serve.

use tokio::sync::watch;
use tokio::task::JoinHandle;

/// Spawns a task whose panic ends the node.
///
/// What such a task owns (the queues of a shard) is gone with it; to go on would mean to answer nobody and to
/// say nothing. A restart brings everything back from the journal. The handle resolves when the task has
/// ended; aborting it leaves the task running.
pub(crate) fn spawn<F>(
    what: &'static str,
    failed: &watch::Sender<Option<String>>,
    task: F,
) -> JoinHandle<()>
where
    F: Future<Output = ()> + Send + 'static,
{
    let failed = failed.clone();
    let inner = tokio::spawn(task);
    tokio::spawn(async move {
        if let Err(error) = inner.await
            && error.is_panic()
        {
            tracing::error!("{what} has failed by a defect; the node stops");
            failed.send_replace(Some(format!("{what} panicked")));
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_panic_is_reported_and_an_end_is_not() {
        let (failed, reason) = watch::channel(None);
        spawn("a task", &failed, async {}).await.expect("the watcher does not panic");
        assert_eq!(*reason.borrow(), None);
        spawn("a task", &failed, async { panic!("on purpose") })
            .await
            .expect("the watcher does not panic");
        assert_eq!(reason.borrow().as_deref(), Some("a task panicked"));
    }
}
