//! Where connections come in and go out: sockets and handshakes, each with a deadline.

use crate::connection::Stream;
use crate::handshake::{Acceptor, Dialler, HandshakeError, Introduced, Nonce, put_refusal};
use crate::identity::Claim;
use crate::link::DialFailure;
use crate::pair::Command;
use crate::refusal::Refusal;
use crate::shared::Shared;
use bytes::BytesMut;
use ring::rand::{SecureRandom, SystemRandom};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

/// How long one that has connected may take to say who it is.
const INTRODUCTION: Duration = Duration::from_secs(5);
/// How many may be about to do so. With the longest word of a handshake this bounds what strangers
/// can cost; who comes while so many are there is sent away and comes again.
const STRANGERS_MAX: usize = 64;
/// How long to wait after the system refused to give a socket (out of file descriptors).
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// A connection whose other end is known.
pub(crate) struct Met {
    pub(crate) stream: Box<dyn Stream>,
    /// What was read behind the handshake.
    pub(crate) input: BytesMut,
    pub(crate) claim: Arc<Claim>,
    /// Its session; see [`Link`](crate::link).
    pub(crate) session: u64,
}

impl std::fmt::Debug for Met {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Met").field("claim", &self.claim).finish_non_exhaustive()
    }
}

/// One that has come in, proven, and not been welcomed yet.
#[derive(Debug)]
pub(crate) struct Arrival {
    pub(crate) met: Met,
    pub(crate) acceptor: Acceptor,
    pub(crate) address: SocketAddr,
}

impl Arrival {
    /// Tells it why it may not come in, and closes the connection. Does not wait.
    pub(crate) fn refuse(self, refusal: Refusal) {
        let name = &self.met.claim.identity.name;
        tracing::warn!(peer = &**name, address = %self.address, %refusal, "refused a peer");
        tokio::spawn(async move {
            let mut stream = self.met.stream;
            let mut out = BytesMut::new();
            put_refusal(&mut out, &refusal);
            farewell(&mut stream, &out).await;
        });
    }
}

/// Why a dial has failed.
#[derive(Debug)]
pub(crate) struct DialError {
    pub(crate) failure: DialFailure,
    pub(crate) text: String,
    /// The other has said why not.
    pub(crate) refusal: Option<Refusal>,
}

/// Connects to the peer with this name.
pub(crate) async fn dial(
    shared: Arc<Shared>,
    name: Arc<str>,
    address: String,
    session: u64,
) -> Result<Met, DialError> {
    let error = |text: String| DialError {
        failure: DialFailure::Other,
        text: format!("dialling {address}: {text}"),
        refusal: None,
    };
    let dialling = async {
        let stream = TcpStream::connect(address.as_str()).await.map_err(|failure| DialError {
            failure: match failure.kind() {
                io::ErrorKind::ConnectionRefused => DialFailure::Refused,
                _ => DialFailure::Other,
            },
            ..error(failure.to_string())
        })?;
        // Small frames must not wait for each other.
        stream.set_nodelay(true).map_err(|failure| error(failure.to_string()))?;
        let stream: Box<dyn Stream> = match &shared.tls {
            None => Box::new(stream),
            Some(tls) => tls
                .connect(stream, &address)
                .await
                .map_err(|failure| error(format!("TLS: {failure}")))?,
        };
        introduce(&shared, name, session, stream).await.map_err(|unmet| {
            let refusal = match &unmet {
                Unmet::Handshake(HandshakeError::Refused(refusal)) => Some(refusal.clone()),
                Unmet::Handshake(_) | Unmet::Io(_) | Unmet::Closed => None,
            };
            DialError { refusal, ..error(unmet.to_string()) }
        })
    };
    match tokio::time::timeout(shared.silence_timeout, dialling).await {
        Ok(outcome) => outcome,
        Err(_) => Err(error(format!("no answer within {:?}", shared.silence_timeout))),
    }
}

/// Why a handshake that this node has begun came to nothing.
#[derive(Debug, thiserror::Error)]
enum Unmet {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error("closed during the handshake")]
    Closed,
    #[error(transparent)]
    Handshake(#[from] HandshakeError),
}

async fn introduce(
    shared: &Shared,
    name: Arc<str>,
    session: u64,
    mut stream: Box<dyn Stream>,
) -> Result<Met, Unmet> {
    let (mut input, mut out) = (BytesMut::new(), BytesMut::new());
    let mut dialler = Dialler::new(shared.party(), Some(name), session, nonce(), &mut out);
    loop {
        stream.write_all(&out.split()).await?;
        stream.flush().await?;
        if stream.read_buf(&mut input).await? == 0 {
            return Err(Unmet::Closed);
        }
        if let Some(Introduced { claim, session }) = dialler.read(&mut input, &mut out)? {
            return Ok(Met { stream, input, claim: Arc::new(claim), session });
        }
    }
}

/// Where connections come in; not accepted yet.
pub(crate) type Threshold = TcpListener;

/// Takes an address to listen on, and says which it is.
pub(crate) async fn bind(address: SocketAddr) -> io::Result<(Threshold, SocketAddr)> {
    let listener = TcpListener::bind(address).await?;
    let address = listener.local_addr()?;
    Ok((listener, address))
}

/// Accepts connections until the future is dropped, and the handshakes under way with it.
pub(crate) async fn listen(listener: Threshold, shared: Arc<Shared>) {
    let strangers = Arc::new(Semaphore::new(STRANGERS_MAX));
    let mut meetings = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            Some(_) = meetings.join_next() => continue,
        };
        match accepted {
            Ok((stream, address)) => {
                let Ok(place) = Arc::clone(&strangers).try_acquire_owned() else {
                    tracing::warn!(%address, "too many connections that have not said who they are");
                    continue;
                };
                let shared = Arc::clone(&shared);
                meetings.spawn(async move {
                    match tokio::time::timeout(INTRODUCTION, meet(stream, address, shared)).await {
                        Ok(Ok(())) => {}
                        Ok(Err(error)) => tracing::warn!(%address, "a connection: {error}"),
                        Err(_) => tracing::warn!(%address, "did not say in time who it is"),
                    }
                    drop(place);
                });
            }
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

async fn meet(stream: TcpStream, address: SocketAddr, shared: Arc<Shared>) -> Result<(), String> {
    stream.set_nodelay(true).map_err(|error| error.to_string())?;
    let mut stream: Box<dyn Stream> = match &shared.tls {
        None => Box::new(stream),
        Some(tls) => tls.accept(stream).await.map_err(|error| format!("TLS: {error}"))?,
    };
    let (mut input, mut out) = (BytesMut::new(), BytesMut::new());
    let mut acceptor = Acceptor::new(shared.party(), nonce());
    let Introduced { claim, session } = loop {
        match stream.read_buf(&mut input).await {
            // One that looks whether somebody listens.
            Ok(0) if input.is_empty() => return Ok(()),
            Ok(0) => return Err("closed during the handshake".to_owned()),
            Ok(_) => {}
            Err(error) => return Err(error.to_string()),
        }
        match acceptor.read(&mut input, &mut out) {
            Ok(Some(introduced)) => break introduced,
            Ok(None) => {
                stream.write_all(&out.split()).await.map_err(|error| error.to_string())?;
                stream.flush().await.map_err(|error| error.to_string())?;
            }
            Err(error) => {
                farewell(&mut stream, &out).await;
                return Err(match error {
                    HandshakeError::Refuse(refusal) => format!("refused: {refusal}"),
                    other => other.to_string(),
                });
            }
        }
    };
    let met = Met { stream, input, claim: Arc::new(claim), session };
    let arrival = Arrival { met, acceptor, address };
    let identity = &arrival.met.claim.identity;
    if let Err(refusal) = shared.handler().admit(identity) {
        arrival.refuse(refusal);
        return Ok(());
    }
    if let Some(commands) = shared.pair_of(identity) {
        // The pair is gone when this node stops or the peer was removed in this moment.
        let _gone = commands.send(Command::Arrived(Box::new(arrival))).is_err();
    }
    Ok(())
}

/// Says a last word, as far as the other cares to hear it.
async fn farewell(stream: &mut Box<dyn Stream>, word: &[u8]) {
    let saying = async {
        stream.write_all(word).await?;
        stream.shutdown().await?;
        // Unread bytes would make the close a reset, which can overtake the word.
        let mut rest = [0; 1024];
        while stream.read(&mut rest).await? > 0 {}
        io::Result::Ok(())
    };
    let _unheard = tokio::time::timeout(Duration::from_secs(1), saying).await.is_err();
}

/// A number that nobody can foresee.
pub(crate) fn nonce() -> Nonce {
    let mut nonce = [0; 32];
    SystemRandom::new().fill(&mut nonce).expect("the system has entropy");
    nonce
}
