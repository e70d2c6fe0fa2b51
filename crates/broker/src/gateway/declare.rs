//! Exchanges, queues and bindings: declared, bound, deleted.

use std::sync::Arc;

use amqp::request::{Binding as BindingRequest, Error, ExchangeDeclare, QueueDeclare, Reply};
use metadata::command::{Command, DeclareExchange, DeclareQueue, SerialQueueId};
use metadata::objects::Name;
use metadata::objects::binding::{Binding, Destination};
use metadata::objects::queue::{Queue, QueueKind};
use metadata::outcome::Outcome;
use model::id::{NodeId, QueueId};

use crate::cluster::proposer::no_majority;
use crate::gateway::{Asked, Gateway, error};
use crate::reply_to;
use crate::shard::command::{Command as ShardCommand, Deleted};

impl Gateway {
    /// Changes the topology. The reply may be given now, and leaves when the change is durable.
    pub(super) async fn change(&mut self, command: Command) -> Result<Outcome, Error> {
        let (outcome, lsn) = self.node.topology.change(command).await.map_err(error)?;
        self.unsynced = self.unsynced.max(lsn);
        Ok(outcome)
    }

    pub(super) async fn exchange_declare(&mut self, declare: ExchangeDeclare) -> Result<(), Error> {
        let place = self.place()?;
        if declare.passive {
            place
                .state
                .check_passive_exchange(&place.vhost, &declare.exchange, Some(&place.access))
                .map_err(error)?;
            return Ok(());
        }
        let declare = DeclareExchange {
            vhost: Arc::clone(&place.vhost),
            name: declare.exchange.into(),
            kind: declare.kind.into(),
            durable: declare.durable,
            auto_delete: declare.auto_delete,
            internal: declare.internal,
            arguments: declare.arguments,
            user: Arc::clone(&place.access.user.name),
        };
        let existing =
            place.state.check_declare_exchange(&declare, Some(&place.access)).map_err(error)?;
        if existing.is_none() {
            self.change(Command::DeclareExchange(declare)).await?;
        }
        Ok(())
    }

    pub(super) async fn exchange_delete(
        &mut self,
        exchange: String,
        if_unused: bool,
    ) -> Result<(), Error> {
        let place = self.place()?;
        let existing = place
            .state
            .check_delete_exchange(&place.vhost, &exchange, if_unused, Some(&place.access))
            .map_err(error)?;
        if existing.is_some() {
            let vhost = Arc::clone(&place.vhost);
            let command = Command::DeleteExchange { vhost, name: exchange.into(), if_unused };
            self.change(command).await?;
        }
        Ok(())
    }

    pub(super) async fn bind(&mut self, request: BindingRequest, bind: bool) -> Result<(), Error> {
        if request.to_queue && request.destination.starts_with(reply_to::NAME) {
            return Err(Error {
                code: 403,
                text: format!("operation not permitted on the queue '{}'", request.destination),
            });
        }
        let id = self.id();
        let place = self.place()?;
        let name = Name::from(request.destination);
        let binding = Binding {
            vhost: Arc::clone(&place.vhost),
            source: request.source.into(),
            destination: if request.to_queue {
                Destination::Queue(name)
            } else {
                Destination::Exchange(name)
            },
            routing_key: request.routing_key.into(),
            arguments: request.arguments,
        };
        let (state, access) = (&place.state, Some(&place.access));
        let command = if bind {
            if state.check_bind(&binding, Some(id), access).map_err(error)? {
                return Ok(());
            }
            Command::Bind(binding)
        } else {
            if !state.check_unbind(&binding, Some(id), access).map_err(error)? {
                return Ok(());
            }
            Command::Unbind(binding)
        };
        self.change(command).await?;
        Ok(())
    }

    pub(super) async fn queue_declare(&mut self, declare: QueueDeclare) -> Result<Reply, Error> {
        if declare.queue == reply_to::NAME || declare.queue.starts_with(reply_to::PREFIX) {
            return self.declare_reply_to(&declare);
        }
        self.counted.queues_declared += 1;
        let id = self.id();
        let place = self.place()?;
        if declare.passive {
            let queue = place
                .state
                .check_passive_queue(&place.vhost, &declare.queue, Some(id), Some(&place.access))
                .map_err(error)?;
            self.stage(queue.id, ShardCommand::Touch { queue: queue.id });
            if let Some(reply) = self.declared(&queue).await? {
                return Ok(reply);
            }
            return Err(self.no_queue(&queue.name));
        }
        let generated = declare.queue.is_empty();
        let name: Name = if generated { generated_name().into() } else { declare.queue.into() };
        let command = DeclareQueue {
            vhost: Arc::clone(&place.vhost),
            name,
            generated,
            durable: declare.durable,
            auto_delete: declare.auto_delete,
            exclusive_owner: declare.exclusive.then_some(id),
            arguments: declare.arguments,
            user: Arc::clone(&place.access.user.name),
            // The topology says where it shall be.
            home: NodeId(0),
            members: Vec::new(),
            away: Vec::new(),
        };
        loop {
            let place = self.place()?;
            let existing =
                place.state.check_declare_queue(&command, Some(&place.access)).map_err(error)?;
            let queue = if let Some(queue) = existing {
                queue
            } else {
                self.node.check_queue_limit(&place.state).map_err(error)?;
                let outcome = self.change(Command::DeclareQueue(command.clone())).await?;
                let Some(queue) = outcome.queue else {
                    return Err(Error { code: 541, text: "the declaration gave no queue".into() });
                };
                if outcome.created {
                    // A quorum queue is there with its record, by which its members know each other
                    // and who leads.
                    let queue = queue.name.to_string();
                    return Ok(Reply::QueueDeclared { queue, messages: 0, consumers: 0 });
                }
                queue
            };
            self.stage(queue.id, ShardCommand::Touch { queue: queue.id });
            if let Some(reply) = self.declared(&queue).await? {
                return Ok(reply);
            }
            self.refresh();
            if self.place()?.state.queue_by_id(queue.id).is_none() {
                continue;
            }
            if self.is_kept_elsewhere(&queue) {
                return Err(self.is_down(&queue));
            }
            // Somebody is deleting it, and its shard has done its part: what is left is done here,
            // and a new queue follows.
            self.change(delete_command(&queue)).await?;
            self.refresh();
        }
    }

    /// Whether another node keeps this classic queue.
    pub(super) fn is_kept_elsewhere(&self, queue: &Queue) -> bool {
        let is_here = queue.home == NodeId(0) || queue.home == self.node.cluster.me.node;
        // Whoever serves a journal may be away for a moment, also if it is this node.
        queue.kind == QueueKind::Classic && (queue.journal.is_some() || !is_here)
    }

    /// The queue is there, but nobody can be asked who keeps it.
    pub(super) fn is_down(&self, queue: &Queue) -> Error {
        let state = self.node.router.state();
        let home = state
            .node(queue.home)
            .map_or_else(|| queue.home.to_string(), |node| node.name.to_string());
        Error {
            code: 404,
            text: format!(
                "home node '{home}' of durable queue '{}' in vhost '{}' is down or inaccessible",
                queue.name, queue.vhost
            ),
        }
    }

    /// The answer to the declaration of a queue that is known already; `None` if its shard knows it
    /// no more, since it is being deleted.
    async fn declared(&mut self, queue: &Queue) -> Result<Option<Reply>, Error> {
        let id = queue.id;
        let counts = self.ask(id, |answer| ShardCommand::Count { queue: id, answer }).await?;
        Ok(counts.map(|counts| Reply::QueueDeclared {
            queue: queue.name.to_string(),
            messages: u32::try_from(counts.ready).unwrap_or(u32::MAX),
            consumers: u32::try_from(counts.consumers).unwrap_or(u32::MAX),
        }))
    }

    /// The pseudo-queue exists while somebody waits for replies under its name.
    fn declare_reply_to(&self, declare: &QueueDeclare) -> Result<Reply, Error> {
        let open = declare.queue == reply_to::NAME || self.node.reply_to.is_open(&declare.queue);
        if open {
            let queue = declare.queue.clone();
            return Ok(Reply::QueueDeclared { queue, messages: 0, consumers: 1 });
        }
        let vhost = &self.place()?.vhost;
        Err(Error { code: 404, text: format!("no queue '{}' in vhost '{vhost}'", declare.queue) })
    }

    pub(super) async fn queue_delete(
        &mut self,
        queue: &str,
        if_unused: bool,
        if_empty: bool,
    ) -> Result<Reply, Error> {
        let id = self.id();
        let place = self.place()?;
        let existing = place
            .state
            .check_delete_queue(&place.vhost, queue, Some(id), Some(&place.access))
            .map_err(error)?;
        let Some(queue) = existing else { return Ok(Reply::Count(0)) };
        // Its messages must not go if the queue cannot.
        if !self.node.topology.ready().await {
            return Err(error(no_majority()));
        }
        let id = queue.id;
        let delete = |answer| ShardCommand::Delete { queue: id, if_unused, if_empty, answer };
        let deleted = match self.ask_in_time(id, delete).await? {
            Asked::Answered(deleted) => deleted,
            Asked::Late(answered, error) => {
                // Its members may yet delete it: then the topology must not go on showing it.
                let node = Arc::clone(&self.node);
                tokio::spawn(async move {
                    if let Ok(Deleted::Done(_) | Deleted::NoQueue) = answered.await
                        && let Err(refusal) = node.delete_by_id(id).await
                    {
                        tracing::error!(queue = %id, %refusal, "cannot delete a queue");
                    }
                });
                return Err(error);
            }
        };
        if let Some(refusal) = deletion_refused(&queue, deleted) {
            return Err(error(refusal));
        }
        self.change(delete_command(&queue)).await?;
        let count = match deleted {
            Deleted::Done(count) => count,
            _ => 0,
        };
        Ok(Reply::Count(u32::try_from(count).unwrap_or(u32::MAX)))
    }

    /// Deletes an auto-delete queue whose last consumer this connection has just ended, if nobody
    /// has subscribed since.
    pub(super) async fn delete_unused(&mut self, queue: QueueId) -> Result<(), Error> {
        let delete =
            |answer| ShardCommand::Delete { queue, if_unused: true, if_empty: false, answer };
        if self.ask(queue, delete).await? == Deleted::InUse {
            return Ok(());
        }
        self.refresh();
        let known = self.place()?.state.queue_by_id(queue).map(Arc::clone);
        if let Some(known) = known {
            self.change(delete_command(&known)).await?;
        }
        Ok(())
    }
}

/// What the answer to a deletion means for the client.
fn deletion_refused(queue: &Queue, deleted: Deleted) -> Option<metadata::refusal::Refusal> {
    let what = match deleted {
        Deleted::Done(_) | Deleted::NoQueue => return None,
        Deleted::InUse => "in use",
        Deleted::NotEmpty => "not empty",
    };
    let text = format!("queue '{}' in vhost '{}' {what}", queue.name, queue.vhost);
    Some(metadata::refusal::Refusal::in_use(text))
}

/// The command that removes a queue, if it still is this one.
pub(crate) fn delete_command(queue: &Queue) -> Command {
    Command::DeleteQueue {
        vhost: Arc::clone(&queue.vhost),
        name: Arc::clone(&queue.name),
        id: Some(SerialQueueId(queue.id)),
    }
}

/// `amq.gen-` and 22 characters that need no quoting in paths.
fn generated_name() -> String {
    use base64::Engine as _;
    let random: [u8; 16] = rand::random();
    format!("amq.gen-{}", base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(random))
}
