//! Who this node is, kept in its data directory.
//!
//! ```text
//!  leveret identity 1
//!  node 3f0c…            drawn at random when the directory is made
//!  boot 17               raised at each start, before anything else is done
//!  start 77d1…           drawn at each start; the first is the last one that the cluster took note of
//!  start 03ab…           … as far as is known here, and the last one is the present one
//!  formed                the journal has a part of a cluster's topology
//!  set 51c8…             the data set that it is of, if not the one that the cluster was founded with
//!  recovering            its recovery has begun and not ended
//!  checksum 9a33…
//! ```
//!
//! A node whose journal is gone must not start under its old identity: it would vote again on what it
//! has voted on. So the file says whether there has to be something in the journal.
//!
//! The file is replaced as a whole and synced, so that no start ever sees an older boot number: what
//! an earlier start has sent can be told from what this one sends.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::Path;

use model::id::NodeId;

use crate::replicated::numbered::Sender;

const FILE: &str = "identity";
const HEAD: &str = "leveret identity 1";
/// How many starts are remembered that the cluster has not taken note of, as far as is known.
const STARTS_MAX: usize = 256;

/// What a data directory says of its node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Raised {
    /// This start of the node.
    pub(crate) me: Sender,
    /// What starts have drawn; see [`PutNode`](metadata::command::PutNode).
    pub(crate) starts: Vec<u64>,
    /// Its journal has to have a part of a cluster's topology.
    pub(crate) formed: bool,
    /// The data set that it is of; see [`crate::cluster::admission`].
    pub(crate) data_set: u64,
    /// The topology is being recovered: the journal is of use to nobody until that is done.
    pub(crate) recovering: bool,
}

impl Raised {
    /// The first start of a node that nobody knows yet, but for its number.
    fn unborn() -> Self {
        let me = Sender { node: NodeId(random()), boot: 0 };
        Self { me, starts: Vec::new(), formed: false, data_set: 0, recovering: false }
    }
}

/// Raises the boot number in a data directory and returns who this start of the node is. Makes the
/// identity if there is none.
///
/// # Errors
/// What is wrong with the file or the directory, for the operator.
pub(crate) fn raise(directory: &Path) -> Result<Raised, String> {
    let mut raised = read(directory)?.unwrap_or_else(Raised::unborn);
    raised.me.boot += 1;
    raised.starts.push(random());
    if raised.starts.len() > STARTS_MAX {
        // Any but the first, which is known to be known.
        raised.starts.remove(1);
    }
    write(directory, &raised)?;
    Ok(raised)
}

/// What a data directory says of its node; `None`: nothing yet.
///
/// # Errors
/// What is wrong with the file or the directory, for the operator.
pub(crate) fn read(directory: &Path) -> Result<Option<Raised>, String> {
    let path = directory.join(FILE);
    match fs::read_to_string(&path) {
        Ok(text) => parse(&text).map(Some).ok_or_else(|| {
            format!(
                "{} is damaged; restore it from a backup, or start with an empty data directory \
                 and let the node join again",
                path.display()
            )
        }),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(format!("{}: {error}", path.display())),
    }
}

/// Writes that instead.
///
/// # Errors
/// What is wrong with the directory, for the operator.
pub(crate) fn write(directory: &Path, raised: &Raised) -> Result<(), String> {
    let path = directory.join(FILE);
    replace(directory, &path, &print(raised))
        .map_err(|error| format!("{}: {error}", path.display()))
}

/// Makes the directory that of another node, which has nothing; returns its number.
///
/// # Errors
/// What is wrong with the directory, for the operator.
pub(crate) fn renew(directory: &Path) -> Result<NodeId, String> {
    let unborn = Raised::unborn();
    write(directory, &unborn)?;
    Ok(unborn.me.node)
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

fn print(Raised { me, starts, formed, data_set, recovering }: &Raised) -> String {
    let mut drawn = String::new();
    for start in starts {
        writeln!(drawn, "start {start:016x}").expect("a string takes it");
    }
    let formed = if *formed { "formed\n" } else { "" };
    let set = if *data_set == 0 { String::new() } else { format!("set {data_set:016x}\n") };
    let recovering = if *recovering { "recovering\n" } else { "" };
    let (node, boot) = (me.node, me.boot);
    let body = format!("{HEAD}\nnode {node}\nboot {boot}\n{drawn}{formed}{set}{recovering}");
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
    let mut lines = lines.peekable();
    let mut starts = Vec::new();
    while let Some(line) = lines.next_if(|line| line.starts_with("start ")) {
        starts.push(u64::from_str_radix(line.strip_prefix("start ")?, 16).ok()?);
    }
    let formed = lines.next_if_eq(&"formed").is_some();
    let data_set = match lines.next_if(|line| line.starts_with("set ")) {
        Some(line) => u64::from_str_radix(line.strip_prefix("set ")?, 16).ok()?,
        None => 0,
    };
    let recovering = lines.next_if_eq(&"recovering").is_some();
    let whole = lines.next().is_none() && node != 0;
    let me = Sender { node: NodeId(node), boot };
    whole.then_some(Raised { me, starts, formed, data_set, recovering })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_start_raises_the_boot_number_of_the_same_node() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        assert!(!exists(folder.path()));
        let made = raise(folder.path()).expect("it is made");
        let first = made.me;
        assert!(!made.formed && first.boot == 1 && first.node != NodeId(0));
        assert!(exists(folder.path()));
        let second = raise(folder.path()).expect("it is read");
        assert_eq!(second.me, Sender { boot: 2, ..first });
        assert_eq!((made.starts.len(), second.starts.len()), (1, 2));
        assert_eq!(made.starts[0], second.starts[0]);
        for (formed, data_set, recovering) in
            [(true, 0, false), (true, 7, false), (true, u64::MAX, true), (true, 0, true)]
        {
            let starts = second.starts[1..].to_vec();
            let noted = Raised { starts, formed, data_set, recovering, ..second.clone() };
            write(folder.path(), &noted).expect("it is written");
            let next = raise(folder.path()).expect("it is read");
            assert_eq!((next.me, next.starts.len()), (Sender { boot: 3, ..first }, 2));
            assert_eq!((next.formed, next.data_set), (formed, data_set));
            assert_eq!((next.recovering, next.starts[0]), (recovering, second.starts[1]));
        }
        for _ in 0..2 * STARTS_MAX {
            raise(folder.path()).expect("it is read");
        }
        let often = raise(folder.path()).expect("it is read");
        assert_eq!((often.starts.len(), often.starts[0]), (STARTS_MAX, second.starts[1]));
        let renewed = renew(folder.path()).expect("it is written");
        let other = raise(folder.path()).expect("it is read");
        assert!(renewed != first.node && !other.formed && other.data_set == 0);
        assert_eq!(other.me, Sender { node: renewed, boot: 1 });
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
