//! What a channel in tx mode holds back until `tx.commit`.

use crate::request::{Outcome, Publish, Unsettled};
use crate::unsettled::Tagged;

/// Bytes of publishes that one transaction may hold back. They wait in the session, where no
/// queue's limit sees them.
pub(crate) const BYTES_MAX: usize = 256 * 1024 * 1024;

/// Publishes and settlements since the last commit or rollback.
#[derive(Debug, Default)]
pub(crate) struct Transaction {
    /// Of the publishes.
    bytes: usize,
    publishes: Vec<Publish>,
    pub(crate) settlements: Vec<(Vec<Tagged>, Outcome)>,
}

/// The transaction holds more than [`BYTES_MAX`].
#[derive(Debug)]
pub(crate) struct TooLarge;

impl Transaction {
    /// Holds a publish back. The message is copied out of the buffer that it was read into, since
    /// it may wait for long.
    pub(crate) fn publish(&mut self, publish: &Publish) -> Result<(), TooLarge> {
        let message = publish.message.detach();
        self.bytes += message.buffer_len() + size_of::<Publish>();
        if self.bytes > BYTES_MAX {
            return Err(TooLarge);
        }
        let &Publish { channel, confirm, mandatory, .. } = publish;
        self.publishes.push(Publish { channel, confirm, mandatory, message });
        Ok(())
    }

    /// How many publishes are held back.
    pub(crate) fn publishes(&self) -> usize {
        self.publishes.len()
    }

    /// All publishes, in order.
    pub(crate) fn take_publishes(&mut self) -> Vec<Publish> {
        self.bytes = 0;
        std::mem::take(&mut self.publishes)
    }

    /// Everything that was settled, so that it can be held again.
    pub(crate) fn take_settled(&mut self) -> Vec<Tagged> {
        self.settlements.drain(..).flat_map(|(tagged, _)| tagged).collect()
    }

    /// What is settled in it.
    pub(crate) fn settled(&self) -> impl Iterator<Item = Unsettled> {
        self.settlements.iter().flat_map(|(tagged, _)| tagged).map(|tagged| tagged.message)
    }

    /// Where the next settlements with this outcome go.
    pub(crate) fn settle(&mut self, outcome: Outcome) -> &mut Vec<Tagged> {
        if self.settlements.last().is_none_or(|(_, last)| *last != outcome) {
            self.settlements.push((Vec::new(), outcome));
        }
        &mut self.settlements.last_mut().expect("one was just made").0
    }
}
