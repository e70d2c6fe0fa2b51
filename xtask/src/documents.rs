//! Documents say what is true: commands, paths and numbers in them exist.

use std::collections::BTreeMap;
use std::path::Path;

use super::repository::{Text, report, root, texts};

fn documents() -> Vec<Text> {
    texts().into_iter().filter(|file| file.has_extension("md")).collect()
}

/// The texts between backticks on lines of prose, and whole lines of code blocks.
fn quoted(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut in_block = false;
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            in_block = !in_block;
        } else if in_block {
            found.push(line.trim().trim_start_matches("$ ").to_owned());
        } else {
            found.extend(line.split('`').skip(1).step_by(2).map(str::to_owned));
        }
    }
    found
}

#[test]
fn commands_in_documents_exist() {
    let makefile = std::fs::read_to_string(root().join("Makefile")).expect("there is a Makefile");
    let mut findings = Vec::new();
    for document in documents() {
        for code in quoted(&document.text) {
            let mut words = code.split_whitespace();
            let target = match (words.next(), words.next()) {
                (Some("make"), Some(target)) if !target.contains('=') => target,
                _ => continue,
            };
            if !makefile.lines().any(|line| line.starts_with(&format!("{target}:"))) {
                findings.push(format!("{}: {code}", document.path));
            }
        }
    }
    report("make targets that do not exist", &findings);
}

#[test]
fn the_readme_names_its_two_commands() {
    let readme = std::fs::read_to_string(root().join("README.md")).expect("there is a README");
    for command in ["make run", "make test"] {
        assert!(readme.lines().any(|line| line.trim() == command), "{command} stands on its own");
    }
}

#[test]
fn paths_and_links_in_documents_exist() {
    let folders =
        ["crates/", "xtask/", "config/", "docs/", "tests/", "docker/", ".ci/", ".config/"];
    let mut findings = Vec::new();
    for document in documents() {
        let mut missing = |path: &str| findings.push(format!("{}: {path}", document.path));
        for code in quoted(&document.text) {
            let path = code.split([':', ' ']).next().unwrap_or_default();
            let is_path = folders.iter().any(|folder| path.starts_with(folder));
            if is_path && !path.contains(['*', '<', '…', '{']) && !root().join(path).exists() {
                missing(path);
            }
        }
        let own = root().join(&document.path);
        let folder = own.parent().unwrap_or(Path::new("."));
        for link in document.text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            let path = link.split('#').next().unwrap_or_default();
            let outside = path.contains("://") || path.starts_with("mailto:");
            if !path.is_empty() && !outside && !folder.join(path).exists() {
                missing(link);
            }
        }
    }
    report("paths in documents that do not exist", &findings);
}

#[test]
fn decisions_have_numbers_of_their_own() {
    let mut numbers: BTreeMap<String, String> = BTreeMap::new();
    let mut findings = Vec::new();
    for file in texts() {
        let Some(name) = file.path.strip_prefix("docs/adr/") else { continue };
        let number: String = name.chars().take_while(char::is_ascii_digit).collect();
        let first = file.text.lines().next().unwrap_or_default();
        if number.len() != 4 || !first.starts_with(&format!("# {number} ")) {
            findings
                .push(format!("{name} must begin with four digits, as must its title: {first:?}"));
        }
        for section in ["Context", "Decision", "Consequences", "Rejected"] {
            if !file.text.contains(&format!("\n## {section}")) {
                findings.push(format!("{name} has no section {section}"));
            }
        }
        if let Some(other) = numbers.insert(number, name.to_owned()) {
            findings.push(format!("{name} and {other} have the same number"));
        }
    }
    report("decisions", &findings);
}

#[test]
fn the_architecture_is_one_page() {
    let path = root().join("ARCHITECTURE.md");
    let text = std::fs::read_to_string(path).expect("there is an ARCHITECTURE.md");
    let lines = text.lines().count();
    assert!(lines <= 130, "ARCHITECTURE.md has {lines} lines; one page is at most 130");
}

#[test]
fn the_changelog_has_a_standing_section() {
    let path = root().join("CHANGELOG.md");
    let text = std::fs::read_to_string(path).expect("there is a CHANGELOG.md");
    assert!(text.contains("\n## Unreleased\n"), "CHANGELOG.md has no section Unreleased");
}

/// Each row of the tables of faults and cases names a test that is there, or says why there is none.
#[test]
fn faults_have_their_tests() {
    let mut findings = Vec::new();
    for (path, count) in [
        ("docs/reconciliation-faults.md", 37),
        ("docs/journal-pairs-faults.md", 53),
        ("docs/journal-pairs-cases.md", 76),
    ] {
        let table = std::fs::read_to_string(root().join(path)).expect("there is a table of faults");
        let is_row = |line: &&str| ["| A", "| B", "| CP-"].iter().any(|of| line.starts_with(of));
        let rows: Vec<&str> = table.lines().filter(is_row).collect();
        assert_eq!(rows.len(), count, "{path}: a number is never given to something else");
        for row in rows {
            let cell = row.trim_end_matches(" |").rsplit(" | ").next().unwrap_or_default();
            let is_there = cell.trim_matches('`').split_once("::").is_some_and(|(path, test)| {
                let text = std::fs::read_to_string(root().join(path)).unwrap_or_default();
                text.contains(&format!("fn {test}("))
            });
            if !is_there && !cell.starts_with("none: ") {
                findings.push(format!("{path}: {row}"));
            }
        }
    }
    report("faults whose test does not exist", &findings);
}
