//! What requests of clients would be answered with, in RabbitMQ's order of checks.
//!
//! A driver asks first: most declarations are of what exists and need no command, and a refusal is
//! known without one. [`State::apply`] asks again, without a user, since the state may have moved
//! on before the command was committed.

pub(crate) mod arguments;
mod binding;
mod equivalence;
mod exchange;
mod journal;
pub(crate) mod policy;
mod queue;

use crate::refusal::Refusal;
use crate::state::State;

/// Names that begin with `amq.` are the broker's to give.
fn check_reserved(what: &str, name: &str) -> Result<(), Refusal> {
    if name.starts_with("amq.") {
        return Err(Refusal::access_refused(format!(
            "{what} name '{name}' contains reserved prefix 'amq.*'"
        )));
    }
    Ok(())
}

fn check_not_default_exchange(name: &str) -> Result<(), Refusal> {
    if name.is_empty() {
        return Err(Refusal::access_refused("operation not permitted on the default exchange"));
    }
    Ok(())
}

impl State {
    /// Clients are in a vhost that existed when they opened it; it may be gone since.
    fn check_inside(&self, vhost: &str) -> Result<(), Refusal> {
        if self.vhosts.contains_key(vhost) {
            return Ok(());
        }
        Err(Refusal::not_found(format!("vhost '{vhost}' not found")))
    }
}

#[cfg(test)]
mod tests;
