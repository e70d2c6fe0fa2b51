//! The links of a node to all its peers.

use crate::door::{Threshold, bind, listen, nonce};
use crate::handler::Handler;
use crate::handshake::Party;
use crate::identity::{Claim, Identity};
use crate::options::{Options, OutOfRange, SILENCE_TIMEOUT_MIN};
use crate::outbox::{NotSent, Outbox, Outcome, Unanswered};
use crate::shared::{PeerState, Shared};
use crate::tls::Tls;
use bytes::Bytes;
use model::id::NodeId;
use parking_lot::Mutex;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// Why links cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum LinksError {
    /// An option is out of range.
    #[error(transparent)]
    Options(#[from] OutOfRange),
    /// A file of TLS cannot be used; the text names it.
    #[error("TLS between nodes: {0}")]
    Tls(io::Error),
    /// The address cannot be listened on.
    #[error("cannot listen on {address}: {error}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// What the system says.
        error: io::Error,
    },
}

/// Why a request has no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    /// It was not sent.
    #[error(transparent)]
    NotSent(#[from] NotSent),
    /// The connection was lost: it may have been carried out or not.
    #[error("the connection was lost before the answer came")]
    Lost,
    /// The peer has dropped it without an answer.
    #[error("the peer has dropped the request")]
    Dropped,
    /// The time is over: it may be carried out still.
    #[error("no answer in time")]
    TimedOut,
}

/// The links of a node. Dropping it stops them without waiting.
#[derive(Debug)]
pub struct Links {
    shared: Arc<Shared>,
    address: SocketAddr,
    door: Mutex<Door>,
}

#[derive(Debug)]
enum Door {
    Closed(Threshold),
    Open(JoinHandle<()>),
    Gone,
}

impl Links {
    /// Listens, and does no more until [`serve`](Self::serve): so the handler can have the links
    /// before it hears of a peer.
    ///
    /// # Errors
    /// If an option is out of range, a file of TLS cannot be used, or the address cannot be
    /// listened on. The files are read at once, so it blocks on the disk.
    pub async fn bind(mut options: Options) -> Result<Arc<Self>, LinksError> {
        options.check()?;
        let tls = options.tls.take().map(Tls::load).transpose().map_err(LinksError::Tls)?;
        let listen = |error| LinksError::Listen { address: options.listen, error };
        let (listener, address) = bind(options.listen).await.map_err(listen)?;
        if options.me.address.is_empty() {
            options.me.address = address.to_string();
        }
        let instance = u64::from_be_bytes(*nonce().first_chunk().expect("it is long enough"));
        let me = Arc::new(Claim { identity: options.me, instance });
        let party = Party { secret: options.secret, cluster: options.cluster, me };
        let bytes_max = options.queue_bytes_max.max(1);
        let silence_timeout = options.silence_timeout.max(SILENCE_TIMEOUT_MIN);
        let shared = Shared::new(party, silence_timeout, bytes_max, tls);
        let links =
            Self { shared: Arc::new(shared), address, door: Mutex::new(Door::Closed(listener)) };
        for (name, address) in &options.peers {
            links.shared.add(name, address);
        }
        Ok(Arc::new(links))
    }

    /// Begins to dial peers and to accept them. Must be called within a Tokio runtime; later calls
    /// do nothing.
    pub fn serve(&self, handler: Arc<dyn Handler>) {
        if !self.shared.serve(handler) {
            return;
        }
        let mut door = self.door.lock();
        *door = match std::mem::replace(&mut *door, Door::Gone) {
            Door::Closed(listener) => {
                Door::Open(tokio::spawn(listen(listener, Arc::clone(&self.shared))))
            }
            other => other,
        };
    }

    /// [`bind`](Self::bind) and [`serve`](Self::serve).
    ///
    /// # Errors
    /// Those of `bind`.
    pub async fn start(
        options: Options,
        handler: Arc<dyn Handler>,
    ) -> Result<Arc<Self>, LinksError> {
        let links = Self::bind(options).await?;
        links.serve(handler);
        Ok(links)
    }

    /// Where it listens.
    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// What the peers are told of this node.
    pub fn me(&self) -> &Identity {
        self.shared.me()
    }

    /// From now on peers are told these facts. Those that are connected have heard the former.
    ///
    /// # Errors
    /// If they are too long; nothing has changed.
    pub fn set_facts(&self, facts: Bytes) -> Result<(), OutOfRange> {
        OutOfRange::check_facts(&facts)?;
        self.shared.set_facts(facts);
        Ok(())
    }

    /// Sends a message. Never blocks. Messages and requests of one channel arrive in the order in
    /// which they were taken; when the connection is lost, some of the last do not arrive.
    ///
    /// # Errors
    /// If the peer is not up, too much waits already, or the payload is too large.
    pub fn send(&self, to: NodeId, channel: u8, payload: Bytes) -> Result<(), NotSent> {
        self.shared.route(to).ok_or(NotSent::NotConnected)?.message(channel, payload)
    }

    /// The same, however much waits: for messages of which their senders have few under way, and which
    /// nobody sends again.
    ///
    /// # Errors
    /// If the peer is not up, or the payload is too large.
    pub fn send_bounded(&self, to: NodeId, channel: u8, payload: Bytes) -> Result<(), NotSent> {
        self.shared.route(to).ok_or(NotSent::NotConnected)?.bounded_message(channel, payload)
    }

    /// Waits until there is room to send more to this peer, or it is not up.
    pub async fn room(&self, to: NodeId) {
        if let Some(outbox) = self.shared.route(to) {
            outbox.room().await;
        }
    }

    /// Sends a request, in order with all else that is sent, and returns the answer to come. Never
    /// blocks. Dropping the question gives up the answer.
    ///
    /// # Errors
    /// Those of [`send`](Self::send).
    pub fn ask(&self, to: NodeId, channel: u8, payload: Bytes) -> Result<Question, NotSent> {
        let outbox = self.shared.route(to).ok_or(NotSent::NotConnected)?;
        let (correlation, answer) = outbox.request(channel, payload)?;
        Ok(Question { outbox, correlation, answer })
    }

    /// Sends a request, once there is room, and waits for the answer.
    ///
    /// # Errors
    /// At once if the peer is not up or the connection is lost; else when the time is over.
    pub async fn request(
        &self,
        to: NodeId,
        channel: u8,
        payload: Bytes,
        within: Duration,
    ) -> Result<Bytes, RequestError> {
        let asking = async {
            loop {
                match self.ask(to, channel, payload.clone()) {
                    Ok(question) => return question.await,
                    Err(NotSent::Full) => self.room(to).await,
                    Err(error) => return Err(error.into()),
                }
            }
        };
        tokio::time::timeout(within, asking).await.unwrap_or(Err(RequestError::TimedOut))
    }

    /// Adds a peer, or gives a known one another address to be dialled at. This node itself is left
    /// out. Peers that dial this node and are admitted need not be added.
    pub fn add_peer(&self, name: &Arc<str>, address: &str) {
        self.shared.add(name, address);
    }

    /// Closes the connections to a peer and does not dial it any more. If it dials, it is a peer
    /// again, unless the handler does not admit it.
    pub fn remove_peer(&self, name: &str) {
        self.shared.remove(name);
    }

    /// All peers, by name.
    pub fn peers(&self) -> Vec<PeerState> {
        self.shared.peers()
    }

    /// Closes everything. What waits to be written is lost; the handler hears nothing more once this
    /// has returned. Not to be called by the handler.
    pub async fn stop(&self) {
        // First the door: a peer that loses its connection and dials at once is then refused, and
        // knows that nobody is here.
        if let Some(listening) = self.shut() {
            let _aborted = listening.await.is_err();
        }
        for ended in self.shared.stop() {
            let _panicked = ended.await.is_err();
        }
    }

    /// Ends listening. The socket is closed when the handle resolves.
    fn shut(&self) -> Option<JoinHandle<()>> {
        match std::mem::replace(&mut *self.door.lock(), Door::Gone) {
            Door::Open(listening) => {
                listening.abort();
                Some(listening)
            }
            Door::Closed(_) | Door::Gone => None,
        }
    }
}

impl Drop for Links {
    fn drop(&mut self) {
        drop(self.shut());
        drop(self.shared.stop());
    }
}

/// A request that was sent; resolves to its answer. [`RequestError::Lost`] comes at once when the
/// connection is lost.
#[derive(Debug)]
pub struct Question {
    outbox: Arc<Outbox>,
    correlation: u64,
    answer: oneshot::Receiver<Outcome>,
}

impl Future for Question {
    type Output = Result<Bytes, RequestError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.answer).poll(context).map(|outcome| match outcome {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(Unanswered)) => Err(RequestError::Dropped),
            Err(_) => Err(RequestError::Lost),
        })
    }
}

impl Drop for Question {
    fn drop(&mut self) {
        self.outbox.forget(self.correlation);
    }
}
