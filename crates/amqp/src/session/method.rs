//! Methods on channels: what only needs to be passed on, after what a session alone can check.

use super::content::out_of_order;
use super::malformed::bad_method;
use super::reply::{Answer, Waiting};
use super::{Failure, Session, unknown_frame};
use crate::channel::Content;
use crate::confirms::Confirms;
use crate::error::code;
use crate::request::{Binding, ChannelId, Error, ExchangeDeclare, Publish, QueueDeclare, Request};
use amq_protocol::protocol::{AMQPClass, access, basic, channel, confirm, exchange, queue, tx};
use wire::ack;
use wire::frame::Kind;
use wire::method;

impl Session {
    /// A frame on a channel that was never opened, or is closed.
    pub(super) fn on_free_channel_frame(
        &mut self,
        kind: Kind,
        number: ChannelId,
        payload: &[u8],
    ) -> Result<(), Failure> {
        let failure = |ids, error| Err(Failure { channel: number, ids, error });
        if kind != Kind::Method {
            let text = "expected method frame, got non method frame instead";
            return Err(out_of_order(number, (0, 0), text));
        }
        let Some(ids) = method::ids(payload) else {
            return Err(unknown_frame(kind, number, payload));
        };
        let max = match self.channel_max {
            0 => ChannelId::MAX,
            max => max,
        };
        if number > max || self.channels.used() >= usize::from(max) {
            let count = self.channels.used();
            let text = format!(
                "number of channels opened ({count}) has reached the negotiated channel_max ({max})"
            );
            return failure(ids, Error::not_allowed(text));
        }
        if ids != (20, 10) {
            let error = Error::new(code::CHANNEL_ERROR, "expected 'channel.open'");
            return failure(ids, error);
        }
        method::parse(payload).map_err(|error| bad_method(number, payload, &error))?;
        self.requests.push(Request::ChannelOpen { channel: number });
        self.waiting = Some(Waiting::ChannelOpen { channel: number });
        Ok(())
    }

    /// A frame on a running channel.
    pub(super) fn on_channel_frame(
        &mut self,
        kind: Kind,
        number: ChannelId,
        payload: &[u8],
    ) -> Result<Option<Publish>, Failure> {
        let idle = self
            .channels
            .get(number)
            .is_some_and(|channel| matches!(channel.content, Content::Idle));
        if kind != Kind::Method || !idle {
            return self.on_content_frame(kind, number, payload);
        }
        let Some(ids) = method::ids(payload) else {
            return Err(unknown_frame(kind, number, payload));
        };
        if ids == wire::publish::IDS {
            return self.on_publish_method(number, payload);
        }
        let result = if let Some(settlement) = ack::parse(payload) {
            self.on_settlement(number, settlement)
        } else if ids == (60, 10) && payload.get(4..8).is_some_and(|size| size != [0; 4]) {
            // amq-protocol passes over this field
            let size = payload[4..8].iter().fold(0, |size, &byte| size << 8 | u32::from(byte));
            Err(Error::not_implemented(format!("prefetch_size!=0 ({size})")))
        } else {
            let parsed =
                method::parse(payload).map_err(|error| bad_method(number, payload, &error))?;
            self.on_method(number, ids, parsed)
        };
        result.map(|()| None).map_err(|error| Failure { channel: number, ids, error })
    }

    fn on_method(
        &mut self,
        number: ChannelId,
        ids: (u16, u16),
        method: AMQPClass,
    ) -> Result<(), Error> {
        match method {
            AMQPClass::Channel(method) => self.on_channel_method(number, &method),
            AMQPClass::Access(access::AMQPMethod::Request(_)) => {
                let ok = access::AMQPMethod::RequestOk(access::RequestOk {});
                self.outbox.method(number, &AMQPClass::Access(ok));
                Ok(())
            }
            AMQPClass::Exchange(method) => self.on_exchange_method(number, ids, method),
            AMQPClass::Queue(method) => self.on_queue_method(number, ids, method),
            AMQPClass::Basic(method) => self.on_basic_method(number, ids, method),
            AMQPClass::Tx(method) => self.on_tx_method(number, ids, &method),
            AMQPClass::Confirm(confirm::AMQPMethod::Select(select)) => {
                self.on_confirm_select(number, select.nowait)
            }
            AMQPClass::Connection(_)
            | AMQPClass::Access(access::AMQPMethod::RequestOk(_))
            | AMQPClass::Confirm(confirm::AMQPMethod::SelectOk(_)) => Err(unimplemented_method()),
        }
    }

    /// Sends a request whose answer goes to the client.
    pub(super) fn ask(
        &mut self,
        channel: ChannelId,
        ids: (u16, u16),
        request: Request,
        answer: Answer,
    ) {
        self.requests.push(request);
        self.waiting = Some(Waiting::Channel { channel, ids, answer });
    }

    fn on_channel_method(
        &mut self,
        number: ChannelId,
        method: &channel::AMQPMethod,
    ) -> Result<(), Error> {
        use channel::AMQPMethod as M;
        match method {
            M::Open(_) => Err(Error::new(code::CHANNEL_ERROR, "second 'channel.open' seen")),
            M::Close(_) => {
                self.on_channel_close(number);
                Ok(())
            }
            M::Flow(channel::Flow { active: true }) => {
                let ok = M::FlowOk(channel::FlowOk { active: true });
                self.outbox.method(number, &AMQPClass::Channel(ok));
                Ok(())
            }
            M::Flow(channel::Flow { active: false }) => Err(Error::not_implemented("active=false")),
            M::OpenOk(_) | M::FlowOk(_) | M::CloseOk(_) => Err(unimplemented_method()),
        }
    }

    fn on_exchange_method(
        &mut self,
        number: ChannelId,
        ids: (u16, u16),
        method: exchange::AMQPMethod,
    ) -> Result<(), Error> {
        use exchange::AMQPMethod as M;
        let (request, ok, no_wait) = match method {
            M::Declare(declare) => (
                Request::ExchangeDeclare(ExchangeDeclare {
                    channel: number,
                    exchange: without_line_ends(declare.exchange.into()),
                    kind: declare.kind.into(),
                    passive: declare.passive,
                    durable: declare.durable,
                    auto_delete: declare.auto_delete,
                    internal: declare.internal,
                    arguments: declare.arguments,
                }),
                M::DeclareOk(exchange::DeclareOk {}),
                declare.nowait,
            ),
            M::Delete(delete) => (
                Request::ExchangeDelete {
                    channel: number,
                    exchange: without_line_ends(delete.exchange.into()),
                    if_unused: delete.if_unused,
                },
                M::DeleteOk(exchange::DeleteOk {}),
                delete.nowait,
            ),
            M::Bind(bind) => (
                Request::Bind(Binding {
                    channel: number,
                    source: without_line_ends(bind.source.into()),
                    destination: without_line_ends(bind.destination.into()),
                    to_queue: false,
                    routing_key: bind.routing_key.into(),
                    arguments: bind.arguments,
                }),
                M::BindOk(exchange::BindOk {}),
                bind.nowait,
            ),
            M::Unbind(unbind) => (
                Request::Unbind(Binding {
                    channel: number,
                    source: without_line_ends(unbind.source.into()),
                    destination: without_line_ends(unbind.destination.into()),
                    to_queue: false,
                    routing_key: unbind.routing_key.into(),
                    arguments: unbind.arguments,
                }),
                M::UnbindOk(exchange::UnbindOk {}),
                unbind.nowait,
            ),
            M::DeclareOk(_) | M::DeleteOk(_) | M::BindOk(_) | M::UnbindOk(_) => {
                return Err(unimplemented_method());
            }
        };
        self.ask(number, ids, request, Answer::Method { method: AMQPClass::Exchange(ok), no_wait });
        Ok(())
    }

    fn on_queue_method(
        &mut self,
        number: ChannelId,
        ids: (u16, u16),
        method: queue::AMQPMethod,
    ) -> Result<(), Error> {
        use queue::AMQPMethod as M;
        let (request, answer) = match method {
            M::Declare(declare) => (
                Request::QueueDeclare(QueueDeclare {
                    channel: number,
                    queue: without_line_ends(declare.queue.into()),
                    passive: declare.passive,
                    durable: declare.durable,
                    exclusive: declare.exclusive,
                    auto_delete: declare.auto_delete,
                    arguments: declare.arguments,
                }),
                Answer::QueueDeclare { no_wait: declare.nowait },
            ),
            M::Bind(bind) => {
                let key = self.routing_key(number, &bind.queue, bind.routing_key.into())?;
                let request = Request::Bind(Binding {
                    channel: number,
                    source: without_line_ends(bind.exchange.into()),
                    destination: self.queue_name(number, bind.queue.into())?,
                    to_queue: true,
                    routing_key: key,
                    arguments: bind.arguments,
                });
                let ok = AMQPClass::Queue(M::BindOk(queue::BindOk {}));
                (request, Answer::Method { method: ok, no_wait: bind.nowait })
            }
            M::Unbind(unbind) => {
                let key = self.routing_key(number, &unbind.queue, unbind.routing_key.into())?;
                let request = Request::Unbind(Binding {
                    channel: number,
                    source: without_line_ends(unbind.exchange.into()),
                    destination: self.queue_name(number, unbind.queue.into())?,
                    to_queue: true,
                    routing_key: key,
                    arguments: unbind.arguments,
                });
                let ok = AMQPClass::Queue(M::UnbindOk(queue::UnbindOk {}));
                (request, Answer::Method { method: ok, no_wait: false })
            }
            M::Purge(purge) => (
                Request::QueuePurge {
                    channel: number,
                    queue: self.queue_name(number, purge.queue.into())?,
                },
                Answer::Purge { no_wait: purge.nowait },
            ),
            M::Delete(delete) => (
                Request::QueueDelete {
                    channel: number,
                    queue: self.queue_name(number, delete.queue.into())?,
                    if_unused: delete.if_unused,
                    if_empty: delete.if_empty,
                },
                Answer::Delete { no_wait: delete.nowait },
            ),
            M::DeclareOk(_) | M::BindOk(_) | M::PurgeOk(_) | M::DeleteOk(_) | M::UnbindOk(_) => {
                return Err(unimplemented_method());
            }
        };
        self.ask(number, ids, request, answer);
        Ok(())
    }

    /// The queue that is meant: an empty name stands for the one that was declared last.
    pub(super) fn queue_name(&mut self, number: ChannelId, name: String) -> Result<String, Error> {
        if !name.is_empty() {
            return Ok(without_line_ends(name));
        }
        let last = self.channels.get(number).map(|channel| channel.last_queue.clone());
        last.filter(|last| !last.is_empty()).ok_or_else(no_queue)
    }

    /// With an empty queue name, an empty key stands for that queue's name as well.
    fn routing_key(
        &mut self,
        number: ChannelId,
        queue: &amq_protocol::types::ShortString,
        key: String,
    ) -> Result<String, Error> {
        if queue.as_str().is_empty() && key.is_empty() {
            return self.queue_name(number, String::new());
        }
        Ok(key)
    }

    fn on_confirm_select(&mut self, number: ChannelId, no_wait: bool) -> Result<(), Error> {
        let Some(channel) = self.channels.get(number) else { return Ok(()) };
        if channel.transaction.is_some() {
            return Err(Error::precondition_failed("cannot switch from tx to confirm mode"));
        }
        let given = self.confirm_number;
        channel.confirms.get_or_insert_with(|| Box::new(Confirms::new(given)));
        if !no_wait {
            let ok = confirm::AMQPMethod::SelectOk(confirm::SelectOk {});
            self.outbox.method(number, &AMQPClass::Confirm(ok));
        }
        Ok(())
    }

    fn on_tx_method(
        &mut self,
        number: ChannelId,
        ids: (u16, u16),
        method: &tx::AMQPMethod,
    ) -> Result<(), Error> {
        use tx::AMQPMethod as M;
        let Some(channel) = self.channels.get(number) else { return Ok(()) };
        match method {
            M::Select(_) => {
                if channel.confirms.is_some() {
                    return Err(Error::precondition_failed(
                        "cannot switch from confirm to tx mode",
                    ));
                }
                channel.transaction.get_or_insert_default();
                self.outbox.method(number, &AMQPClass::Tx(M::SelectOk(tx::SelectOk {})));
            }
            M::Commit(_) => {
                let transaction = channel.transaction.as_mut().ok_or_else(not_transactional)?;
                let publishes = transaction.take_publishes();
                let settlements: Vec<_> = std::mem::take(&mut transaction.settlements)
                    .into_iter()
                    .map(|(tagged, outcome)| {
                        let unsettled: Vec<_> =
                            tagged.into_iter().map(|tagged| tagged.message).collect();
                        (unsettled, outcome)
                    })
                    .collect();
                for (unsettled, _) in &settlements {
                    channel.count_settled(unsettled);
                }
                let request = Request::Commit { channel: number, publishes, settlements };
                let ok = AMQPClass::Tx(M::CommitOk(tx::CommitOk {}));
                self.ask(number, ids, request, Answer::Method { method: ok, no_wait: false });
                self.grant(number);
            }
            M::Rollback(_) => {
                let transaction = channel.transaction.as_mut().ok_or_else(not_transactional)?;
                drop(transaction.take_publishes());
                let settled = transaction.take_settled();
                channel.held.restore(settled);
                self.outbox.method(number, &AMQPClass::Tx(M::RollbackOk(tx::RollbackOk {})));
            }
            M::SelectOk(_) | M::CommitOk(_) | M::RollbackOk(_) => {
                return Err(unimplemented_method());
            }
        }
        Ok(())
    }

    fn on_basic_method(
        &mut self,
        number: ChannelId,
        ids: (u16, u16),
        method: basic::AMQPMethod,
    ) -> Result<(), Error> {
        use basic::AMQPMethod as M;
        match method {
            M::Qos(qos) => {
                self.on_qos(number, &qos);
                Ok(())
            }
            M::Consume(consume) => self.on_consume(number, ids, consume),
            M::Cancel(cancel) => {
                self.on_cancel(number, ids, cancel);
                Ok(())
            }
            M::Get(get) => {
                let queue = self.queue_name(number, get.queue.into())?;
                let no_ack = get.no_ack;
                let request = Request::Get { channel: number, queue, no_ack };
                self.ask(number, ids, request, Answer::Get { no_ack });
                Ok(())
            }
            M::Recover(basic::Recover { requeue }) => {
                self.on_recover(number, requeue)?;
                let ok = AMQPClass::Basic(M::RecoverOk(basic::RecoverOk {}));
                self.outbox.method(number, &ok);
                Ok(())
            }
            M::RecoverAsync(basic::RecoverAsync { requeue }) => self.on_recover(number, requeue),
            // well-formed ones were dealt with, and `parse` refuses the others
            M::Ack(_) | M::Nack(_) | M::Reject(_) | M::Publish(_) => Err(unimplemented_method()),
            M::QosOk(_)
            | M::ConsumeOk(_)
            | M::CancelOk(_)
            | M::Return(_)
            | M::Deliver(_)
            | M::GetOk(_)
            | M::GetEmpty(_)
            | M::RecoverOk(_) => Err(unimplemented_method()),
        }
    }
}

/// Names lose their line ends when they are declared, bound or deleted.
fn without_line_ends(mut name: String) -> String {
    name.retain(|character| character != '\r' && character != '\n');
    name
}

/// Methods that only a server sends.
fn unimplemented_method() -> Error {
    Error::new(code::COMMAND_INVALID, "unimplemented method")
}

fn no_queue() -> Error {
    Error::not_found("no previously declared queue")
}

fn not_transactional() -> Error {
    Error::precondition_failed("channel is not transactional")
}
