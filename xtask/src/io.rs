//! The list of files that touch the outside world: `xtask/io.txt`. It should be short, and shrink.

use super::repository::{compare_with_list, shipped, sources};

/// What gives a file away.
const MARKS: &[&str] = &[
    "std::fs",
    "tokio::fs",
    "rustix::",
    "libc::",
    "rocksdb::",
    "TcpListener",
    "TcpStream",
    "UnixStream",
    "UnixListener",
    "UdpSocket",
    "Command::new",
    "std::env::",
    "env::var",
    "signal::unix",
];

const HEAD: &str = "# Files of crates/*/src that touch files, sockets, processes, the environment or signals.\n\
                    # Everything else is pure or talks to these. Written by UPDATE=1; it should only shrink.\n";

#[test]
fn only_listed_files_do_io() {
    let found: Vec<String> = sources()
        .into_iter()
        .filter(|file| file.path.starts_with("crates/") && file.path.contains("/src/"))
        .filter(|file| !is_test(&file.path))
        .filter(|file| {
            let code = shipped(&file.text);
            MARKS.iter().any(|mark| code.contains(mark))
        })
        .map(|file| file.path)
        .collect();
    eprintln!("{} files do I/O:\n  {}", found.len(), found.join("\n  "));
    compare_with_list("io.txt", HEAD, &found);
}

fn is_test(path: &str) -> bool {
    path.ends_with("/tests.rs") || path.contains("/tests/")
}
