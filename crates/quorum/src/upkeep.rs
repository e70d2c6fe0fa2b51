//! What a host does for its groups on the side: checkpoints when logs grow, and the news that a
//! group has stopped by itself. One task per host.

use crate::group::GroupId;
use crate::host::{Group, GroupError, Shared};
use crate::types::Types;
use openraft::async_runtime::WatchReceiver;
use openraft::type_config::TypeConfigExt;
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::sync::mpsc;

/// How long a member may take for a checkpoint.
const CHECKPOINT_WAIT: Duration = Duration::from_mins(5);

/// Something about a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum News {
    /// Its log has grown enough for a checkpoint.
    Grown(GroupId),
    /// Its state machine of that time of being awake is gone.
    Gone(GroupId, u64),
}

/// Runs until the host is gone.
pub(crate) async fn run(shared: Weak<Shared>, mut news: mpsc::UnboundedReceiver<News>) {
    while let Some(news) = news.recv().await {
        let Some(shared) = shared.upgrade() else { return };
        match news {
            News::Grown(id) => {
                if let Some(group) = shared.group(id) {
                    drop(Types::spawn(async move {
                        if let Err(error) = group.checkpoint().await {
                            tracing::warn!(group = %id, %error, "no checkpoint");
                        }
                    }));
                }
            }
            News::Gone(id, number) => shared.on_gone(id, number),
        }
    }
}

impl Shared {
    /// A group's state machine is gone. If nobody stopped the group or sent it to sleep, it failed.
    fn on_gone(&self, id: GroupId, number: u64) {
        let Some(group) = self.group(id) else { return };
        let Some(awake) = group.is_awake_as(number) else { return };
        let state = awake.raft.metrics().borrow_watched().running_state.clone();
        let error = state.err().map_or_else(|| "it stopped".into(), |error| error.to_string());
        tracing::error!(group = %id, error, "a group failed");
        group.seat.fail(error);
    }
}

impl Group {
    /// Takes a checkpoint, and purges what the log no longer needs.
    pub(crate) async fn checkpoint(self: &Arc<Self>) -> Result<(), GroupError> {
        let awake = self.wake().await?;
        let refused = |error: &dyn std::fmt::Display| GroupError::Refused(error.to_string());
        let before = self.log.checkpointed();
        // Not what openraft's figures say: they follow, and nobody would ask again.
        let applied = self.progress.lock().applied;
        if applied > before {
            awake.raft.trigger().snapshot().await.map_err(|error| refused(&error))?;
            let is_newer = move |metrics: &openraft::RaftMetrics<Types>| {
                metrics.snapshot > before || metrics.running_state.is_err()
            };
            let wait = awake.raft.wait(Some(CHECKPOINT_WAIT));
            wait.metrics(is_newer, "a checkpoint").await.map_err(|error| refused(&error))?;
        }
        if let Some(upto) = self.log.purgeable() {
            awake.raft.trigger().purge_log(upto).await.map_err(|error| refused(&error))?;
            // Once openraft has seen that: sessions with dead members must not hold it up.
            awake.raft.with_raft_state(|_| ()).await.map_err(|error| refused(&error))?;
            if self.log.purged().is_none_or(|purged| purged.index < upto) {
                awake.sessions.kick();
            }
        }
        Ok(())
    }
}
