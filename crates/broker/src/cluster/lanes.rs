//! Messages to other nodes that are not lost for want of room.
//!
//! A link takes no more while too much waits for its socket. What it does not take waits here, in
//! order with all that comes behind it, until there is room or the node is lost. How much that can
//! be is bounded by those who have it sent: by windows of publishers and consumers.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use model::id::NodeId;
use parking_lot::Mutex;
use peer::outbox::NotSent;

/// What takes messages as long as there is room.
pub(crate) trait Way: fmt::Debug + Send + Sync + 'static {
    /// Takes a message.
    ///
    /// # Errors
    /// Why it does not.
    fn take(&self, to: NodeId, channel: u8, payload: Bytes) -> Result<(), NotSent>;

    /// Waits until there may be room, or the node is not connected.
    fn room(&self, to: NodeId) -> impl Future<Output = ()> + Send;
}

/// See the module head.
#[derive(Debug)]
pub(crate) struct Lanes<W> {
    way: W,
    /// What waits for room, of nodes for which something does.
    waiting: Mutex<BTreeMap<NodeId, VecDeque<(u8, Bytes)>>>,
}

impl<W: Way> Lanes<W> {
    /// Nothing waits.
    pub(crate) fn new(way: W) -> Self {
        Self { way, waiting: Mutex::default() }
    }

    /// Sends a message behind all before it. `false`: it cannot be sent, as a rule because the node
    /// is not connected.
    pub(crate) fn send(self: &Arc<Self>, to: NodeId, channel: u8, payload: Bytes) -> bool {
        let mut waiting = self.waiting.lock();
        if let Some(lane) = waiting.get_mut(&to) {
            lane.push_back((channel, payload));
            return true;
        }
        match self.way.take(to, channel, payload.clone()) {
            Ok(()) => true,
            Err(NotSent::Full) => {
                waiting.insert(to, VecDeque::from([(channel, payload)]));
                drop(waiting);
                tokio::spawn(Arc::clone(self).empty(to));
                true
            }
            Err(NotSent::NotConnected) => false,
            Err(error @ NotSent::TooLarge(_)) => {
                tracing::error!(node = %to, channel, %error, "cannot tell another node something");
                false
            }
        }
    }

    /// The connection to a node is lost, and what waited for it with it.
    pub(crate) fn lost(&self, node: NodeId) {
        self.waiting.lock().remove(&node);
    }

    async fn empty(self: Arc<Self>, to: NodeId) {
        loop {
            self.way.room(to).await;
            let mut waiting = self.waiting.lock();
            let Some(lane) = waiting.get_mut(&to) else { return };
            loop {
                let Some((channel, payload)) = lane.front() else {
                    waiting.remove(&to);
                    return;
                };
                match self.way.take(to, *channel, payload.clone()) {
                    Ok(()) | Err(NotSent::TooLarge(_)) => {
                        lane.pop_front();
                    }
                    Err(NotSent::Full) => break,
                    Err(NotSent::NotConnected) => {
                        waiting.remove(&to);
                        return;
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::Notify;

    use super::*;

    const A: NodeId = NodeId(1);
    const B: NodeId = NodeId(2);

    /// Takes a number of messages, until it is emptied.
    #[derive(Debug, Default)]
    struct Narrow {
        state: Mutex<(bool, Vec<Bytes>, Vec<Bytes>)>,
        emptied: Notify,
    }

    const ROOM: usize = 2;

    impl Way for Arc<Narrow> {
        fn take(&self, to: NodeId, _: u8, payload: Bytes) -> Result<(), NotSent> {
            let mut state = self.state.lock();
            let (gone, inside, _) = &mut *state;
            if *gone || to != A {
                return Err(NotSent::NotConnected);
            }
            if inside.len() == ROOM {
                return Err(NotSent::Full);
            }
            inside.push(payload);
            Ok(())
        }

        async fn room(&self, _: NodeId) {
            self.emptied.notified().await;
        }
    }

    impl Narrow {
        fn empty(&self) {
            let mut state = self.state.lock();
            let (_, inside, out) = &mut *state;
            out.append(inside);
            self.emptied.notify_one();
        }
    }

    fn numbered(number: u8) -> Bytes {
        Bytes::copy_from_slice(&[number])
    }

    #[tokio::test]
    async fn what_finds_no_room_arrives_later_and_in_order() {
        let way = Arc::new(Narrow::default());
        let lanes = Arc::new(Lanes::new(Arc::clone(&way)));
        assert!(!lanes.send(B, 1, numbered(0)), "it is not connected");
        for number in 0..7 {
            assert!(lanes.send(A, 1, numbered(number)));
        }
        while way.state.lock().2.len() < 7 {
            way.empty();
            tokio::task::yield_now().await;
        }
        assert!(lanes.send(A, 1, numbered(7)));
        way.empty();
        assert_eq!(way.state.lock().2, (0..8).map(numbered).collect::<Vec<_>>());
    }

    #[tokio::test]
    async fn what_waits_for_a_node_goes_with_the_connection() {
        let way = Arc::new(Narrow::default());
        let lanes = Arc::new(Lanes::new(Arc::clone(&way)));
        for number in 0..5 {
            assert!(lanes.send(A, 1, numbered(number)));
        }
        way.state.lock().0 = true;
        lanes.lost(A);
        assert!(!lanes.send(A, 1, numbered(5)));
        // It is back: nothing of what was waiting follows.
        *way.state.lock() = (false, Vec::new(), Vec::new());
        assert!(lanes.send(A, 1, numbered(6)));
        for _ in 0..10 {
            way.empty();
            tokio::task::yield_now().await;
        }
        assert_eq!(way.state.lock().2, [numbered(6)]);
    }
}
