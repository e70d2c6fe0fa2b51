//! What an operator has said to a change that may lose something.

use super::call::Call;
use crate::http::failure::{Failure, Outcome};
use crate::node::Node;

/// See the module head.
pub(super) struct Consent {
    /// What may be lost was accepted by naming the journal.
    pub(super) confirmed: bool,
    /// Only what would become of it is wanted.
    pub(super) dry_run: bool,
}

impl Consent {
    /// Of an administrator, by `force`, `confirm` and `dry_run`.
    pub(super) fn read<N: Node>(call: &Call<'_, N>, journal: &str) -> Outcome<Self> {
        call.administrator()?;
        let force = call.body.flag("force", false)?;
        let confirm = call.body.text_or("confirm", Some(""))?;
        let dry_run = call.body.flag("dry_run", false)?;
        Ok(Self { confirmed: force && confirm == journal, dry_run })
    }

    /// # Errors
    /// If there are dangers that were not accepted.
    pub(super) fn check(&self, what: &str, dangers: &[String]) -> Outcome<()> {
        if self.confirmed || self.dry_run || dangers.is_empty() {
            return Ok(());
        }
        Err(Failure::precondition_failed(format!(
            "nothing was changed: this would {what}.\n{}\nRepeat it with force, and the name of the \
             journal as confirmation, to accept that.",
            dangers.iter().map(|danger| format!("- {danger}")).collect::<Vec<_>>().join("\n")
        )))
    }
}
