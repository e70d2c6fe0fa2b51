//! Who this node is, kept in its data directory.
//!
//! ```text
//!  leveret identity 1
//!  node 3f0c…            drawn at random when the directory is made
//!  boot 17               raised at each start, before anything else is done
//!  formed                the journal has a part of a cluster's topology
//!  checksum 9a33…
//! ```
//!
//! A node whose journal is gone must not start under its old identity: it would vote again on what it
//! has voted on. So the file says whether there has to be something in the journal.
//!
//! The file is replaced as a whole and synced, so that no start ever sees an older boot number: what
//! an earlier start has sent can be told from what this one sends.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::Path;

use model::id::NodeId;

use crate::replicated::numbered::Sender;

const FILE: &str = "identity";
const HEAD: &str = "leveret identity 1";

/// What a data directory says of its node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Raised {
    /// This start of the node.
    pub(crate) me: Sender,
    /// Its journal has to have a part of a cluster's topology.
    pub(crate) formed: bool,
}

/// Raises the boot number in a data directory and returns who this start of the node is. Makes the
/// identity if there is none.
///
/// # Errors
/// What is wrong with the file or the directory, for the operator.
pub(crate) fn raise(directory: &Path) -> Result<Raised, String> {
    let path = directory.join(FILE);
    let failed = |error: io::Error| format!("{}: {error}", path.display());
    let Raised { me: last, formed } = match fs::read_to_string(&path) {
        Ok(text) => parse(&text).ok_or_else(|| {
            format!(
                "{} is damaged; restore it from a backup, or start with an empty data directory \
                 and let the node join again",
                path.display()
            )
        })?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            Raised { me: Sender { node: NodeId(random()), boot: 0 }, formed: false }
        }
        Err(error) => return Err(failed(error)),
    };
    let me = Sender { node: last.node, boot: last.boot + 1 };
    let raised = Raised { me, formed };
    replace(directory, &path, &print(raised)).map_err(failed)?;
    Ok(raised)
}

/// Notes that the journal has a part of a cluster's topology.
///
/// # Errors
/// What is wrong with the directory, for the operator.
pub(crate) fn mark_formed(directory: &Path, me: Sender) -> Result<(), String> {
    let path = directory.join(FILE);
    replace(directory, &path, &print(Raised { me, formed: true }))
        .map_err(|error| format!("{}: {error}", path.display()))
}

/// Whether a data directory has an identity.
pub(crate) fn exists(directory: &Path) -> bool {
    directory.join(FILE).exists()
}

/// 0 stands for "no node".
fn random() -> u64 {
    loop {
        let id = rand::random();
        if id != 0 {
            return id;
        }
    }
}

fn replace(directory: &Path, path: &Path, text: &str) -> io::Result<()> {
    let fresh = path.with_extension("new");
    let mut file = File::create(&fresh)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    fs::rename(&fresh, path)?;
    File::open(directory)?.sync_all()
}

fn print(Raised { me, formed }: Raised) -> String {
    let formed = if formed { "formed\n" } else { "" };
    let body = format!("{HEAD}\nnode {}\nboot {}\n{formed}", me.node, me.boot);
    let checksum = crc32fast::hash(body.as_bytes());
    format!("{body}checksum {checksum:08x}\n")
}

fn parse(text: &str) -> Option<Raised> {
    let (body, checksum) = text.strip_suffix('\n')?.rsplit_once('\n')?;
    let checksum = u32::from_str_radix(checksum.strip_prefix("checksum ")?, 16).ok()?;
    if checksum != crc32fast::hash(format!("{body}\n").as_bytes()) {
        return None;
    }
    let mut lines = body.lines();
    if lines.next()? != HEAD {
        return None;
    }
    let node = u64::from_str_radix(lines.next()?.strip_prefix("node ")?, 16).ok()?;
    let boot = lines.next()?.strip_prefix("boot ")?.parse().ok()?;
    let formed = match lines.next() {
        None => false,
        Some("formed") => true,
        Some(_) => return None,
    };
    let whole = lines.next().is_none() && node != 0;
    whole.then_some(Raised { me: Sender { node: NodeId(node), boot }, formed })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_start_raises_the_boot_number_of_the_same_node() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        assert!(!exists(folder.path()));
        let Raised { me: first, formed } = raise(folder.path()).expect("it is made");
        assert!(!formed && first.boot == 1 && first.node != NodeId(0));
        assert!(exists(folder.path()));
        let second = raise(folder.path()).expect("it is read");
        assert_eq!(second, Raised { me: Sender { boot: 2, ..first }, formed: false });
        mark_formed(folder.path(), second.me).expect("it is written");
        let third = raise(folder.path()).expect("it is read");
        assert_eq!(third, Raised { me: Sender { boot: 3, ..first }, formed: true });
        let other = tempfile::tempdir().expect("a temporary folder");
        assert_ne!(raise(other.path()).expect("it is made").me.node, first.node);
    }

    #[test]
    fn a_damaged_identity_is_refused_and_not_replaced() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        raise(folder.path()).expect("it is made");
        let path = folder.path().join(FILE);
        let whole = fs::read_to_string(&path).expect("it is there");
        let cut = whole.trim_end_matches(|last: char| last.is_ascii_hexdigit() || last == '\n');
        for damaged in ["", cut, &whole.replace("boot 1", "boot 2"), &whole.replace(" 1\n", " 2\n")]
        {
            fs::write(&path, damaged).expect("it can be written");
            assert!(raise(folder.path()).expect_err("it is damaged").contains("is damaged"));
            assert_eq!(fs::read_to_string(&path).expect("it is there"), damaged);
        }
        fs::write(&path, whole).expect("it can be written");
        assert_eq!(raise(folder.path()).expect("it is whole").me.boot, 2);
    }
}
