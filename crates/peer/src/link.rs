//! When to dial a peer, when to ping it, and whether it is up. Pure.
//!
//! ```text
//!            both connections stand, to one incarnation
//!    ┌──────┐ ─────────────────────────────────────▶ ┌────┐
//!    │ Down │                                        │ Up │
//!    └──────┘ ◀───────────────────────────────────── └────┘
//!       ▲         silent, or a later incarnation      │  ▲
//!       │                                        lost │  │ both stand again:
//!       │   redial failed, or not back in time        ▼  │ down (Reset), then up
//!       └────────────────────────────────────── ┌─────────┐
//!                                               │ Mending │
//!                                               └─────────┘
//! ```
//!
//! A *session* is a time of being up, seen from one end; its number rises when it ends, and each end
//! tells its own in every handshake. All connections are closed with a session. So two connections
//! with the same number of the peer stand at the peer too, and one with a lower number does not,
//! though the news may still be on its way. Without that, a new connection that overtakes the end
//! of an old one would pair with it and be torn down when the end arrives, over and over.
//!
//! Invariants: it is up exactly while both halves stand and their claims are of one process and one session; a half
//! is never replaced without closing it; one dial is under way at most, and only while the half that
//! it would bring is missing. Both sides of a connection ping on it, each as often as its own
//! `silence` asks for, so that peers with other settings are not taken for dead.

use crate::handler::Loss;
use crate::identity::Claim;
use crate::refusal::{Reason, Refusal};
use std::sync::Arc;
use std::time::{Duration, Instant};

#[cfg(test)]
mod tests;

/// The first pause between dials; it doubles up to [`BACKOFF_MAX`].
const BACKOFF_MIN: Duration = Duration::from_millis(100);
const BACKOFF_MAX: Duration = Duration::from_secs(2);
/// Pings in a silence timeout.
const PINGS: u32 = 4;
/// How many times in a row this process may have been late itself before it takes silence for what
/// it seems to be.
const LATE_MAX: u32 = 3;

/// One of the two connections of a pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    /// The one that this node dialled.
    Out,
    /// The one that the peer dialled.
    In,
}

impl Side {
    pub(crate) const BOTH: [Self; 2] = [Self::Out, Self::In];
}

/// What happens to a link.
#[derive(Debug)]
pub(crate) enum Event {
    /// A handshake has succeeded and [`Link::judge`] has nothing against it. A connection that
    /// stood on this side was closed by the driver if it gets `Close` for it.
    Connected {
        side: Side,
        claim: Arc<Claim>,
        /// What the peer has told.
        session: u64,
    },
    /// The dial that was asked for has failed.
    DialFailed(DialFailure),
    /// The connection of this side has ended.
    Lost { side: Side },
    /// The time of [`Link::wake_at`] has come.
    Tick,
    /// The peer is no longer to be linked to.
    Removed,
}

/// Why there is no connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DialFailure {
    /// Nothing listens at the address: there is a host and no such process.
    Refused,
    /// The peer has dialled meanwhile and taken back what it said to this one: it is there.
    Overtaken,
    /// Anything else.
    Other,
}

/// What the driver owes, in this order.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Output {
    /// Connect, and tell the outcome by `Connected` or `DialFailed`.
    Dial,
    /// Close the connection of this side; what it carried is lost.
    Close(Side),
    /// Send a ping.
    Ping(Side),
    /// Tell the handler; hand over messages from here on.
    Up(Arc<Claim>),
    /// Tell the handler; nothing of this incarnation is handed over any more.
    Down(Arc<Claim>, Loss),
    /// Tell the handler: this incarnation, of which only its silence was known, is no more.
    Ended(Arc<Claim>),
}

#[derive(Debug)]
struct Half {
    claim: Arc<Claim>,
    session: u64,
    heard: Instant,
}

#[derive(Debug)]
enum Phase {
    Down {
        /// It may live, as far as this end can tell.
        was: Option<Arc<Claim>>,
    },
    Up(Arc<Claim>),
    Mending {
        was: Arc<Claim>,
        until: Instant,
    },
}

#[derive(Debug)]
enum Dial {
    At(Instant),
    UnderWay,
}

/// The link to one peer.
#[derive(Debug)]
pub(crate) struct Link {
    silence: Duration,
    session: u64,
    phase: Phase,
    out: Option<Half>,
    inn: Option<Half>,
    dial: Dial,
    failures: u32,
    ping_at: Instant,
    wake_at: Instant,
    late: u32,
}

impl Link {
    /// A link that wants to dial at once. `session` is above all that the peer was told before by
    /// this process.
    pub(crate) fn new(silence: Duration, session: u64, now: Instant) -> Self {
        Self {
            silence,
            session,
            phase: Phase::Down { was: None },
            out: None,
            inn: None,
            dial: Dial::At(now),
            failures: 0,
            ping_at: now,
            wake_at: now,
            late: 0,
        }
    }

    /// When to `Tick`.
    pub(crate) fn wake_at(&self) -> Instant {
        self.wake_at
    }

    /// What to tell the peer in a handshake: in one that ends with `Connected`, after that step.
    pub(crate) fn session(&self) -> u64 {
        self.session
    }

    /// The incarnation that is up.
    pub(crate) fn up(&self) -> Option<&Arc<Claim>> {
        match &self.phase {
            Phase::Up(claim) => Some(claim),
            Phase::Down { .. } | Phase::Mending { .. } => None,
        }
    }

    /// Whether the connection of this side stands.
    pub(crate) fn stands(&self, side: Side) -> bool {
        self.half(side).is_some()
    }

    /// Whether a connection to the one who claims this may join the link.
    ///
    /// # Errors
    /// What to refuse it with. What stands in its way may be dead and not known to be yet, so the
    /// other should try again later.
    pub(crate) fn judge(&self, claim: &Claim, session: u64) -> Result<(), Refusal> {
        let new = &claim.identity;
        for known in [&self.out, &self.inn].into_iter().flatten() {
            let old = &known.claim.identity;
            let refusal = if old.id != new.id {
                let detail = format!("{:?} is node {} here", new.name, old.id);
                Refusal::new(Reason::NameTaken, detail)
            } else if new.boot < old.boot {
                let detail = format!("boot {} came, boot {} is connected", new.boot, old.boot);
                Refusal::new(Reason::LaterStart, detail)
            } else if new.boot == old.boot && claim.instance != known.claim.instance {
                let detail = format!("node {} is connected from {}", new.id, old.address);
                Refusal::new(Reason::DuplicateIdentity, detail)
            } else if claim.same_process(&known.claim) && session < known.session {
                let detail = format!("session {session} came after {}", known.session);
                Refusal::new(Reason::Stale, detail)
            } else {
                continue;
            };
            return Err(refusal);
        }
        Ok(())
    }

    /// Notes that something has come on this side.
    pub(crate) fn heard(&mut self, side: Side, now: Instant) {
        self.late = 0;
        if let Some(half) = self.half_mut(side) {
            half.heard = now;
        }
    }

    /// Advances the link by one event.
    pub(crate) fn step(&mut self, now: Instant, event: Event, out: &mut Vec<Output>) {
        match event {
            Event::Connected { side, claim, session } => {
                let new = Half { claim, session, heard: now };
                self.connected(now, side, new, out);
            }
            Event::DialFailed(failure) => {
                debug_assert!(matches!(self.dial, Dial::UnderWay) && self.out.is_none());
                self.dial_later(now);
                match failure {
                    DialFailure::Refused => {
                        self.give_up(Loss::Refused, out);
                        self.has_ended(out);
                    }
                    DialFailure::Overtaken => {}
                    DialFailure::Other => self.give_up(Loss::Gone, out),
                }
            }
            Event::Lost { side } => self.lost(now, side, out),
            Event::Tick => self.tick(now, out),
            Event::Removed => {
                self.close_all(out);
                self.fall(Loss::Removed, out);
                self.has_ended(out);
            }
        }
        self.plan(now);
        self.check();
    }

    fn connected(&mut self, now: Instant, side: Side, new: Half, out: &mut Vec<Output>) {
        debug_assert!(self.judge(&new.claim, new.session).is_ok());
        if side == Side::Out {
            debug_assert!(matches!(self.dial, Dial::UnderWay));
            self.dial = Dial::At(now);
            self.failures = 0;
        }
        // What the peer has given up, or had before it started anew.
        let stale = Side::BOTH.map(|known| {
            self.half(known).is_some_and(|old| {
                known == side || !old.claim.same_process(&new.claim) || old.session < new.session
            })
        });
        if stale != [false, false] {
            self.end_session(now, out);
            for (side, stale) in Side::BOTH.into_iter().zip(stale) {
                if stale {
                    self.close(side, out);
                }
            }
        }
        if let Phase::Mending { was, .. } = &self.phase
            && !was.same_process(&new.claim)
        {
            self.fall(Loss::Restarted, out);
        }
        if let Phase::Down { was: Some(was) } = &self.phase
            && !was.same_process(&new.claim)
        {
            self.has_ended(out);
        }
        let claim = Arc::clone(&new.claim);
        *self.slot(side) = Some(new);
        match (&self.out, &self.inn) {
            (Some(_), Some(_)) => {
                self.fall(Loss::Reset, out);
                self.phase = Phase::Up(Arc::clone(&claim));
                out.push(Output::Up(claim));
            }
            // It is there, so it is worth a try at once.
            (None, _) => self.dial_now(out),
            (Some(_), None) => {}
        }
    }

    fn lost(&mut self, now: Instant, side: Side, out: &mut Vec<Output>) {
        if self.slot(side).take().is_none() {
            return;
        }
        if let Phase::Up(_) = self.phase {
            self.end_session(now, out);
            self.failures = 0;
            self.dial_now(out);
        } else if side == Side::Out {
            self.dial_later(now);
        }
    }

    fn tick(&mut self, now: Instant, out: &mut Vec<Output>) {
        let quarter = self.silence / PINGS;
        if now > self.wake_at + quarter && self.late < LATE_MAX {
            // This process did not run when it should have: what it has not heard may wait unread.
            self.late += 1;
            for side in Side::BOTH {
                if let Some(half) = self.half_mut(side) {
                    half.heard = now;
                }
            }
            self.ping_at = now;
        }
        let silence = self.silence;
        let silent =
            [&self.out, &self.inn].into_iter().flatten().any(|half| half.heard + silence <= now);
        if silent {
            self.close_all(out);
            if let Dial::At(_) = self.dial {
                self.dial_later(now);
            }
            match self.phase {
                Phase::Up(_) => self.fall(Loss::Silent, out),
                Phase::Mending { .. } => self.fall(Loss::Gone, out),
                Phase::Down { .. } => {}
            }
        }
        if let Phase::Mending { until, .. } = self.phase
            && until <= now
        {
            self.give_up(Loss::Gone, out);
        }
        if let Dial::At(at) = self.dial
            && at <= now
            && self.out.is_none()
        {
            self.dial_now(out);
        }
        if self.ping_at <= now {
            self.ping_at = now + quarter;
            let standing = Side::BOTH.into_iter().filter(|side| self.stands(*side));
            out.extend(standing.map(Output::Ping));
        }
    }

    /// If it was up, closes both sides, and is mending now.
    fn end_session(&mut self, now: Instant, out: &mut Vec<Output>) {
        if let Phase::Up(was) = &self.phase {
            self.phase = Phase::Mending { was: Arc::clone(was), until: now + self.silence };
            self.close_all(out);
        }
    }

    /// Closes what the peer may think to stand.
    fn close_all(&mut self, out: &mut Vec<Output>) {
        self.session += 1;
        for side in Side::BOTH {
            self.close(side, out);
        }
    }

    fn close(&mut self, side: Side, out: &mut Vec<Output>) {
        if self.slot(side).take().is_some() {
            out.push(Output::Close(side));
        }
    }

    /// If it is mending, that has failed.
    fn give_up(&mut self, why: Loss, out: &mut Vec<Output>) {
        if let Phase::Mending { .. } = self.phase {
            self.fall(why, out);
        }
    }

    fn fall(&mut self, why: Loss, out: &mut Vec<Output>) {
        if let Phase::Up(was) | Phase::Mending { was, .. } = &self.phase {
            let was = Arc::clone(was);
            let may_live = matches!(why, Loss::Gone | Loss::Silent).then(|| Arc::clone(&was));
            self.phase = Phase::Down { was: may_live };
            out.push(Output::Down(was, why));
        }
    }

    /// If it is down and could have been alive, it is not.
    fn has_ended(&mut self, out: &mut Vec<Output>) {
        if let Phase::Down { was } = &mut self.phase {
            out.extend(was.take().map(Output::Ended));
        }
    }

    fn dial_now(&mut self, out: &mut Vec<Output>) {
        if let Dial::At(_) = self.dial {
            self.dial = Dial::UnderWay;
            out.push(Output::Dial);
        }
    }

    fn dial_later(&mut self, now: Instant) {
        let pause = BACKOFF_MIN.saturating_mul(1 << self.failures.min(10)).min(BACKOFF_MAX);
        self.failures = self.failures.saturating_add(1);
        self.dial = Dial::At(now + pause);
    }

    fn plan(&mut self, now: Instant) {
        let mut wake = now + self.silence;
        let mut consider = |at: Instant| wake = wake.min(at);
        for half in [&self.out, &self.inn].into_iter().flatten() {
            consider(self.ping_at.max(now));
            consider(half.heard + self.silence);
        }
        if let Phase::Mending { until, .. } = self.phase {
            consider(until);
        }
        if let Dial::At(at) = self.dial
            && self.out.is_none()
        {
            consider(at);
        }
        self.wake_at = wake;
    }

    fn check(&self) {
        if let Phase::Up(claim) = &self.phase {
            let [out, inn] = Side::BOTH.map(|side| self.half(side).expect("both stand"));
            assert!(out.claim.same_process(claim) && inn.claim.same_process(claim));
            assert_eq!(out.session, inn.session);
        }
        assert!(self.out.is_none() || matches!(self.dial, Dial::At(_)));
    }

    fn half(&self, side: Side) -> Option<&Half> {
        match side {
            Side::Out => self.out.as_ref(),
            Side::In => self.inn.as_ref(),
        }
    }

    fn slot(&mut self, side: Side) -> &mut Option<Half> {
        match side {
            Side::Out => &mut self.out,
            Side::In => &mut self.inn,
        }
    }

    fn half_mut(&mut self, side: Side) -> Option<&mut Half> {
        self.slot(side).as_mut()
    }
}
