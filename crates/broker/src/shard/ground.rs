//! What shards stand on: the node's journal, and its clock.

use std::fmt;

use journal::journal::Journal;
use journal::op::Lsn;
use model::time::Timestamp;
use quorum::log::Log;

/// See the module head.
pub(crate) trait Ground: Log + fmt::Debug {
    /// Everything up to here is durable.
    fn durable(&self) -> Lsn;

    /// The time, for stamping.
    fn now(&self) -> Timestamp {
        crate::shard::now()
    }
}

impl Ground for Journal {
    fn durable(&self) -> Lsn {
        Journal::durable(self)
    }
}
