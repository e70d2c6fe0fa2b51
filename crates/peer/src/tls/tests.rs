use super::*;

fn testdata(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata").join(name)
}

#[test]
fn files_that_change_are_read_again_and_bad_ones_are_not_used() {
    let folder = tempfile::tempdir().unwrap();
    let place = |name: &str, from: &str, age: u64| {
        let path = folder.path().join(name);
        fs::copy(testdata(from), &path).unwrap();
        let time = SystemTime::now() - Duration::from_secs(age);
        File::options().write(true).open(&path).unwrap().set_modified(time).unwrap();
        path
    };
    let files = TlsFiles {
        certificate: place("cert.pem", "node.pem", 100),
        key: place("key.pem", "node.key", 100),
        authorities: testdata("ca.pem"),
        mutual: true,
    };
    let tls = Tls::load(files).unwrap();
    let mut current = tls.current.lock();
    let used = |current: &Current| Arc::clone(current.ends.acceptor.config());
    let first = used(&current);
    current.look(&tls.files);
    assert!(Arc::ptr_eq(&first, &used(&current)), "nothing has changed");
    place("key.pem", "stranger.key", 50);
    current.look(&tls.files);
    assert!(Arc::ptr_eq(&first, &used(&current)), "the key does not fit");
    place("cert.pem", "stranger.pem", 50);
    current.look(&tls.files);
    assert!(!Arc::ptr_eq(&first, &used(&current)));
}

#[test]
fn bad_files_are_named() {
    let load = |certificate: &str, key: &str, authorities: &str| {
        let [certificate, key, authorities] = [certificate, key, authorities].map(testdata);
        let files = TlsFiles { certificate, key, authorities, mutual: true };
        Tls::load(files).unwrap_err().to_string()
    };
    assert!(load("node.pem", "node.key", "absent.pem").contains("absent.pem: No such file"));
    assert!(load("node.key", "node.key", "ca.pem").contains("node.key: no certificate in it"));
    assert!(load("node.pem", "node.pem", "ca.pem").contains("node.pem: no private key in it"));
    assert!(load("node.pem", "stranger.key", "ca.pem").contains("stranger.key: "));
}
