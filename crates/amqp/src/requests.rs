//! Requests that wait to be pulled by the driver, in order; settlements are gathered.
//!
//! Acks of one channel with one outcome that follow each other become one [`Request::Settle`].
//! Any other request ends the gathering, so nothing is reordered.

use crate::request::{ChannelId, Outcome, Request, Unsettled};
use std::collections::VecDeque;

/// A gathered settlement grows to this many messages.
const GATHER_MAX: usize = 4096;

#[derive(Debug)]
struct Gathering {
    channel: ChannelId,
    outcome: Outcome,
    unsettled: Vec<Unsettled>,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Requests {
    ready: VecDeque<Request>,
    gathering: Option<Gathering>,
}

impl Requests {
    pub(crate) fn pop(&mut self) -> Option<Request> {
        self.ready.pop_front()
    }

    /// Adds a request behind all settlements so far.
    pub(crate) fn push(&mut self, request: Request) {
        self.end_gathering();
        self.ready.push_back(request);
    }

    /// Ends the gathering: what was gathered can be pulled.
    pub(crate) fn end_gathering(&mut self) {
        if let Some(Gathering { channel, outcome, unsettled }) = self.gathering.take()
            // an unknown delivery tag leaves nothing in it
            && !unsettled.is_empty()
        {
            self.ready.push_back(Request::Settle { channel, unsettled, outcome });
        }
    }

    pub(crate) fn is_gathering(&self) -> bool {
        self.gathering.is_some()
    }

    /// Where the next settlements of this channel and outcome go.
    pub(crate) fn settle(&mut self, channel: ChannelId, outcome: Outcome) -> &mut Vec<Unsettled> {
        let fits = self.gathering.as_ref().is_some_and(|gathering| {
            gathering.channel == channel
                && gathering.outcome == outcome
                && gathering.unsettled.len() < GATHER_MAX
        });
        if !fits {
            self.end_gathering();
        }
        &mut self
            .gathering
            .get_or_insert_with(|| Gathering { channel, outcome, unsettled: Vec::new() })
            .unsettled
    }
}
