//! The node of a cluster that this one was told to join (`leveretctl join`), by a file in its data
//! directory.
//!
//! The file holds one entry of `cluster.peers`. It counts like one for as long as it is there, so that
//! the configuration does not have to name anybody; a node that is reset loses it and is on its own
//! again.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use model::address::Peer;

use crate::config::{Config, SECRET_MIN};
use crate::start::StartError;

/// The name of the file.
const FILE: &str = "join";

/// Adds what the file says to what the configuration lists.
///
/// # Errors
/// The file cannot be read or says something else, or the configuration lacks what a node of a cluster
/// needs.
pub(crate) fn add(config: &mut Config) -> Result<(), StartError> {
    let path = config.data_dir.join(FILE);
    let Some(peer) = read(&path)? else { return Ok(()) };
    if peer.name == config.node.name {
        return Err(StartError(format!("{}: {} is this node itself", path.display(), peer.name)));
    }
    if config.cluster.secret.len() < SECRET_MIN {
        return Err(StartError(format!(
            "cluster.secret: needs {SECRET_MIN} characters or more to join {}",
            peer.name
        )));
    }
    if config.listeners.peer.is_none() {
        return Err(StartError(format!("listeners.peer: is needed to join {}", peer.name)));
    }
    if !config.cluster.peers.iter().any(|listed| listed.name == peer.name) {
        config.cluster.peers.push(peer);
    }
    Ok(())
}

fn read(path: &Path) -> Result<Option<Peer>, StartError> {
    let text = match fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(StartError(format!("{}: {error}", path.display()))),
    };
    let entry = text.trim();
    let peer = Peer::parse(entry).ok_or_else(|| {
        StartError(format!("{}: {entry:?} is not \"NAME@ADDRESS:PORT\"", path.display()))
    })?;
    Ok(Some(peer))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_file_says_counts_like_an_entry_of_the_list() {
        let directory = tempfile::tempdir().unwrap();
        let data_dir = directory.path().to_owned();
        let mut config = Config { data_dir, ..Config::default() };
        add(&mut config).unwrap();
        assert_eq!(config.cluster.peers, []);
        let say = |text: &str| fs::write(directory.path().join(FILE), text).unwrap();
        say("a@10.0.0.1:25672\n");
        let refused = |config: &mut Config| add(config).unwrap_err().0;
        assert_eq!(refused(&mut config), "cluster.secret: needs 16 characters or more to join a");
        config.cluster.secret = "0123456789abcdef".into();
        let listener = config.listeners.peer.take();
        assert_eq!(refused(&mut config), "listeners.peer: is needed to join a");
        config.listeners.peer = listener;
        for _ in 0..2 {
            add(&mut config).unwrap();
            let peers: Vec<String> = config
                .cluster
                .peers
                .iter()
                .map(|it| format!("{}@{}", it.name, it.address))
                .collect();
            assert_eq!(peers, ["a@10.0.0.1:25672"]);
        }
        say("a@10.0.0.1\n");
        let reason = refused(&mut config);
        assert!(reason.ends_with("join: \"a@10.0.0.1\" is not \"NAME@ADDRESS:PORT\""), "{reason}");
        say(&format!("{}@10.0.0.1:25672", config.node.name));
        assert!(refused(&mut config).contains("is this node itself"));
    }
}
