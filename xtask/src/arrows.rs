//! Which crate may use which. Arrows point down; cores never see each other.

use std::fs;

use super::repository::{report, root};

/// Each crate of the workspace and the crates of the workspace that it may use.
const ARROWS: &[(&str, &[&str])] = &[
    ("model", &[]),
    ("journal", &["model"]),
    ("queue", &["model"]),
    ("quorum", &["model", "journal"]),
    ("membership", &["model"]),
    ("metadata", &["model"]),
    ("activation", &["model"]),
    ("replication", &["model", "activation"]),
    ("wire", &["model"]),
    ("peer", &["model"]),
    ("amqp", &["model", "wire"]),
    ("management", &["model", "metadata", "activation"]),
    (
        "broker",
        &[
            "model",
            "journal",
            "queue",
            "quorum",
            "membership",
            "metadata",
            "activation",
            "replication",
            "wire",
            "peer",
            "amqp",
            "management",
        ],
    ),
    ("ctl", &["model", "journal", "activation"]),
    ("perf", &["model", "wire"]),
];

/// Crates whose every file is pure: no driver's crate, however small.
const PURE: &[&str] = &["model", "queue", "activation", "membership", "replication"];

/// Crates that lend clock, entropy, files, sockets, locks or threads.
const DRIVERS: &[&str] =
    &["tokio", "rustix", "libc", "rand", "parking_lot", "tracing", "rocksdb", "axum", "arc-swap"];

/// Crates that obey `clippy-pure.toml`.
const CHECKED_PURE: &[&str] =
    &["model", "queue", "metadata", "activation", "membership", "replication"];

fn manifest(name: &str) -> toml::Table {
    let path = root().join("crates").join(name).join("Cargo.toml");
    let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{name}: {error}"));
    text.parse().unwrap_or_else(|error| panic!("{name}: {error}"))
}

fn dependencies(manifest: &toml::Table) -> Vec<String> {
    let table = manifest.get("dependencies").and_then(toml::Value::as_table);
    table.map(|table| table.keys().cloned().collect()).unwrap_or_default()
}

#[test]
fn arrows_point_down() {
    let names: Vec<&str> = ARROWS.iter().map(|(name, _)| *name).collect();
    let mut findings = Vec::new();
    for entry in fs::read_dir(root().join("crates")).expect("crates/ can be read") {
        let entry = entry.expect("its entries can be read");
        let name = entry.file_name().into_string().expect("names are UTF-8");
        match ARROWS.iter().find(|(known, _)| *known == name) {
            None => findings.push(format!("{name} has no line in ARROWS")),
            Some((_, allowed)) => {
                for used in dependencies(&manifest(&name)) {
                    if names.contains(&used.as_str()) && !allowed.contains(&used.as_str()) {
                        findings.push(format!("{name} must not use {used}"));
                    }
                }
            }
        }
    }
    report("arrows between crates", &findings);
}

#[test]
fn pure_crates_have_no_drivers() {
    let mut findings = Vec::new();
    for name in PURE {
        for used in dependencies(&manifest(name)) {
            if DRIVERS.contains(&used.as_str()) {
                findings.push(format!("{name} uses {used}"));
            }
        }
    }
    let rules = fs::read_to_string(root().join("clippy-pure.toml")).expect("the rules are there");
    for name in CHECKED_PURE {
        let path = root().join("crates").join(name).join("clippy.toml");
        if fs::read_to_string(path).ok().as_deref() != Some(rules.as_str()) {
            findings.push(format!("crates/{name}/clippy.toml is not a link to clippy-pure.toml"));
        }
    }
    report("pure crates", &findings);
}
