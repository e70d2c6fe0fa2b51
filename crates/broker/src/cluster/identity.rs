//! Who this node is, kept in its data directory.
//!
//! ```text
//!  leveret identity 1
//!  node 3f0c…            drawn at random when the directory is made
//!  boot 17               raised at each start, before anything else is done
//!  checksum 9a33…
//! ```
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

/// Raises the boot number in a data directory and returns who this start of the node is. Makes the
/// identity if there is none.
///
/// # Errors
/// What is wrong with the file or the directory, for the operator.
pub(crate) fn raise(directory: &Path) -> Result<Sender, String> {
    let path = directory.join(FILE);
    let failed = |error: io::Error| format!("{}: {error}", path.display());
    let last = match fs::read_to_string(&path) {
        Ok(text) => parse(&text).ok_or_else(|| {
            format!(
                "{} is damaged; restore it from a backup, or start with an empty data directory \
                 and let the node join again",
                path.display()
            )
        })?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            Sender { node: NodeId(random()), boot: 0 }
        }
        Err(error) => return Err(failed(error)),
    };
    let me = Sender { node: last.node, boot: last.boot + 1 };
    replace(directory, &path, &print(me)).map_err(failed)?;
    Ok(me)
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

fn print(me: Sender) -> String {
    let body = format!("{HEAD}\nnode {}\nboot {}\n", me.node, me.boot);
    let checksum = crc32fast::hash(body.as_bytes());
    format!("{body}checksum {checksum:08x}\n")
}

fn parse(text: &str) -> Option<Sender> {
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
    let whole = lines.next().is_none() && node != 0;
    whole.then_some(Sender { node: NodeId(node), boot })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_start_raises_the_boot_number_of_the_same_node() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        assert!(!exists(folder.path()));
        let first = raise(folder.path()).expect("it is made");
        assert!(first.boot == 1 && first.node != NodeId(0));
        assert!(exists(folder.path()));
        let second = raise(folder.path()).expect("it is read");
        assert_eq!(second, Sender { boot: 2, ..first });
        let other = tempfile::tempdir().expect("a temporary folder");
        assert_ne!(raise(other.path()).expect("it is made").node, first.node);
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
        assert_eq!(raise(folder.path()).expect("it is whole").boot, 2);
    }
}
