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
    /// The highest number that any of the journal's messages stands under, if somebody has looked: a
    /// queue may be missing here that was declared a moment before all was lost.
    #[serde(default)]
    pub last_queue: u64,
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
        Some(Self { name, uid, exchanges, queues, bindings, last_queue: 0 })
    }

    /// What brings them back on a node, in order. Virtual hosts that are not there are made before; the
    /// last command brings all the rest or nothing, so that all may be done again while the journal is
    /// not there.
    pub fn commands(&self, state: &State, node: u64) -> Vec<Command> {
        let vhosts: BTreeSet<&Name> = self.queues.iter().map(|queue| &queue.vhost).collect();
        let missing = vhosts.into_iter().filter(|vhost| state.vhost(vhost).is_none());
        let mut commands: Vec<Command> =
            missing.map(|vhost| Command::PutVhost(Vhost::named(Name::clone(vhost)))).collect();
        commands.push(Command::ChangeJournal(JournalChange::Adopt {
            name: Name::clone(&self.name),
            uid: Name::clone(&self.uid),
            node,
            exchanges: self.exchanges.clone(),
            queues: self.queues.clone(),
            bindings: self.bindings.clone(),
            last_queue: self.last_queue,
        }));
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
    use crate::scene::{Act as _, exchange, queue, state, table, text};

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
        let commands = read.commands(&new, 7);
        let [Command::PutVhost(_), adopt] = &commands[..] else { panic!("{commands:?}") };
        // Cut off after the first one, it begins anew.
        new.apply(commands[0].clone()).unwrap();
        assert_eq!(read.commands(&new, 7), std::slice::from_ref(adopt));
        // Something else has the exchange's name and cannot take the binding: nothing comes back, so
        // that it can be tried again.
        let other = DeclareExchange { vhost: "v".into(), ..exchange("mine", "x-consistent-hash") };
        new.apply(Command::DeclareExchange(other)).unwrap();
        new.refused(adopt.clone());
        assert!(new.journal("j").is_none() && new.queue("v", "q").is_none());
        let (vhost, name) = ("v".into(), "mine".into());
        new.apply(Command::DeleteExchange { vhost, name, if_unused: false }).unwrap();
        new.apply(adopt.clone()).unwrap();
        assert_eq!(Declarations::of(&new, "j").as_ref(), Some(&known));
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
