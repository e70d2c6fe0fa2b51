//! One state of everything.

use std::hash::{Hash, Hasher};

use crate::age::Age;
use crate::event::Event;
use crate::machine::{Machine, Phase, Settings};
use crate::register::{Adopted, Incarnation, Register, Token, View};
use crate::standing::{Own, Record, Standing};

/// Nodes that a world may have.
pub(super) const NODES_MAX: usize = 3;

/// A set of operations of clients, a bit for each.
pub(super) type Operations = u8;

/// How far a search goes.
#[derive(Debug, Clone, Copy)]
#[expect(clippy::struct_excessive_bools, reason = "switches that are independent of each other")]
pub(super) struct Bounds {
    pub(super) nodes: usize,
    /// Crashes, stops, failed writes and hand-overs together.
    pub(super) faults: u8,
    /// Ends of leases that are not crashes.
    pub(super) pauses: u8,
    pub(super) operations: u8,
    pub(super) age_max: u64,
    /// A crash may take what was not synced.
    pub(super) power: bool,
    /// Reads without the lock may return older values.
    pub(super) lag: bool,
    /// Answers of the register may get lost, and commands be carried out late.
    pub(super) delay: bool,
    /// Orders of operators: clean stops and hand-overs.
    pub(super) orders: bool,
    /// How often the register is lost.
    pub(super) losses: u8,
    /// How often an operator forces a value.
    pub(super) forces: u8,
    /// How often a node that is down loses its disk, and comes back with nothing.
    pub(super) wipes: u8,
    /// Also one that alone has what was confirmed.
    pub(super) lone: bool,
}

/// The contract of the driver and the service, each part of which can be broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Driver {
    /// All of it is kept.
    Whole,
    /// The service does not look at the token, and confirms are sent without a look at the lease.
    NoFencingNorLeaseCheck,
    /// The service neither looks at the token nor compares.
    BlindWrites,
    /// Confirms are sent without a look at the lease.
    NoLeaseCheck,
    /// The lock is given on before the holder's lease has ended.
    EarlyExpiry,
    /// A replica answers before what it received is durable.
    UnsyncedAnswers,
    /// A replica writes its age before the copy is durable.
    UnsyncedCopy,
    /// A write of the state file is answered before it is durable.
    UnsyncedFile,
    /// Confirms are sent before the operation is durable here.
    UnsyncedConfirms,
    /// A node that was wiped counts as having the copy that it had.
    WipedCounts,
}

/// Everything there is.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct World {
    pub(super) nodes: [Node; NODES_MAX],
    pub(super) register: Option<Register>,
    pub(super) incarnation: Incarnation,
    pub(super) adopted: Option<Adopted>,
    /// Who has the lock, and by which grant.
    pub(super) lock: Option<(u8, Token)>,
    /// A command whose sender does not wait for it any more.
    pub(super) delayed: Option<Swap>,
    /// By replica.
    pub(super) links: [Option<Link>; NODES_MAX],
    /// What clients were told.
    pub(super) confirmed: Operations,
    pub(super) operations: u8,
    pub(super) faults: u8,
    pub(super) pauses: u8,
    pub(super) losses: u8,
    pub(super) forces: u8,
    pub(super) wipes: u8,
    /// Who may serve the journal first.
    pub(super) founder: Option<u8>,
}

/// A node: a process that may run, and a disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Node {
    /// `None`: the process is down.
    pub(super) machine: Option<Machine>,
    pub(super) file: Record,
    /// Written, and not synced: seen by the next process, but not after a power cut.
    pub(super) file_unsynced: Option<Record>,
    pub(super) durable: Operations,
    pub(super) unsynced: Operations,
    /// What the machine waits for.
    pub(super) request: Option<Request>,
    /// The service has answered; the node does not know yet.
    pub(super) answer: Option<Event>,
    /// The state file is to be written.
    pub(super) to_write: Option<Record>,
    /// By its own clock, its lease is good.
    pub(super) lease: bool,
    /// An operation whose confirm is held.
    pub(super) held: Operations,
    /// The replica has answered that operation.
    pub(super) answered: bool,
    /// A linearizable read found the copy worthless, and nothing changed it since.
    pub(super) found_worthless: bool,
}

/// A question to the register.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Request {
    Read { linearizable: bool },
    Acquire,
    Swap(Swap),
}

/// A compare-and-set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Swap {
    pub(super) from: Register,
    pub(super) to: Register,
    pub(super) incarnation: Incarnation,
    pub(super) token: Token,
}

/// A connection from an active node to its replica.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Link {
    pub(super) active: u8,
    /// The active node believes in it.
    pub(super) active_end: bool,
    /// The replica believes in it.
    pub(super) replica_end: bool,
    /// "Your copy is whole" is on its way, with the age and everything that was sent before.
    pub(super) sync_done: Option<(Age, Operations)>,
    /// "My age is written" is on its way.
    pub(super) in_sync: bool,
}

impl Node {
    pub(super) const BLANK: Self = Self {
        machine: None,
        file: Record::NONE,
        file_unsynced: None,
        durable: 0,
        unsynced: 0,
        request: None,
        answer: None,
        to_write: None,
        lease: false,
        held: 0,
        answered: false,
        found_worthless: false,
    };

    /// A stopped node with a whole copy.
    pub(super) fn of(age: u64, operations: Operations) -> Self {
        let standing = Standing::Valid(Age::new(age).unwrap());
        let file = Record { standing, incarnation: Some(World::FIRST) };
        Self { file, durable: operations, ..Self::BLANK }
    }

    pub(super) fn phase(&self) -> Phase {
        self.machine.map_or(Phase::Stopped, |machine| *machine.phase())
    }

    pub(super) fn all(&self) -> Operations {
        self.durable | self.unsynced
    }

    /// Whether it can tell clients anything now.
    pub(super) fn can_confirm(&self, driver: Driver) -> bool {
        let checks = !matches!(driver, Driver::NoLeaseCheck | Driver::NoFencingNorLeaseCheck);
        let lease = self.lease || !checks;
        self.machine
            .is_some_and(|machine| machine.gate().is_open() && (lease || !machine.needs_lease()))
    }

    /// A process starts. It syncs the file that it finds.
    pub(super) fn started(&mut self, founder: bool) -> Machine {
        if let Some(file) = self.file_unsynced.take() {
            self.file = file;
        }
        self.durable |= self.unsynced;
        self.unsynced = 0;
        let own = Own { record: self.file, vacant: self.durable == 0, founder };
        Machine::new(Settings { paired: true, allow_failback: false }, own)
    }
}

impl World {
    pub(super) const FIRST: Incarnation = Incarnation(1);

    /// A new journal: its register is 0, and the first node may found it.
    pub(super) fn new() -> Self {
        Self::stopped(0, &[Node::BLANK; NODES_MAX])
    }

    /// All processes are down.
    pub(super) fn stopped(register: i64, nodes: &[Node; NODES_MAX]) -> Self {
        let confirmed = nodes.iter().fold(0, |all, node| all | node.durable);
        Self {
            nodes: *nodes,
            register: Register::from_signed(register),
            incarnation: Self::FIRST,
            adopted: None,
            lock: None,
            delayed: None,
            links: [None; NODES_MAX],
            confirmed,
            operations: u8::try_from(confirmed.count_ones()).unwrap(),
            faults: 0,
            pauses: 0,
            losses: 0,
            forces: 0,
            wipes: 0,
            founder: Some(0),
        }
    }

    /// Whether a node may serve the journal first.
    pub(super) fn is_founder(&self, number: usize) -> bool {
        self.founder.map(usize::from) == Some(number)
    }

    /// What a read that cannot lag would answer.
    pub(super) fn view(&self) -> View {
        View {
            register: self.register,
            incarnation: self.incarnation,
            adopted: self.adopted,
            holder: self.lock.map(|(_, token)| token),
        }
    }

    /// The link on which a node is the active end, and the replica's number.
    pub(super) fn link_of(&self, active: usize) -> Option<(usize, Link)> {
        self.links.iter().enumerate().find_map(|(replica, link)| {
            let link = link.filter(|link| link.active_end && usize::from(link.active) == active)?;
            Some((replica, link))
        })
    }

    /// Grants are compared with each other and with nothing else, so that their numbers can be
    /// chosen: 1, 2, … in their order.
    pub(super) fn renumber(&mut self) {
        let mut tokens = [Token(0); 2 * NODES_MAX + 2];
        let mut count = 0;
        let mut add = |token: Option<Token>| {
            if let Some(token) = token {
                tokens[count] = token;
                count += 1;
            }
        };
        add(self.lock.map(|(_, token)| token));
        add(self.delayed.map(|swap| swap.token));
        for node in &self.nodes {
            add(node.machine.and_then(|machine| machine.token()));
            add(match node.request {
                Some(Request::Swap(swap)) => Some(swap.token),
                _ => None,
            });
        }
        let tokens = &mut tokens[..count];
        tokens.sort_unstable();
        let number = |token: Token| {
            let below = tokens.iter().zip(tokens.iter().skip(1));
            let before = below.filter(|(one, next)| one != next && **next <= token).count();
            Token(1 + before as u64)
        };
        for node in &mut self.nodes {
            if let Some(machine) = &mut node.machine {
                machine.renumber(number);
            }
            if let Some(Request::Swap(swap)) = &mut node.request {
                swap.token = number(swap.token);
            }
        }
        if let Some((_, token)) = &mut self.lock {
            *token = number(*token);
        }
        if let Some(swap) = &mut self.delayed {
            swap.token = number(swap.token);
        }
    }

    /// A grant that is newer than all others.
    pub(super) fn next_token(&self) -> Token {
        let of_nodes = self.nodes.iter().filter_map(|node| node.machine?.token());
        let of_requests = self.nodes.iter().filter_map(|node| match node.request {
            Some(Request::Swap(swap)) => Some(swap.token),
            _ => None,
        });
        let others = self.lock.map(|(_, token)| token).into_iter();
        let delayed = self.delayed.map(|swap| swap.token);
        let highest = of_nodes.chain(of_requests).chain(others).chain(delayed).max();
        Token(highest.map_or(0, |token| token.0) + 1)
    }

    /// Stands for the state in the set of those that were seen. 64 bits: among four million states
    /// two share one with a probability below one in a million.
    pub(super) fn fingerprint(&self) -> u64 {
        let mut hasher = Mixer(0x9e37_79b9_7f4a_7c15);
        self.hash(&mut hasher);
        hasher.finish()
    }
}

/// A hasher that is the same in every run.
struct Mixer(u64);

impl Mixer {
    fn mix(&mut self, word: u64) {
        let mixed = (self.0 ^ word).wrapping_mul(0xff51_afd7_ed55_8ccd);
        self.0 = (mixed ^ (mixed >> 32)).wrapping_mul(0xc4ce_b9fe_1a85_ec53).rotate_left(29);
    }
}

impl Hasher for Mixer {
    fn finish(&self) -> u64 {
        let mut last = Mixer(self.0);
        last.mix(0x2545_f491_4f6c_dd1d);
        last.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.mix(u64::from(*byte));
        }
    }

    fn write_u8(&mut self, number: u8) {
        self.mix(number.into());
    }

    fn write_u64(&mut self, number: u64) {
        self.mix(number);
    }

    fn write_isize(&mut self, number: isize) {
        self.mix(number.cast_unsigned() as u64);
    }

    fn write_usize(&mut self, number: usize) {
        self.mix(number as u64);
    }
}
