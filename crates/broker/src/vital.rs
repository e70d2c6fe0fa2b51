//! Tasks without which a node cannot serve.

use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::pair::aside;

/// Spawns a task whose panic ends the node.
///
/// What such a task owns (the queues of a shard) is gone with it; to go on would mean to answer nobody and to
/// say nothing. A restart brings everything back from the journal. Aborting the task is no panic.
pub(crate) fn spawn<F>(
    what: &'static str,
    failed: &watch::Sender<Option<String>>,
    task: F,
) -> JoinHandle<()>
where
    F: Future<Output = ()> + Send + 'static,
{
    let watched = Watched { what, failed: failed.clone() };
    aside::spawn(async move {
        let _watched = watched;
        task.await;
    })
}

/// Dropped with its task, whatever ends it.
struct Watched {
    what: &'static str,
    failed: watch::Sender<Option<String>>,
}

impl Drop for Watched {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let what = self.what;
            tracing::error!("{what} has failed by a defect; the node stops");
            self.failed.send_replace(Some(format!("{what} panicked")));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_panic_is_reported_and_an_end_is_not() {
        let (failed, reason) = watch::channel(None);
        spawn("a task", &failed, async {}).await.expect("it ends");
        let endless = spawn("a task", &failed, std::future::pending());
        endless.abort();
        assert!(endless.await.expect_err("it was aborted").is_cancelled());
        assert_eq!(*reason.borrow(), None);
        let panicked = spawn("a task", &failed, async { panic!("on purpose") }).await;
        assert!(panicked.expect_err("it panicked").is_panic());
        assert_eq!(reason.borrow().as_deref(), Some("a task panicked"));
    }
}
