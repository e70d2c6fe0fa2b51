//! What the queues of a journal were declared as, in one text: kept beside the journal, so that it
//! comes back with its queues even if the topology is gone.
//!
//! ```text
//!  LVJD 1 CRC-32 of what follows, 8 hexadecimal digits
//!  JSON
//! ```

use std::collections::BTreeSet;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::command::{Command, DeclareExchange, JournalChange};
use crate::objects::Name;
use crate::objects::binding::{Binding, Destination};
use crate::objects::queue::Queue;
use crate::objects::vhost::Vhost;
use crate::state::State;

const MAGIC: &str = "LVJD 1 ";

/// The durable declarations of a journal: its queues, their bindings, and the exchanges that these are
/// to.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Declarations {
    /// The journal's name.
    pub name: Name,
    /// Its uid.
    pub uid: Name,
    /// Exchanges that are not predeclared.
    pub exchanges: Vec<DeclareExchange>,
    /// Its queues.
    pub queues: Vec<Queue>,
    /// Bindings to its queues, but those of the default exchange.
    pub bindings: Vec<Binding>,
}

/// Why a text is none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NotDeclarations(String);

impl Declarations {
    /// Those of a journal; `None` if there is no such journal.
    pub fn of(state: &State, name: &str) -> Option<Self> {
        let journal = state.journal(name)?;
        let queues: Vec<Queue> =
            state.queues_of_journal(name).map(|queue| Queue::clone(queue)).collect();
        let (mut exchanges, mut bindings) = (Vec::new(), Vec::new());
        let mut seen = BTreeSet::new();
        for queue in &queues {
            let to = Destination::Queue(Name::clone(&queue.name));
            for binding in state.bindings_to(&queue.vhost, &to) {
                let source = state.exchange(&queue.vhost, &binding.source);
                let Some(source) = source.filter(|source| source.durable) else { continue };
                bindings.push(Binding::clone(binding));
                let is_predeclared = source.name.is_empty() || source.name.starts_with("amq.");
                if is_predeclared
                    || !seen.insert((Name::clone(&source.vhost), Name::clone(&source.name)))
                {
                    continue;
                }
                exchanges.push(DeclareExchange {
                    vhost: Name::clone(&source.vhost),
                    name: Name::clone(&source.name),
                    kind: source.kind.as_str().into(),
                    durable: true,
                    auto_delete: source.auto_delete,
                    internal: source.internal,
                    arguments: source.arguments.clone(),
                    user: Name::clone(&source.user_who_performed_action),
                });
            }
        }
        let (name, uid) = (Name::clone(&journal.name), Name::clone(&journal.uid));
        Some(Self { name, uid, exchanges, queues, bindings })
    }

    /// What brings them back on a node, in order; each may be done again. Virtual hosts that are not
    /// there are made, exchanges that are there stay as they are.
    pub fn commands(&self, state: &State, node: u64) -> Vec<Command> {
        let vhosts: BTreeSet<&Name> = self.queues.iter().map(|queue| &queue.vhost).collect();
        let missing = vhosts.into_iter().filter(|vhost| state.vhost(vhost).is_none());
        let mut commands: Vec<Command> =
            missing.map(|vhost| Command::PutVhost(Vhost::named(Name::clone(vhost)))).collect();
        let absent = |one: &&DeclareExchange| state.exchange(&one.vhost, &one.name).is_none();
        let exchanges = self.exchanges.iter().filter(absent).cloned();
        commands.extend(exchanges.map(Command::DeclareExchange));
        if state.journal_by_uid(&self.uid).is_none() {
            commands.push(Command::ChangeJournal(JournalChange::Adopt {
                name: Name::clone(&self.name),
                uid: Name::clone(&self.uid),
                node,
                queues: self.queues.clone(),
            }));
        }
        commands.extend(self.bindings.iter().cloned().map(Command::Bind));
        commands
    }

    /// The text.
    pub fn encode(&self) -> String {
        let json = serde_json::to_string(self).expect("all keys are texts");
        format!("{MAGIC}{:08x}\n{json}\n", crc32fast::hash(json.as_bytes()))
    }

    /// Reads the text.
    ///
    /// # Errors
    /// If it is anything else.
    pub fn decode(bytes: &[u8]) -> Result<Self, NotDeclarations> {
        let no = |reason: &str| NotDeclarations(reason.to_owned());
        let text = std::str::from_utf8(bytes).map_err(|_| no("they are no text"))?;
        let (head, json) = text.split_once('\n').ok_or_else(|| no("they are cut off"))?;
        let sum = head.strip_prefix(MAGIC).ok_or_else(|| no("they are of another version"))?;
        let json = json.trim_end();
        let sum = u32::from_str_radix(sum, 16).map_err(|_| no("their checksum is none"))?;
        if sum != crc32fast::hash(json.as_bytes()) {
            return Err(no("their checksum is wrong"));
        }
        serde_json::from_str(json).map_err(|error| NotDeclarations(error.to_string()))
    }
}

impl fmt::Display for NotDeclarations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the declarations cannot be read: {}", self.0)
    }
}

impl std::error::Error for NotDeclarations {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::{DeclareQueue, PutNode};
    use crate::objects::node::NodeRole;
    use crate::scene::{exchange, queue, state, table, text};

    const UID: &str = "0123456789abcdef0011223344556677";

    fn with_node() -> State {
        let mut state = state();
        let (name, address) = ("a".into(), "x:1".to_owned());
        let (role, starts) = (NodeRole::Full, Vec::new());
        let put = PutNode { id: 7, name, address, role, boot: 1, zone: None, starts };
        state.apply(Command::PutNode(put)).unwrap();
        state
    }

    #[test]
    fn a_journal_comes_back_in_another_topology() {
        let mut old = with_node();
        let create = JournalChange::Create {
            name: "j".into(),
            uid: UID.into(),
            node: 7,
            backup: 0,
            incarnation: 5,
        };
        old.apply(Command::ChangeJournal(create)).unwrap();
        old.apply(Command::PutVhost(Vhost::named("v"))).unwrap();
        let declare = DeclareQueue {
            vhost: "v".into(),
            arguments: table([("x-journal", text("j"))]),
            ..queue("q")
        };
        old.apply(Command::DeclareQueue(declare)).unwrap();
        for (name, durable) in [("mine", true), ("passing", false)] {
            let declare = DeclareExchange { vhost: "v".into(), durable, ..exchange(name, "topic") };
            old.apply(Command::DeclareExchange(declare)).unwrap();
        }
        for source in ["mine", "passing", "amq.direct"] {
            let binding = Binding {
                vhost: "v".into(),
                source: source.into(),
                destination: Destination::Queue("q".into()),
                routing_key: "k".into(),
                arguments: table([("x", text("y"))]),
            };
            old.apply(Command::Bind(binding)).unwrap();
        }
        let known = Declarations::of(&old, "j").unwrap();
        assert_eq!((known.exchanges.len(), known.bindings.len(), known.queues.len()), (1, 2, 1));
        assert_eq!(Declarations::of(&old, "other"), None);
        let read = Declarations::decode(known.encode().as_bytes()).unwrap();
        assert_eq!(read, known);

        let mut new = with_node();
        for _ in 0..2 {
            // The second time there is nothing that could be refused.
            for command in read.commands(&new, 7) {
                new.apply(command).unwrap();
            }
            assert_eq!(Declarations::of(&new, "j").as_ref(), Some(&known));
        }
        assert!(new.exchange("v", "passing").is_none());
    }

    #[test]
    fn damage_is_seen() {
        let state = {
            let mut state = with_node();
            let create = JournalChange::Create {
                name: "j".into(),
                uid: UID.into(),
                node: 7,
                backup: 0,
                incarnation: 5,
            };
            state.apply(Command::ChangeJournal(create)).unwrap();
            state
        };
        let text = Declarations::of(&state, "j").unwrap().encode();
        for at in 0..text.trim_end().len() {
            let mut bytes = text.clone().into_bytes();
            bytes[at] ^= 1;
            assert!(Declarations::decode(&bytes).is_err(), "byte {at}");
            assert!(Declarations::decode(&text.as_bytes()[..at]).is_err(), "cut at {at}");
        }
    }
}
