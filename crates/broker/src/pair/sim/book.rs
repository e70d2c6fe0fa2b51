//! What must be true, at every step: kept by one who sees every copy, the register, what each node
//! confirms, and what clients see.
//!
//! ```text
//!  INV-1  one node confirms at a time, and it is the one that has the lock
//!  INV-2  without a replica: under an age that is committed, and that no other copy has
//!  INV-3  what was confirmed is durable in every copy that may come to serve
//!  INV-4  the register goes i ► -(i + 1) ► i + 1
//!  INV-5  a copy is served with the committed age, and overwritten only when it is behind
//!  INV-6  somebody has everything that was confirmed, also while a claim is open
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use activation::age::Age;
use activation::gate::Gate;
use activation::machine::{Machine, Phase, Step};
use activation::register::Register;
use activation::standing::{Record, Standing};
use metadata::state::State;
use model::id::{NodeId, QueueId};
use model::message::Message;
use replication::confirms::Released;

use super::world::{UID, World};
use crate::pair::clock;
use crate::pair::hold::Hold;
use crate::replicated::numbered::Sender;

/// A message: who published it, and which of theirs it is.
pub(super) type Name = (u64, u64);

/// Begins the body of every message.
const MAGIC: &[u8] = b"a message named ";

/// The body of a message.
pub(super) fn body(name: Name, length: u64) -> Vec<u8> {
    let mut body = MAGIC.to_vec();
    body.extend(name.0.to_le_bytes());
    body.extend(name.1.to_le_bytes());
    body.extend((0..length).map(|at| (name.0 ^ name.1 ^ at) as u8));
    body
}

/// The name in something that has a body in it.
pub(super) fn name_in(bytes: &[u8]) -> Option<Name> {
    let at = bytes.windows(MAGIC.len()).position(|window| window == MAGIC)? + MAGIC.len();
    let number = |at: usize| Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?));
    Some((number(at)?, number(at + 8)?))
}

/// The name of a message, if it is whole.
pub(super) fn name_of(message: &Message) -> Option<Name> {
    let bytes: &[u8] = message.body();
    let name = name_in(bytes)?;
    let length = bytes.len().checked_sub(MAGIC.len() + 16)? as u64;
    (body(name, length) == bytes).then_some(name)
}

/// What is known of a message.
#[derive(Debug, Clone, Copy, Default)]
#[expect(clippy::struct_excessive_bools, reason = "each can be so or not")]
pub(super) struct Fate {
    queue: u64,
    /// A node was allowed to confirm it.
    released: bool,
    /// Its publisher has heard so.
    confirmed: bool,
    /// A client has accepted it, whether or not that has reached the queue.
    settled: bool,
    /// A client got it after the storm.
    taken: bool,
}

/// A node's copy, as its disk has it.
#[derive(Debug, Default)]
struct Copy {
    record: Option<Record>,
    stored: BTreeSet<Name>,
}

/// What one start of a node does.
#[derive(Debug)]
struct View {
    me: Sender,
    gate: Gate,
    needs_lease: bool,
    token: Option<u64>,
    phase: Phase,
    hold: Arc<Hold>,
}

/// What happened, for the figures.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Tally {
    pub(super) published: u64,
    pub(super) confirmed: u64,
    pub(super) refused: u64,
    pub(super) delivered: u64,
    pub(super) settled: u64,
    /// Ages that were committed.
    pub(super) ages: u64,
    /// Nodes that began to serve.
    pub(super) served: u64,
    /// Copies that came to be in sync.
    pub(super) synced: u64,
    /// Copies that were put aside.
    pub(super) discarded: u64,
    /// Open claims that were gone on from, by who had not their age (auto-repair) and by who had it.
    pub(super) auto_repairs: u64,
    pub(super) self_repairs: u64,
    /// Nodes that met what waited for them at a step.
    pub(super) trapped: u64,
    pub(super) kills: u64,
    pub(super) power_cuts: u64,
    pub(super) stops: u64,
    pub(super) pauses: u64,
    pub(super) disk_errors: u64,
    /// Nodes that lost their disks and came back as others.
    pub(super) wipes: u64,
    /// Journals that were handed over by a node that went on: the preferred one was back.
    pub(super) failbacks: u64,
    pub(super) cuts: u64,
    pub(super) elections: u64,
    /// With a node missing, the others served.
    pub(super) served_without: u64,
    /// They could not: the missing one alone had what was confirmed (CP-5).
    pub(super) waited_for_confirmed: u64,
    /// They could not: it had claimed or committed an age and confirmed nothing (CP-4, 11, 13, 16, 42).
    pub(super) waited_for_age: u64,
    /// They could not: it had stopped in good order (CP-32, 36).
    pub(super) waited_for_stopped: u64,
    /// They could not: nobody else had ever been in sync (CP-17 to 21).
    pub(super) waited_for_founder: u64,
    /// They could not: their copies were held.
    pub(super) waited_held: u64,
}

impl Tally {
    pub(super) fn add(&mut self, other: &Self) {
        macro_rules! add {
            ($($field:ident),*) => { $(self.$field += other.$field;)* };
        }
        add!(
            published,
            confirmed,
            refused,
            delivered,
            settled,
            ages,
            served,
            synced,
            discarded,
            auto_repairs,
            self_repairs,
            trapped,
            kills,
            power_cuts,
            stops,
            pauses,
            disk_errors,
            wipes,
            failbacks,
            cuts,
            elections,
            served_without,
            waited_for_confirmed,
            waited_for_age,
            waited_for_stopped,
            waited_held,
            waited_for_founder
        );
    }
}

/// See the module head.
#[derive(Debug, Default)]
pub(super) struct Book {
    fates: BTreeMap<Name, Fate>,
    copies: BTreeMap<NodeId, Copy>,
    register: Option<Register>,
    /// The life of the register.
    life: Option<u64>,
    holder: Option<u64>,
    views: BTreeMap<NodeId, View>,
    /// What stands at positions of a ground.
    taken: BTreeMap<Sender, BTreeMap<u64, Vec<Name>>>,
    /// The last age under which something was confirmed without a replica.
    alone_at: u64,
    pub(super) publishers: u64,
    pub(super) tally: Tally,
}

fn age_of(record: Option<&Record>) -> Option<u64> {
    record?.standing.age().map(Age::get)
}

/// Whether a copy of this age may come to serve.
fn may_serve(age: Option<u64>, register: Option<Register>) -> bool {
    match (age, register) {
        (Some(age), Some(Register::Committed(known))) => age > 0 && age == known.get(),
        (Some(age), Some(Register::Claimed(known))) => age == known.get() || age + 1 == known.get(),
        _ => false,
    }
}

impl Book {
    /// Another publisher.
    pub(super) fn publisher(&mut self) -> u64 {
        self.publishers += 1;
        self.publishers
    }

    pub(super) fn published(&mut self, name: Name, queue: QueueId) {
        self.tally.published += 1;
        self.fates.insert(name, Fate { queue: queue.0, ..Fate::default() });
    }

    /// The disk of a node is gone.
    pub(super) fn wiped(&mut self, node: NodeId) {
        self.tally.wipes += 1;
        self.copies.remove(&node);
    }

    /// Whether another copy than that of this node may come to serve.
    pub(super) fn can_spare(&self, node: NodeId) -> bool {
        let may = |copy: &Copy| may_serve(age_of(copy.record.as_ref()), self.register);
        self.copies.iter().any(|(other, copy)| *other != node && may(copy))
    }

    /// Whether a node serves, and if not, how it is.
    pub(super) fn is_active(&self, node: NodeId) -> Result<(), String> {
        let is_active = |view: &View| {
            matches!(view.phase, Phase::Active { .. } | Phase::Single { serving: true })
        };
        if self.views.get(&node).is_some_and(is_active) {
            Ok(())
        } else {
            Err(format!("the preferred node {node} did not get it back: {}", self.describe()))
        }
    }

    /// A client accepts a message.
    pub(super) fn settled(&mut self, name: Name) {
        self.tally.settled += 1;
        self.fates.entry(name).or_default().settled = true;
    }

    /// Messages of a queue that were confirmed, and that nobody has had since.
    pub(super) fn left(&self, queue: QueueId) -> Vec<Name> {
        let left =
            |fate: &Fate| fate.queue == queue.0 && fate.confirmed && !fate.settled && !fate.taken;
        self.fates.iter().filter(|(_, fate)| left(fate)).map(|(name, _)| *name).collect()
    }

    fn owed(&self) -> impl Iterator<Item = &Name> {
        let owed = |fate: &Fate| (fate.released || fate.confirmed) && !fate.settled && !fate.taken;
        self.fates.iter().filter(move |(_, fate)| owed(fate)).map(|(name, _)| name)
    }

    fn count_repair(&mut self, before: Option<Phase>, phase: Phase) {
        let step = |phase| match phase {
            Some(Phase::Raising { step, .. }) => Some(step),
            _ => None,
        };
        match (step(before), step(Some(phase))) {
            (_, Some(Step::RepairFile)) => self.tally.auto_repairs += 1,
            (Some(Step::RepairFile), _) => {}
            (_, Some(Step::RepairRegister)) => self.tally.self_repairs += 1,
            _ => {}
        }
    }

    /// What a copy lacks of what is owed.
    fn lacks(&self, copy: &Copy) -> Option<Name> {
        self.owed().find(|name| !copy.stored.contains(name)).copied()
    }

    /// How copies and register are, in words.
    pub(super) fn describe(&self) -> String {
        let copies: Vec<String> = self
            .copies
            .iter()
            .map(|(node, copy)| {
                let standing = copy.record.map_or(Standing::Empty, |record| record.standing);
                format!("{node}: {standing} with {} messages", copy.stored.len())
            })
            .collect();
        let register = self.register.map_or("none".to_owned(), |register| register.to_string());
        let views: Vec<String> =
            self.views.values().map(|view| format!("{}: {:?}", view.me.node, view.phase)).collect();
        format!("register {register}; copies {}; nodes {}", copies.join(", "), views.join(", "))
    }

    /// INV-3 and INV-6.
    fn look(&self) -> Result<(), String> {
        let Some(register) = self.register else { return Ok(()) };
        let mut somebody = register.age() == Age::ZERO;
        for (node, copy) in &self.copies {
            if !may_serve(age_of(copy.record.as_ref()), Some(register)) {
                continue;
            }
            match self.lacks(copy) {
                None => somebody = true,
                Some(name) => {
                    return Err(format!(
                        "INV-3: the copy of {node} may come to serve and lacks {name:?}; {}",
                        self.describe()
                    ));
                }
            }
        }
        // The first age of a journal that had data before it was paired.
        let pairing = register == Register::Claimed(Age::new(1).expect("it is small"));
        if somebody || pairing {
            Ok(())
        } else {
            Err(format!("INV-6: no copy has everything that was confirmed; {}", self.describe()))
        }
    }

    /// INV-1: nobody else may confirm at this moment.
    fn alone(&self, me: Sender) -> Result<(), String> {
        let now = clock::now();
        let other = self
            .views
            .values()
            .find(|view| view.me != me && view.gate > Gate::Hold && view.hold.is_usable(now));
        if let Some(other) = other {
            return Err(format!(
                "INV-1: nodes {} and {} confirm at once; {}",
                me.node,
                other.me.node,
                self.describe()
            ));
        }
        let Some(mine) = self.views.get(&me.node).filter(|view| view.me == me) else {
            return Ok(());
        };
        if mine.needs_lease && mine.token != self.holder {
            return Err(format!(
                "INV-1: node {} confirms by grant {:?}, and the lock is with {:?}",
                me.node, mine.token, self.holder
            ));
        }
        Ok(())
    }

    fn released(&mut self, me: Sender, released: &Released, gate: Gate) -> Result<(), String> {
        let taken = self.taken.entry(me).or_default();
        let rest = taken.split_off(&(released.through + 1));
        let names: Vec<Name> = std::mem::replace(taken, rest).into_values().flatten().collect();
        for name in &names {
            self.fates.entry(*name).or_default().released = true;
        }
        self.alone(me)?;
        let needs_lease =
            self.views.get(&me.node).is_some_and(|view| view.me == me && view.needs_lease);
        let own = self.copies.get(&me.node);
        if let Some(name) =
            names.iter().find(|name| own.is_none_or(|copy| !copy.stored.contains(name)))
        {
            return Err(format!("INV-3: node {} confirms {name:?} before it is durable", me.node));
        }
        if gate == Gate::Alone && needs_lease {
            let age = age_of(own.and_then(|copy| copy.record.as_ref())).unwrap_or_default();
            let committed = self.register.is_some_and(|register| {
                register == Age::new(age).map_or(register, Register::Committed)
            });
            let shared = self.copies.iter().find(|(node, copy)| {
                **node != me.node && age_of(copy.record.as_ref()) == Some(age)
            });
            if age == 0 || !committed || shared.is_some() {
                return Err(format!(
                    "INV-2: node {} confirms alone at age {age}; {}",
                    me.node,
                    self.describe()
                ));
            }
            if !names.is_empty() {
                self.alone_at = age;
            }
        }
        self.look()
    }
}

impl World {
    fn judge(&self, rule: impl FnOnce(&mut Book) -> Result<(), String>) {
        let result = rule(&mut self.book.lock());
        if let Err(how) = result {
            self.fail(how);
        }
    }

    pub(super) fn on_taken(&self, me: Sender, position: u64, names: Vec<Name>) {
        self.say(|| format!("node {} takes {position}: {names:?}", me.node));
        let mut book = self.book.lock();
        let taken = book.taken.entry(me).or_default();
        if position == 1 {
            taken.clear();
        }
        if !names.is_empty() {
            taken.insert(position, names);
        }
    }

    pub(super) fn on_released(&self, me: Sender, released: &Released, gate: Gate) {
        self.trace(30, &[me.node.0, released.through]);
        self.judge(|book| book.released(me, released, gate));
    }

    pub(super) fn on_spoken(&self, me: Sender) {
        self.judge(|book| book.alone(me));
    }

    pub(super) fn on_step(&self, me: Sender, machine: &Machine, hold: &Arc<Hold>) {
        let phase = *machine.phase();
        let (mut begins, mut was) = (None, None);
        self.judge(|book| {
            let before = book.views.get(&me.node).filter(|view| view.me == me);
            let before = before.map(|view| view.phase);
            if before != Some(phase) {
                (begins, was) = (Some(phase), before);
                book.count_repair(before, phase);
                let given = matches!(phase, Phase::Succeeding { .. });
                book.tally.failbacks += u64::from(given);
            }
            let view = View {
                me,
                gate: machine.gate(),
                needs_lease: machine.needs_lease(),
                token: machine.token().map(|token| token.0),
                phase,
                hold: Arc::clone(hold),
            };
            book.views.insert(me.node, view);
            let is_active = |phase: Phase| matches!(phase, Phase::Active { .. });
            if !is_active(phase) || before.is_some_and(is_active) {
                return Ok(());
            }
            book.tally.served += 1;
            let age = book.copies.get(&me.node).and_then(|copy| age_of(copy.record.as_ref()));
            let committed = match book.register {
                Some(Register::Committed(known)) => Some(known.get()),
                _ => None,
            };
            if hold.is_usable(clock::now()) && (age.is_none() || age != committed) {
                return Err(format!(
                    "INV-5: node {} serves a copy of age {age:?}; {}",
                    me.node,
                    book.describe()
                ));
            }
            Ok(())
        });
        if let Some(phase) = begins {
            self.spring(me, was, phase);
            self.say(|| format!("node {}: {phase:?}", me.node));
        }
    }

    /// A node is dead: it confirms nothing any more.
    pub(super) fn on_death(&self, me: Sender) {
        let mut book = self.book.lock();
        if book.views.get(&me.node).is_some_and(|view| view.me == me) {
            book.views.remove(&me.node);
        }
        book.taken.remove(&me);
    }

    /// A state file holds this.
    pub(super) fn on_record(&self, node: NodeId, record: &Record) {
        self.trace(31, &[node.0, age_of(Some(record)).unwrap_or(u64::MAX)]);
        self.say(|| format!("the file of node {node}: {}", record.standing));
        self.judge(|book| {
            let copy = book.copies.entry(node).or_default();
            let before = copy.record.replace(*record);
            if before.is_some_and(|before| before.standing == Standing::Syncing)
                && record.standing.age().is_some()
            {
                book.tally.synced += 1;
            }
            book.look()
        });
    }

    /// A copy is put aside.
    pub(super) fn on_discard(&self, node: NodeId, known: &Record, vacant: bool) {
        self.judge(|book| {
            book.tally.discarded += 1;
            let age = age_of(Some(known)).unwrap_or_default();
            let is_behind = match book.register {
                Some(Register::Committed(known)) => known.get() > age,
                Some(Register::Claimed(known)) => known.get() > age + 1,
                None => false,
            };
            if age > 0 && !is_behind && !vacant {
                return Err(format!(
                    "INV-5: the copy of {node} is overwritten at age {age}; {}",
                    book.describe()
                ));
            }
            book.copies.entry(node).or_default().stored.clear();
            book.look()
        });
    }

    /// A journal was opened with these messages in it.
    pub(super) fn on_opened(&self, node: NodeId, names: BTreeSet<Name>) {
        self.say(|| format!("the journal of node {node} has {} messages", names.len()));
        self.judge(|book| {
            book.copies.entry(node).or_default().stored = names;
            book.look()
        });
    }

    /// Messages are durable in a journal.
    pub(super) fn on_stored(&self, node: NodeId, names: Vec<Name>) {
        self.book.lock().copies.entry(node).or_default().stored.extend(names);
    }

    /// Something was committed.
    pub(super) fn on_register(&self, state: &State) {
        let reading = state.coordinated(UID);
        let register = reading.register.and_then(|known| Register::from_signed(known.value));
        let (holder, life) = (reading.holder, reading.register.map(|known| known.incarnation));
        let mut changed = false;
        self.judge(|book| {
            book.holder = holder;
            let before = std::mem::replace(&mut book.register, register);
            if before == register {
                return Ok(());
            }
            changed = true;
            // The founder was wiped before anybody served.
            let begins_anew = std::mem::replace(&mut book.life, life) != life
                && register == Some(Register::Committed(Age::ZERO))
                && before.is_some_and(|before| before.age().get() <= 1);
            let goes = match (before, register) {
                (None, Some(Register::Committed(age))) => age == Age::ZERO,
                (Some(Register::Committed(from)), Some(Register::Claimed(to))) => to == from.next(),
                (Some(Register::Claimed(from)), Some(Register::Committed(to))) => from == to,
                _ => false,
            };
            book.tally.ages += u64::from(matches!(register, Some(Register::Committed(_))));
            if !goes && !begins_anew {
                return Err(format!("INV-4: the register went from {before:?} to {register:?}"));
            }
            book.look()
        });
        if changed {
            let shown = register.map_or(i64::MIN, Register::signed);
            self.trace(32, &[shown.unsigned_abs()]);
            self.say(|| format!("the register: {shown}"));
        }
    }

    /// A publisher hears what became of a message.
    pub(super) fn on_confirm(&self, name: Name, accepted: bool) {
        self.trace(33, &[name.0, name.1, u64::from(accepted)]);
        self.judge(|book| {
            if !accepted {
                book.tally.refused += 1;
                return Ok(());
            }
            book.tally.confirmed += 1;
            let fate = book.fates.entry(name).or_default();
            fate.confirmed = true;
            // What a client has accepted already need not be stored any more.
            if fate.released || fate.settled {
                Ok(())
            } else {
                Err(format!("INV-3: {name:?} is confirmed, and no node was allowed to do so"))
            }
        });
    }

    /// A client got a message.
    pub(super) fn on_delivered(
        &self,
        queue: QueueId,
        message: &Message,
        last: bool,
    ) -> Option<Name> {
        let Some(name) = name_of(message) else {
            self.fail("a message is not what was published".into());
            return None;
        };
        let mut book = self.book.lock();
        book.tally.delivered += 1;
        let Some(fate) = book.fates.get_mut(&name).filter(|fate| fate.queue == queue.0) else {
            drop(book);
            self.fail(format!("{name:?} comes from queue {queue} and was never sent there"));
            return None;
        };
        fate.taken |= last;
        Some(name)
    }

    /// Whether one of the nodes that are there may come to serve, and if not, why the one that is
    /// away is needed.
    pub(super) fn judge_wait(&self, away: NodeId, stopped: bool) -> Result<(), String> {
        let mut book = self.book.lock();
        let register = book.register;
        let may = |copy: &Copy| may_serve(age_of(copy.record.as_ref()), register);
        let here = book.copies.iter().any(|(node, copy)| *node != away && may(copy));
        // Nobody but the founder has ever had anything.
        let is_new = register.is_none_or(|register| register.age() == Age::ZERO);
        if is_new && away == self.pair()[0] {
            book.tally.waited_for_founder += 1;
            return Ok(());
        }
        if here || is_new {
            return Err(format!("nobody serves without node {away}; {}", book.describe()));
        }
        let held = book
            .views
            .values()
            .any(|view| view.me.node != away && matches!(view.phase, Phase::Held(_)));
        let age = register.map_or(0, |register| register.age().get());
        let confirmed = book.alone_at == age;
        let tally = &mut book.tally;
        if held {
            tally.waited_held += 1;
        } else if stopped {
            tally.waited_for_stopped += 1;
        } else if confirmed {
            tally.waited_for_confirmed += 1;
        } else {
            tally.waited_for_age += 1;
        }
        Ok(())
    }
}
