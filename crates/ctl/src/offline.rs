//! Commands on a journal's directory while no node uses it.

use std::io::Write;

use crate::cli::JournalCommand;
use crate::exit::{Exit, Failed};

/// Performs a command.
///
/// # Errors
/// If the directory cannot be read, or a record is damaged.
pub(crate) fn journal(command: &JournalCommand, out: &mut dyn Write) -> Result<(), Failed> {
    let (JournalCommand::Inspect { directory } | JournalCommand::Verify { directory }) = command;
    writeln!(out, "{}", directory.display())?;
    Err(Failed::new(Exit::Software, "not built in"))
}
