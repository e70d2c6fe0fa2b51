//! Named journals, and on which nodes they are.

use std::collections::BTreeSet;
use std::sync::Arc;

use model::id::{NodeId, QueueId};

use crate::command::JournalChange;
use crate::machine::parts::not_found;
use crate::objects::Name;
use crate::objects::journal::{Journal, Served};
use crate::objects::queue::{Queue, QueueKind};
use crate::objects::register::Register;
use crate::outcome::Outcome;
use crate::refusal::Refusal;
use crate::state::State;
use crate::store::record::{self, Record};

impl State {
    /// The longest name of a journal, in bytes: it is a part of the name of a folder.
    pub const JOURNAL_NAME_MAX: usize = 100;

    pub(super) fn change_journal(
        &mut self,
        change: JournalChange,
        out: &mut Outcome,
    ) -> Result<(), Refusal> {
        match change {
            JournalChange::Create { name, uid, node, backup, incarnation } => {
                self.create_journal(name, uid, NodeId(node), NodeId(backup), incarnation, out)
            }
            JournalChange::SetBackup { name, node } => self.set_backup(&name, NodeId(node), out),
            JournalChange::RemoveBackup { name } => self.remove_backup(&name, out),
            JournalChange::Pair { uid, founder, incarnation } => {
                self.pair_journal(&uid, NodeId(founder), incarnation, out)
            }
            JournalChange::Serve { uid, node, boot, token } => {
                self.serve_journal(&uid, NodeId(node), boot, token, out)
            }
            JournalChange::Adopt { name, uid, node, exchanges, queues, bindings, last_queue } => {
                // None of it is there if one of the exchanges or bindings is refused.
                let mut adopted = self.clone();
                for exchange in exchanges {
                    if adopted.exchange(&exchange.vhost, &exchange.name).is_none() {
                        adopted.declare_exchange(exchange, out)?;
                    }
                }
                adopted.last_queue = adopted.last_queue.max(last_queue);
                adopted.adopt_journal(name, uid, NodeId(node), queues, out)?;
                for binding in bindings {
                    adopted.bind(binding, out)?;
                }
                *self = adopted;
                Ok(())
            }
            JournalChange::Delete { name } => self.delete_journal(&name, out),
        }
    }

    fn create_journal(
        &mut self,
        name: Name,
        uid: Name,
        node: NodeId,
        backup: NodeId,
        incarnation: u64,
        out: &mut Outcome,
    ) -> Result<(), Refusal> {
        self.check_new_journal(&name, &uid, node)?;
        if backup.0 != 0 {
            self.check_backup(node, backup)?;
        }
        let paired = backup.0 != 0;
        if paired {
            self.put_new_register(&uid, node, incarnation, out);
        }
        out.created = true;
        let journal = Journal { name, uid, node, backup, paired, served: None, term: 0 };
        self.put_journal(journal, out);
        Ok(())
    }

    fn check_new_journal(&self, name: &Name, uid: &Name, node: NodeId) -> Result<(), Refusal> {
        check_name(name)?;
        if uid.len() != 32 || !uid.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(Refusal::invalid("the uid of a journal has 32 hexadecimal digits"));
        }
        if self.journals.contains_key(name) {
            return Err(Refusal::invalid(format!("there is a journal '{name}' already")));
        }
        if self.journal_by_uid(uid).is_some() || self.registers.contains_key(uid) {
            return Err(Refusal::invalid(format!("the uid {uid} is in use")));
        }
        self.check_keeper(node)
    }

    /// All of its queues come back, or none.
    fn adopt_journal(
        &mut self,
        name: Name,
        uid: Name,
        node: NodeId,
        queues: Vec<Queue>,
        out: &mut Outcome,
    ) -> Result<(), Refusal> {
        self.check_new_journal(&name, &uid, node)?;
        let mut names = BTreeSet::new();
        let mut ids = BTreeSet::new();
        for queue in &queues {
            let (vhost, queue_name) = (&queue.vhost, &queue.name);
            if queue.kind != QueueKind::Classic
                || !queue.durable
                || queue.exclusive_owner.is_some()
                || queue.id < Self::FIRST_QUEUE
            {
                return Err(Refusal::invalid(format!(
                    "queue '{queue_name}' in vhost '{vhost}' cannot be in a journal"
                )));
            }
            if !self.vhosts.contains_key(vhost) {
                return Err(Refusal::invalid(format!(
                    "there is no vhost '{vhost}'; make it first"
                )));
            }
            if self.queue(vhost, queue_name).is_some() || !names.insert((vhost, queue_name)) {
                return Err(Refusal::invalid(format!(
                    "there is a queue '{queue_name}' in vhost '{vhost}' already; delete it first"
                )));
            }
            let other = self.queue_by_id(queue.id);
            if other.is_some() || !ids.insert(queue.id) {
                let other = other.map_or(queue, |other| other);
                return Err(Refusal::invalid(format!(
                    "queue '{}' in vhost '{}' has the number of queue '{queue_name}' in vhost \
                     '{vhost}'; delete it first",
                    other.name, other.vhost
                )));
            }
        }
        for queue in queues {
            let queue = Arc::new(Queue { journal: Some(Name::clone(&name)), home: node, ..queue });
            out.records.push(record::put(&Record::Queue(&queue)));
            self.insert_queue(Arc::clone(&queue));
            out.queues_created.push(queue);
        }
        out.records.push(record::put(&Record::LastQueue(QueueId(self.last_queue))));
        out.created = true;
        out.routes_changed = true;
        let (backup, paired) = (NodeId(0), false);
        self.put_journal(Journal { name, uid, node, backup, paired, served: None, term: 0 }, out);
        Ok(())
    }

    /// A node does not come back: the journals that it had a copy of are on the other one alone, and
    /// those that only it had are gone with their queues.
    pub(super) fn forget_copies(&mut self, id: NodeId, out: &mut Outcome) {
        let on_it = |journal: &&Arc<Journal>| journal.is_on(id);
        let journals: Vec<Arc<Journal>> = self.journals().filter(on_it).map(Arc::clone).collect();
        for journal in journals {
            // Until it is paired the founder alone has anything.
            let other = journal.other_than(id).filter(|_| journal.paired || journal.node != id);
            let Some(other) = other else {
                let queues: Vec<_> =
                    self.queues_of_journal(&journal.name).map(Arc::clone).collect();
                for queue in queues {
                    self.drop_queue(&queue, out);
                }
                self.drop_journal(&journal, out);
                continue;
            };
            let served = journal.served.filter(|served| served.node != id.0);
            let backup = NodeId(0);
            self.put_journal(
                Journal { node: other, backup, served, ..Journal::clone(&journal) },
                out,
            );
        }
    }

    /// A node was wiped and has come back as another one of the same name: it takes the place of its
    /// old self wherever there is another copy to go on from. It has nothing, and no copy of this kind
    /// is ever served before it was copied.
    ///
    /// A journal whose only copy was wiped stays where it was: its new self would begin with nothing in
    /// the place of what was confirmed.
    pub(super) fn replace_copies_of(&mut self, old: NodeId, new: NodeId, out: &mut Outcome) {
        let moves = |journal: &&Arc<Journal>| {
            // Until it is paired the founder alone has anything.
            let has_other = journal.backup.0 != 0 && (journal.paired || journal.backup == old);
            journal.is_on(old) && has_other && !journal.is_on(new)
        };
        let journals: Vec<Arc<Journal>> = self.journals().filter(moves).map(Arc::clone).collect();
        for journal in journals {
            self.found_again(&journal, old, new, out);
            let mut journal = Journal::clone(&journal);
            if journal.node == old {
                journal.node = new;
            } else {
                journal.backup = new;
            }
            // Whoever served last is gone, and it is not known which copy is the newest.
            journal.served = journal.served.filter(|served| served.node != old.0);
            self.put_journal(journal, out);
        }
    }

    /// The founder of a journal was wiped before anybody served it: nothing was ever confirmed, so its
    /// new self founds it, in another life of the register. A claim of the old one comes to nothing.
    fn found_again(&mut self, journal: &Journal, old: NodeId, new: NodeId, out: &mut Outcome) {
        let register = self.coordinated(&journal.uid).register;
        let nobody_served = journal.term == 0
            && register
                .is_some_and(|known| known.founder == old.0 && (-1..=0).contains(&known.value));
        if nobody_served {
            // No node has the number of another one, so that no other life has this name.
            self.put_new_register(&journal.uid, new, new.0, out);
        }
    }

    fn set_backup(&mut self, name: &Name, node: NodeId, out: &mut Outcome) -> Result<(), Refusal> {
        let journal = self.existing_journal(name)?;
        if journal.other_than(journal.home()) == Some(node) {
            return Ok(());
        }
        if let Some(other) = journal.other_than(journal.home()) {
            return Err(Refusal::invalid(format!(
                "journal '{name}' has a backup on node {}; remove it first",
                self.node_name(other)
            )));
        }
        self.check_backup(journal.home(), node)?;
        self.put_journal(Journal { backup: node, ..journal }, out);
        Ok(())
    }

    /// What the node has stays where it is; the active node notices that it is alone.
    fn remove_backup(&mut self, name: &Name, out: &mut Outcome) -> Result<(), Refusal> {
        let journal = self.existing_journal(name)?;
        if journal.backup.0 == 0 {
            return Err(Refusal::invalid(format!("journal '{name}' has no backup")));
        }
        if journal.paired && journal.served.is_none() {
            return Err(Refusal::invalid(format!(
                "nobody serves journal '{name}', so it is not known which of its copies is the newest"
            )));
        }
        let node = journal.home();
        self.put_journal(Journal { node, backup: NodeId(0), ..journal }, out);
        Ok(())
    }

    /// The active node gives a journal its register (ADR 0031).
    fn pair_journal(
        &mut self,
        uid: &Name,
        founder: NodeId,
        incarnation: u64,
        out: &mut Outcome,
    ) -> Result<(), Refusal> {
        let journal = self.existing_uid(uid)?;
        if journal.node != founder {
            return Err(Refusal::invalid(format!("node {founder} is not the founder of {uid}")));
        }
        if journal.paired {
            // An answer was lost, and it asks again.
            let same = self.registers.get(uid).is_some_and(|known| {
                (known.incarnation, known.founder) == (incarnation, founder.0)
            });
            return if same {
                Ok(())
            } else {
                Err(Refusal::invalid(format!("journal '{}' has a register already", journal.name)))
            };
        }
        self.put_new_register(uid, founder, incarnation, out);
        self.put_journal(Journal { paired: true, ..journal }, out);
        Ok(())
    }

    fn serve_journal(
        &mut self,
        uid: &Name,
        node: NodeId,
        boot: u64,
        token: u64,
        out: &mut Outcome,
    ) -> Result<(), Refusal> {
        let journal = self.existing_uid(uid)?;
        if !journal.is_on(node) {
            return Err(Refusal::invalid(format!(
                "node {node} has no copy of journal '{}'",
                journal.name
            )));
        }
        let held = self.coordinated(uid).holder == Some(token);
        if journal.paired && !held {
            return Err(Refusal::invalid(format!(
                "node {node} has not the lock of journal '{}'",
                journal.name
            )));
        }
        let served = Some(Served { node: node.0, boot });
        if journal.served == served && !journal.paired {
            return Ok(());
        }
        let term = journal.term + 1;
        // They are at home where it is served.
        let queues: Vec<_> = self
            .queues_of_journal(&journal.name)
            .filter(|queue| queue.home != node)
            .map(Arc::clone)
            .collect();
        for queue in queues {
            let queue = Arc::new(Queue { home: node, ..Queue::clone(&queue) });
            out.records.push(record::put(&Record::Queue(&queue)));
            self.replace_queue(queue);
        }
        self.put_journal(Journal { served, term, ..journal }, out);
        Ok(())
    }

    fn delete_journal(&mut self, name: &Name, out: &mut Outcome) -> Result<(), Refusal> {
        let journal = self.existing_journal(name)?;
        let queues = self.queues_of_journal(name).count();
        if queues > 0 {
            return Err(Refusal::invalid(format!(
                "journal '{name}' has {queues} queues; delete them first"
            )));
        }
        self.drop_journal(&journal, out);
        Ok(())
    }

    fn drop_journal(&mut self, journal: &Journal, out: &mut Outcome) {
        self.remove_coordination(&journal.uid, out);
        self.journals.remove(&journal.name);
        out.records.push(record::delete(&Record::Journal(journal)));
        out.deleted = true;
        out.journals_changed.push(Name::clone(&journal.name));
    }

    fn put_new_register(
        &mut self,
        uid: &Name,
        founder: NodeId,
        incarnation: u64,
        out: &mut Outcome,
    ) {
        let register = Register {
            id: Name::clone(uid),
            value: 0,
            incarnation,
            adopted: None,
            founder: founder.0,
            data_set: self.data_set,
        };
        self.put_register(register, out);
    }

    fn put_journal(&mut self, journal: Journal, out: &mut Outcome) {
        out.records.push(record::put(&Record::Journal(&journal)));
        out.journals_changed.push(Name::clone(&journal.name));
        let queues: Vec<_> = self.queues_of_journal(&journal.name).map(|queue| queue.id).collect();
        out.queues_changed.extend(queues);
        self.journals.insert(Name::clone(&journal.name), Arc::new(journal));
    }

    fn existing_journal(&self, name: &Name) -> Result<Journal, Refusal> {
        let journal = self.journals.get(name).map(|journal| Journal::clone(journal));
        journal.ok_or_else(|| not_found("journal", name))
    }

    fn existing_uid(&self, uid: &Name) -> Result<Journal, Refusal> {
        let journal = self.journal_by_uid(uid).map(|journal| Journal::clone(journal));
        journal.ok_or_else(|| not_found("journal", uid))
    }

    fn check_backup(&self, node: NodeId, backup: NodeId) -> Result<(), Refusal> {
        if node == backup {
            return Err(Refusal::invalid(format!(
                "node {} cannot be the backup of a journal that it has",
                self.node_name(node)
            )));
        }
        self.check_keeper(backup)
    }

    /// A node that can have a copy.
    fn check_keeper(&self, node: NodeId) -> Result<(), Refusal> {
        let known = self.node(node).ok_or_else(|| not_found("node", &node.to_string().into()))?;
        if known.keeps_queues() {
            Ok(())
        } else {
            Err(Refusal::invalid(format!("node {} keeps no queues", known.name)))
        }
    }

    fn node_name(&self, node: NodeId) -> String {
        self.node(node).map_or_else(|| node.to_string(), |known| known.name.to_string())
    }
}

fn check_name(name: &str) -> Result<(), Refusal> {
    let is_good =
        |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_' || byte == b'.';
    let long = name.is_empty() || name.len() > State::JOURNAL_NAME_MAX;
    if long || name.starts_with('.') || !name.bytes().all(is_good) {
        return Err(Refusal::invalid(format!(
            "'{name}' cannot be the name of a journal: it has 1 to {} letters, digits, dots, dashes \
             and underscores, and does not begin with a dot",
            State::JOURNAL_NAME_MAX
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
