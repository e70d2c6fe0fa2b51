//! Tests of the crate as a whole; pure parts have theirs beside them.

mod support;

mod codec;

mod log;

mod storage_suite;

mod bringup;

mod cluster;

mod supervision;

mod sleep;

mod session;

mod founding;

mod upkeep;

mod real_journal;

mod offline;
