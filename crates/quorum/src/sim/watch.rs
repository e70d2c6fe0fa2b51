//! A watch channel: the newest value, for all who want to know. Who waits is woken in the order of
//! waiting. It can what tokio's can, as far as it is used here.

use openraft::OptionalSend;
use openraft::OptionalSync;
use openraft::rt::watch::{RecvError, SendError};
use openraft::rt::{WatchReceiver, WatchSender};
use parking_lot::{RwLock, RwLockReadGuard};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::sync::Notify;

#[derive(Debug)]
struct Shared<T> {
    value: RwLock<T>,
    version: AtomicU64,
    senders: AtomicU64,
    receivers: AtomicU64,
    changed: Notify,
}

impl<T> Shared<T> {
    fn touch(&self) {
        self.version.fetch_add(1, Ordering::SeqCst);
        self.changed.notify_waiters();
    }
}

/// Gives values.
#[derive(Debug)]
pub struct Sender<T>(Arc<Shared<T>>);

/// Sees them.
#[derive(Debug)]
pub struct Receiver<T> {
    shared: Arc<Shared<T>>,
    seen: u64,
}

impl<T: Default> Default for Sender<T> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Self {
        self.0.senders.fetch_add(1, Ordering::SeqCst);
        Self(Arc::clone(&self.0))
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        if self.0.senders.fetch_sub(1, Ordering::SeqCst) == 1 {
            self.0.changed.notify_waiters();
        }
    }
}

impl<T> Clone for Receiver<T> {
    fn clone(&self) -> Self {
        self.shared.receivers.fetch_add(1, Ordering::SeqCst);
        Self { shared: Arc::clone(&self.shared), seen: self.seen }
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        self.shared.receivers.fetch_sub(1, Ordering::SeqCst);
    }
}

impl<T> Sender<T> {
    /// A channel without receivers.
    pub fn new(value: T) -> Self {
        Self(Arc::new(Shared {
            value: RwLock::new(value),
            version: AtomicU64::new(0),
            senders: AtomicU64::new(1),
            receivers: AtomicU64::new(0),
            changed: Notify::new(),
        }))
    }

    /// A receiver that has seen the present value.
    pub fn subscribe(&self) -> Receiver<T> {
        self.0.receivers.fetch_add(1, Ordering::SeqCst);
        let seen = self.0.version.load(Ordering::SeqCst);
        Receiver { shared: Arc::clone(&self.0), seen }
    }

    /// The value.
    pub fn borrow(&self) -> RwLockReadGuard<'_, T> {
        self.0.value.read()
    }

    /// Changes the value.
    pub fn send_modify(&self, modify: impl FnOnce(&mut T)) {
        modify(&mut self.0.value.write());
        self.0.touch();
    }

    /// Replaces the value, whether or not anybody sees it.
    pub fn send_replace(&self, value: T) -> T {
        let old = std::mem::replace(&mut *self.0.value.write(), value);
        self.0.touch();
        old
    }
}

impl<T> Receiver<T> {
    /// The value, which does not count as seen by this.
    pub fn borrow(&self) -> RwLockReadGuard<'_, T> {
        self.shared.value.read()
    }

    /// Waits for a value that was not seen.
    ///
    /// # Errors
    /// If all senders are gone.
    pub async fn changed(&mut self) -> Result<(), RecvError> {
        loop {
            let mut notified = pin!(self.shared.changed.notified());
            notified.as_mut().enable();
            let version = self.shared.version.load(Ordering::SeqCst);
            if version != self.seen {
                self.seen = version;
                return Ok(());
            }
            if self.shared.senders.load(Ordering::SeqCst) == 0 {
                return Err(RecvError(()));
            }
            notified.await;
        }
    }

    /// Waits for a value that is so.
    ///
    /// # Errors
    /// If all senders are gone before.
    pub async fn wait_for(
        &mut self,
        mut is_so: impl FnMut(&T) -> bool,
    ) -> Result<RwLockReadGuard<'_, T>, RecvError> {
        loop {
            self.seen = self.shared.version.load(Ordering::SeqCst);
            if is_so(&self.shared.value.read()) {
                break;
            }
            self.changed().await?;
        }
        Ok(self.shared.value.read())
    }
}

/// The channel as openraft wants to see it.
#[derive(Debug)]
pub struct Watch;

impl openraft::rt::Watch for Watch {
    type Sender<T: OptionalSend + OptionalSync> = Sender<T>;
    type Receiver<T: OptionalSend + OptionalSync> = Receiver<T>;
    type Ref<'a, T: OptionalSend + 'a> = RwLockReadGuard<'a, T>;

    fn channel<T: OptionalSend + OptionalSync>(init: T) -> (Sender<T>, Receiver<T>) {
        let sender = Sender::new(init);
        let receiver = sender.subscribe();
        (sender, receiver)
    }
}

impl<T: OptionalSend + OptionalSync> WatchSender<Watch, T> for Sender<T> {
    fn send(&self, value: T) -> Result<(), SendError<T>> {
        if self.0.receivers.load(Ordering::SeqCst) == 0 {
            return Err(SendError(value));
        }
        *self.0.value.write() = value;
        self.0.touch();
        Ok(())
    }

    fn send_if_modified<F>(&self, modify: F) -> bool
    where
        F: FnOnce(&mut T) -> bool,
    {
        let modified = modify(&mut self.0.value.write());
        if modified {
            self.0.touch();
        }
        modified
    }

    fn borrow_watched(&self) -> RwLockReadGuard<'_, T> {
        self.0.value.read()
    }

    fn subscribe(&self) -> Receiver<T> {
        Sender::subscribe(self)
    }
}

impl<T: OptionalSend + OptionalSync> WatchReceiver<Watch, T> for Receiver<T> {
    async fn changed(&mut self) -> Result<(), RecvError> {
        Receiver::changed(self).await
    }

    fn borrow_watched(&self) -> RwLockReadGuard<'_, T> {
        self.shared.value.read()
    }

    fn borrow_and_update(&mut self) -> RwLockReadGuard<'_, T> {
        self.seen = self.shared.version.load(Ordering::SeqCst);
        self.shared.value.read()
    }
}
