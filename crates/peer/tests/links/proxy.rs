//! Stands between two nodes and can fall silent: connections stay open and nothing moves.

use std::net::SocketAddr;
use std::sync::Arc;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

pub(crate) struct Proxy {
    pub(crate) address: SocketAddr,
    silent: Arc<watch::Sender<bool>>,
    cuts: Arc<watch::Sender<u64>>,
    accepting: JoinHandle<()>,
}

impl Proxy {
    pub(crate) async fn new(to: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let silent = Arc::new(watch::Sender::new(false));
        let cuts = Arc::new(watch::Sender::new(0));
        let (silence, cutting) = (Arc::clone(&silent), Arc::clone(&cuts));
        let accepting = tokio::spawn(async move {
            loop {
                let (near, _) = listener.accept().await.unwrap();
                let (silence, mut cut) = (silence.subscribe(), cutting.subscribe());
                tokio::spawn(async move {
                    let Ok(far) = TcpStream::connect(to).await else { return };
                    let (near_read, near_write) = near.into_split();
                    let (far_read, far_write) = far.into_split();
                    tokio::select! {
                        () = pump(near_read, far_write, silence.clone()) => {}
                        () = pump(far_read, near_write, silence) => {}
                        _ = cut.changed() => {}
                    }
                });
            }
        });
        Self { address, silent, cuts, accepting }
    }

    pub(crate) fn silent(&self, silent: bool) {
        self.silent.send_replace(silent);
    }

    /// Closes all connections that stand now.
    pub(crate) fn cut(&self) {
        self.cuts.send_modify(|cuts| *cuts += 1);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn pump(
    mut from: impl AsyncReadExt + Unpin,
    mut to: impl AsyncWriteExt + Unpin,
    mut silence: watch::Receiver<bool>,
) {
    let mut buffer = vec![0; 64 * 1024];
    loop {
        if silence.wait_for(|silent| !silent).await.is_err() {
            return;
        }
        let count = tokio::select! {
            read = from.read(&mut buffer) => read.unwrap_or(0),
            _ = silence.changed() => continue,
        };
        if count == 0 || to.write_all(&buffer[..count]).await.is_err() {
            return;
        }
    }
}
