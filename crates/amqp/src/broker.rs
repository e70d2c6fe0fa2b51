//! What the server needs of the broker, for one connection.

use crate::outbox::Written;
use crate::request::{Error, Publish, Reply, Request};
use std::future::Future;

/// The broker as one connection sees it. Used by one task; none of it may block the thread.
pub trait Broker: Send {
    /// Takes a message. It may be gathered until [`Broker::end_of_batch`].
    ///
    /// # Errors
    /// It closes the channel or the connection, as the code of the error says.
    fn publish(&mut self, publish: Publish) -> Result<(), Error>;

    /// Performs an answered request ([`Request::is_answered`]), after all that was taken before it.
    /// The connection neither reads nor writes meanwhile. Dropped only with the connection's task.
    fn call(&mut self, request: Request) -> impl Future<Output = Reply> + Send;

    /// Takes any other request. It may be gathered until [`Broker::end_of_batch`].
    fn cast(&mut self, request: Request);

    /// All that was read at once has been taken: what was gathered is to be handed on.
    fn end_of_batch(&mut self);

    /// Resolves when the replies given since the last call may leave: what they report is durable.
    /// Waiting here once for all requests of a read, rather than in each [`Broker::call`], lets a
    /// client that pipelines declarations share one sync of the disk.
    fn settled(&mut self) -> impl Future<Output = ()> + Send {
        async {}
    }

    /// Deliveries have been given to the operating system, so their queue may send more.
    fn written(&mut self, written: Written);

    /// Whether more may be read.
    fn has_capacity(&self) -> bool;

    /// Resolves when [`Broker::has_capacity`] may have become true. It may be dropped before, and
    /// asked for again.
    fn capacity(&mut self) -> impl Future<Output = ()> + Send;

    /// The connection has ended, all its channels with it; called once, last. What was exclusive
    /// to it must go, if [`Request::Closing`] did not come before.
    fn disconnected(&mut self) -> impl Future<Output = ()> + Send;
}
