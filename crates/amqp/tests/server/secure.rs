//! TLS: names from client certificates, new files while running.

use crate::broker::{Echo, Shared};
use crate::client::Client;
use amqp::config::{Offer, SessionConfig};
use amqp::listener::{Node, Peer, listen};
use amqp::mailbox::Mailbox;
use amqp::server::{Connection, Ended};
use amqp::tls::{Tls, TlsFiles};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, RootCertStore};
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

fn testdata(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata").join(name)
}

struct Echoes(Arc<Shared>);

impl Node for Echoes {
    type Broker = Echo;

    fn connected(&self, peer: &Peer) -> Option<Connection<Echo>> {
        let tls = peer.tls.as_ref()?;
        self.0.note(format!("{} {:?}", tls.protocol, tls.distinguished_name));
        let mailbox = Mailbox::new();
        let mut broker = Echo::new(Arc::clone(&self.0), mailbox.clone());
        broker.user.clone_from(&tls.common_name);
        let config = SessionConfig {
            mechanisms: vec![Offer::Plain, Offer::External],
            ..SessionConfig::default()
        };
        Some(Connection { broker, mailbox, config: Arc::new(config), seed: 1 })
    }

    fn ended(&self, _: &Peer, ended: &Ended) {
        self.0.note(format!("ended {:?}", ended.reason));
    }
}

async fn start(tls: Tls) -> (SocketAddr, Arc<Shared>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let shared = Arc::new(Shared::default());
    tokio::spawn(listen(listener, Some(Arc::new(tls)), Arc::new(Echoes(Arc::clone(&shared)))));
    (address, shared)
}

async fn connect(
    address: SocketAddr,
    certificate: Option<&str>,
) -> std::io::Result<TlsStream<TcpStream>> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut roots = RootCertStore::empty();
    for certificate in certificates(&testdata("ca.pem")) {
        roots.add(certificate).unwrap();
    }
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots);
    let config = match certificate {
        None => builder.with_no_client_auth(),
        Some(name) => {
            let key = fs::read(testdata("client.key")).unwrap();
            let key = rustls_pemfile::private_key(&mut &key[..]).unwrap().unwrap();
            builder.with_client_auth_cert(certificates(&testdata(name)), key).unwrap()
        }
    };
    let stream = TcpStream::connect(address).await?;
    let name = ServerName::try_from("localhost").unwrap();
    TlsConnector::from(Arc::new(config)).connect(name, stream).await
}

fn certificates(path: &Path) -> Vec<rustls::pki_types::CertificateDer<'static>> {
    let pem = fs::read(path).unwrap();
    rustls_pemfile::certs(&mut &pem[..]).collect::<Result<_, _>>().unwrap()
}

fn files(required: bool) -> TlsFiles {
    TlsFiles {
        certificate: testdata("server.pem"),
        key: testdata("server.key"),
        client_authorities: Some(testdata("ca.pem")),
        client_certificate_required: required,
    }
}

#[tokio::test]
async fn a_client_is_known_by_its_certificate() {
    let (address, shared) = start(Tls::load(files(true)).unwrap()).await;
    let stream = connect(address, Some("client.pem")).await.unwrap();
    let mut client = Client::open(stream, "EXTERNAL").await;
    client.consume().await;
    client.publish(100_000).await;
    client.method().await;
    client.close().await;
    let log = shared.log.lock().unwrap();
    assert_eq!(log[0], "TLSv1.3 Some(\"CN=alice,O=Test,C=DE\")");
    assert_eq!(log[1], "login alice");
}

#[tokio::test]
async fn a_certificate_may_be_required_or_not() {
    let (address, shared) = start(Tls::load(files(false)).unwrap()).await;
    let mut client = Client::open(connect(address, None).await.unwrap(), "PLAIN").await;
    client.close().await;
    assert_eq!(shared.log.lock().unwrap()[0], "TLSv1.3 None");
    let (address, shared) = start(Tls::load(files(true)).unwrap()).await;
    // with TLS 1.3 the client hears of it only when it reads
    if let Ok(mut stream) = connect(address, None).await {
        use tokio::io::AsyncReadExt;
        let mut buffer = [0; 1];
        assert!(stream.read(&mut buffer).await.is_err());
    }
    assert!(shared.log.lock().unwrap().is_empty());
}

#[tokio::test]
async fn files_that_change_are_read_again() {
    let directory = tempfile::tempdir().unwrap();
    let place = |name: &str, from: &str, age: u64| {
        let path = directory.path().join(name);
        fs::copy(testdata(from), &path).unwrap();
        let time = SystemTime::now() - Duration::from_secs(age);
        fs::File::options().write(true).open(&path).unwrap().set_modified(time).unwrap();
        path
    };
    let files = TlsFiles {
        certificate: place("cert.pem", "server.pem", 100),
        key: place("key.pem", "server.key", 100),
        client_authorities: None,
        client_certificate_required: false,
    };
    let tls = Tls::load(files).unwrap();
    assert!(!tls.look_again(), "nothing has changed");
    // a key that does not fit: the old certificate stays
    place("key.pem", "server2.key", 50);
    assert!(!tls.look_again());
    let tls = Arc::new(tls);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let node = Arc::new(Echoes(Arc::default()));
    tokio::spawn(listen(listener, Some(Arc::clone(&tls)), node));
    let shown = async || {
        let stream = connect(address, None).await.unwrap();
        stream.get_ref().1.peer_certificates().unwrap()[0].clone()
    };
    assert_eq!(shown().await, certificates(&testdata("server.pem"))[0]);
    place("cert.pem", "server2.pem", 50);
    assert!(tls.look_again());
    assert_eq!(shown().await, certificates(&testdata("server2.pem"))[0]);
}

#[test]
fn bad_files_are_named() {
    let load = |certificate: &str, key: &str| {
        let files = TlsFiles {
            certificate: testdata(certificate),
            key: testdata(key),
            client_authorities: None,
            client_certificate_required: false,
        };
        Tls::load(files).unwrap_err().to_string()
    };
    assert!(load("absent.pem", "server.key").contains("absent.pem: No such file"));
    assert!(load("server.key", "server.key").contains("server.key: no certificate in it"));
    assert!(load("server.pem", "server.pem").contains("server.pem: no private key in it"));
    assert!(load("server.pem", "client.key").contains("client.key: "));
}
