//! Every dependency is a decision: has a reason, is used, has a licence that we may ship, comes from crates.io.

use std::collections::BTreeMap;
use std::fs;
use std::process::Command;

use serde_json::Value;

use super::repository::{compare_with_list, report, root, sources};

/// Licences that may be linked into the program.
const LICENCES: &[&str] = &[
    "0BSD",
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "BSL-1.0",
    "CDLA-Permissive-2.0",
    "ISC",
    "MIT",
    "MIT-0",
    "MPL-2.0",
    "MPL-2.0+",
    "Unicode-3.0",
    "Unlicense",
    "Zlib",
];

#[test]
fn every_workspace_dependency_has_a_reason_and_a_user() {
    let text = fs::read_to_string(root().join("Cargo.toml")).expect("there is a manifest");
    let manifests: Vec<String> = ["crates", "tests", "."]
        .iter()
        .flat_map(|folder| fs::read_dir(root().join(folder)).expect("the folder can be read"))
        .filter_map(|entry| fs::read_to_string(entry.ok()?.path().join("Cargo.toml")).ok())
        .collect();
    let mut findings = Vec::new();
    let table = text.lines().skip_while(|line| *line != "[workspace.dependencies]").skip(1);
    for line in table.take_while(|line| !line.starts_with('[')) {
        let Some((name, rest)) = line.split_once('=') else { continue };
        let name = name.trim();
        if !rest.contains("path =") && !rest.contains("# ") {
            findings.push(format!("{name} has no reason behind it"));
        }
        let used = format!("{name}.workspace = true");
        let also = format!("{name} = {{ workspace = true");
        let uses = |manifest: &String| {
            manifest.lines().any(|line| line.starts_with(&used) || line.starts_with(&also))
        };
        if !manifests.iter().any(uses) {
            findings.push(format!("{name} is used by no crate"));
        }
    }
    report("workspace dependencies", &findings);
}

#[test]
fn every_dependency_of_a_crate_is_named_in_its_sources() {
    let sources = sources();
    let mut findings = Vec::new();
    for folder in ["crates", "tests"] {
        for entry in fs::read_dir(root().join(folder)).expect("the folder can be read") {
            let path = entry.expect("its entries can be read").path();
            let Ok(text) = fs::read_to_string(path.join("Cargo.toml")) else { continue };
            let manifest: toml::Table = text.parse().expect("manifests are TOML");
            let prefix = path.strip_prefix(root()).expect("below the root").to_string_lossy();
            for section in ["dependencies", "dev-dependencies"] {
                let Some(table) = manifest.get(section).and_then(toml::Value::as_table) else {
                    continue;
                };
                for name in table.keys() {
                    let word = name.replace('-', "_");
                    let word = if word == "md_5" { "md5".to_owned() } else { word };
                    let named = sources.iter().any(|source| {
                        source.path.starts_with(&format!("{prefix}/"))
                            && source.text.contains(&word)
                    });
                    if !named {
                        findings.push(format!("{prefix}: {name}"));
                    }
                }
            }
        }
    }
    report("dependencies that no source of their crate names", &findings);
}

/// What cargo resolved for this platform.
fn metadata() -> Value {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["metadata", "--format-version", "1", "--locked"])
        .args(["--filter-platform", "x86_64-unknown-linux-gnu"])
        .current_dir(root())
        .output()
        .expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("cargo writes JSON")
}

fn text<'a>(package: &'a Value, field: &str) -> &'a str {
    package[field].as_str().unwrap_or_default()
}

#[test]
fn licences_and_sources_are_fit_to_ship() {
    let metadata = metadata();
    let mut findings = Vec::new();
    for package in metadata["packages"].as_array().expect("there are packages") {
        let name = text(package, "name");
        let source = text(package, "source");
        if !source.is_empty() && !source.starts_with("registry+") {
            findings.push(format!("{name} comes from {source}"));
        }
        // "A OR B", the older "A/B", "A AND B", with parentheses: each alternative must be fit as a whole.
        let licence = text(package, "license").replace(['(', ')'], "").replace('/', " OR ");
        let fits = licence.split(" OR ").any(|alternative| {
            alternative.split(" AND ").all(|part| LICENCES.contains(&part.trim()))
        });
        // "A AND (B OR C)" is split in the wrong place above; every word of it being fit is enough.
        let all_fit = licence
            .split(" OR ")
            .flat_map(|part| part.split(" AND "))
            .all(|part| LICENCES.contains(&part.trim()));
        if !fits && !all_fit {
            findings.push(format!("{name} has licence {licence:?}"));
        }
    }
    report("dependencies", &findings);
}

#[test]
fn duplicate_versions_are_known() {
    let metadata = metadata();
    let mut versions: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    let resolved = metadata["resolve"]["nodes"].as_array().expect("it is resolved");
    let packages = metadata["packages"].as_array().expect("there are packages");
    for package in packages {
        if resolved.iter().any(|node| node["id"] == package["id"]) {
            versions.entry(text(package, "name")).or_default().push(text(package, "version"));
        }
    }
    let found: Vec<String> = versions
        .into_iter()
        .filter(|(_, versions)| versions.len() > 1)
        .map(|(name, mut versions)| {
            versions.sort_unstable();
            format!("{name} {}", versions.join(" "))
        })
        .collect();
    let head = "# Crates that are linked or compiled in several versions. Written by UPDATE=1; it should only shrink.\n";
    compare_with_list("duplicates.txt", head, &found);
}
