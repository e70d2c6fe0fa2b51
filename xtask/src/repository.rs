//! The files of the repository.

use std::fs;
use std::path::{Path, PathBuf};

/// The repository's top folder.
pub(crate) fn root() -> PathBuf {
    let own = Path::new(env!("CARGO_MANIFEST_DIR"));
    own.parent().expect("xtask lies in the repository").to_owned()
}

/// A text file of the repository.
#[derive(Debug)]
pub(crate) struct Text {
    /// Path from the top folder, with `/`.
    pub path: String,
    /// What is in it.
    pub text: String,
}

impl Text {
    /// Whether the name ends with a dot and this.
    pub(crate) fn has_extension(&self, extension: &str) -> bool {
        Path::new(&self.path).extension().is_some_and(|own| own == extension)
    }
}

/// All text files, sorted by path. Build output, data and what Git keeps are left out.
pub(crate) fn texts() -> Vec<Text> {
    let root = root();
    let mut files = Vec::new();
    walk(&root, &mut files);
    let mut texts: Vec<Text> = files
        .into_iter()
        .filter_map(|file| {
            let path = file.strip_prefix(&root).expect("walked from there");
            let path = path.to_str().expect("names are UTF-8").to_owned();
            Some(Text { path, text: fs::read_to_string(&file).ok()? })
        })
        .collect();
    texts.sort_by(|left, right| left.path.cmp(&right.path));
    assert!(texts.len() > 50, "the walk found the repository");
    texts
}

/// All Rust sources.
pub(crate) fn sources() -> Vec<Text> {
    texts().into_iter().filter(|file| file.has_extension("rs")).collect()
}

/// Every file below a folder, without links to folders.
pub(crate) fn walk(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("the folder can be read") {
        let entry = entry.expect("its entries can be read");
        let kind = entry.file_type().expect("entries have a type");
        let name = entry.file_name();
        if kind.is_dir() {
            let skipped = ["target", ".git", "data", "node_modules", "__pycache__"];
            if !skipped.iter().any(|skip| name == *skip) {
                walk(&entry.path(), files);
            }
        } else if kind.is_file() {
            files.push(entry.path());
        }
    }
}

/// A source's code as shipped: without its comments and without the tests at its end.
pub(crate) fn shipped(text: &str) -> String {
    let mut code = String::new();
    let mut lines = text.lines().peekable();
    while let Some(line) = lines.next() {
        let opens_tests = line.trim() == "#[cfg(test)]"
            && lines.peek().is_some_and(|next| {
                next.trim_start().starts_with("mod ") && next.trim_end().ends_with('{')
            });
        if opens_tests {
            break;
        }
        if !line.trim_start().starts_with("//") {
            code.push_str(line);
            code.push('\n');
        }
    }
    code
}

/// Fails with all findings, one per line.
pub(crate) fn report(what: &str, findings: &[String]) {
    assert!(findings.is_empty(), "{what}:\n  {}", findings.join("\n  "));
}

/// Compares what was found with a committed list, or writes it if `UPDATE` is set.
pub(crate) fn compare_with_list(name: &str, head: &str, found: &[String]) {
    let path = root().join("xtask").join(name);
    let mut text = String::from(head);
    for line in found {
        text.push_str(line);
        text.push('\n');
    }
    if std::env::var_os("UPDATE").is_some() {
        fs::write(&path, &text).expect("the list can be written");
    }
    let committed = fs::read_to_string(&path).expect("the list is committed");
    let listed: Vec<&str> =
        committed.lines().filter(|line| !line.is_empty() && !line.starts_with('#')).collect();
    let new: Vec<&String> = found.iter().filter(|line| !listed.contains(&line.as_str())).collect();
    let gone: Vec<&&str> =
        listed.iter().filter(|line| !found.iter().any(|f| f == **line)).collect();
    assert!(
        new.is_empty() && gone.is_empty(),
        "xtask/{name}: not listed {new:#?}, listed in vain {gone:#?}"
    );
}
