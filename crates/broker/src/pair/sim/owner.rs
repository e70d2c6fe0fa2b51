//! Whose work it is: everything that one start of one node has begun, which is stopped for a while
//! (SIGSTOP) or for ever (SIGKILL, a power cut) as one.

use std::cell::RefCell;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::task::JoinHandle;

use crate::replicated::numbered::Sender;
use crate::replicated::sim::rng::Rng;

thread_local! {
    static OWNER: RefCell<Option<Arc<Owner>>> = const { RefCell::new(None) };
}

/// Whose work is being done on this thread.
pub(crate) fn owner() -> Option<Arc<Owner>> {
    OWNER.with_borrow(Clone::clone)
}

/// See the module head.
#[derive(Debug)]
pub(crate) struct Owner {
    pub(crate) me: Sender,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    rng: Rng,
    /// Work that blocks takes at most so many milliseconds.
    slow: u64,
    frozen: bool,
    dead: bool,
    /// Work that blocks comes to no end.
    hung: bool,
    waiting: Vec<Waker>,
    /// The same of that work.
    blocked: Vec<Waker>,
}

impl Owner {
    pub(crate) fn new(me: Sender, rng: Rng, slow: u64) -> Arc<Self> {
        let (waiting, blocked) = (Vec::new(), Vec::new());
        let state = State { rng, slow, frozen: false, dead: false, hung: false, waiting, blocked };
        Arc::new(Self { me, state: Mutex::new(state) })
    }

    /// Does something as this owner.
    pub(crate) fn within<T>(self: &Arc<Self>, work: impl FnOnce() -> T) -> T {
        let _back = Back(OWNER.replace(Some(Arc::clone(self))));
        work()
    }

    pub(crate) fn spawn<F>(self: &Arc<Self>, task: F) -> JoinHandle<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        tokio::spawn(Owned { owner: Arc::clone(self), task: Box::pin(task) })
    }

    /// Something that blocks: it takes a while, and then happens at once.
    pub(crate) fn blocking<T>(
        self: &Arc<Self>,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> JoinHandle<T>
    where
        T: Send + 'static,
    {
        let time = {
            let mut state = self.state.lock();
            let slow = state.slow;
            state.rng.millis(0, slow)
        };
        let owner = Arc::clone(self);
        self.spawn(async move {
            if time > Duration::ZERO {
                tokio::time::sleep(time).await;
            }
            std::future::poll_fn(|context| {
                let mut state = owner.state.lock();
                if !state.hung {
                    return Poll::Ready(());
                }
                state.blocked.push(context.waker().clone());
                Poll::Pending
            })
            .await;
            work()
        })
    }

    /// The disk does nothing any more for those that wait for it.
    pub(crate) fn hang(&self) {
        self.state.lock().hung = true;
    }

    /// It goes on.
    pub(crate) fn go_on(&self) {
        let blocked = {
            let mut state = self.state.lock();
            state.hung = false;
            std::mem::take(&mut state.blocked)
        };
        blocked.into_iter().for_each(Waker::wake);
    }

    pub(crate) fn is_hung(&self) -> bool {
        self.state.lock().hung
    }

    pub(crate) fn random(&self) -> u64 {
        self.state.lock().rng.next()
    }

    /// Nothing goes on until it is thawed.
    pub(crate) fn freeze(&self) {
        self.state.lock().frozen = true;
    }

    pub(crate) fn thaw(&self) {
        let waiting = {
            let mut state = self.state.lock();
            state.frozen = false;
            std::mem::take(&mut state.waiting)
        };
        waiting.into_iter().for_each(Waker::wake);
    }

    /// Nothing goes on any more.
    pub(crate) fn kill(&self) {
        let mut state = self.state.lock();
        state.dead = true;
        state.waiting.clear();
        state.blocked.clear();
    }

    pub(crate) fn is_frozen(&self) -> bool {
        self.state.lock().frozen
    }

    pub(crate) fn is_dead(&self) -> bool {
        self.state.lock().dead
    }

    fn stops(&self, waker: &Waker) -> bool {
        let mut state = self.state.lock();
        if !state.dead && !state.frozen {
            return false;
        }
        if !state.dead {
            state.waiting.push(waker.clone());
        }
        true
    }
}

/// Puts back whose work it was before.
struct Back(Option<Arc<Owner>>);

impl Drop for Back {
    fn drop(&mut self) {
        OWNER.set(self.0.take());
    }
}

struct Owned<F> {
    owner: Arc<Owner>,
    task: Pin<Box<F>>,
}

impl<F: Future> Future for Owned<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        if self.owner.stops(context.waker()) {
            return Poll::Pending;
        }
        let owner = Arc::clone(&self.owner);
        owner.within(|| self.task.as_mut().poll(context))
    }
}

#[cfg(test)]
mod tests {
    use model::id::NodeId;

    use super::*;
    use crate::pair::aside;

    #[tokio::test(start_paused = true)]
    async fn what_is_frozen_waits_and_what_is_dead_never_goes_on() {
        let me = Sender { node: NodeId(1), boot: 1 };
        let owner = Owner::new(me, Rng::new(1), 5);
        let nested = owner.within(|| {
            aside::spawn(async {
                tokio::time::sleep(Duration::from_millis(10)).await;
                aside::blocking(aside::random).await.unwrap()
            })
        });
        owner.freeze();
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert!(!nested.is_finished() && owner.is_frozen());
        owner.thaw();
        assert_eq!(nested.await.unwrap(), {
            let mut same = Rng::new(1);
            same.next();
            same.next()
        });
        let dead = owner.within(|| aside::spawn(async {}));
        owner.kill();
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert!(!dead.is_finished() && owner.is_dead());
    }
}
