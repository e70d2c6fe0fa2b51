//! The lock and the register of a journal, asked of the metadata group.
//!
//! ```text
//!  Read (decisive)   a command that changes nothing goes through the log; then the state is read here
//!  Acquire, Swap     commands; what they answer stands in the log
//!  Renew             a command; the lease counts from before it was sent
//! ```

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use activation::event::Event;
use activation::register::{Incarnation, Register, Token, View};
use metadata::command::{Command, JournalChange};
use metadata::coordination::{Answer, Coordination};
use metadata::objects::Name;
use metadata::state::State;
use model::time::Millis;

use crate::pair::{aside, clock};
use crate::replicated::numbered::Sender;
use crate::topology::Topology;

/// See the module head. Nothing here is ever sent again by itself.
#[derive(Debug)]
pub(crate) struct Quorum {
    topology: Arc<Topology>,
    id: Name,
    me: Sender,
    lease: Millis,
    attempts: AtomicU64,
    /// Names the life of a register that this start makes.
    life: u64,
}

impl Quorum {
    /// For a journal of that uid.
    pub(crate) fn new(topology: Arc<Topology>, id: Name, me: Sender, lease: Millis) -> Self {
        let (attempts, life) = (AtomicU64::new(1), aside::random());
        Self { topology, id, me, lease, attempts, life }
    }

    /// Reads the register; `linearizable`: as it is not before the question was asked.
    pub(crate) async fn read(&self, linearizable: bool) -> Event {
        if linearizable {
            // No grant has this number.
            let nothing = Coordination::Renew { id: Name::clone(&self.id), token: 0 };
            if self.ask(nothing).await.is_none() {
                return Event::Unavailable;
            }
        }
        view(&self.topology.state(), &self.id).map_or(Event::Unavailable, Event::Read)
    }

    /// Tries for the lock once. If it is granted the lease counts from the moment that is returned
    /// along.
    pub(crate) async fn acquire(&self) -> (Event, Millis) {
        let sent_at = clock::now();
        let acquire = Coordination::Acquire {
            id: Name::clone(&self.id),
            node: self.me.node.0,
            boot: self.me.boot,
            attempt: self.attempts.fetch_add(1, Ordering::Relaxed),
            lease_ms: self.lease.0,
        };
        let event = match self.ask(acquire).await {
            Some(Answer::Granted { token }) => Event::Acquired(Token(token)),
            Some(Answer::Busy { .. }) => Event::Busy,
            _ => Event::Unavailable,
        };
        (event, sent_at)
    }

    /// Renews a grant; `false`: it is over; `None`: nobody answers.
    pub(crate) async fn renew(&self, token: Token) -> Option<bool> {
        let renew = Coordination::Renew { id: Name::clone(&self.id), token: token.0 };
        Some(self.ask(renew).await? == Answer::Done)
    }

    /// Gives a grant back, and returns when it is so, or nobody answers.
    pub(crate) async fn give_back(&self, token: Token) {
        let release = Coordination::Release { id: Name::clone(&self.id), token: token.0 };
        // The lease ends by itself.
        let _answer = self.ask(release).await;
    }

    /// Gives a grant back, whenever somebody can be told.
    pub(crate) fn release(&self, token: Token) {
        let release = Coordination::Release { id: Name::clone(&self.id), token: token.0 };
        self.topology.order(Command::Coordinate(release));
    }

    /// Changes the register under a grant.
    pub(crate) async fn swap(
        &self,
        from: Register,
        to: Register,
        incarnation: Incarnation,
        token: Token,
    ) -> Event {
        let swap = Coordination::CompareAndSet {
            id: Name::clone(&self.id),
            incarnation: incarnation.0,
            expected: from.signed(),
            new: to.signed(),
            token: token.0,
        };
        match self.ask(swap).await {
            Some(Answer::Set { .. }) => Event::Swapped { to },
            Some(Answer::NotSet { found, .. }) => {
                Event::Refused { to, found: found.and_then(Register::from_signed) }
            }
            _ => Event::Unavailable,
        }
    }

    /// Makes the register of a journal that has been on this node alone.
    pub(crate) async fn create(&self) -> Event {
        let pair = JournalChange::Pair {
            uid: Name::clone(&self.id),
            founder: self.me.node.0,
            incarnation: self.life,
        };
        match self.topology.submit(Command::ChangeJournal(pair)).await {
            Ok(_) => Event::Created(Incarnation(self.life)),
            Err(refusal) => {
                tracing::warn!(journal = %self.id, %refusal, "the journal cannot be paired yet");
                Event::Unavailable
            }
        }
    }

    /// Says that this node serves the journal from now on; the number that all know it by. `Ok(None)`:
    /// nobody answers, and it may be asked again.
    ///
    /// # Errors
    /// It does not: the lock is somebody else's.
    pub(crate) async fn serve(&self, token: Option<Token>) -> Result<Option<u64>, String> {
        let serve = JournalChange::Serve {
            uid: Name::clone(&self.id),
            node: self.me.node.0,
            boot: self.me.boot,
            token: token.map_or(0, |token| token.0),
        };
        match self.topology.submit(Command::ChangeJournal(serve)).await {
            Ok(_) => {}
            Err(refusal) if refusal.kind == metadata::refusal::Kind::Unavailable => {
                return Ok(None);
            }
            Err(refusal) => return Err(refusal.text),
        }
        let state = self.topology.state();
        let journal = state.journal_by_uid(&self.id).ok_or("the journal is gone")?;
        let served = journal
            .served
            .is_some_and(|served| (served.node, served.boot) == (self.me.node.0, self.me.boot));
        if served { Ok(Some(journal.term)) } else { Err("another node serves it already".into()) }
    }

    async fn ask(&self, change: Coordination) -> Option<Answer> {
        self.topology.submit(Command::Coordinate(change)).await.ok()?.answer
    }
}

/// What a read of a register answers; `None` if this node knows of no journal of that uid.
pub(crate) fn view(state: &State, id: &str) -> Option<View> {
    state.journal_by_uid(id)?;
    Some(management::journals::view(state, id))
}
