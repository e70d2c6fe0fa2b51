//! What a channel in tx mode holds back until `tx.commit`.

use crate::request::{Outcome, Publish};
use crate::unsettled::Tagged;

/// Publishes and settlements since the last commit or rollback.
#[derive(Debug, Default)]
pub(crate) struct Transaction {
    pub(crate) publishes: Vec<Publish>,
    pub(crate) settlements: Vec<(Vec<Tagged>, Outcome)>,
}

impl Transaction {
    /// Everything that was settled, so that it can be held again.
    pub(crate) fn take_settled(&mut self) -> Vec<Tagged> {
        self.settlements.drain(..).flat_map(|(tagged, _)| tagged).collect()
    }

    /// Where the next settlements with this outcome go.
    pub(crate) fn settle(&mut self, outcome: Outcome) -> &mut Vec<Tagged> {
        if self.settlements.last().is_none_or(|(_, last)| *last != outcome) {
            self.settlements.push((Vec::new(), outcome));
        }
        &mut self.settlements.last_mut().expect("one was just made").0
    }
}
