//! Where a connection's events go: the mailbox of its task, or the node that it is on.

use amqp::mailbox::Mailbox;
use amqp::request::Event;

use crate::shard::visitors::Way;

/// See the module head. Posting never waits; what bounds it are the windows of consumers and the
/// publishes in flight.
#[derive(Debug, Clone)]
pub(crate) enum Outlet {
    /// Of a connection of this node.
    Mailbox(Mailbox),
    /// Of a connection of another node, for one queue.
    Away(Way),
}

impl Outlet {
    pub(crate) fn new(mailbox: Mailbox) -> Self {
        Self::Mailbox(mailbox)
    }

    /// Posts all events, leaving the list empty.
    pub(crate) fn post(&self, events: &mut Vec<Event>) {
        match self {
            Self::Mailbox(mailbox) => mailbox.post(events),
            Self::Away(way) => way.post(events),
        }
    }

    /// Posts one event.
    pub(crate) fn post_one(&self, event: Event) {
        match self {
            Self::Mailbox(mailbox) => mailbox.post_one(event),
            Self::Away(way) => way.post(&mut vec![event]),
        }
    }

    /// The mailbox, if it is a connection of this node.
    pub(crate) fn mailbox(&self) -> Option<&Mailbox> {
        match self {
            Self::Mailbox(mailbox) => Some(mailbox),
            Self::Away(_) => None,
        }
    }
}
