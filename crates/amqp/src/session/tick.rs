//! Time: the handshake's limit, heartbeats both ways, the end of waiting for `close-ok`.

use super::{Phase, Session};

/// All that depends on the time, which is in milliseconds of the driver's monotonic clock.
#[derive(Debug)]
pub(super) struct Clock {
    now: u64,
    /// `open-ok` must have been sent by then.
    handshake_end: Option<u64>,
    /// The connection ends then, whatever the client does.
    end: Option<u64>,
    /// Negotiated interval; 0 is none.
    heartbeat_ms: u64,
    /// When the next look at the traffic is due.
    look: u64,
    /// What had been read and queued at the last look.
    read: u64,
    queued: u64,
    /// When something was read, as far as the looks tell.
    heard: u64,
}

impl Clock {
    pub(super) fn new(now: u64, handshake_timeout: u64) -> Self {
        Self {
            now,
            handshake_end: Some(now.saturating_add(handshake_timeout)),
            end: None,
            heartbeat_ms: 0,
            look: u64::MAX,
            read: 0,
            queued: 0,
            heard: now,
        }
    }

    pub(super) fn set_heartbeat(&mut self, seconds: u16) {
        self.heartbeat_ms = u64::from(seconds) * 1000;
        self.heard = self.now;
        self.look = match seconds {
            0 => u64::MAX,
            _ => self.now + self.heartbeat_ms / 2,
        };
    }

    pub(super) fn heartbeat_s(&self) -> u64 {
        self.heartbeat_ms / 1000
    }

    pub(super) fn end_handshake(&mut self) {
        self.handshake_end = None;
    }

    pub(super) fn close_within(&mut self, ms: u64) {
        self.end = Some(self.now + ms);
        self.handshake_end = None;
    }
}

impl Session {
    /// When [`Session::on_tick`] is to be called at the latest; `u64::MAX` for never.
    pub fn deadline(&self) -> u64 {
        let clock = &self.clock;
        let end = clock.end.unwrap_or(u64::MAX).min(clock.handshake_end.unwrap_or(u64::MAX));
        end.min(clock.look)
    }

    /// Tells the time, in the milliseconds of [`Session::new`], and how many bytes were ever read.
    /// `reading`: the driver has not stopped reading of its own accord, so that silence is the
    /// client's.
    ///
    /// Cheap if nothing is due, so it may be called before each batch.
    pub fn on_tick(&mut self, now_ms: u64, read_total: u64, reading: bool) {
        self.clock.now = now_ms;
        if self.clock.end.is_some_and(|end| end <= now_ms) {
            self.clock.end = None;
            self.close_now("closing timeout");
        }
        if self.clock.handshake_end.is_some_and(|end| end <= now_ms) {
            self.clock.handshake_end = None;
            self.close_now("handshake timeout");
        }
        if self.clock.look > now_ms {
            return;
        }
        self.clock.look = now_ms + (self.clock.heartbeat_ms / 2).max(1);
        if self.phase == Phase::Closed {
            self.clock.look = u64::MAX;
            return;
        }
        if self.clock.read != read_total || !reading || !self.takes_input() {
            self.clock.read = read_total;
            self.clock.heard = now_ms;
        } else if now_ms - self.clock.heard >= 2 * self.clock.heartbeat_ms {
            let seconds = self.clock.heartbeat_s();
            self.close_now(&format!("missed heartbeats from client, timeout: {seconds}s"));
            return;
        }
        // while bytes are stuck, one more would not help
        if self.outbox.is_empty() && self.outbox.queued_total() == self.clock.queued {
            self.outbox.heartbeat();
        }
        self.clock.queued = self.outbox.queued_total();
    }
}
