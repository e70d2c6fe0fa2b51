//! How old the copies of journals are, on a data directory while no node uses it.
//!
//! `list` changes nothing, not even a lock file, and works beside a running node. `set` takes the
//! locks, prints what it does before it does it, and leaves a line in `activation.audit` beside the
//! state file.

use std::io::Write;
use std::path::{Path, PathBuf};

use ::activation::age::Age;
use ::activation::class::classify;
use ::activation::file::{self, JournalUid};
use ::activation::force;
use ::activation::register::{Incarnation, Register, View};
use ::activation::standing::{Own, Record, Standing};
use journal::audit;
use journal::disk::real::RealDisk;
use journal::disk::{Disk as _, Lock};
use journal::whole;
use serde_json::{Value, json};

use crate::cli::{ActivationCommand, Arguments};
use crate::exit::{Exit, Failed};
use crate::output::Rows;

/// Where the copies lie in a data directory, each in `NAME-UID`.
const JOURNALS: &str = "journals";
const FILE: &str = "activation";
const DATA: &str = "data";
const AUDIT: &str = "activation.audit";

/// A copy of a journal.
struct Kept {
    name: String,
    uid: JournalUid,
    folder: PathBuf,
    /// The state file, or what is wrong with it.
    record: Result<Option<Record>, String>,
    /// The process that uses it.
    holder: Option<u32>,
    vacant: bool,
}

/// Performs a command that names a data directory; `false` if it names none.
///
/// # Errors
/// With [`Exit::Unavailable`] if a node uses what shall be changed, with [`Exit::Data`] if the change
/// was not confirmed or something cannot be read.
pub(crate) fn perform(
    command: &ActivationCommand,
    arguments: &Arguments,
    out: &mut dyn Write,
) -> Result<bool, Failed> {
    match command {
        ActivationCommand::List { directory: None, .. }
        | ActivationCommand::Set { directory: None, .. } => return Ok(false),
        ActivationCommand::List { directory: Some(directory), journal, coordinated, founder } => {
            let register = coordinated.map(signed).transpose()?;
            let copies = copies(directory, journal.as_deref())?;
            let rows = copies.iter().map(|copy| row(copy, register, *founder)).collect();
            let columns = COLUMNS.map(str::to_owned).to_vec();
            let headers = !arguments.no_table_headers && !arguments.silent;
            Rows { columns, rows }.print(arguments.formatter, headers, out)?;
        }
        ActivationCommand::Set {
            directory: Some(directory),
            journal,
            to,
            force,
            confirm,
            dry_run,
            ..
        } => {
            let to = sequence(*to)?;
            let _node = locked(&directory.join("journal"))?;
            let copy = copies(directory, Some(journal))?.remove(0);
            let _journal = locked(&copy.folder)?;
            let change = Change { copy: &copy, to };
            if *dry_run {
                change.announce(out)?;
                return Ok(true);
            }
            if change.is_dangerous() && !(*force && confirm.as_deref() == Some(journal)) {
                return Err(change.refusal());
            }
            change.make(*force)?;
            change.announce(out)?;
        }
    }
    Ok(true)
}

/// A number as a sequence to set.
///
/// # Errors
/// If it cannot be set.
pub(crate) fn sequence(number: u64) -> Result<Age, Failed> {
    Age::wanted(number).ok_or_else(|| {
        let reason = format!("{number} is above the highest sequence to set, {}", Age::MAX_WANTED);
        Failed::new(Exit::Usage, reason)
    })
}

const COLUMNS: [&str; 7] =
    ["journal", "uid", "local_sequence", "state", "incarnation", "in_use_by", "class"];

fn row(copy: &Kept, register: Option<Register>, founder: bool) -> Vec<Value> {
    let record = copy.record.as_ref().map(|record| record.unwrap_or(Record::NONE));
    let (sequence, state, incarnation) = match &record {
        Ok(record) => (
            record.standing.age().map_or(Value::Null, |age| json!(age.get())),
            state(record.standing),
            record.incarnation.map_or(Value::Null, |one| json!(format!("{:016x}", one.0))),
        ),
        Err(reason) => (Value::Null, json!(format!("damaged: {reason}")), Value::Null),
    };
    let class = match (record, register) {
        (Err(_), _) => json!("held: the state file is damaged"),
        (Ok(_), None) => Value::Null,
        (Ok(record), Some(register)) => {
            // The number that was given is one of the copy's own register.
            let incarnation = record.incarnation.unwrap_or(Incarnation(0));
            let own = Own { record, vacant: copy.vacant, founder };
            let view = View { register: Some(register), incarnation, adopted: None, holder: None };
            json!(classify(&own, &view).to_string())
        }
    };
    vec![
        json!(copy.name),
        json!(copy.uid.to_string()),
        sequence,
        state,
        incarnation,
        copy.holder.map_or(Value::Null, |pid| json!(pid)),
        class,
    ]
}

fn state(standing: Standing) -> Value {
    match standing {
        Standing::Empty => json!("none"),
        Standing::Valid(_) => json!("valid"),
        Standing::Syncing | Standing::Marked(..) => json!(standing.to_string()),
    }
}

/// The signed value of the register: a claim is negative.
fn signed(number: i64) -> Result<Register, Failed> {
    Register::from_signed(number)
        .ok_or_else(|| Failed::new(Exit::Usage, format!("{number} is no coordinated sequence")))
}

/// The copies in a data directory; at least one, of this name if one is given.
fn copies(directory: &Path, name: Option<&str>) -> Result<Vec<Kept>, Failed> {
    let journals = directory.join(JOURNALS);
    let failed =
        |error: std::io::Error| Failed::new(Exit::Data, format!("{}: {error}", journals.display()));
    let mut folders = match RealDisk.list(&journals) {
        Ok(folders) => folders,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound && name.is_none() => {
            // A data directory without named journals is none to complain about.
            RealDisk.list(directory).map_err(failed)?;
            return Ok(Vec::new());
        }
        Err(error) => return Err(failed(error)),
    };
    folders.sort_unstable();
    let mut copies = Vec::new();
    for folder in folders {
        let Some((journal, uid)) = parts(&folder) else { continue };
        if name.is_none_or(|name| name == journal) {
            copies.push(copy(journal, uid, journals.join(&folder))?);
        }
    }
    if let (Some(name), true) = (name, copies.is_empty()) {
        let reason = format!("there is no copy of journal '{name}' in {}", journals.display());
        return Err(Failed::new(Exit::Data, reason));
    }
    if let (Some(name), [_, _, ..]) = (name, copies.as_slice()) {
        let reason = format!(
            "there are {} copies of journals of the name '{name}' in {}: remove those that are over",
            copies.len(),
            journals.display()
        );
        return Err(Failed::new(Exit::Data, reason));
    }
    Ok(copies)
}

/// `NAME-UID`.
fn parts(folder: &str) -> Option<(&str, JournalUid)> {
    let (name, uid) = folder.rsplit_once('-')?;
    let is_uid = uid.len() == 32 && uid.bytes().all(|byte| byte.is_ascii_hexdigit());
    let uid = u128::from_str_radix(uid, 16).ok().filter(|_| is_uid)?;
    (!name.is_empty()).then_some((name, JournalUid(uid)))
}

fn copy(name: &str, uid: JournalUid, folder: PathBuf) -> Result<Kept, Failed> {
    let failed = |error: std::io::Error| {
        Failed::new(Exit::Data, format!("{}: {error}", folder.join(FILE).display()))
    };
    let record = match whole::peek(&RealDisk, &folder, FILE).map_err(failed)? {
        None => Ok(None),
        Some(bytes) => file::decode(uid, &bytes).map(Some).map_err(|error| error.to_string()),
    };
    let holder = RealDisk.holder(&whole::lock_file(&folder)).map_err(failed)?;
    let vacant = if let Ok(found) = journal::inspect::inspect(&RealDisk, &folder.join(DATA), true) {
        found.report.records == 0
    } else {
        // No journal at all, or one that cannot be read.
        match RealDisk.list(&folder.join(DATA)) {
            Ok(files) => files.is_empty(),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => true,
            Err(error) => return Err(failed(error)),
        }
    };
    Ok(Kept { name: name.to_owned(), uid, folder, record, holder, vacant })
}

/// Takes the lock of a journal's directory, if there is such a directory.
fn locked(directory: &Path) -> Result<Option<Lock>, Failed> {
    match RealDisk.lock(&whole::lock_file(directory)) {
        Ok(Lock::Busy(pid)) => {
            let reason = format!("{} is in use by process {pid}", directory.display());
            Err(Failed::new(Exit::Unavailable, reason))
        }
        Ok(lock) => Ok(Some(lock)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Failed::new(Exit::Data, format!("{}: {error}", directory.display()))),
    }
}

/// A change of a copy's age.
struct Change<'c> {
    copy: &'c Kept,
    to: Age,
}

impl Change<'_> {
    fn before(&self) -> String {
        match &self.copy.record {
            Ok(record) => record.unwrap_or(Record::NONE).standing.to_string(),
            Err(_) => "a damaged state file".to_owned(),
        }
    }

    /// Whether the copy could be served although others have more. Down only makes it stale.
    fn is_dangerous(&self) -> bool {
        match &self.copy.record {
            Ok(Some(record)) => force::raises(record.standing, self.to),
            Ok(None) | Err(_) => true,
        }
    }

    fn refusal(&self) -> Failed {
        let Self { copy, to } = self;
        Failed::new(
            Exit::Data,
            format!(
                "nothing was changed: journal '{name}' would go from {before} to {to} on this node.\n\
                 A copy of a higher sequence may be served, and then every message is lost that was \
                 confirmed without it; other copies are overwritten from it.\n\
                 Compare the copies on all nodes first (leveretctl activation list); then repeat with \
                 --force --confirm {name}",
                name = copy.name,
                before = self.before()
            ),
        )
    }

    fn make(&self, force: bool) -> Result<(), Failed> {
        let Self { copy, to } = self;
        let failed = |error: std::io::Error| {
            Failed::new(Exit::Data, format!("{}: {error}", copy.folder.display()))
        };
        let record = copy.record.as_ref().ok().copied().flatten();
        let incarnation = record.and_then(|record| record.incarnation);
        let record = Record { standing: Standing::Valid(*to), incarnation };
        // First the line, so that no change is without one.
        self.audit(force).map_err(failed)?;
        whole::replace(&RealDisk, &copy.folder, FILE, &file::encode(copy.uid, &record))
            .map_err(failed)
    }

    fn audit(&self, force: bool) -> std::io::Result<()> {
        let force = if force { " forced" } else { "" };
        let line = format!(
            "journal '{}' {} local sequence from {} to {}{force}",
            self.copy.name,
            self.copy.uid,
            self.before(),
            self.to
        );
        audit::append(&RealDisk, &self.copy.folder, AUDIT, &line)
    }

    fn announce(&self, out: &mut dyn Write) -> Result<(), Failed> {
        let Self { copy, to } = self;
        writeln!(out, "journal '{}' local sequence from {} to {to}", copy.name, self.before())?;
        Ok(())
    }
}
