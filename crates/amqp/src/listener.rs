//! Accepts connections: one task for each.

use crate::broker::Broker;
use crate::server::{Connection, Ended, serve};
use crate::tls::{Tls, TlsPeer};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};

/// How long a TLS handshake may take.
const TLS_HANDSHAKE: Duration = Duration::from_secs(5);
/// How long to wait after the system refused to give a socket (out of file descriptors).
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The two ends of a connection.
#[derive(Debug, Clone)]
pub struct Peer {
    /// The client's address.
    pub address: SocketAddr,
    /// The address that it connected to.
    pub local: SocketAddr,
    /// Present on TLS connections.
    pub tls: Option<TlsPeer>,
}

/// The node, as its listeners see it.
pub trait Node: Send + Sync + 'static {
    /// The broker of one connection.
    type Broker: Broker + 'static;

    /// A connection has come. `None`: it is dropped without a word (shutdown, limits).
    fn connected(&self, peer: &Peer) -> Option<Connection<Self::Broker>>;

    /// A connection has ended, and its broker was told.
    fn ended(&self, peer: &Peer, ended: &Ended);
}

/// Accepts connections on `listener` until the future is dropped; connections outlive it.
pub async fn listen<N: Node>(listener: TcpListener, tls: Option<Arc<Tls>>, node: Arc<N>) {
    loop {
        match listener.accept().await {
            Ok((stream, address)) => {
                tokio::spawn(connection(stream, address, tls.clone(), Arc::clone(&node)));
            }
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

async fn connection<N: Node>(
    stream: TcpStream,
    address: SocketAddr,
    tls: Option<Arc<Tls>>,
    node: Arc<N>,
) {
    // replies and confirms are small and must not wait for each other
    if stream.set_nodelay(true).is_err() {
        return;
    }
    let Ok(local) = stream.local_addr() else { return };
    let Some(tls) = tls else {
        let peer = Peer { address, local, tls: None };
        let Some(connection) = node.connected(&peer) else { return };
        let ended = serve(stream, connection).await;
        node.ended(&peer, &ended);
        return;
    };
    match tokio::time::timeout(TLS_HANDSHAKE, tls.accept(stream)).await {
        Ok(Ok((stream, seen))) => {
            let peer = Peer { address, local, tls: Some(seen) };
            let Some(connection) = node.connected(&peer) else { return };
            let ended = serve(stream, connection).await;
            node.ended(&peer, &ended);
        }
        Ok(Err(error)) => tracing::warn!(%address, %error, "TLS handshake failed"),
        Err(_) => tracing::warn!(%address, "TLS handshake timeout"),
    }
}
