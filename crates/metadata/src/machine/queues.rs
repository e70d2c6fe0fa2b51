//! Declaring and deleting queues.

use std::sync::Arc;

use model::id::{ConnectionId, NodeId, QueueId};

use crate::checks::arguments as queue_arguments;
use crate::command::DeclareQueue;
use crate::objects::member::Member;
use crate::objects::queue::{Queue, QueueKind};
use crate::outcome::Outcome;
use crate::refusal::Refusal;
use crate::state::State;
use crate::store::record::{self, Record};

impl State {
    pub(super) fn declare_queue(
        &mut self,
        declare: DeclareQueue,
        out: &mut Outcome,
    ) -> Result<(), Refusal> {
        if let Some(existing) = self.check_declare_queue(&declare, None)? {
            out.queue = Some(existing);
            return Ok(());
        }
        let id = QueueId(self.last_queue + 1);
        let arguments = self.arguments_of_new_queue(&declare);
        let kind = queue_arguments::kind(&arguments);
        let journal = self.journal_of_new_queue(&declare, &arguments)?;
        let kept = journal.as_deref().and_then(|name| self.journal(name)).map(|kept| kept.home());
        let members = match kind {
            QueueKind::Classic => Vec::new(),
            QueueKind::Quorum if declare.members.is_empty() => {
                vec![Member::founding(id, declare.home)]
            }
            QueueKind::Quorum => {
                let away = declare.away;
                let member = |node: NodeId| {
                    if away.contains(&node) {
                        Member::unstarted(id.into(), node)
                    } else {
                        Member::founding(id, node)
                    }
                };
                declare.members.into_iter().map(member).collect()
            }
        };
        let queue = Arc::new(Queue {
            id,
            vhost: declare.vhost,
            name: declare.name,
            kind,
            durable: declare.durable && declare.exclusive_owner.is_none(),
            auto_delete: declare.auto_delete,
            exclusive_owner: declare.exclusive_owner,
            arguments,
            user_who_performed_action: declare.user,
            home: kept.unwrap_or(declare.home),
            journal,
            members,
        });
        out.created = true;
        out.routes_changed = true;
        out.records.push(record::put(&Record::LastQueue(id)));
        out.records.push(record::put(&Record::Queue(&queue)));
        self.insert_queue(Arc::clone(&queue));
        out.queue = Some(Arc::clone(&queue));
        out.queues_created.push(queue);
        Ok(())
    }

    pub(super) fn delete_queue(
        &mut self,
        vhost: &str,
        name: &str,
        id: Option<QueueId>,
        out: &mut Outcome,
    ) {
        let Some(queue) = self.queue(vhost, name) else { return };
        if id.is_some_and(|id| id != queue.id) {
            return;
        }
        let queue = Arc::clone(queue);
        self.drop_queue(&queue, out);
        out.deleted = true;
    }

    pub(super) fn delete_exclusive(&mut self, owner: ConnectionId, out: &mut Outcome) {
        let doomed: Vec<_> = self.exclusive_queues(owner).map(Arc::clone).collect();
        for queue in doomed {
            self.drop_queue(&queue, out);
            out.deleted = true;
        }
    }

    /// Drops what does not survive a restart. A binding goes with either of its ends.
    pub(super) fn restarted(&mut self, out: &mut Outcome) {
        let queues: Vec<_> = self
            .queues_by_id
            .values()
            .filter(|queue| !queue.durable || queue.exclusive_owner.is_some())
            .map(Arc::clone)
            .collect();
        for queue in queues {
            self.drop_queue(&queue, out);
        }
        let exchanges: Vec<_> = self
            .vhosts
            .values()
            .flat_map(|vhost| vhost.exchanges.values())
            .filter(|exchange| !exchange.durable)
            .map(Arc::clone)
            .collect();
        for exchange in exchanges {
            // It may have gone with its last binding.
            if self.exchange(&exchange.vhost, &exchange.name).is_some() {
                self.drop_exchange(&exchange, out);
            }
        }
    }
}
