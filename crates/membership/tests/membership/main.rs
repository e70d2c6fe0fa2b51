//! Plans and their schedule, from outside.

mod differential;
mod oracle;
mod properties;
mod reasons;
mod scenarios;
mod scene;
mod schedule;
mod table;
