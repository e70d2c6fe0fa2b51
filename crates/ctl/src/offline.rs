//! Commands on a journal's directory while no node uses it. They change nothing.

use std::io::Write;
use std::path::{Path, PathBuf};

use journal::disk::real::RealDisk;
use journal::error::OpenError;
use journal::inspect::{Inspection, Verification, inspect, verify};
use serde_json::Value;

use crate::age;
use crate::cli::{Formatter, JournalCommand};
use crate::exit::{Exit, Failed};

/// Performs a command.
///
/// # Errors
/// If the directory is no journal, cannot be read or is in use, or something is damaged.
pub(crate) fn journal(
    command: &JournalCommand,
    formatter: Formatter,
    out: &mut dyn Write,
) -> Result<(), Failed> {
    match command {
        JournalCommand::Inspect { directory, even_if_in_use } => {
            let found = inspect(&RealDisk, &journal_of(directory), *even_if_in_use)
                .map_err(|error| failed(&error))?;
            let age = age::folder(directory).map(|folder| age::show(&folder)).transpose()?;
            if formatter == Formatter::Json {
                let shown = serde_json::to_value(&found).map(|mut shown| {
                    if let Some(age) = age {
                        shown["activation"] = age;
                    }
                    shown
                });
                return json(shown, out);
            }
            if let Some(age) = age {
                age::print(&age, out)?;
            }
            show(&found, out)
        }
        JournalCommand::Verify { directory, even_if_in_use } => {
            let found = verify(&RealDisk, &journal_of(directory), *even_if_in_use)
                .map_err(|error| failed(&error))?;
            if formatter == Formatter::Json {
                json(serde_json::to_value(&found), out)?;
            } else {
                show_verification(&found, out)?;
            }
            if found.is_intact() {
                return Ok(());
            }
            Err(Failed::new(Exit::Data, "the journal is damaged"))
        }
        JournalCommand::List
        | JournalCommand::Create { .. }
        | JournalCommand::SetBackup { .. }
        | JournalCommand::RemoveBackup { .. }
        | JournalCommand::ListAbandoned
        | JournalCommand::Adopt { .. }
        | JournalCommand::RestoreCopy { .. }
        | JournalCommand::DiscardCopy { .. }
        | JournalCommand::Delete { .. } => unreachable!("these are asked of a node"),
    }
}

/// A data directory, or the folder of a named journal, may be named instead of the journal in it.
fn journal_of(directory: &Path) -> PathBuf {
    if let Some(folder) = age::folder(directory) {
        return folder.join("data");
    }
    let inside = directory.join("journal");
    if inside.is_dir() { inside } else { directory.to_owned() }
}

fn failed(error: &OpenError) -> Failed {
    let exit = match error {
        OpenError::Locked { .. } => Exit::Unavailable,
        _ => Exit::Data,
    };
    Failed::new(exit, error.to_string())
}

fn json(value: serde_json::Result<Value>, out: &mut dyn Write) -> Result<(), Failed> {
    let value = value.map_err(|error| Failed::new(Exit::Software, error.to_string()))?;
    writeln!(out, "{value:#}")?;
    Ok(())
}

fn show(found: &Inspection, out: &mut dyn Write) -> Result<(), Failed> {
    let report = &found.report;
    writeln!(out, "format version\t{}", found.version)?;
    writeln!(out, "journal\t{}", found.uid)?;
    if let Some(pid) = found.holder {
        writeln!(out, "in use by process\t{pid}")?;
    }
    writeln!(out, "closed properly\t{}", if report.clean { "yes" } else { "no" })?;
    if let Some(torn) = &report.torn {
        writeln!(out, "torn tail\t{} at byte {}", torn.file, torn.offset)?;
    }
    writeln!(out, "records\t{}", report.records)?;
    writeln!(out, "bytes on disk\t{}", found.disk_bytes)?;
    writeln!(out, "live bytes\t{}", found.live_bytes)?;
    for damage in &report.quarantined {
        writeln!(out, "damage\t{} at byte {}, {} bytes", damage.file, damage.offset, damage.bytes)?;
    }
    writeln!(
        out,
        "\nsegment\tstate\tgeneration\tbytes\tlive_records\tlive_bytes\tindexed\twaits_for"
    )?;
    for segment in &found.segments {
        writeln!(
            out,
            "{}\t{}\t{}\t{}\t{}\t{}\t{}\t{}",
            segment.file,
            segment.state,
            segment.generation,
            segment.bytes,
            segment.live_records,
            segment.live_bytes,
            segment.indexed,
            segment.waits_for.join(" ")
        )?;
    }
    writeln!(out, "\nstream\trecords\thighest")?;
    for stream in &found.streams {
        writeln!(out, "{}\t{}\t{}", stream.stream, stream.records, stream.highest)?;
    }
    Ok(())
}

fn show_verification(found: &Verification, out: &mut dyn Write) -> Result<(), Failed> {
    writeln!(out, "intact records\t{}", found.intact)?;
    writeln!(out, "live records\t{}", found.live)?;
    writeln!(out, "live records damaged\t{}", found.live_damaged)?;
    for damage in &found.damage {
        let stream = damage.stream.map_or(String::new(), |stream| format!(", stream {stream}"));
        let (file, offset, bytes) = (&damage.file, damage.offset, damage.bytes);
        writeln!(out, "damage\t{file} at byte {offset}, {bytes} bytes{stream}")?;
    }
    for file in &found.indexes_damaged {
        writeln!(out, "index damaged\t{file}")?;
    }
    Ok(())
}
