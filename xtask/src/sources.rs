//! The shape of source files.

use std::fs;

use super::repository::{report, root, sources, texts, walk};

const LINES_MAX: usize = 900;

#[test]
fn no_file_is_longer_than_can_be_read() {
    let findings: Vec<String> = sources()
        .iter()
        .map(|file| (file.path.as_str(), file.text.lines().count()))
        .filter(|(_, lines)| *lines > LINES_MAX)
        .map(|(path, lines)| format!("{path}: {lines} lines"))
        .collect();
    report("files over 900 lines hold more than one noun", &findings);
}

#[test]
fn every_module_has_a_head() {
    let findings: Vec<String> = sources()
        .into_iter()
        // What a tests module is about stands in its file's name.
        .filter(|file| !file.path.ends_with("/tests.rs") && !file.path.contains("/tests/"))
        .filter(|file| !file.text.starts_with("//!"))
        .map(|file| file.path)
        .collect();
    report("modules without a head (//!)", &findings);
}

#[test]
fn modules_are_files_of_their_own_name() {
    let findings: Vec<String> = sources()
        .into_iter()
        .map(|file| file.path)
        .filter(|path| path.ends_with("/mod.rs"))
        .collect();
    report("foo.rs and foo/bar.rs, not foo/mod.rs", &findings);
}

#[test]
fn nothing_is_left_for_later() {
    // Put together here, so that this file does not find itself. A test that is ignored says why.
    let words = ["TO-DO", "FIX-ME", "XX-X", "to-do!(", "unimplemen-ted!(", "#[igno-re]"];
    let words: Vec<String> = words.iter().map(|word| word.replace('-', "")).collect();
    let mut findings = Vec::new();
    for file in sources() {
        for (index, line) in file.text.lines().enumerate() {
            if words.iter().any(|word| line.contains(word)) {
                findings.push(format!("{}:{}: {}", file.path, index + 1, line.trim()));
            }
        }
    }
    report("unfinished work belongs into the issue, not into the source", &findings);
}

#[test]
fn no_path_of_one_machine() {
    let folders = ["work", "root", "home", "Users"];
    let mut findings = Vec::new();
    for file in texts() {
        for (index, line) in file.text.lines().enumerate() {
            if folders.iter().any(|folder| names_folder(line, folder)) {
                findings.push(format!("{}:{}: {}", file.path, index + 1, line.trim()));
            }
        }
    }
    report("paths that exist on one machine only", &findings);
}

/// Whether a line names `/folder/…` from the top of the file system.
fn names_folder(line: &str, folder: &str) -> bool {
    let path = format!("/{folder}/");
    line.match_indices(&path).any(|(at, _)| {
        let before = line.get(..at).and_then(|start| start.chars().next_back());
        !before.is_some_and(|letter| letter.is_alphanumeric() || ".-_)}*~>".contains(letter))
    })
}

#[test]
fn every_test_file_is_used() {
    let mut files = Vec::new();
    walk(&root(), &mut files);
    let sources = sources();
    let mut findings = Vec::new();
    for file in files {
        let path = file.strip_prefix(root()).expect("walked from there").to_string_lossy();
        let Some((owner, inside)) = path.split_once("testdata/") else { continue };
        // A test names the file itself or a folder whose files it reads all.
        let used = sources
            .iter()
            .filter(|source| source.path.starts_with(owner))
            .any(|source| inside.split('/').any(|part| source.text.contains(part)));
        if !used {
            findings.push(path.into_owned());
        }
    }
    report("files in testdata/ that no source names", &findings);
}

#[test]
fn unsafe_code_is_where_it_says_so() {
    let mut findings = Vec::new();
    let mut folders = Vec::new();
    walk(&root().join("crates"), &mut folders);
    for manifest in folders.iter().filter(|path| path.ends_with("Cargo.toml")) {
        let text = fs::read_to_string(manifest).expect("manifests can be read");
        if !text.contains("[lints]\nworkspace = true") {
            findings.push(manifest.display().to_string());
        }
    }
    report("manifests that do not take the workspace's lints", &findings);
}
