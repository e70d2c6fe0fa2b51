//! TLS by rustls: certificates from PEM files, read again when they change.
//!
//! New connections use what the files held when they were last seen to be good; bad new files
//! leave the old certificate in use.

use crate::certificate;
use rustls::RootCertStore;
use rustls::ServerConfig;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use std::fs::{self, File};
use std::io::{self, BufReader};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

/// How often the files are looked at, at most, while connections come.
const LOOK: Duration = Duration::from_secs(1);

/// Where certificates are, and whether clients must have one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsFiles {
    /// The server's certificate and those that lead to its authority, in PEM.
    pub certificate: PathBuf,
    /// Its key, in PEM (PKCS#8, PKCS#1 or SEC1), not encrypted.
    pub key: PathBuf,
    /// The authorities of client certificates, in PEM. `None`: clients are not asked for one.
    pub client_authorities: Option<PathBuf>,
    /// Clients without a certificate are refused. Needs `client_authorities`.
    pub client_certificate_required: bool,
}

/// What is known of a client from its TLS handshake.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TlsPeer {
    /// Such as `TLSv1.3`.
    pub protocol: String,
    /// Such as `TLS13_AES_256_GCM_SHA384`.
    pub cipher: String,
    /// The common name of its verified certificate.
    pub common_name: Option<String>,
    /// The distinguished name of its verified certificate, most specific part first: `CN=a,O=b`.
    pub distinguished_name: Option<String>,
}

/// The TLS side of a listener.
#[derive(Debug)]
pub struct Tls {
    files: TlsFiles,
    current: Mutex<Current>,
}

struct Current {
    acceptor: TlsAcceptor,
    stamps: Vec<Option<SystemTime>>,
    looked: Instant,
}

impl std::fmt::Debug for Current {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Current").field("stamps", &self.stamps).finish_non_exhaustive()
    }
}

impl Tls {
    /// Reads the files. Blocks on the disk.
    ///
    /// # Errors
    /// If a file cannot be read or used; the text names it.
    pub fn load(files: TlsFiles) -> io::Result<Self> {
        let stamps = stamps(&files);
        let acceptor = acceptor(&files)?;
        let current = Mutex::new(Current { acceptor, stamps, looked: Instant::now() });
        Ok(Self { files, current })
    }

    /// Performs the handshake.
    ///
    /// # Errors
    /// Those of the socket and of the handshake.
    pub async fn accept<S>(&self, stream: S) -> io::Result<(TlsStream<S>, TlsPeer)>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let stream = self.acceptor().accept(stream).await?;
        let (_, session) = stream.get_ref();
        let subject = session
            .peer_certificates()
            .and_then(<[_]>::first)
            .and_then(|certificate| certificate::subject(certificate));
        let peer = TlsPeer {
            protocol: match session.protocol_version() {
                Some(rustls::ProtocolVersion::TLSv1_2) => "TLSv1.2".to_owned(),
                Some(rustls::ProtocolVersion::TLSv1_3) => "TLSv1.3".to_owned(),
                other => format!("{other:?}"),
            },
            cipher: session
                .negotiated_cipher_suite()
                .map(|suite| format!("{:?}", suite.suite()))
                .unwrap_or_default(),
            common_name: subject.as_ref().and_then(|subject| subject.common_name.clone()),
            distinguished_name: subject.map(|subject| subject.distinguished_name),
        };
        Ok((stream, peer))
    }

    /// Reads the files again now, if they have changed. Done anyway as connections come, at most
    /// once in a second. Blocks on the disk.
    ///
    /// Returns whether a new certificate is in use.
    pub fn look_again(&self) -> bool {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        self.look(&mut current)
    }

    fn acceptor(&self) -> TlsAcceptor {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        if current.looked.elapsed() >= LOOK {
            self.look(&mut current);
        }
        current.acceptor.clone()
    }

    fn look(&self, current: &mut Current) -> bool {
        current.looked = Instant::now();
        let now = stamps(&self.files);
        if now == current.stamps {
            return false;
        }
        current.stamps = now;
        match acceptor(&self.files) {
            Ok(acceptor) => {
                current.acceptor = acceptor;
                tracing::info!("TLS certificate read again: {}", self.files.certificate.display());
                true
            }
            Err(error) => {
                tracing::error!(
                    %error,
                    "TLS files have changed and cannot be used; the old certificate stays"
                );
                false
            }
        }
    }
}

fn stamps(files: &TlsFiles) -> Vec<Option<SystemTime>> {
    [Some(&files.certificate), Some(&files.key), files.client_authorities.as_ref()]
        .into_iter()
        .flatten()
        .map(|path| fs::metadata(path).and_then(|metadata| metadata.modified()).ok())
        .collect()
}

fn acceptor(files: &TlsFiles) -> io::Result<TlsAcceptor> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|error| bad(&files.certificate, &error))?;
    let builder = match &files.client_authorities {
        None => builder.with_no_client_auth(),
        Some(path) => {
            let mut roots = RootCertStore::empty();
            for certificate in certificates(path)? {
                roots.add(certificate).map_err(|error| bad(path, &error))?;
            }
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
            let verifier = if files.client_certificate_required {
                verifier
            } else {
                verifier.allow_unauthenticated()
            };
            builder.with_client_cert_verifier(verifier.build().map_err(|error| bad(path, &error))?)
        }
    };
    let config = builder
        .with_single_cert(certificates(&files.certificate)?, key(&files.key)?)
        .map_err(|error| bad(&files.key, &error))?;
    Ok(TlsAcceptor::from(Arc::new(config)))
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
