//! Named journals as all nodes together show them: what each copy is worth, who may start, and why
//! the others wait. Pure.

use activation::age::Age;
use activation::class::{Class, Held, classify};
use activation::register::{Adopted, Incarnation, Register, Token, View};
use activation::standing::Own;
use metadata::objects::journal::Journal;
use metadata::state::State;
use model::id::NodeId;

use crate::census::Names;
use crate::view::copy::{CopyFile, JournalCopy, NodeCopies};

/// What a read of a journal's register answers.
pub fn view(state: &State, uid: &str) -> View {
    let reading = state.coordinated(uid);
    let register = reading.register.and_then(|register| Register::from_signed(register.value));
    let incarnation = reading.register.map_or(reading.data_set, |register| register.incarnation);
    let adopted = reading.register.and_then(|register| register.adopted).and_then(|adopted| {
        let age = Register::from_signed(adopted.value)?.age();
        Some(Adopted { incarnation: Incarnation(adopted.incarnation), age })
    });
    let holder = reading.holder.map(Token);
    View { register, incarnation: Incarnation(incarnation), adopted, holder }
}

/// A journal and its copies.
#[derive(Debug, Clone)]
pub struct Sight<'s> {
    /// As the metadata has it.
    pub journal: &'s Journal,
    /// Its register; `None`: it never had a backup, and has none.
    pub view: Option<View>,
    /// The copies of its nodes.
    pub seats: Vec<Seat>,
}

/// The copy of a node.
#[derive(Debug, Clone)]
pub struct Seat {
    /// The node.
    pub node: NodeId,
    /// Its name, as tools know it.
    pub name: String,
    /// What it says; `None`: it does not answer.
    pub copy: Option<JournalCopy>,
    /// What the copy is worth, if that is known.
    pub class: Option<Class>,
}

/// How a journal is, in one word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Service {
    /// It is served, by as many copies as wanted.
    Whole,
    /// It is served by one copy, and the other one is not in sync.
    Alone,
    /// Nobody serves it now, and somebody may.
    Starting,
    /// Nobody serves it, and nobody who answers may.
    Down,
}

impl<'s> Sight<'s> {
    /// Of one journal.
    pub fn new(state: &State, names: &Names, told: &[NodeCopies], journal: &'s Journal) -> Self {
        let view = journal.paired.then(|| view(state, &journal.uid));
        let of =
            |node: &NodeCopies| node.copies.iter().find(|copy| *copy.uid == *journal.uid).cloned();
        let mut seats: Vec<Seat> = journal
            .nodes()
            .map(|node| {
                let name = names.of(node).to_owned();
                let told = told.iter().find(|told| told.node == name);
                // A node that has no driver for it yet has nothing to tell.
                let copy = told.and_then(of);
                Seat { node, name, copy, class: None }
            })
            .collect();
        for seat in &mut seats {
            let own = seat.copy.as_ref().and_then(JournalCopy::own);
            seat.class = match (&view, own) {
                _ if seat.is_damaged() => Some(Class::Held(Held::Unreadable)),
                (Some(view), Some(own)) => Some(classify(&own, view)),
                _ => None,
            };
        }
        Self { journal, view, seats }
    }

    /// Everything that is known of the copies, for a force.
    pub fn owns(&self) -> Vec<Option<Own>> {
        self.seats.iter().map(|seat| seat.copy.as_ref()?.own()).collect()
    }

    /// Whoever says that it serves.
    pub fn serving(&self) -> Option<&Seat> {
        self.seats.iter().find(|seat| seat.is_serving())
    }

    /// How it is.
    pub fn service(&self) -> Service {
        match self.serving() {
            Some(seat) if self.seats.len() == 1 || seat.is_replicated() => Service::Whole,
            Some(_) => Service::Alone,
            None if self.seats.iter().any(|seat| self.may_start(seat)) => Service::Starting,
            None => Service::Down,
        }
    }

    /// Whether a node may serve it, once it has the lock.
    pub fn may_start(&self, seat: &Seat) -> bool {
        match (&self.view, &seat.class) {
            (None, _) => seat.copy.is_some(),
            (Some(_), class) => class.is_some_and(Class::may_serve),
        }
    }

    /// Why a node does not serve it; for people.
    pub fn wait(&self, seat: &Seat) -> Option<String> {
        if seat.is_serving() {
            return None;
        }
        let Some(copy) = &seat.copy else { return Some("the node does not answer".to_owned()) };
        let class = match seat.class {
            None => None,
            Some(Class::Stale) => Some(format!(
                "its copy is stale: it has sequence {}, and {} is wanted",
                copy.standing,
                self.wanted()
            )),
            Some(Class::Blank) => Some("it has no copy yet".to_owned()),
            Some(Class::Syncing) => Some("its copy is not complete".to_owned()),
            Some(Class::Held(held)) => Some(held.to_string()),
            Some(Class::InSync | Class::SelfRepair | Class::MaybeInSync) => None,
        };
        class.or_else(|| match &copy.reason {
            Some(reason) => Some(format!("{}: {reason}", copy.state)),
            None => Some(copy.state.clone()),
        })
    }

    /// Which ages a copy may have to be served, for people.
    fn wanted(&self) -> String {
        match self.view.and_then(|view| view.register) {
            None => "none is known".to_owned(),
            Some(Register::Committed(age)) => age.to_string(),
            Some(Register::Claimed(age)) => {
                let before = Age::new(age.get() - 1).unwrap_or(Age::ZERO);
                format!("{before} or {age}")
            }
        }
    }

    /// How it is and what to do, in one sentence.
    pub fn advice(&self) -> String {
        let names = |wanted: &dyn Fn(&Seat) -> bool| {
            let names: Vec<&str> =
                self.seats.iter().filter(|seat| wanted(seat)).map(|seat| &*seat.name).collect();
            names.join(" and ")
        };
        match self.service() {
            Service::Whole => {
                format!("served by {}", names(&Seat::is_serving))
            }
            Service::Alone => format!(
                "served by {} alone; {} is not in sync",
                names(&Seat::is_serving),
                names(&|seat| !seat.is_serving())
            ),
            Service::Starting => {
                format!("nobody serves it; {} may start", names(&|seat| self.may_start(seat)))
            }
            Service::Down => {
                let away = names(&|seat| seat.copy.is_none());
                if away.is_empty() {
                    "nobody serves it, and no copy may start: an operator has to decide which one \
                     is to be gone on with (leveretctl activation list)"
                        .to_owned()
                } else {
                    format!(
                        "nobody serves it, and no copy that can be seen may start: start {away}"
                    )
                }
            }
        }
    }
}

/// Whether a node is meant by this, its name with or without what tools put before it.
pub(crate) fn is_named(node: &str, by: &str) -> bool {
    node == by || node.rsplit_once('@').is_some_and(|(_, short)| short == by)
}

impl Seat {
    /// Whether it is that of a node, see [`is_named`].
    pub(crate) fn is_of(&self, node: &str) -> bool {
        is_named(&self.name, node)
    }

    /// It serves the journal.
    pub fn is_serving(&self) -> bool {
        self.copy.as_ref().is_some_and(JournalCopy::is_serving)
    }

    fn is_replicated(&self) -> bool {
        self.copy.as_ref().is_some_and(|copy| copy.state == "active, replicated")
    }

    fn is_damaged(&self) -> bool {
        self.copy.as_ref().is_some_and(|copy| copy.file == CopyFile::Damaged)
    }
}
