//! Where a connection's events go: the mailbox of its task.

use amqp::mailbox::Mailbox;
use amqp::request::Event;

/// See the module head. Posting never waits; what bounds the mailbox are the windows of consumers
/// and the publishes in flight.
#[derive(Debug, Clone)]
pub(crate) struct Outlet {
    mailbox: Mailbox,
}

impl Outlet {
    pub(crate) fn new(mailbox: Mailbox) -> Self {
        Self { mailbox }
    }

    /// Posts all events, leaving the list empty.
    pub(crate) fn post(&self, events: &mut Vec<Event>) {
        self.mailbox.post(events);
    }

    /// The mailbox itself.
    pub(crate) fn mailbox(&self) -> &Mailbox {
        &self.mailbox
    }

    /// Posts one event.
    pub(crate) fn post_one(&self, event: Event) {
        self.mailbox.post_one(event);
    }
}
