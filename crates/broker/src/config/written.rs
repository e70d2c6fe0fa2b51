//! The configuration as written: which key stands where with what, not yet judged.
//!
//! A file is TOML; tables and dotted keys are the same. The environment and the command line give plain text.

use std::path::PathBuf;
use std::sync::Arc;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::complaint::{Complaint, Origin};
use super::keys;
use super::value::Raw;

/// One line of somebody's configuration.
#[derive(Debug, Clone, PartialEq)]
pub struct Written {
    /// Dotted name, perhaps unknown.
    pub name: String,
    /// Its value.
    pub raw: Raw,
    /// Where it stands.
    pub origin: Origin,
}

/// Reads a file's text. Every syntax error becomes a complaint; what could be read is returned all the same.
pub fn file(path: PathBuf, text: &str) -> (Vec<Written>, Vec<Complaint>) {
    let path = Arc::new(path);
    // Some editors put a byte order mark in front, which TOML does not know.
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let origin = |offset: usize| Origin::File { path: Arc::clone(&path), line: line(text, offset) };

    let (table, errors) = DeTable::parse_recoverable(text);
    let complaints: Vec<Complaint> = errors
        .iter()
        .map(|error| {
            let offset = error.span().map_or(0, |span| span.start);
            Complaint::new(origin(offset), format!("not TOML: {}", error.message()))
        })
        .collect();

    let mut lines = Vec::new();
    flatten("", table.get_ref(), &origin, &mut lines);
    // What the parser made up for a broken line would only add a second complaint about it.
    lines.retain(|line| complaints.iter().all(|complaint| complaint.origin != line.origin));
    lines.sort_by_key(|line| match line.origin {
        Origin::File { line, .. } => line,
        _ => 0,
    });
    (lines, complaints)
}

fn flatten(
    prefix: &str,
    table: &DeTable<'_>,
    origin: &dyn Fn(usize) -> Origin,
    lines: &mut Vec<Written>,
) {
    for (key, value) in table {
        let name = format!("{prefix}{}", key.get_ref());
        match value.get_ref() {
            DeValue::Table(inner) if keys::find(&name).is_none() => {
                flatten(&format!("{name}."), inner, origin, lines);
            }
            _ => lines.push(Written { name, raw: raw(value), origin: origin(key.span().start) }),
        }
    }
}

fn raw(value: &Spanned<DeValue<'_>>) -> Raw {
    match value.get_ref() {
        DeValue::String(text) => Raw::Text(text.to_string()),
        DeValue::Integer(number) => i64::from_str_radix(number.as_str(), number.radix())
            .map_or_else(|_| Raw::Text(number.as_str().to_owned()), Raw::Integer),
        DeValue::Float(number) => number.as_str().parse().map_or(Raw::Other("float"), Raw::Float),
        DeValue::Boolean(flag) => Raw::Bool(*flag),
        DeValue::Datetime(_) => Raw::Other("date"),
        DeValue::Array(items) => Raw::List(items.iter().map(raw).collect()),
        DeValue::Table(_) => Raw::Other("table"),
    }
}

fn line(text: &str, offset: usize) -> usize {
    1 + text.bytes().take(offset).filter(|byte| *byte == b'\n').count()
}

/// Picks the `LEVERET_…` variables that set keys.
///
/// `LEVERET_CONFIG` names the file and is not a key. A service called `leveret` makes Kubernetes set variables
/// such as `LEVERET_PORT_5672_TCP` in every pod; they are passed over.
pub fn environment(variables: impl Iterator<Item = (String, String)>) -> Vec<Written> {
    let mut lines: Vec<Written> = variables
        .filter(|(variable, _)| variable != "LEVERET_CONFIG" && !is_service_link(variable))
        .filter_map(|(variable, value)| {
            let name = variable.strip_prefix("LEVERET_")?.replace("__", ".").to_ascii_lowercase();
            Some(Written { name, raw: plain(value), origin: Origin::Environment(variable) })
        })
        .collect();
    lines.sort_by(|left, right| left.name.cmp(&right.name));
    lines
}

fn is_service_link(variable: &str) -> bool {
    let parts: Vec<&str> = variable.split('_').collect();
    let ends = |end: &[&str]| parts.ends_with(end);
    ends(&["SERVICE", "HOST"])
        || parts.windows(2).any(|pair| pair == ["SERVICE", "PORT"])
        || ends(&["PORT"])
        || parts.windows(3).any(|three| {
            three[0] == "PORT"
                && three[1].bytes().all(|byte| byte.is_ascii_digit())
                && matches!(three[2], "TCP" | "UDP" | "SCTP")
        })
}

/// Reads the arguments of `--set`, each `KEY=VALUE`.
pub fn command_line(arguments: &[String]) -> (Vec<Written>, Vec<Complaint>) {
    let (mut lines, mut complaints) = (Vec::new(), Vec::new());
    for argument in arguments {
        match argument.split_once('=') {
            Some((name, value)) => lines.push(Written {
                name: name.trim().to_owned(),
                raw: plain(value.trim().to_owned()),
                origin: Origin::CommandLine,
            }),
            None => complaints.push(Complaint::new(
                Origin::CommandLine,
                format!("{argument:?} is not KEY=VALUE"),
            )),
        }
    }
    (lines, complaints)
}

/// Text outside a file: taken as it stands, but a quoted text or an array may be written as in a file.
fn plain(text: String) -> Raw {
    if text.starts_with(['"', '[']) && text.len() > 1 {
        let line = format!("value = {text}");
        if let Ok(table) = DeTable::parse(&line)
            && let Some(value) = table.get_ref().get("value")
            && table.get_ref().len() == 1
        {
            return raw(value);
        }
    }
    Raw::Text(text)
}
