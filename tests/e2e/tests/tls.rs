//! TLS with certificates made on the spot: verified, mutual, EXTERNAL, reloaded.

use std::path::Path;
use std::process::{Command, Output};

use e2e::broker::Broker;
use e2e::client::topology::DURABLE;
use e2e::cluster::{self, Cluster, quorum};
use e2e::node::{Setup, free_port};
use e2e::wait::until;

/// Runs openssl; false if it is not there.
fn openssl(directory: &Path, arguments: &str) -> bool {
    let Ok(output) =
        Command::new("openssl").args(arguments.split(' ')).current_dir(directory).output()
    else {
        eprintln!("skipped: no openssl to make certificates with");
        return false;
    };
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    true
}

/// A key and a certificate of that name, signed by the authority in the same folder.
fn certificate(directory: &Path, name: &str, common_name: &str) {
    std::fs::write(
        directory.join("extensions"),
        "subjectAltName=DNS:localhost,IP:127.0.0.1\nbasicConstraints=CA:FALSE\n",
    )
    .unwrap();
    openssl(
        directory,
        &format!(
            "req -newkey rsa:2048 -nodes -keyout {name}.key -out {name}.request -subj \
             /CN={common_name}"
        ),
    );
    openssl(
        directory,
        &format!(
            "x509 -req -in {name}.request -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 -out \
             {name}.pem -extfile extensions"
        ),
    );
}

fn script(python: &std::ffi::OsStr, directory: &Path, port: u16, step: &str) -> Output {
    Command::new(python)
        .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/../python/tls.py"))
        .arg(port.to_string())
        .arg(step)
        .current_dir(directory)
        .output()
        .expect("python can be started")
}

#[test]
fn tls_with_client_certificates_and_reload() {
    let Some(python) = std::env::var_os("E2E_PYTHON") else {
        eprintln!("skipped: E2E_PYTHON names no python3 with pika");
        return;
    };
    let scratch = tempfile::tempdir().unwrap();
    let directory = scratch.path();
    if !openssl(
        directory,
        "req -x509 -newkey rsa:2048 -nodes -keyout ca.key -out ca.pem -days 2 -subj /CN=authority",
    ) {
        return;
    }
    certificate(directory, "server", "localhost");
    certificate(directory, "client", "somebody");
    let port = free_port();
    let path = |name: &str| directory.join(name).display().to_string();
    let setup = Setup::new()
        .set("listeners.amqps", format!("127.0.0.1:{port}"))
        .set("tls.certificate", path("server.pem"))
        .set("tls.key", path("server.key"))
        .set("tls.ca", path("ca.pem"))
        .set("tls.verify", "optional")
        .set("tls.login_from", "common_name")
        .set("auth.mechanisms", "PLAIN, EXTERNAL");
    let Some(broker) = Broker::own(setup) else { return };
    broker.user("somebody", ".*", ".*", ".*");
    let works = |step: &str| {
        let output = script(&python, directory, port, step);
        assert!(
            output.status.success(),
            "{step}: {}\n{}",
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        );
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    };
    works("plain");
    assert_eq!(works("external"), "somebody");
    works("external-without-certificate");
    works("plaintext-on-the-tls-port");
    // A new certificate is used without a restart; connections that stand are left alone.
    let before = works("serial");
    certificate(directory, "next", "localhost");
    std::fs::rename(directory.join("next.key"), directory.join("server.key")).unwrap();
    std::fs::rename(directory.join("next.pem"), directory.join("server.pem")).unwrap();
    until("the new certificate is served", || works("serial") != before);
    works("plain");
}

#[test]
fn nodes_talk_over_tls_and_only_to_nodes_with_a_certificate() {
    let scratch = tempfile::tempdir().unwrap();
    let directory = scratch.path();
    if !openssl(
        directory,
        "req -x509 -newkey rsa:2048 -nodes -keyout ca.key -out ca.pem -days 2 -subj /CN=authority",
    ) {
        return;
    }
    certificate(directory, "node", "node");
    let path = |name: &str| directory.join(name).display().to_string();
    let exchange = |from: &str| {
        for file in ["key", "pem"] {
            std::fs::copy(path(&format!("{from}.{file}")), path(&format!("third.{file}"))).unwrap();
        }
    };
    exchange("node");
    let mut cluster = cluster::Setup::new()
        .set("cluster.tls.certificate", path("node.pem"))
        .set("cluster.tls.key", path("node.key"))
        .set("cluster.tls.ca", path("ca.pem"))
        .set_on(2, "cluster.tls.certificate", path("third.pem"))
        .set_on(2, "cluster.tls.key", path("third.key"))
        .start();
    let mut client = cluster.channel(0);
    client.queue(1, "q", DURABLE, &quorum()).unwrap();
    client.confirm_select(1).unwrap();
    client.put(1, "q", "x").unwrap();
    assert_eq!(client.confirms(1, 1).unwrap().acked().len(), 1);
    assert_eq!(cluster.channel(2).get_soon(1, "q").text(), "x");
    // The third one comes back with a certificate that it has made itself. It knows the secret.
    cluster.kill(2);
    openssl(
        directory,
        "req -x509 -newkey rsa:2048 -nodes -keyout own.key -out own.pem -days 2 -subj /CN=own",
    );
    exchange("own");
    cluster.run(2);
    until("it is refused", || cluster.nodes[0].log().contains("TLS: "));
    let running = |cluster: &Cluster| {
        let nodes = cluster.api(0).json("nodes");
        nodes.as_array().unwrap().iter().filter(|node| node["running"] == true).count()
    };
    assert_eq!(running(&cluster), 2);
    // With one of the authority it is let in, without a restart.
    exchange("node");
    cluster.await_formed();
    assert_eq!(running(&cluster), 3);
    assert_eq!(cluster.channel(2).depth(1, "q").unwrap().messages, 0);
}
