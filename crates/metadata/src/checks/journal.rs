//! Which named journal a new queue is in.

use amq_protocol_types::FieldTable;
use model::id::QueueId;

use crate::arguments;
use crate::checks::arguments as queue_arguments;
use crate::command::DeclareQueue;
use crate::objects::Name;
use crate::objects::queue::{Queue, QueueKind};
use crate::quoted;
use crate::refusal::Refusal;
use crate::state::State;

impl State {
    /// The journal that a new queue is in: its argument says so, or else the policy that applies to
    /// it. `None`: that of the node where it is declared. `arguments` are those that it gets.
    ///
    /// # Errors
    /// 406 if the argument asks for what a queue of a journal cannot be, or there is no such journal.
    pub(crate) fn journal_of_new_queue(
        &self,
        declare: &DeclareQueue,
        arguments: &FieldTable,
    ) -> Result<Option<Name>, Refusal> {
        if queue_arguments::kind(arguments) != QueueKind::Classic {
            return Ok(None);
        }
        let object = quoted::queue(&declare.vhost, &declare.name);
        let is_lasting = declare.durable && declare.exclusive_owner.is_none();
        let asked = arguments::string(arguments, queue_arguments::JOURNAL).map(Name::from);
        let name = match asked {
            Some(_) if declare.exclusive_owner.is_some() => {
                return Err(property("exclusive-owner", &object));
            }
            Some(_) if !declare.durable => return Err(property("non-durable", &object)),
            Some(name) => Some(name),
            // What does not outlive its connection or its node has no use for a journal.
            None if !is_lasting => None,
            None => self.journal_by_policy(declare, arguments),
        };
        match name {
            Some(name) if self.journal(&name).is_none() => Err(Refusal::precondition(format!(
                "invalid arg '{}' for {object}: there is no journal '{name}'",
                queue_arguments::JOURNAL
            ))),
            name => Ok(name),
        }
    }

    fn journal_by_policy(&self, declare: &DeclareQueue, arguments: &FieldTable) -> Option<Name> {
        let vhost = self.vhosts.get(&declare.vhost)?;
        let asks = |key: &str| {
            let policies = &vhost.policies;
            policies.values().any(|policy| policy.policy.definition.contains_key(key))
        };
        if !asks(queue_arguments::JOURNAL) {
            return None;
        }
        let queue = Queue {
            id: QueueId(0),
            vhost: Name::clone(&declare.vhost),
            name: Name::clone(&declare.name),
            kind: QueueKind::Classic,
            durable: true,
            auto_delete: declare.auto_delete,
            exclusive_owner: None,
            arguments: arguments.clone(),
            user_who_performed_action: Name::clone(&declare.user),
            home: declare.home,
            journal: None,
            members: Vec::new(),
        };
        let policy = vhost.queue_policy(&queue)?;
        policy.definition.get(queue_arguments::JOURNAL)?.as_str().map(Name::from)
    }
}

fn property(name: &str, object: &str) -> Refusal {
    Refusal::precondition(format!("invalid property '{name}' for {object}"))
}
