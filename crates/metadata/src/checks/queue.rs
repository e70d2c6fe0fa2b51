//! Declaring, using and deleting queues.

use std::sync::Arc;

use amq_protocol_types::{AMQPValue, FieldTable, LongString, ShortString};
use model::id::ConnectionId;

use crate::access::{Access, Right};
use crate::arguments;
use crate::checks::{arguments as queue_arguments, check_reserved, equivalence};
use crate::command::DeclareQueue;
use crate::objects::limit::VhostLimit;
use crate::objects::queue::{Queue, QueueKind};
use crate::quoted;
use crate::refusal::Refusal;
use crate::state::State;

impl State {
    /// What `queue.declare` is answered with: the queue if it exists and is equivalent, so that no
    /// command is needed; `None` if [`crate::command::Command::DeclareQueue`] would make it.
    /// Without `access` no permission is asked for.
    ///
    /// # Errors
    /// 403, 405, 406.
    pub fn check_declare_queue(
        &self,
        declare: &DeclareQueue,
        access: Option<&Access>,
    ) -> Result<Option<Arc<Queue>>, Refusal> {
        self.check_inside(&declare.vhost)?;
        if !declare.generated {
            check_reserved("queue", &declare.name)?;
        }
        if let Some(access) = access {
            access.check_queue(Right::Configure, &declare.name)?;
        }
        if let Some(existing) = self.queue(&declare.vhost, &declare.name) {
            check_equivalent(existing, declare)?;
            return Ok(Some(Arc::clone(existing)));
        }
        self.check_new_queue(declare, access)?;
        Ok(None)
    }

    /// What a passive `queue.declare` is answered with; any of the three rights is enough.
    ///
    /// # Errors
    /// 403, 404, 405.
    pub fn check_passive_queue(
        &self,
        vhost: &str,
        name: &str,
        connection: Option<ConnectionId>,
        access: Option<&Access>,
    ) -> Result<Arc<Queue>, Refusal> {
        if let Some(access) = access {
            access.check_queue_any(name)?;
        }
        self.check_existing_queue(vhost, name, connection)
    }

    /// What `basic.consume`, `basic.get` and `queue.purge` find: the queue, if the user may read
    /// it and it is not exclusive to another connection. Without a connection (over HTTP) only
    /// queues that are exclusive to nobody pass.
    ///
    /// # Errors
    /// 403, 404, 405.
    pub fn check_use_queue(
        &self,
        vhost: &str,
        name: &str,
        connection: Option<ConnectionId>,
        access: Option<&Access>,
    ) -> Result<Arc<Queue>, Refusal> {
        if let Some(access) = access {
            access.check_queue(Right::Read, name)?;
        }
        self.check_existing_queue(vhost, name, connection)
    }

    /// What `queue.delete` finds: `None` if there is nothing to delete, which is fine. Whether it
    /// is unused or empty is the caller's to ask of the queue itself.
    ///
    /// # Errors
    /// 403, 405.
    pub fn check_delete_queue(
        &self,
        vhost: &str,
        name: &str,
        connection: Option<ConnectionId>,
        access: Option<&Access>,
    ) -> Result<Option<Arc<Queue>>, Refusal> {
        if let Some(access) = access {
            access.check_queue(Right::Configure, name)?;
        }
        match self.queue(vhost, name) {
            None => Ok(None),
            Some(queue) => {
                check_exclusive(queue, connection)?;
                Ok(Some(Arc::clone(queue)))
            }
        }
    }

    fn check_existing_queue(
        &self,
        vhost: &str,
        name: &str,
        connection: Option<ConnectionId>,
    ) -> Result<Arc<Queue>, Refusal> {
        let queue = self
            .queue(vhost, name)
            .ok_or_else(|| Refusal::not_found(format!("no {}", quoted::queue(vhost, name))))?;
        check_exclusive(queue, connection)?;
        Ok(Arc::clone(queue))
    }

    fn check_new_queue(
        &self,
        declare: &DeclareQueue,
        access: Option<&Access>,
    ) -> Result<(), Refusal> {
        let object = quoted::queue(&declare.vhost, &declare.name);
        if let Some(value) = declare.arguments.inner().get("x-dead-letter-exchange") {
            let Some(exchange) = arguments::string(&declare.arguments, "x-dead-letter-exchange")
            else {
                return Err(Refusal::precondition(format!(
                    "invalid type '{}' for arg 'x-dead-letter-exchange' in {object}",
                    arguments::type_name(value)
                )));
            };
            if let Some(access) = access {
                access.check_queue(Right::Read, &declare.name)?;
                access.check_exchange(Right::Write, &exchange)?;
            }
        }
        let arguments = self.arguments_of_new_queue(declare);
        queue_arguments::check(&object, &arguments)?;
        if queue_arguments::kind(&arguments) == QueueKind::Quorum {
            check_quorum(&object, declare)?;
        }
        self.journal_of_new_queue(declare, &arguments)?;
        if let Some(limit) = self.vhost_limit(&declare.vhost, VhostLimit::MaxQueues)
            && self.queue_count(&declare.vhost) as u64 >= limit
        {
            return Err(Refusal::precondition(format!(
                "cannot declare queue '{}': queue limit in vhost '{}' ({limit}) is reached",
                declare.name, declare.vhost
            )));
        }
        Ok(())
    }

    /// The type that a new queue gets.
    pub fn kind_of_new_queue(&self, declare: &DeclareQueue) -> QueueKind {
        queue_arguments::kind(&self.arguments_of_new_queue(declare))
    }

    /// The arguments that a new queue gets: the vhost's default type is shown in them if this node
    /// has it, or the classic one if the queue could not be of that type.
    pub(crate) fn arguments_of_new_queue(&self, declare: &DeclareQueue) -> FieldTable {
        let mut arguments = declare.arguments.clone();
        let default = self.vhost(&declare.vhost).and_then(|vhost| vhost.default_queue_type.clone());
        if let Some(name) = default
            && !arguments.contains_key("x-queue-type")
            && queue_arguments::is_supported_type(&name)
        {
            let could_be = QueueKind::parse(&name) != Some(QueueKind::Quorum)
                || (declare.durable && !declare.auto_delete && declare.exclusive_owner.is_none());
            let name = if could_be { name } else { QueueKind::Classic.as_str().to_owned() };
            arguments.insert(
                ShortString::from("x-queue-type"),
                AMQPValue::LongString(LongString::from(name)),
            );
        }
        arguments
    }
}

/// What a quorum queue cannot be, in RabbitMQ's order.
fn check_quorum(object: &str, declare: &DeclareQueue) -> Result<(), Refusal> {
    if declare.generated && declare.name.starts_with("amq.gen-") {
        return Err(Refusal::precondition(
            "Cannot declare a server-named queue for type rabbit_quorum_queue",
        ));
    }
    let invalid =
        |property| Refusal::precondition(format!("invalid property '{property}' for {object}"));
    if declare.auto_delete {
        return Err(invalid("auto-delete"));
    }
    if declare.exclusive_owner.is_some() {
        return Err(invalid("exclusive-owner"));
    }
    if !declare.durable {
        return Err(invalid("non-durable"));
    }
    Ok(())
}

/// Another connection's exclusive queue is out of reach.
fn check_exclusive(queue: &Queue, connection: Option<ConnectionId>) -> Result<(), Refusal> {
    if queue.exclusive_owner.is_none() || queue.exclusive_owner == connection {
        return Ok(());
    }
    Err(locked(queue))
}

pub(super) fn locked(queue: &Queue) -> Refusal {
    Refusal::locked(format!(
        "cannot obtain exclusive access to locked {}. It could be originally declared on another \
         connection or the exclusive property value does not match that of the original \
         declaration.",
        quoted::queue(&queue.vhost, &queue.name)
    ))
}

fn check_equivalent(existing: &Queue, declare: &DeclareQueue) -> Result<(), Refusal> {
    if existing.exclusive_owner != declare.exclusive_owner {
        return Err(locked(existing));
    }
    let object = quoted::queue(&existing.vhost, &existing.name);
    let durable = declare.durable && declare.exclusive_owner.is_none();
    equivalence::check_property("durable", &object, &existing.durable, &durable)?;
    equivalence::check_property(
        "auto_delete",
        &object,
        &existing.auto_delete,
        &declare.auto_delete,
    )?;
    for key in queue_arguments::COMPARED {
        let (current, received) = (&existing.arguments, &declare.arguments);
        if *key == "x-queue-type" && queue_arguments::ask_for(received, existing.kind) {
            continue;
        }
        if !queue_arguments::is_known(existing.kind, key) {
            continue;
        }
        equivalence::check_argument(key, &object, current, received)?;
    }
    Ok(())
}
