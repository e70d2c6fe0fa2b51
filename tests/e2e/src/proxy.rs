//! A TCP proxy on loopback whose two directions can be cut, as a network that loses packets does.
//!
//! While a direction is cut its bytes are held, not dropped: a living TCP connection loses none
//! either, it sends them again. Connections made meanwhile get no answer. The proxy's port listens
//! only while the port behind it does, so that a dead process refuses here as it does there.

use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// How often a closed port is looked at.
const LOOK: Duration = Duration::from_millis(5);
/// The sockets of a dying process are not closed all at once.
const DYING: Duration = Duration::from_millis(50);

/// Which way bytes go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// From whoever connects to the port behind.
    Forth,
    /// From the port behind to whoever has connected.
    Back,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Door {
    Closed,
    Open,
    Closing,
}

#[derive(Debug)]
struct State {
    cut: [bool; 2],
    door: Door,
    over: bool,
    /// Both ends of each connection.
    streams: Vec<(TcpStream, TcpStream)>,
}

#[derive(Debug)]
struct Shared {
    address: SocketAddr,
    target: SocketAddr,
    state: Mutex<State>,
    changed: Condvar,
}

/// See the module head. Ends when dropped.
#[derive(Debug)]
pub struct Proxy(Arc<Shared>);

impl Proxy {
    /// Listens on `port` for `target`, once that listens.
    pub fn start(port: u16, target: SocketAddr) -> Self {
        let state = State { cut: [false; 2], door: Door::Closed, over: false, streams: Vec::new() };
        let shared = Arc::new(Shared {
            address: SocketAddr::from((Ipv4Addr::LOCALHOST, port)),
            target,
            state: Mutex::new(state),
            changed: Condvar::new(),
        });
        let keeper = Arc::clone(&shared);
        thread::spawn(move || keeper.keep_door());
        Self(shared)
    }

    /// Cuts one way, or lets it flow again.
    pub fn cut(&self, way: Way, cut: bool) {
        self.0.lock().cut[way as usize] = cut;
        self.0.changed.notify_all();
    }

    /// Closes all connections; they can be made anew at once.
    pub fn reset(&self) {
        for (one, other) in self.0.lock().streams.drain(..) {
            one.shutdown(Shutdown::Both).ok();
            other.shutdown(Shutdown::Both).ok();
        }
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.over = true;
        state.cut = [false; 2];
        drop(state);
        self.reset();
        self.0.changed.notify_all();
        TcpStream::connect(self.0.address).ok();
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn keep_door(self: Arc<Self>) {
        loop {
            while !listens(self.target) {
                if self.lock().over {
                    return;
                }
                thread::sleep(LOOK);
            }
            let Ok(listener) = TcpListener::bind(self.address) else {
                thread::sleep(LOOK);
                continue;
            };
            self.lock().door = Door::Open;
            for stream in listener.incoming() {
                let state = self.lock();
                if state.over {
                    return;
                }
                if state.door == Door::Closing {
                    break;
                }
                drop(state);
                let Ok(stream) = stream else { continue };
                let shared = Arc::clone(&self);
                thread::spawn(move || shared.carry(stream));
            }
            drop(listener);
            self.lock().door = Door::Closed;
            self.changed.notify_all();
        }
    }

    /// If nothing listens behind, nothing listens here from now on.
    fn follow_target(&self) {
        let deadline = Instant::now() + DYING;
        while listens(self.target) {
            if Instant::now() > deadline {
                return;
            }
            thread::sleep(LOOK);
        }
        let mut state = self.lock();
        if state.over || state.door == Door::Closed {
            return;
        }
        state.door = Door::Closing;
        drop(state);
        // Wakes the keeper.
        TcpStream::connect(self.address).ok();
        let mut state = self.lock();
        while state.door == Door::Closing && !state.over {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn carry(self: Arc<Self>, client: TcpStream) {
        self.pass(Way::Forth);
        let Ok(server) = TcpStream::connect_timeout(&self.target, Duration::from_secs(1)) else {
            self.follow_target();
            return;
        };
        client.set_nodelay(true).ok();
        server.set_nodelay(true).ok();
        let ends = (client.try_clone(), server.try_clone(), client.try_clone(), server.try_clone());
        let (Ok(client_in), Ok(server_in), Ok(client_kept), Ok(server_kept)) = ends else { return };
        self.lock().streams.push((client_kept, server_kept));
        let shared = Arc::clone(&self);
        thread::spawn(move || shared.pump(Way::Forth, client_in, server));
        self.pump(Way::Back, server_in, client);
    }

    /// Waits while a way is cut.
    fn pass(&self, way: Way) {
        let mut state = self.lock();
        while state.cut[way as usize] {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn pump(&self, way: Way, mut from: TcpStream, mut to: TcpStream) {
        let mut buffer = vec![0; 64 * 1024];
        loop {
            let read = from.read(&mut buffer).unwrap_or_default();
            self.pass(way);
            let written = to.write_all(buffer.get(..read).unwrap_or_default());
            if read > 0 && written.is_ok() {
                continue;
            }
            // Unless the client has ended it, the target may be dead; then this port refuses before
            // the client learns of the end.
            if read > 0 || way == Way::Back {
                self.follow_target();
            }
            break;
        }
        from.shutdown(Shutdown::Both).ok();
        to.shutdown(Shutdown::Both).ok();
        let gone = |stream: &TcpStream| stream.peer_addr().is_err();
        self.lock().streams.retain(|(one, other)| !gone(one) && !gone(other));
    }
}

/// Whether something listens on this address, without connecting to it.
fn listens(address: SocketAddr) -> bool {
    let SocketAddr::V4(address) = address else { return false };
    let local = u32::from_le_bytes(address.ip().octets());
    let wanted = format!("{local:08X}:{:04X}", address.port());
    let table = fs::read_to_string("/proc/net/tcp").unwrap_or_default();
    table.lines().any(|line| {
        let mut words = line.split_whitespace().skip(1);
        words.next() == Some(&wanted) && words.nth(1) == Some("0A")
    })
}
