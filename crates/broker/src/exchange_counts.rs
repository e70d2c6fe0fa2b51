//! Counts by exchange.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use metadata::objects::Name;
use parking_lot::Mutex;

/// What one exchange has done.
#[derive(Debug, Default)]
pub(crate) struct Cell {
    pub(crate) published_in: AtomicU64,
    pub(crate) published_out: AtomicU64,
    pub(crate) confirm_wanted: AtomicU64,
    pub(crate) returned: AtomicU64,
    pub(crate) dropped: AtomicU64,
}

/// All exchanges that had traffic, by virtual host and name.
#[derive(Debug, Default)]
pub(crate) struct ExchangeCounts {
    cells: Mutex<BTreeMap<(Name, Name), Arc<Cell>>>,
}

impl ExchangeCounts {
    /// The counts of one exchange.
    pub(crate) fn cell(&self, vhost: &Name, exchange: &str) -> Arc<Cell> {
        let key = (Arc::clone(vhost), exchange.into());
        Arc::clone(self.cells.lock().entry(key).or_default())
    }

    /// All of them.
    pub(crate) fn all(&self) -> Vec<((Name, Name), Arc<Cell>)> {
        self.cells.lock().iter().map(|(key, cell)| (key.clone(), Arc::clone(cell))).collect()
    }

    /// Forgets an exchange that is gone.
    pub(crate) fn forget(&self, vhost: &Name, exchange: &Name) {
        self.cells.lock().remove(&(Arc::clone(vhost), Arc::clone(exchange)));
    }
}

/// What one connection has counted for one exchange since it last reported.
#[derive(Debug, Default)]
pub(crate) struct Counting {
    cell: Option<(String, Arc<Cell>)>,
    pub(crate) published_in: u64,
    pub(crate) published_out: u64,
    pub(crate) confirm_wanted: u64,
    pub(crate) returned: u64,
    pub(crate) dropped: u64,
}

impl Counting {
    /// Counts for this exchange from now on; returns whether it was another one before.
    pub(crate) fn switch(&mut self, counts: &ExchangeCounts, vhost: &Name, exchange: &str) -> bool {
        if self.cell.as_ref().is_some_and(|(name, _)| name == exchange) {
            return false;
        }
        self.report();
        self.cell = Some((exchange.to_owned(), counts.cell(vhost, exchange)));
        true
    }

    /// Lets go of the exchange: it may be gone, and another one have its name.
    pub(crate) fn leave(&mut self) {
        self.report();
        self.cell = None;
    }

    /// Adds what was counted to the exchange's counts.
    pub(crate) fn report(&mut self) {
        let Some((_, cell)) = &self.cell else { return };
        for (counted, total) in [
            (&mut self.published_in, &cell.published_in),
            (&mut self.published_out, &cell.published_out),
            (&mut self.confirm_wanted, &cell.confirm_wanted),
            (&mut self.returned, &cell.returned),
            (&mut self.dropped, &cell.dropped),
        ] {
            if *counted > 0 {
                total.fetch_add(std::mem::take(counted), Ordering::Relaxed);
            }
        }
    }
}
