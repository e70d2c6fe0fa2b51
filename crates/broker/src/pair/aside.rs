//! Work of journals beside their drivers: one place begins it, so that a simulation knows whose it
//! is, and when.

use tokio::task::JoinHandle;

/// Begins a task.
pub(crate) fn spawn<F>(task: F) -> JoinHandle<F::Output>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    #[cfg(test)]
    if let Some(owner) = crate::pair::sim::owner() {
        return owner.spawn(task);
    }
    tokio::spawn(task)
}

/// Does something that blocks, where it may.
pub(crate) fn blocking<T>(work: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T>
where
    T: Send + 'static,
{
    #[cfg(test)]
    if let Some(owner) = crate::pair::sim::owner() {
        return owner.blocking(work);
    }
    tokio::task::spawn_blocking(work)
}

/// A number that nobody else draws.
pub(crate) fn random() -> u64 {
    #[cfg(test)]
    if let Some(owner) = crate::pair::sim::owner() {
        return owner.random();
    }
    rand::random()
}
