//! The way of Raft's messages between nodes.

use std::pin::pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Waker};
use std::time::Duration;

use bytes::Bytes;
use model::id::NodeId;
use peer::links::Links;
use peer::outbox::NotSent;
use quorum::member::{Boxed, NotConnected, RequestError, Transport};

use crate::cluster::channel;
use crate::cluster::lanes::Way;

/// The links, once there are any. A node on its own has none.
#[derive(Debug, Clone, Default)]
pub(crate) struct Road(Arc<OnceLock<Arc<Links>>>);

impl Road {
    /// From now on there are links.
    pub(crate) fn open(&self, links: Arc<Links>) {
        self.0.set(links).expect("links are made once");
    }

    pub(crate) fn links(&self) -> Option<&Arc<Links>> {
        self.0.get()
    }

    /// Sends a message, which is lost if the node is not connected or too much waits already.
    pub(crate) fn send(&self, to: NodeId, channel: u8, payload: Bytes) -> bool {
        self.links().is_some_and(|links| links.send(to, channel, payload).is_ok())
    }

    /// Sends a request; `None`: there is no answer.
    pub(crate) async fn request(
        &self,
        to: NodeId,
        channel: u8,
        payload: Bytes,
        within: Duration,
    ) -> Option<Bytes> {
        self.links()?.request(to, channel, payload, within).await.ok()
    }
}

impl Way for Road {
    fn take(&self, to: NodeId, channel: u8, payload: Bytes) -> Result<(), NotSent> {
        self.links().ok_or(NotSent::NotConnected)?.send(to, channel, payload)
    }

    async fn room(&self, to: NodeId) {
        if let Some(links) = self.links() {
            links.room(to).await;
        }
    }
}

impl Transport for Road {
    fn send(&self, to: NodeId, payload: Bytes) -> Result<(), NotConnected> {
        let links = self.links().ok_or(NotConnected)?;
        // A window bounds a group's appends, and so their answers. What else waits is of no concern to
        // them: nobody would send them again.
        links.send_bounded(to, channel::RAFT_MESSAGES, payload).map_err(|_| NotConnected)
    }

    fn has_room(&self, to: NodeId) -> bool {
        let Some(links) = self.links() else { return true };
        let mut context = Context::from_waker(Waker::noop());
        pin!(links.room(to)).as_mut().poll(&mut context).is_ready()
    }

    fn room(&self, to: NodeId) -> Boxed<()> {
        let links = self.links().map(Arc::clone);
        Box::pin(async move {
            if let Some(links) = links {
                links.room(to).await;
            }
        })
    }

    fn request(
        &self,
        to: NodeId,
        payload: Bytes,
        within: Duration,
    ) -> Boxed<Result<Bytes, RequestError>> {
        let links = self.links().map(Arc::clone);
        Box::pin(async move {
            let links = links.ok_or(RequestError::NotConnected)?;
            let answer = links.request(to, channel::RAFT_REQUESTS, payload, within).await;
            answer.map_err(|error| match error {
                peer::links::RequestError::TimedOut => RequestError::TimedOut,
                peer::links::RequestError::Lost
                | peer::links::RequestError::NotSent(NotSent::NotConnected) => {
                    RequestError::NotConnected
                }
                other => RequestError::Refused(other.to_string()),
            })
        })
    }
}
