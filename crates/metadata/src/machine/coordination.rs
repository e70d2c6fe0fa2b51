//! Locks and registers.

use std::sync::Arc;

use crate::coordination::{Answer, Coordination, NotSet, Reading};
use crate::objects::Name;
use crate::objects::lock::{Holder, Lock};
use crate::objects::register::{Adopted, Register};
use crate::outcome::Outcome;
use crate::refusal::Refusal;
use crate::state::State;
use crate::store::record::{self, Record};

impl State {
    /// The shortest lease that is accepted, in milliseconds.
    pub const LEASE_MS_MIN: u64 = 200;

    /// The longest: what blocks a journal for longer is an outage.
    pub const LEASE_MS_MAX: u64 = 600_000;

    /// The longest id of a lock or register, in bytes.
    pub const COORDINATION_ID_MAX: usize = 255;

    pub(super) fn coordinate(
        &mut self,
        change: Coordination,
        out: &mut Outcome,
    ) -> Result<(), Refusal> {
        let answer = match change {
            Coordination::Acquire { id, node, boot, attempt, lease_ms } => {
                check_id(&id)?;
                if !(Self::LEASE_MS_MIN..=Self::LEASE_MS_MAX).contains(&lease_ms) {
                    return Err(Refusal::invalid(format!(
                        "a lease of {lease_ms} ms is not within {} and {} ms",
                        Self::LEASE_MS_MIN,
                        Self::LEASE_MS_MAX
                    )));
                }
                self.acquire(&id, Holder { node, boot, attempt, lease_ms, renewals: 0 }, out)
            }
            Coordination::Renew { id, token } => self.renew(&id, token, out),
            Coordination::Release { id, token } => self.release(&id, token, out),
            Coordination::Expire { id, token, renewals } => self.expire(&id, token, renewals, out),
            Coordination::Create { id, founder, incarnation } => {
                check_id(&id)?;
                self.create_register(&id, founder, incarnation, out)
            }
            Coordination::CompareAndSet { id, incarnation, expected, new, token } => {
                self.compare_and_set(&id, incarnation, (expected, new), token, out)
            }
            Coordination::Force { id, seen, value, incarnation, adopts, founder } => {
                check_id(&id)?;
                let known = self.registers.get(&id).map_or(founder, |known| known.founder);
                let adopted = Some(Adopted { incarnation: adopts, value });
                let register = Register {
                    id,
                    value,
                    incarnation,
                    adopted,
                    founder: known,
                    data_set: self.data_set,
                };
                self.force(register, seen, out)
            }
            Coordination::Remove { id } => {
                self.remove_coordination(&id, out);
                Answer::Done
            }
            Coordination::NewDataSet { incarnation } => {
                self.new_data_set(incarnation, out);
                Answer::Done
            }
        };
        out.answer = Some(answer);
        Ok(())
    }

    /// Takes the locks of earlier starts of a node: whoever has its data directory open now has it
    /// alone, so those processes are over.
    pub(super) fn release_locks_of_earlier_boots(
        &mut self,
        node: u64,
        boot: u64,
        out: &mut Outcome,
    ) {
        let is_earlier = |holder: &Holder| holder.node == node && holder.boot < boot;
        let over: Vec<Arc<Lock>> = self
            .locks()
            .filter(|lock| lock.holder.as_ref().is_some_and(is_earlier))
            .map(Arc::clone)
            .collect();
        for lock in over {
            self.put_lock(Lock { holder: None, ..Lock::clone(&lock) }, out);
        }
    }

    fn acquire(&mut self, id: &Name, asks: Holder, out: &mut Outcome) -> Answer {
        if let Some(lock) = self.lock(id)
            && let Some(holder) = &lock.holder
        {
            let same =
                (holder.node, holder.boot, holder.attempt) == (asks.node, asks.boot, asks.attempt);
            return if same {
                Answer::Granted { token: lock.token }
            } else {
                Answer::Busy { node: holder.node }
            };
        }
        // One counter for all locks, so that a lock that was removed goes on from it too.
        self.last_token += 1;
        out.records.push(record::put(&Record::LastToken(self.last_token)));
        let token = self.last_token;
        self.put_lock(Lock { id: Arc::clone(id), token, holder: Some(asks) }, out);
        Answer::Granted { token }
    }

    fn renew(&mut self, id: &Name, token: u64, out: &mut Outcome) -> Answer {
        let Some((lock, holder)) = self.held(id, token) else { return Answer::NotHeld };
        let holder = Holder { renewals: holder.renewals + 1, ..holder };
        self.put_lock(Lock { holder: Some(holder), ..lock }, out);
        Answer::Done
    }

    fn release(&mut self, id: &Name, token: u64, out: &mut Outcome) -> Answer {
        let Some((lock, _)) = self.held(id, token) else { return Answer::NotHeld };
        self.put_lock(Lock { holder: None, ..lock }, out);
        Answer::Done
    }

    fn expire(&mut self, id: &Name, token: u64, renewals: u64, out: &mut Outcome) -> Answer {
        match self.held(id, token) {
            None => Answer::NotHeld,
            Some((_, holder)) if holder.renewals != renewals => Answer::Renewed,
            Some((lock, _)) => {
                self.put_lock(Lock { holder: None, ..lock }, out);
                Answer::Done
            }
        }
    }

    /// The lock, if this grant is in force.
    fn held(&self, id: &Name, token: u64) -> Option<(Lock, Holder)> {
        let lock = self.locks.get(id).filter(|lock| lock.token == token)?;
        Some((Lock::clone(lock), lock.holder.clone()?))
    }

    fn put_lock(&mut self, lock: Lock, out: &mut Outcome) {
        out.records.push(record::put(&Record::Lock(&lock)));
        self.locks.insert(Arc::clone(&lock.id), Arc::new(lock));
    }

    fn create_register(
        &mut self,
        id: &Name,
        founder: u64,
        incarnation: u64,
        out: &mut Outcome,
    ) -> Answer {
        if let Some(known) = self.registers.get(id) {
            let same = (known.founder, known.incarnation, known.data_set)
                == (founder, incarnation, self.data_set);
            return if same {
                Answer::Set { incarnation }
            } else {
                Answer::NotSet { found: Some(known.value), why: NotSet::OtherLife }
            };
        }
        out.created = true;
        let data_set = self.data_set;
        let id = Arc::clone(id);
        self.put_register(
            Register { id, value: 0, incarnation, adopted: None, founder, data_set },
            out,
        );
        Answer::Set { incarnation }
    }

    fn compare_and_set(
        &mut self,
        id: &Name,
        incarnation: u64,
        (expected, new): (i64, i64),
        token: u64,
        out: &mut Outcome,
    ) -> Answer {
        let reading = self.coordinated(id);
        let fenced = reading.holder != Some(token);
        let Some(register) = reading.register else {
            return Answer::NotSet { found: None, why: NotSet::Absent };
        };
        let why = if fenced {
            NotSet::Fenced
        } else if register.incarnation != incarnation {
            NotSet::OtherLife
        } else if register.value != expected {
            NotSet::Different
        } else {
            let register = Register { value: new, ..Register::clone(register) };
            self.put_register(register, out);
            return Answer::Set { incarnation };
        };
        Answer::NotSet { found: Some(register.value), why }
    }

    fn force(&mut self, register: Register, seen: Option<(i64, u64)>, out: &mut Outcome) -> Answer {
        let reading = self.coordinated(&register.id);
        let known = reading.register.map(|register| (register.value, register.incarnation));
        let found = known.map(|(value, _)| value);
        if reading.holder.is_some() {
            return Answer::NotSet { found, why: NotSet::Locked };
        }
        if known != seen {
            return Answer::NotSet { found, why: NotSet::Different };
        }
        let incarnation = register.incarnation;
        out.created = !self.registers.contains_key(&register.id);
        self.put_register(register, out);
        Answer::Set { incarnation }
    }

    pub(super) fn put_register(&mut self, register: Register, out: &mut Outcome) {
        out.records.push(record::put(&Record::Register(&register)));
        self.registers.insert(Arc::clone(&register.id), Arc::new(register));
    }

    pub(super) fn remove_coordination(&mut self, id: &Name, out: &mut Outcome) {
        if let Some(lock) = self.locks.remove(id) {
            out.records.push(record::delete(&Record::Lock(&lock)));
            out.deleted = true;
        }
        if let Some(register) = self.registers.remove(id) {
            out.records.push(record::delete(&Record::Register(&register)));
            out.deleted = true;
        }
    }

    fn new_data_set(&mut self, incarnation: u64, out: &mut Outcome) {
        self.data_set = incarnation;
        out.records.push(record::put(&Record::DataSet(incarnation)));
        let held: Vec<Arc<Lock>> =
            self.locks().filter(|lock| lock.holder.is_some()).map(Arc::clone).collect();
        for lock in held {
            self.put_lock(Lock { holder: None, ..Lock::clone(&lock) }, out);
        }
    }

    /// What a read of a register answers, with the lock of the same id at the same moment. Of a
    /// replica that may lag it is what was so at some time; see [`crate::coordination`].
    pub fn coordinated(&self, id: &str) -> Reading<'_> {
        let register = self.registers.get(id).map(|register| &**register);
        Reading {
            register: register.filter(|register| register.data_set == self.data_set),
            holder: self.lock(id).filter(|lock| lock.holder.is_some()).map(|lock| lock.token),
            data_set: self.data_set,
        }
    }
}

fn check_id(id: &str) -> Result<(), Refusal> {
    if id.is_empty() || id.len() > State::COORDINATION_ID_MAX {
        return Err(Refusal::invalid(format!(
            "an id of {} bytes, and it has to have 1 to {}",
            id.len(),
            State::COORDINATION_ID_MAX
        )));
    }
    Ok(())
}
