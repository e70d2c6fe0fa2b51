//! `leveretctl`, as an operator runs it.

use std::process::Command;

use crate::http::Api;
use crate::node;

/// What a command came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ended {
    /// The exit code.
    pub code: i32,
    /// What it printed.
    pub out: String,
    /// What it complained about, without the word that goes before it.
    pub error: String,
}

/// Runs a command against a node.
///
/// # Panics
/// If the command is not built, or was killed.
pub fn leveretctl(api: &Api, line: &[&str]) -> Ended {
    let binary = node::binary().with_file_name("leveretctl");
    let url = format!("http://{}", api.address);
    let output = Command::new(&binary)
        .args(["--url", &url, "--silent"])
        .args(line)
        .output()
        .unwrap_or_else(|error| panic!("{}: {error}", binary.display()));
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let error = text(&output.stderr);
    Ended {
        code: output.status.code().expect("it was not killed"),
        out: text(&output.stdout),
        error: error.trim().trim_start_matches("Error:").trim().to_owned(),
    }
}
