//! TLS between nodes: certificates from PEM files, read again when they have changed.
//!
//! Both sides of every connection check the other against the same authorities if `mutual`; else
//! only the dialler checks the acceptor. The secret must be proven all the same.

use crate::connection::Stream;
use parking_lot::Mutex;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use std::fs::{self, File};
use std::io::{self, BufReader};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};
use tokio::net::TcpStream;
use tokio_rustls::{TlsAcceptor, TlsConnector};

#[cfg(test)]
mod tests;

/// How often the files are looked at, at most, while connections come and go.
const LOOK: Duration = Duration::from_secs(1);

/// Where the certificates are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsFiles {
    /// This node's certificate and those that lead to its authority, in PEM. It must be good for
    /// the host in the address under which peers dial it, and for both roles if `mutual`.
    pub certificate: PathBuf,
    /// Its key, in PEM (PKCS#8, PKCS#1 or SEC1), not encrypted.
    pub key: PathBuf,
    /// The authorities of the nodes' certificates, in PEM.
    pub authorities: PathBuf,
    /// Diallers must have a certificate too.
    pub mutual: bool,
}

/// What the files make possible.
#[derive(Debug)]
pub(crate) struct Tls {
    files: TlsFiles,
    current: Mutex<Current>,
}

struct Current {
    ends: Ends,
    stamps: Vec<Option<SystemTime>>,
    looked: Instant,
}

#[derive(Clone)]
struct Ends {
    acceptor: TlsAcceptor,
    connector: TlsConnector,
}

impl std::fmt::Debug for Current {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Current").field("stamps", &self.stamps).finish_non_exhaustive()
    }
}

impl Tls {
    /// Reads the files. Blocks on the disk.
    pub(crate) fn load(files: TlsFiles) -> io::Result<Self> {
        let stamps = stamps(&files);
        let current = Current { ends: Ends::load(&files)?, stamps, looked: Instant::now() };
        Ok(Self { files, current: Mutex::new(current) })
    }

    /// Performs the handshake of the side that was connected to.
    pub(crate) async fn accept(&self, stream: TcpStream) -> io::Result<Box<dyn Stream>> {
        let stream = self.ends().acceptor.accept(stream).await?;
        Ok(Box::new(stream))
    }

    /// Performs the handshake of the side that has dialled `address`.
    pub(crate) async fn connect(
        &self,
        stream: TcpStream,
        address: &str,
    ) -> io::Result<Box<dyn Stream>> {
        let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let name = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
        let stream = self.ends().connector.connect(name, stream).await?;
        Ok(Box::new(stream))
    }

    /// What new connections use: what the files held when they were last good.
    fn ends(&self) -> Ends {
        let mut current = self.current.lock();
        if current.looked.elapsed() >= LOOK {
            current.look(&self.files);
        }
        current.ends.clone()
    }
}

impl Current {
    fn look(&mut self, files: &TlsFiles) {
        self.looked = Instant::now();
        let now = stamps(files);
        if now == self.stamps {
            return;
        }
        self.stamps = now;
        match Ends::load(files) {
            Ok(ends) => {
                self.ends = ends;
                tracing::info!("certificate of this node read again");
            }
            Err(error) => {
                tracing::error!(%error, "TLS files between nodes cannot be used; the old ones stay");
            }
        }
    }
}

impl Ends {
    fn load(files: &TlsFiles) -> io::Result<Self> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut roots = RootCertStore::empty();
        for certificate in certificates(&files.authorities)? {
            roots.add(certificate).map_err(|error| bad(&files.authorities, &error))?;
        }
        let roots = Arc::new(roots);
        let server = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(io::Error::other)?;
        let server = if files.mutual {
            let verifier = WebPkiClientVerifier::builder_with_provider(
                Arc::clone(&roots),
                Arc::clone(&provider),
            );
            let verifier = verifier.build().map_err(|error| bad(&files.authorities, &error))?;
            server.with_client_cert_verifier(verifier)
        } else {
            server.with_no_client_auth()
        };
        let server = server
            .with_single_cert(certificates(&files.certificate)?, key(&files.key)?)
            .map_err(|error| bad(&files.key, &error))?;
        let client = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(io::Error::other)?
            .with_root_certificates(roots)
            // Shown only to those who ask.
            .with_client_auth_cert(certificates(&files.certificate)?, key(&files.key)?)
            .map_err(|error| bad(&files.key, &error))?;
        Ok(Self {
            acceptor: TlsAcceptor::from(Arc::new(server)),
            connector: TlsConnector::from(Arc::new(client)),
        })
    }
}

fn stamps(files: &TlsFiles) -> Vec<Option<SystemTime>> {
    [&files.certificate, &files.key, &files.authorities]
        .into_iter()
        .map(|path| fs::metadata(path).and_then(|metadata| metadata.modified()).ok())
        .collect()
}

fn certificates(path: &Path) -> io::Result<Vec<CertificateDer<'static>>> {
    let mut reader = BufReader::new(File::open(path).map_err(|error| bad(path, &error))?);
    let certificates: Vec<_> = rustls_pemfile::certs(&mut reader)
        .collect::<Result<_, _>>()
        .map_err(|error| bad(path, &error))?;
    if certificates.is_empty() {
        return Err(bad(path, &"no certificate in it"));
    }
    Ok(certificates)
}

fn key(path: &Path) -> io::Result<PrivateKeyDer<'static>> {
    let mut reader = BufReader::new(File::open(path).map_err(|error| bad(path, &error))?);
    rustls_pemfile::private_key(&mut reader)
        .map_err(|error| bad(path, &error))?
        .ok_or_else(|| bad(path, &"no private key in it"))
}

fn bad(path: &Path, error: &dyn std::fmt::Display) -> io::Error {
    io::Error::other(format!("{}: {error}", path.display()))
}
