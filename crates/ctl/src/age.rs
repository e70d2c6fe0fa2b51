//! How old a copy of a named journal is, and the copies that were put aside beside it: from the
//! folder that they lie in.

use std::io::Write;
use std::path::{Path, PathBuf};

use ::activation::age::Age;
use ::activation::file::decode_any;
use journal::disk::real::RealDisk;
use journal::whole;
use serde_json::{Value, json};

use crate::exit::{Exit, Failed};

/// The folder of a named journal, if a path is that folder or the copy in it.
pub(crate) fn folder(path: &Path) -> Option<PathBuf> {
    let is_one = |folder: &Path| {
        let name = folder.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let uid = name.rsplit_once('-').map_or("", |(_, uid)| uid);
        uid.len() == 32 && uid.bytes().all(|byte| byte.is_ascii_hexdigit())
    };
    // A path may be `.` or a link.
    let path = path.canonicalize().ok()?;
    [Some(path.as_path()), path.parent()]
        .into_iter()
        .flatten()
        .find(|folder| is_one(folder) && folder.join("data").is_dir())
        .map(Path::to_path_buf)
}

/// What the state file of a folder says, and which copies were put aside.
///
/// # Errors
/// If it cannot be read. A damaged state file is no error but shown.
pub(crate) fn show(folder: &Path) -> Result<Value, Failed> {
    let mut shown = state(folder)?;
    let aside = folder.join("saved");
    let mut names = names(&aside)?;
    // By their number, the oldest first.
    let number = |name: &String| name.rsplit_once('-').and_then(|(_, number)| number.parse().ok());
    names.sort_by_key(|name| number(name).unwrap_or(u64::MAX));
    let mut saved = Vec::new();
    for name in names {
        let mut copy = state(&aside.join(&name))?;
        copy["name"] = json!(name);
        copy["bytes"] = json!(size(&aside.join(&name).join("data"))?);
        saved.push(copy);
    }
    shown["saved"] = Value::Array(saved);
    Ok(shown)
}

fn state(folder: &Path) -> Result<Value, Failed> {
    let bytes =
        whole::peek(&RealDisk, folder, "activation").map_err(|error| failed(folder, &error))?;
    Ok(match bytes.map(|bytes| decode_any(&bytes)) {
        None => json!({ "sequence": null, "state": "none", "incarnation": null }),
        Some(Ok((_, record))) => json!({
            "sequence": record.standing.age().map(Age::get),
            "state": record.standing.to_string(),
            "incarnation": record.incarnation.map(|one| format!("{:016x}", one.0)),
        }),
        Some(Err(error)) => {
            json!({ "sequence": null, "state": format!("damaged: {error}"), "incarnation": null })
        }
    })
}

fn names(folder: &Path) -> Result<Vec<String>, Failed> {
    let entries = match std::fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(failed(folder, &error)),
    };
    let mut names = Vec::new();
    for entry in entries {
        let name = entry.map_err(|error| failed(folder, &error))?.file_name();
        names.extend(name.into_string());
    }
    Ok(names)
}

/// Bytes of the files in a folder.
fn size(folder: &Path) -> Result<u64, Failed> {
    let mut bytes = 0;
    for name in names(folder)? {
        let path = folder.join(name);
        bytes += std::fs::metadata(&path).map_err(|error| failed(&path, &error))?.len();
    }
    Ok(bytes)
}

fn failed(path: &Path, error: &std::io::Error) -> Failed {
    Failed::new(Exit::Data, format!("{}: {error}", path.display()))
}

/// Prints what [`show`] gives.
///
/// # Errors
/// If it cannot be printed.
pub(crate) fn print(shown: &Value, out: &mut dyn Write) -> Result<(), Failed> {
    let plain = |value: &Value| match value {
        Value::Null => "none".to_owned(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    writeln!(out, "activation sequence\t{}", plain(&shown["sequence"]))?;
    writeln!(out, "state file\t{}", plain(&shown["state"]))?;
    writeln!(out, "incarnation\t{}", plain(&shown["incarnation"]))?;
    for copy in shown["saved"].as_array().into_iter().flatten() {
        let (name, bytes) = (plain(&copy["name"]), plain(&copy["bytes"]));
        let state = plain(&copy["state"]);
        writeln!(out, "saved copy\t{name}\tsequence {state}\t{bytes} bytes")?;
    }
    Ok(())
}
