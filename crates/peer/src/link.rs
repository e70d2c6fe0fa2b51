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
//! Invariants: it is up exactly while both halves stand and their claims are of one process; a half
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
    Connected { side: Side, claim: Arc<Claim> },
    /// The dial that was asked for has failed.
    DialFailed {
        /// Nothing listens at the address: there is a host and no such process.
        refused: bool,
    },
    /// The connection of this side has ended.
    Lost { side: Side },
    /// The time of [`Link::wake_at`] has come.
    Tick,
    /// The peer is no longer to be linked to.
    Removed,
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
}

#[derive(Debug)]
struct Half {
    claim: Arc<Claim>,
    heard: Instant,
}

#[derive(Debug)]
enum Phase {
    Down,
    Up(Arc<Claim>),
    Mending { was: Arc<Claim>, until: Instant },
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
    /// A link that wants to dial at once.
    pub(crate) fn new(silence: Duration, now: Instant) -> Self {
        Self {
            silence,
            phase: Phase::Down,
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

    /// The incarnation that is up.
    pub(crate) fn up(&self) -> Option<&Arc<Claim>> {
        match &self.phase {
            Phase::Up(claim) => Some(claim),
            Phase::Down | Phase::Mending { .. } => None,
        }
    }

    /// Who is at the other end of this side.
    pub(crate) fn half(&self, side: Side) -> Option<&Arc<Claim>> {
        let half = match side {
            Side::Out => &self.out,
            Side::In => &self.inn,
        };
        half.as_ref().map(|half| &half.claim)
    }

    /// Whether a connection to the one who claims this may join the link.
    ///
    /// # Errors
    /// What to refuse it with. What stands in its way may be dead and not known to be yet, so the
    /// other should try again later.
    pub(crate) fn judge(&self, claim: &Claim) -> Result<(), Refusal> {
        let new = &claim.identity;
        for known in [&self.out, &self.inn].into_iter().flatten() {
            let old = &known.claim.identity;
            let refusal = if old.id != new.id {
                let detail = format!("{:?} is node {} here", new.name, old.id);
                Refusal::new(Reason::NameTaken, detail)
            } else if new.boot < old.boot {
                let detail = format!("boot {} came, boot {} is connected", new.boot, old.boot);
                Refusal::new(Reason::Stale, detail)
            } else if new.boot == old.boot && claim.instance != known.claim.instance {
                let detail = format!("node {} is connected from {}", new.id, old.address);
                Refusal::new(Reason::DuplicateIdentity, detail)
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
            Event::Connected { side, claim } => self.connected(now, side, claim, out),
            Event::DialFailed { refused } => {
                debug_assert!(matches!(self.dial, Dial::UnderWay) && self.out.is_none());
                self.dial_later(now);
                self.give_up(if refused { Loss::Refused } else { Loss::Gone }, out);
            }
            Event::Lost { side } => self.lost(now, side, out),
            Event::Tick => self.tick(now, out),
            Event::Removed => {
                self.close_all(out);
                self.fall(Loss::Removed, out);
            }
        }
        self.plan(now);
        self.check();
    }

    fn connected(&mut self, now: Instant, side: Side, claim: Arc<Claim>, out: &mut Vec<Output>) {
        debug_assert!(self.judge(&claim).is_ok());
        if side == Side::Out {
            debug_assert!(matches!(self.dial, Dial::UnderWay));
            self.dial = Dial::At(now);
            self.failures = 0;
        }
        // The other process has given up what stood here, or is gone and started anew.
        let replaces = Side::BOTH.into_iter().any(|known| match self.half(known) {
            None => false,
            Some(old) => known == side || !old.same_process(&claim),
        });
        if replaces {
            self.sever(now, out);
        }
        if let Phase::Mending { was, .. } = &self.phase
            && !was.same_process(&claim)
        {
            self.fall(Loss::Restarted, out);
        }
        *self.slot(side) = Some(Half { claim: Arc::clone(&claim), heard: now });
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
        match self.phase {
            Phase::Up(_) => {
                self.sever(now, out);
                self.failures = 0;
                self.dial_now(out);
            }
            Phase::Mending { .. } => {
                self.give_up(Loss::Gone, out);
                if side == Side::Out {
                    self.dial_later(now);
                }
            }
            Phase::Down if side == Side::Out => self.dial_later(now),
            Phase::Down => {}
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
                Phase::Down => {}
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
            let standing = Side::BOTH.into_iter().filter(|side| self.half(*side).is_some());
            out.extend(standing.map(Output::Ping));
        }
    }

    /// Closes both sides. If it was up, it is mending now.
    fn sever(&mut self, now: Instant, out: &mut Vec<Output>) {
        self.close_all(out);
        if let Phase::Up(was) = &self.phase {
            self.phase = Phase::Mending { was: Arc::clone(was), until: now + self.silence };
        }
    }

    fn close_all(&mut self, out: &mut Vec<Output>) {
        for side in Side::BOTH {
            if self.slot(side).take().is_some() {
                out.push(Output::Close(side));
            }
        }
    }

    /// If it is mending, that has failed.
    fn give_up(&mut self, why: Loss, out: &mut Vec<Output>) {
        if let Phase::Mending { .. } = self.phase {
            self.fall(why, out);
        }
    }

    fn fall(&mut self, why: Loss, out: &mut Vec<Output>) {
        match std::mem::replace(&mut self.phase, Phase::Down) {
            Phase::Down => {}
            Phase::Up(was) | Phase::Mending { was, .. } => out.push(Output::Down(was, why)),
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
            for side in Side::BOTH {
                assert!(self.half(side).is_some_and(|half| half.same_process(claim)));
            }
        }
        assert!(self.out.is_none() || matches!(self.dial, Dial::At(_)));
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
