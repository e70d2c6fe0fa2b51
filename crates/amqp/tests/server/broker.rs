//! A broker that does what it is told and writes down what it was asked.

use amqp::broker::Broker;
use amqp::mailbox::Mailbox;
use amqp::outbox::Written;
use amqp::request::{Delivery, Error, Event, Publish, Reply, Request};
use model::id::{ConsumerId, QueueId, Seq};
use model::message::Message;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use tokio::sync::Notify;

/// The size of the messages that `basic.get` gives.
pub(crate) const GOT: usize = 100_000;

/// What tests see and steer.
#[derive(Debug, Default)]
pub(crate) struct Shared {
    pub(crate) log: Mutex<Vec<String>>,
    pub(crate) changed: Notify,
    pub(crate) full: AtomicBool,
    pub(crate) room: Notify,
    pub(crate) written: Mutex<Vec<Written>>,
}

impl Shared {
    pub(crate) fn note(&self, text: impl Into<String>) {
        self.log.lock().unwrap().push(text.into());
        self.changed.notify_waiters();
    }

    /// Waits until the condition holds for the log.
    pub(crate) async fn until(&self, mut condition: impl FnMut(&[String]) -> bool) {
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            if condition(&self.log.lock().unwrap()) {
                return;
            }
            changed.await;
        }
    }

    /// Messages that have been written to consumers.
    pub(crate) fn written(&self) -> u32 {
        self.written.lock().unwrap().iter().map(|written| written.count).sum()
    }
}

/// One connection's broker. What is published to it is delivered to its consumer and confirmed.
#[derive(Debug)]
pub(crate) struct Echo {
    pub(crate) shared: Arc<Shared>,
    pub(crate) mailbox: Mailbox,
    pub(crate) user: Option<String>,
    consumer: Option<ConsumerId>,
    seq: u64,
    events: Vec<Event>,
}

impl Echo {
    pub(crate) fn new(shared: Arc<Shared>, mailbox: Mailbox) -> Self {
        Self { shared, mailbox, user: None, consumer: None, seq: 0, events: Vec::new() }
    }
}

impl Broker for Echo {
    fn publish(&mut self, publish: Publish) -> Result<(), Error> {
        let Publish { channel, confirm, message, .. } = publish;
        self.shared.note(format!("publish {}", message.body().len()));
        if let Some(consumer) = self.consumer {
            self.seq += 1;
            self.events.push(Event::Deliver(Delivery {
                channel,
                consumer: Some(consumer),
                queue: QueueId(1),
                seq: Seq(self.seq),
                redelivered: false,
                message,
            }));
        }
        if let Some(number) = confirm {
            self.events.push(Event::Confirmed { channel, number, accepted: true });
        }
        Ok(())
    }

    async fn call(&mut self, request: Request) -> Reply {
        match request {
            Request::Authenticate { mechanism, .. } => {
                let user = self.user.clone().unwrap_or_else(|| format!("{mechanism:?}"));
                self.shared.note(format!("login {user}"));
                Reply::Authenticated { user }
            }
            Request::Consume(_) => {
                self.consumer = Some(ConsumerId(1));
                Reply::Consuming { consumer: ConsumerId(1), queue: QueueId(1) }
            }
            Request::Get { channel, .. } => {
                self.shared.note("get");
                self.seq += 1;
                let delivery = Delivery {
                    channel,
                    consumer: None,
                    queue: QueueId(1),
                    seq: Seq(self.seq),
                    redelivered: false,
                    message: Message::from_parts("", "q", &[0, 0], &vec![7; GOT]),
                };
                Reply::Got(Some((delivery, 1)))
            }
            Request::Closing => {
                self.shared.note("closing");
                Reply::Done
            }
            _ => Reply::Done,
        }
    }

    fn cast(&mut self, request: Request) {
        match request {
            Request::Settle { unsettled, .. } => {
                self.shared.note(format!("settle {}", unsettled.len()));
            }
            Request::ChannelClosed { unsettled, .. } => {
                self.shared.note(format!("channel closed {}", unsettled.len()));
            }
            _ => {}
        }
    }

    fn end_of_batch(&mut self) {
        self.mailbox.post(&mut self.events);
    }

    fn written(&mut self, written: Written) {
        self.shared.written.lock().unwrap().push(written);
        self.shared.changed.notify_waiters();
    }

    fn has_capacity(&self) -> bool {
        !self.shared.full.load(Ordering::SeqCst)
    }

    async fn capacity(&mut self) {
        let room = self.shared.room.notified();
        tokio::pin!(room);
        room.as_mut().enable();
        if self.has_capacity() {
            return;
        }
        room.await;
    }

    async fn disconnected(&mut self) {
        self.shared.note("disconnected");
    }
}
