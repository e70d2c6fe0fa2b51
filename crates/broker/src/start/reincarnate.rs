//! `leveret reincarnate`: a data directory that was copied, or put back from a backup, becomes that of
//! another node under the same name, which has nothing.
//!
//! Under its old identity it would vote again on what it has voted on since, and lack what it has
//! acknowledged. Its members of quorum queues have others that hold the same; of its classic queues
//! nobody else has anything, so that they have to be given up knowingly.

use std::fs;
use std::io;
use std::path::Path;

use metadata::objects::queue::QueueKind;

use crate::cluster::GROUP;
use crate::cluster::identity;
use crate::config::{Config, written};
use crate::pair::left;
use crate::start::recover::{Found, close};
use crate::start::{Opened, StartError};

/// What was done.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Done {
    /// Nothing: the node is on its own, and votes with nobody.
    Alone,
    /// Nothing: classic queues with messages would be lost.
    NotForced,
    /// It is another node now.
    Reincarnated,
}

/// Makes `directory` that of another node. `say` is given lines.
///
/// # Errors
/// The directory is no node's, is in use or cannot be read; without `force` nothing has changed then.
pub(crate) fn reincarnate(
    directory: &Path,
    force: bool,
    say: &mut dyn FnMut(&str),
) -> Result<Done, StartError> {
    let shown = directory.display();
    let known = identity::read(directory).map_err(StartError)?;
    let Some(known) = known else {
        return Err(StartError(format!("{shown} is no node's data directory")));
    };
    let opened = Opened::open(config(directory)?, None)?;
    if !known.formed && !opened.has_stream(GROUP.stream()) {
        close(opened.journal)?;
        say(&format!(
            "{shown} belongs to a node on its own. It votes with nobody, so it can be started as it is."
        ));
        return Ok(Done::Alone);
    }
    let lost = match Found::read(opened) {
        Ok(found) => given_up(found, say)?,
        Err(error) if force => {
            say(&format!("What is in {shown} cannot be told: {error}"));
            0
        }
        Err(error) => {
            return Err(StartError(format!("{error}; --force gives it up all the same")));
        }
    };
    if lost > 0 && !force {
        say("Nothing has changed; --force gives them up.");
        return Ok(Done::NotForced);
    }
    // Their copies may be old, and their age does not say so.
    let failed = |error: io::Error| StartError(format!("{shown}: {error}"));
    for folder in left::folders(directory).map_err(failed)? {
        folder.mark().map_err(failed)?;
        say(&format!(
            "The copy of journal '{}' is set aside, and held until an operator adopts or discards it.",
            folder.name
        ));
    }
    // In this order: a node that finds its identity and no journal does not start.
    for part in ["journal", "metadata"] {
        let path = directory.join(part);
        match fs::remove_dir_all(&path) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(StartError(format!("{}: {error}", path.display()))),
        }
    }
    let node = identity::renew(directory).map_err(StartError)?;
    say(&format!("{shown} was node {} and is node {node}, which has nothing.", known.me.node));
    Ok(Done::Reincarnated)
}

fn config(directory: &Path) -> Result<Config, StartError> {
    // Nothing else of the configuration matters here.
    let set = format!("data_dir={}", directory.display());
    let (lines, mut complaints) = written::command_line(&[set]);
    match Config::read(lines) {
        Ok((config, _)) if complaints.is_empty() => Ok(config),
        Ok(_) => Err(StartError(complaints.remove(0).to_string())),
        Err(more) => {
            complaints.extend(more);
            Err(StartError(complaints.remove(0).to_string()))
        }
    }
}

/// Says what the directory has that is given up; returns how many messages of classic queues.
fn given_up(found: Found, say: &mut dyn FnMut(&str)) -> Result<u64, StartError> {
    let Found { state, opened, .. } = found;
    let me = opened.me.node;
    let members = state.all_queues().filter(|queue| queue.kind == QueueKind::Quorum);
    let members = members.filter(|queue| queue.member(me).is_some()).count();
    say(&format!("Members of quorum queues, which their queues have to replace: {members}."));
    let mut messages = 0;
    for queue in state
        .all_queues()
        .filter(|queue| queue.kind == QueueKind::Classic && queue.home == me && queue.durable)
        .filter(|queue| queue.journal.is_none())
    {
        let records = opened.recovery.streams().iter().find(|it| it.stream == queue.id.into());
        let count = records.map_or(0, |known| known.records);
        messages += count;
        say(&format!(
            "Classic queue '{}' in vhost '{}', which is lost: {count} messages.",
            queue.name, queue.vhost
        ));
    }
    let Opened { journal, recovery, .. } = opened;
    drop(recovery);
    close(journal)?;
    Ok(messages)
}
