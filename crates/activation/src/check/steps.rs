//! Everything that can happen next.

use crate::age::Age;
use crate::check::invariants::class_on_disk;
use crate::check::world::{Bounds, Driver, Link, Node, Operations, Request, Swap, World};
use crate::event::{Event, Timer};
use crate::gate::Gate;
use crate::machine::{Mode, Passive, Phase, Then};
use crate::output::Output;
use crate::register::{Adopted, Incarnation, Register, View};
use crate::standing::{Record, Standing};

/// A transition; the number is a node's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    Start(usize),
    /// The process dies; what it wrote is still seen.
    Crash(usize),
    /// The machine dies; what was not synced is gone.
    PowerCut(usize),
    Stop(usize),
    GiveWay(usize),
    /// The disk of an active node hangs, and that of its replica does not.
    Stall(usize),
    WriteFails(usize),
    /// The state file is replaced, not yet durably.
    WriteFile(usize),
    /// It is durable, and the node knows.
    SyncFile(usize),
    /// A read of the register is answered with this value.
    Read(usize, Option<i64>),
    Acquire(usize),
    /// The service carries out the node's compare-and-set.
    Swap(usize),
    /// The node learns how it ended.
    Learn(usize),
    /// The node gives up waiting.
    Unavailable(usize),
    /// A command of the past is carried out.
    Delayed,
    LeaseEnds(usize),
    LearnLeaseEnd(usize),
    Expire,
    Loaded(usize),
    Closed(usize),
    Timer(usize),
    Compete(usize),
    /// A passive node registers with an active one.
    Register(usize, usize),
    /// All of the copy is sent.
    CopySent(usize),
    /// The replica has it all, durably.
    SyncDone(usize),
    /// The active node hears that the replica is in sync.
    InSync(usize),
    ActiveEndBreaks(usize),
    ReplicaEndBreaks(usize),
    /// A client's operation is written at the active node.
    Operation(usize),
    Sync(usize),
    Receive(usize),
    Answer(usize),
    Confirm(usize),
    /// All registers are gone; `true`: a new, empty one is there.
    LoseQuorum(bool),
    /// An operator sets the register.
    Force(u64),
    /// The disk of a node that is down is gone: another, empty one of its name takes its place.
    Wipe(usize),
}

impl World {
    /// All transitions, in a fixed order.
    pub(super) fn steps(&self, bounds: &Bounds, driver: Driver, out: &mut Vec<Step>) {
        for number in 0..bounds.nodes {
            self.steps_of(number, bounds, driver, out);
        }
        if let Some((holder, token)) = self.lock {
            let holder = &self.nodes[usize::from(holder)];
            let alive = holder.machine.is_some_and(|machine| machine.token() == Some(token));
            if !alive || !holder.lease || driver == Driver::EarlyExpiry {
                out.push(Step::Expire);
            }
        }
        if self.delayed.is_some() {
            out.push(Step::Delayed);
        }
        // It takes longer than any lease.
        let leases = self.nodes.iter().any(|node| node.lease);
        if self.losses < bounds.losses && !leases && self.register.is_some() {
            out.extend([Step::LoseQuorum(false), Step::LoseQuorum(true)]);
        }
        if self.forces < bounds.forces && self.lock.is_none() && !leases {
            let ages =
                self.nodes[..bounds.nodes].iter().filter_map(|node| node.file.standing.age());
            let mut ages: Vec<u64> = ages.map(Age::get).collect();
            ages.sort_unstable();
            ages.dedup();
            out.extend(ages.into_iter().map(Step::Force));
        }
    }

    fn steps_of(&self, number: usize, bounds: &Bounds, driver: Driver, out: &mut Vec<Step>) {
        let node = &self.nodes[number];
        let Some(machine) = &node.machine else {
            out.push(Step::Start(number));
            let has = node.file != Record::NONE || node.file_unsynced.is_some() || node.all() != 0;
            if self.wipes < bounds.wipes && has && (bounds.lone || self.is_spare(number)) {
                out.push(Step::Wipe(number));
            }
            return;
        };
        if self.faults < bounds.faults {
            out.push(Step::Crash(number));
            if bounds.power && (node.unsynced != 0 || node.file_unsynced.is_some()) {
                out.push(Step::PowerCut(number));
            }
            if node.to_write.is_some() && bounds.orders {
                out.push(Step::WriteFails(number));
            }
            if bounds.orders {
                out.push(Step::Stop(number));
            }
            if bounds.orders
                && matches!(machine.phase(), Phase::Active { mode: Mode::Replicated { .. }, .. })
            {
                out.extend([Step::GiveWay(number), Step::Stall(number)]);
            }
        }
        if node.to_write.is_some() {
            out.push(Step::WriteFile(number));
        } else if node.file_unsynced.is_some() {
            out.push(Step::SyncFile(number));
        }
        match node.request {
            Some(Request::Read { linearizable }) => {
                let now = self.register.map(Register::signed);
                out.push(Step::Read(number, now));
                if !linearizable && bounds.lag {
                    out.extend(older(self.register).map(|value| Step::Read(number, Some(value))));
                }
            }
            Some(Request::Acquire) => out.push(Step::Acquire(number)),
            Some(Request::Swap(_)) => out.push(Step::Swap(number)),
            None => {}
        }
        if node.answer.is_some() {
            out.push(Step::Learn(number));
        }
        if bounds.delay && (node.answer.is_some() || node.request.is_some()) {
            out.push(Step::Unavailable(number));
        }
        if machine.token().is_some() {
            if node.lease && self.pauses < bounds.pauses {
                out.push(Step::LeaseEnds(number));
            }
            if !node.lease {
                out.push(Step::LearnLeaseEnd(number));
            }
        }
        match *machine.phase() {
            Phase::Loading(_) => out.push(Step::Loaded(number)),
            Phase::Closing { then, .. } if !matches!(then, Then::Written { .. }) => {
                out.push(Step::Closed(number));
            }
            Phase::Waiting | Phase::Pausing | Phase::Held(_) if node.request.is_none() => {
                out.push(Step::Timer(number));
            }
            Phase::Succeeding { .. } => {
                if node.request.is_none() {
                    out.push(Step::Timer(number));
                }
                out.push(Step::Compete(number));
            }
            Phase::Passive(Passive::Seeking) => {
                out.push(Step::Timer(number));
                for active in (0..bounds.nodes).filter(|active| *active != number) {
                    let free = matches!(
                        self.nodes[active].phase(),
                        Phase::Active { mode: Mode::Unreplicated, .. }
                    );
                    if free && self.link_of(active).is_none() && self.links[number].is_none() {
                        out.push(Step::Register(active, number));
                    }
                }
            }
            _ => {}
        }
        self.steps_of_replication(number, driver, out);
        if machine.gate().is_open() && node.held == 0 && self.operations < bounds.operations {
            out.push(Step::Operation(number));
        }
        if node.unsynced != 0 {
            out.push(Step::Sync(number));
        }
        if node.held != 0 && self.may_confirm(number, driver) {
            out.push(Step::Confirm(number));
        }
    }

    fn steps_of_replication(&self, number: usize, driver: Driver, out: &mut Vec<Step>) {
        let node = &self.nodes[number];
        if let Some((replica, link)) = self.link_of(number) {
            out.push(Step::ActiveEndBreaks(number));
            let copying = self.nodes[replica].phase() == Phase::Passive(Passive::Copying);
            let syncing = matches!(node.phase(), Phase::Active { mode: Mode::Syncing { .. }, .. });
            if link.replica_end && copying && syncing {
                out.push(Step::CopySent(number));
            }
            if link.in_sync
                && matches!(node.phase(), Phase::Active { mode: Mode::MaybeInSync { .. }, .. })
            {
                out.push(Step::InSync(number));
            }
        }
        let Some(link) = self.links[number].filter(|link| link.replica_end) else { return };
        out.push(Step::ReplicaEndBreaks(number));
        if link.sync_done.is_some() && node.phase() == Phase::Passive(Passive::Copying) {
            out.push(Step::SyncDone(number));
        }
        let active = &self.nodes[usize::from(link.active)];
        if node.phase() == Phase::Passive(Passive::InSync) && link.active_end && active.held != 0 {
            if node.all() & active.held == 0 {
                out.push(Step::Receive(number));
            }
            let has = if driver == Driver::UnsyncedAnswers { node.all() } else { node.durable };
            let replicated =
                matches!(active.phase(), Phase::Active { mode: Mode::Replicated { .. }, .. });
            if has & active.held != 0 && !active.answered && replicated {
                out.push(Step::Answer(number));
            }
        }
    }

    /// What the driver asks before it sends a confirm.
    fn may_confirm(&self, number: usize, driver: Driver) -> bool {
        let node = &self.nodes[number];
        let Some(machine) = &node.machine else { return false };
        let has = if driver == Driver::UnsyncedConfirms { node.all() } else { node.durable };
        let here = has & node.held != 0;
        node.can_confirm(driver)
            && match machine.gate() {
                Gate::Closed | Gate::Hold => false,
                Gate::Replica => here && node.answered,
                Gate::Alone => here,
            }
    }

    /// The world after a step.
    pub(super) fn after(&self, step: Step, driver: Driver) -> Self {
        let mut world = self.clone();
        world.perform(step, driver);
        world.renumber();
        world
    }

    fn perform(&mut self, step: Step, driver: Driver) {
        match step {
            Step::Start(number) => {
                let machine = self.nodes[number].started(self.is_founder(number));
                self.nodes[number].machine = Some(machine);
                self.nodes[number].found_worthless = false;
                self.tell(number, Event::Start);
            }
            Step::Crash(number) => {
                self.faults += 1;
                self.end(number);
            }
            Step::PowerCut(number) => {
                self.faults += 1;
                self.end(number);
                self.nodes[number].unsynced = 0;
                self.nodes[number].file_unsynced = None;
            }
            Step::Stop(number) => {
                self.faults += 1;
                self.tell(number, Event::Stop);
            }
            Step::GiveWay(number) => {
                self.faults += 1;
                self.tell(number, Event::StepDown { stay: true });
            }
            Step::Stall(number) => {
                self.faults += 1;
                self.tell(number, Event::Stalled);
            }
            Step::WriteFails(number) => {
                self.faults += 1;
                self.nodes[number].to_write = None;
                self.tell(number, Event::WriteFailed);
                self.end(number);
            }
            Step::WriteFile(number) => {
                let node = &mut self.nodes[number];
                let record = node.to_write.take().expect("there is one");
                if driver == Driver::UnsyncedFile {
                    // Answered now, durable some time later.
                    node.file_unsynced = Some(record);
                    self.tell(number, Event::Written(record));
                } else {
                    node.file_unsynced = Some(record);
                }
            }
            Step::SyncFile(number) => {
                let node = &mut self.nodes[number];
                let record = node.file_unsynced.take().expect("there is one");
                if !(record.standing == Standing::Syncing) {
                    node.found_worthless = false;
                }
                node.file = record;
                if driver != Driver::UnsyncedFile {
                    self.tell(number, Event::Written(record));
                }
            }
            Step::Read(number, value) => self.read(number, value),
            Step::Acquire(number) => {
                self.nodes[number].request = None;
                if self.lock.is_some() {
                    self.tell(number, Event::Busy);
                } else {
                    let token = self.next_token();
                    self.lock = Some((u8::try_from(number).unwrap(), token));
                    self.nodes[number].lease = true;
                    self.tell(number, Event::Acquired(token));
                }
            }
            Step::Swap(number) => {
                let Some(Request::Swap(swap)) = self.nodes[number].request.take() else {
                    unreachable!("there is one")
                };
                let answer = self.swap(swap, driver);
                self.nodes[number].answer = Some(answer);
            }
            Step::Learn(number) => {
                let answer = self.nodes[number].answer.take().expect("there is one");
                self.tell(number, answer);
            }
            Step::Unavailable(number) => {
                self.supersede(number);
                self.tell(number, Event::Unavailable);
            }
            Step::Delayed => {
                let swap = self.delayed.take().expect("there is one");
                let _nobody_hears_it = self.swap(swap, driver);
            }
            Step::LeaseEnds(number) => {
                self.pauses += 1;
                self.nodes[number].lease = false;
            }
            Step::LearnLeaseEnd(number) => self.tell(number, Event::LeaseEnded),
            Step::Expire => self.lock = None,
            Step::Loaded(number) => self.tell(number, Event::Loaded),
            Step::Closed(number) => {
                self.tell(number, Event::Closed);
            }
            Step::Timer(number) => {
                let timer = match self.nodes[number].phase() {
                    Phase::Held(_) => Timer::Recheck,
                    Phase::Passive(_) => Timer::Seek,
                    _ => Timer::Retry,
                };
                if timer == Timer::Seek {
                    self.tell(number, Event::NotAccepted);
                }
                self.tell(number, Event::Timer(timer));
            }
            Step::Compete(number) => self.tell(number, Event::Timer(Timer::Successor)),
            Step::Register(active, replica) => {
                self.links[replica] = Some(Link {
                    active: u8::try_from(active).unwrap(),
                    active_end: true,
                    replica_end: true,
                    sync_done: None,
                    in_sync: false,
                });
                self.tell(active, Event::Registration { preferred: false });
                self.tell(replica, Event::Accepted);
            }
            Step::CopySent(number) => self.tell(number, Event::CopySent),
            Step::SyncDone(number) => {
                let link = self.links[number].as_mut().expect("there is one");
                let (age, operations) = link.sync_done.take().expect("there is one");
                let node = &mut self.nodes[number];
                if driver == Driver::UnsyncedCopy {
                    node.unsynced = operations;
                } else {
                    node.durable = operations;
                }
                self.tell(number, Event::SyncDone { age });
            }
            Step::InSync(number) => {
                let (replica, _) = self.link_of(number).expect("there is one");
                self.links[replica].as_mut().expect("there is one").in_sync = false;
                self.tell(number, Event::ReplicaInSync);
            }
            Step::ActiveEndBreaks(number) => {
                self.break_active_end(number);
                self.tell(number, Event::ReplicaLost);
            }
            Step::ReplicaEndBreaks(number) => {
                self.break_replica_end(number);
                self.tell(number, Event::ActiveLost);
            }
            Step::Operation(number) => {
                let operation = 1 << self.operations;
                self.operations += 1;
                let node = &mut self.nodes[number];
                (node.held, node.answered) = (operation, false);
                node.unsynced |= operation;
                node.machine.as_mut().expect("it serves").occupied();
            }
            Step::Sync(number) => {
                let node = &mut self.nodes[number];
                node.durable |= std::mem::take(&mut node.unsynced);
            }
            Step::Receive(number) => {
                let link = self.links[number].expect("there is one");
                self.nodes[number].unsynced |= self.nodes[usize::from(link.active)].held;
            }
            Step::Answer(number) => {
                let link = self.links[number].expect("there is one");
                self.nodes[usize::from(link.active)].answered = true;
            }
            Step::Confirm(number) => {
                self.confirmed |= std::mem::take(&mut self.nodes[number].held);
                self.nodes[number].answered = false;
            }
            Step::LoseQuorum(again) => {
                self.losses += 1;
                self.lock = None;
                self.register = again.then_some(Register::Committed(Age::ZERO));
                self.adopted = None;
                self.incarnation = Incarnation(self.incarnation.0 + u64::from(again));
            }
            Step::Force(age) => self.force(age),
            Step::Wipe(number) => {
                self.wipes += 1;
                let file = self.nodes[number].file;
                self.nodes[number] = Node::BLANK;
                if driver == Driver::WipedCounts {
                    self.nodes[number].file = file;
                }
                if self.is_founder(number) {
                    self.founder = None;
                }
            }
        }
    }

    /// Whether another copy has everything that was confirmed, and may come to serve.
    fn is_spare(&self, number: usize) -> bool {
        (0..self.nodes.len()).any(|other| {
            other != number
                && class_on_disk(self, other).may_serve()
                && self.nodes[other].file.standing != Standing::Empty
                && self.confirmed & !self.nodes[other].durable == 0
        })
    }

    fn read(&mut self, number: usize, value: Option<i64>) {
        let request = self.nodes[number].request.take();
        let register = value.and_then(Register::from_signed);
        let view = View { register, ..self.view() };
        let node = &mut self.nodes[number];
        let own = node.machine.as_ref().expect("it asked").own();
        // By the numbers alone, whatever the machine makes of them.
        let behind = match (own.record.standing, register) {
            (Standing::Valid(age), Some(Register::Committed(newest))) => age < newest,
            (Standing::Valid(age), Some(Register::Claimed(claimed))) => age.next() < claimed,
            (Standing::Empty | Standing::Syncing, Some(_)) => true,
            (Standing::Marked(..), _) | (_, None) => false,
        };
        let nothing = own.vacant && own.record.standing == Standing::Valid(Age::ZERO);
        node.found_worthless =
            request == Some(Request::Read { linearizable: true }) && (behind || nothing);
        self.tell(number, Event::Read(view));
    }

    fn swap(&mut self, Swap { from, to, incarnation, token }: Swap, driver: Driver) -> Event {
        let fenced = self.lock.is_none_or(|(_, holder)| holder != token)
            && !matches!(driver, Driver::NoFencingNorLeaseCheck | Driver::BlindWrites);
        let other = incarnation != self.incarnation;
        if fenced || other || (self.register != Some(from) && driver != Driver::BlindWrites) {
            return Event::Refused { to, found: self.register };
        }
        self.register = Some(to);
        Event::Swapped { to }
    }

    /// The operator says which copy shall be the newest, and what the others have beyond it is lost.
    fn force(&mut self, age: u64) {
        self.forces += 1;
        let age = Age::new(age).expect("a copy has it");
        self.register = Some(Register::Committed(age));
        let adopted = self.incarnation_of(age);
        let chosen = |node: &&Node| {
            node.file == Record { standing: Standing::Valid(age), incarnation: adopted }
        };
        let common = self.nodes.iter().filter(chosen);
        self.confirmed &= common.fold(Operations::MAX, |common, node| common & node.durable);
        self.adopted = adopted.map(|incarnation| Adopted { incarnation, age });
        self.incarnation = Incarnation(self.incarnation.0 + 1);
    }

    /// The operator takes it from the state file of the copy that he chose.
    fn incarnation_of(&self, age: Age) -> Option<Incarnation> {
        let mut files = self.nodes.iter().map(|node| node.file);
        files.find(|file| file.standing == Standing::Valid(age))?.incarnation
    }

    /// Gives an event to a machine, and performs what it wants.
    fn tell(&mut self, number: usize, event: Event) {
        let Some(machine) = &mut self.nodes[number].machine else { return };
        let mut outputs = Vec::new();
        machine.step(event, &mut outputs);
        for output in outputs {
            self.output(number, output);
        }
        // A machine that ends takes its process with it.
        if matches!(self.nodes[number].phase(), Phase::Stopped) && event != Event::Start {
            self.end(number);
        }
    }

    fn output(&mut self, number: usize, output: Output) {
        let node = &mut self.nodes[number];
        match output {
            Output::Read { linearizable } => {
                self.supersede(number);
                self.nodes[number].request = Some(Request::Read { linearizable });
            }
            Output::Acquire => {
                self.supersede(number);
                self.nodes[number].request = Some(Request::Acquire);
            }
            Output::Swap { from, to, incarnation, token } => {
                self.supersede(number);
                self.nodes[number].request =
                    Some(Request::Swap(Swap { from, to, incarnation, token }));
            }
            Output::Release(token) => {
                node.lease = false;
                if self.lock.is_some_and(|(_, holder)| holder == token) {
                    self.lock = None;
                }
            }
            Output::Write(record) => node.to_write = Some(record),
            Output::Close => {
                (node.held, node.answered) = (0, false);
                self.supersede(number);
            }
            Output::Copy => (node.durable, node.unsynced) = (0, 0),
            Output::SendSyncDone(age) => {
                let operations = node.all();
                if let Some((replica, _)) = self.link_of(number) {
                    self.links[replica].as_mut().expect("it was found").sync_done =
                        Some((age, operations));
                }
            }
            Output::SendInSync => {
                if let Some(link) = &mut self.links[number] {
                    link.in_sync = true;
                }
            }
            Output::DropReplica | Output::SendHandOver => self.break_active_end(number),
            Output::Leave => self.break_replica_end(number),
            Output::CreateRegister => unreachable!("journals are paired here"),
            // Answers and timers come as steps of their own.
            Output::Load
            | Output::Gate(_)
            | Output::Serve
            | Output::Accept
            | Output::Decline
            | Output::SendStopCalled
            | Output::Seek
            | Output::Arm(_)
            | Output::Tell(_)
            | Output::Fail => {}
        }
    }

    /// The node does not wait for its question any more. If it would change something, it may still
    /// do so.
    fn supersede(&mut self, number: usize) {
        let node = &mut self.nodes[number];
        node.answer = None;
        if let Some(Request::Swap(swap)) = node.request.take() {
            self.delayed = Some(swap);
        }
    }

    fn end(&mut self, number: usize) {
        self.supersede(number);
        self.break_active_end(number);
        self.break_replica_end(number);
        if let Some(link) = &mut self.links[number] {
            (link.sync_done, link.in_sync) = (None, false);
        }
        let node = &mut self.nodes[number];
        *node = Node {
            file: node.file,
            file_unsynced: node.file_unsynced,
            durable: node.durable,
            unsynced: node.unsynced,
            found_worthless: node.found_worthless,
            ..Node::BLANK
        };
    }

    fn break_active_end(&mut self, active: usize) {
        for link in &mut self.links {
            if let Some(one) = link.filter(|link| usize::from(link.active) == active) {
                *link = one.replica_end.then_some(Link { active_end: false, ..one });
            }
        }
    }

    fn break_replica_end(&mut self, replica: usize) {
        if let Some(link) = &mut self.links[replica] {
            (link.replica_end, link.sync_done, link.in_sync) = (false, None, false);
            if !link.active_end {
                self.links[replica] = None;
            }
        }
    }
}

/// The values that the register had before, up to four of them, newest first.
fn older(register: Option<Register>) -> impl Iterator<Item = i64> {
    let before = |value: &i64| match *value {
        0 => None,
        value if value < 0 => Some(-value - 1),
        value => Some(-value),
    };
    std::iter::successors(register.map(Register::signed), before).skip(1).take(4)
}
