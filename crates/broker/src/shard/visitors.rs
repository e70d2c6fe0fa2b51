//! Other nodes at the classic queues that this node keeps: their orders are performed here, and they
//! are told by notices.
//!
//! A link that breaks loses what was under way. Then both sides let go: here everything that the
//! node's connections held comes back, there publishes are refused and consumers cancelled. On one
//! link a batch may be overtaken by a later one, which is then asked for again.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use amqp::request::Event;
use bytes::Bytes;
use model::id::{ConnectionId, NodeId, QueueId};
use tokio::sync::oneshot;

use crate::origin::{InFlight, Origin};
use crate::outlet::Outlet;
use crate::pair::aside;
use crate::replicated::fabric::Fabric;
use crate::replicated::notice::{Item, Notice, Reply};
use crate::replicated::numbered::Sender;
use crate::replicated::order::{self, Order, Published, Subscribed};
use crate::shard::Shard;
use crate::shard::command::{Arrival, Command, Consume, Content, Done, Got};
use crate::shard::confirms::Owed;

/// Connections of other nodes that have, or had, something of a queue.
#[derive(Debug, Default)]
pub(crate) struct Visitors {
    of: BTreeMap<(NodeId, QueueId), BTreeSet<ConnectionId>>,
    /// The last number of a node that was performed, since it was connected.
    last: BTreeMap<(NodeId, QueueId), u64>,
}

impl Visitors {
    /// What to do with orders from `first` on: how many of them were performed before, or where the
    /// sender has to begin again. One that has let go begins anew, wherever it was.
    fn judge(
        &mut self,
        sender: Sender,
        queue: QueueId,
        first: u64,
        anew: bool,
    ) -> Result<u64, u64> {
        let last = self.last.entry((sender.node, queue)).or_insert(first - 1);
        if anew {
            *last = first - 1;
        }
        let expected = *last + 1;
        if first > expected { Err(expected) } else { Ok(expected - first) }
    }

    fn performed(&mut self, sender: Sender, queue: QueueId, number: u64) {
        self.last.insert((sender.node, queue), number);
    }

    fn enter(&mut self, node: NodeId, queue: QueueId, connection: ConnectionId) {
        self.of.entry((node, queue)).or_default().insert(connection);
    }
}

/// Where events of another node's connections go.
#[derive(Debug, Clone)]
pub(crate) struct Way {
    fabric: Arc<dyn Fabric>,
    pub(crate) queue: QueueId,
    to: Sender,
}

impl Way {
    fn tell(&self, upto: u64, expected: u64, items: Vec<Item>) {
        let term = self.fabric.me().boot;
        let notice = Notice { queue: self.queue, term, boot: self.to.boot, upto, expected, items };
        self.fabric.notice(self.to.node, &notice);
    }

    fn send(&self, upto: u64, items: Vec<Item>) {
        self.tell(upto, 0, items);
    }

    /// Sends events on, leaving the list empty.
    pub(crate) fn post(&self, events: &mut Vec<Event>) {
        let items = events.drain(..).filter_map(|event| match event {
            Event::Deliver(delivery) => Some(Item::Deliver {
                consumer: delivery.consumer?,
                seq: delivery.seq,
                redelivered: delivery.redelivered,
                again: false,
                message: delivery.message,
            }),
            Event::ConsumerCancelled { consumer, .. } => Some(Item::Cancelled { consumer }),
            Event::ConsumerTimedOut { consumer, error, .. } => {
                Some(Item::TimedOut { consumer, code: error.code, text: error.text })
            }
            Event::Demand { consumer, .. } => Some(Item::Demand { consumer }),
            Event::GrantUnused { consumer, count, .. } => {
                Some(Item::GrantUnused { consumer, count })
            }
            // Everything else is between a connection and its own node.
            _ => None,
        });
        let items: Vec<Item> = items.collect();
        if !items.is_empty() {
            self.send(0, items);
        }
    }
}

/// Orders of another node that wait until the journal has synced what they brought.
#[derive(Debug)]
pub(crate) struct Visit {
    way: Way,
    upto: u64,
    items: Vec<Item>,
}

impl Visit {
    /// Tells the node that they are performed.
    pub(crate) fn pay(self) {
        self.way.send(self.upto, self.items);
    }
}

impl Shard {
    /// Orders of another node for a classic queue.
    pub(super) fn visit(&mut self, queue: QueueId, batch: Bytes) {
        if self.of_journal && !self.slots.contains_key(&queue) {
            // This node has not heard of it yet, or it is gone: then the sender hears so.
            return;
        }
        let batches = match order::read_batches(batch) {
            Ok(batches) => batches,
            Err(error) => return tracing::error!(%queue, %error, "orders of another node"),
        };
        for mut batch in batches {
            let way = Way { fabric: Arc::clone(&self.desk.fabric), queue, to: batch.sender };
            let mut visit = Visit { way, upto: 0, items: Vec::new() };
            let mut needs_disk = false;
            let anew = batch.begins_anew();
            let mut repeats = match self.visitors.judge(batch.sender, queue, batch.first, anew) {
                Ok(repeats) => repeats,
                Err(expected) => {
                    visit.way.tell(0, expected, Vec::new());
                    continue;
                }
            };
            loop {
                let number = batch.first;
                let order = batch.take();
                if repeats > 0 && order.is_some() {
                    repeats -= 1;
                    continue;
                }
                match order {
                    None => break,
                    Some(Ok(Order::Publish(published))) => {
                        let (accepted, durable) = self.take_in(queue, published);
                        needs_disk |= durable;
                        if !accepted {
                            visit.items.push(Item::Refused { number });
                        }
                    }
                    Some(Ok(order)) => self.perform_for(&visit.way, number, order),
                    Some(Err(error)) => {
                        tracing::error!(%queue, %error, "orders of another node");
                        break;
                    }
                }
                visit.upto = number;
                self.visitors.performed(batch.sender, queue, number);
            }
            if visit.upto > 0 {
                self.owed.push((Owed { visit: Some(visit), ..Owed::default() }, needs_disk));
            }
        }
    }

    /// Whether the queue takes a message, and whether its answer must wait for the journal.
    fn take_in(&mut self, queue: QueueId, published: Published) -> (bool, bool) {
        let Published { persistent, priority, ttl, message } = published;
        let content = Content::Own(message);
        let arrival = Arrival { queue, content, persistent, priority, ttl, done: Done::Nothing };
        // Deleted meanwhile: as if it had been deleted just after.
        self.with(queue, |slot, desk| slot.publish(desk, &arrival)).unwrap_or((true, false))
    }

    fn perform_for(&mut self, way: &Way, number: u64, order: Order) {
        let (queue, node) = (way.queue, way.to.node);
        match order {
            Order::Settle { runs, outcome } => {
                let unsettled = order::unsettled(queue, &runs);
                self.command(Command::Settle { queue, unsettled, outcome });
            }
            Order::Sent { consumer, messages, bytes } => {
                self.command(Command::Sent { queue, consumer, messages, bytes });
            }
            Order::Limit { consumer } => self.command(Command::Limit { queue, consumer }),
            Order::Grant { consumer, count } => {
                self.command(Command::Grant { queue, consumer, count });
            }
            Order::End { consumer } => self.command(Command::End { queue, consumer }),
            Order::Gone { consumer } => self.command(Command::Gone { queue, consumer }),
            Order::Consume(subscribed) => {
                self.visitors.enter(node, queue, subscribed.connection);
                self.subscribe(way, number, *subscribed);
            }
            Order::Cancel { consumer } => {
                let answer = ask(way, number, Reply::Cancelled);
                self.command(Command::Cancel { queue, consumer, answer });
            }
            Order::Get { connection, no_ack } => {
                self.visitors.enter(node, queue, connection);
                let answer = ask(way, number, |got| match got {
                    Got::Message { seq, redelivered, message, remaining } => {
                        Reply::Got { seq, redelivered, message, remaining }
                    }
                    Got::SingleActive => Reply::SingleActive,
                    Got::Empty | Got::NoQueue => Reply::Empty,
                });
                self.command(Command::Get { queue, connection, no_ack, answer });
            }
            Order::Left { connection } => {
                self.with(queue, |slot, desk| slot.connection_gone(desk, connection));
            }
            Order::Touch => self.command(Command::Touch { queue }),
            Order::Count => {
                let answer = ask(way, number, |counts| match counts {
                    Some(counts) => Reply::Counted(counts),
                    None => Reply::Empty,
                });
                self.command(Command::Count { queue, answer });
            }
            Order::Purge => {
                let answer =
                    ask(way, number, |count: Option<u64>| Reply::Purged(count.unwrap_or(0)));
                self.command(Command::Purge { queue, answer });
            }
            Order::Delete { if_unused, if_empty } => {
                let answer = ask(way, number, Reply::Deleted);
                self.command(Command::Delete { queue, if_unused, if_empty, answer });
            }
            // The node has let go of everything, or has just started.
            Order::Hello => self.leave(node, queue),
            Order::Attach { .. } => {
                self.leave(node, queue);
                way.send(0, vec![Item::Attaching { number }, Item::Attached { number }]);
            }
            Order::Publish(_)
            | Order::Nothing
            | Order::Configure(_)
            | Order::Tick
            | Order::Restarted { .. }
            | Order::Lost { .. }
            | Order::Bury { .. }
            | Order::Version(_) => {}
        }
    }

    fn subscribe(&mut self, way: &Way, number: u64, subscribed: Subscribed) {
        let origin = Origin {
            id: subscribed.connection,
            outlet: Outlet::Away(way.clone()),
            totals: Arc::clone(&self.totals),
            in_flight: InFlight::default(),
        };
        let consume = Consume {
            queue: way.queue,
            consumer: subscribed.consumer,
            origin: Arc::new(origin),
            channel: subscribed.channel,
            tag: subscribed.tag,
            no_ack: subscribed.no_ack,
            exclusive: subscribed.exclusive,
            priority: subscribed.priority,
            timeout: subscribed.timeout,
            flow: subscribed.flow,
            arguments: subscribed.arguments,
            user: subscribed.user.into(),
            answer: ask(way, number, Reply::Consumed),
        };
        self.command(Command::Consume(Box::new(consume)));
    }

    /// What a node's connections have of a queue comes back.
    fn leave(&mut self, node: NodeId, queue: QueueId) {
        for connection in self.visitors.of.remove(&(node, queue)).unwrap_or_default() {
            self.with(queue, |slot, desk| slot.connection_gone(desk, connection));
        }
    }

    /// A node is lost, and with it all of its connections.
    pub(super) fn visitors_lost(&mut self, node: NodeId) {
        let all = (node, QueueId(0))..=(node, QueueId(u64::MAX));
        let queues: Vec<QueueId> =
            self.visitors.of.range(all).map(|((_, queue), _)| *queue).collect();
        for queue in queues {
            self.leave(node, queue);
        }
        self.visitors.last.retain(|(of, _), _| *of != node);
    }
}

/// A sender whose answer goes to another node. If it is dropped, the node learns nothing; that is
/// how a queue answers that is gone.
fn ask<T: Send + 'static>(
    way: &Way,
    number: u64,
    reply: impl FnOnce(T) -> Reply + Send + 'static,
) -> oneshot::Sender<T> {
    let (answer, answered) = oneshot::channel();
    let way = way.clone();
    aside::spawn(async move {
        if let Ok(value) = answered.await {
            way.send(0, vec![Item::Reply { number, reply: reply(value) }]);
        }
    });
    answer
}

#[cfg(test)]
mod tests {
    use journal::op::Lsn;
    use model::id::StreamId;
    use model::time::Millis;
    use parking_lot::Mutex;
    use quorum::group::GroupId;
    use quorum::member::Member;

    use super::*;
    use crate::replicated::client::Leader;
    use crate::replicated::fabric::Berth;
    use crate::shard::confirms::Confirms;

    /// Hears up to which order another node is told that all is done.
    #[derive(Debug, Default)]
    struct Told(Mutex<Vec<u64>>);

    impl Fabric for Told {
        fn me(&self) -> Sender {
            Sender { node: NodeId(1), boot: 1 }
        }

        fn start_of(&self, _: NodeId) -> Option<Sender> {
            None
        }

        fn knows(&self, _: NodeId) -> Option<u8> {
            None
        }

        fn patience(&self) -> Millis {
            Millis(0)
        }

        fn orders(&self, _: NodeId, _: QueueId, _: Bytes) {}

        fn notice(&self, _: NodeId, notice: &Notice) {
            self.0.lock().push(notice.upto);
        }

        fn propose(&self, _: QueueId, _: Bytes) -> bool {
            false
        }

        fn announce(&self, _: QueueId, _: Leader) {}

        fn start(&self, _: QueueId, _: Arc<dyn Member>, _: Berth) {}

        fn move_to(&self, _: QueueId, _: GroupId, _: bool) {}

        fn delete(&self, _: QueueId, _: StreamId) {}
    }

    /// "Done up to here" says so of all orders before: an answer to one that needs no disk, such as
    /// an acknowledgement, must not confirm a publish before it that is not synced.
    #[test]
    fn orders_that_need_no_disk_wait_for_those_before_them() {
        let told = Arc::<Told>::default();
        let orders = |upto| {
            let to = Sender { node: NodeId(2), boot: 1 };
            let way = Way { fabric: Arc::clone(&told) as _, queue: QueueId(16), to };
            Owed { visit: Some(Visit { way, upto, items: Vec::new() }), ..Owed::default() }
        };
        let mut confirms = Confirms::default();
        confirms.settle(orders(1));
        assert_eq!(*told.0.lock(), [1], "nothing is before them");
        confirms.push(Lsn(9), orders(2));
        confirms.settle(orders(3));
        confirms.push(Lsn(10), orders(4));
        assert_eq!(*told.0.lock(), [1]);
        confirms.durable(Lsn(8));
        assert_eq!(*told.0.lock(), [1]);
        confirms.durable(Lsn(9));
        assert_eq!(*told.0.lock(), [1, 2, 3]);
        confirms.durable(Lsn(10));
        assert_eq!(*told.0.lock(), [1, 2, 3, 4]);
    }
}
