//! A node for tests: notes what it hears, and can be waited on.

use bytes::Bytes;
use model::id::NodeId;
use peer::answer::Answer;
use peer::handler::{Handler, Loss};
use peer::identity::Identity;
use peer::links::Links;
use peer::options::{Options, QUEUE_BYTES_MAX};
use peer::refusal::{Reason, Refusal};
use peer::secret::Secret;
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::net::TcpSocket;
use tokio::sync::Notify;

/// How long a condition may take. Long, since the machine may be busy; nothing waits for it to pass.
pub(crate) const DEADLINE: Duration = Duration::from_secs(30);

/// What a node has heard.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Heard {
    Up(Identity),
    Down(Identity, Loss),
    Messages(NodeId, u8, Vec<Bytes>),
    /// The payload; the answer waits in `Ear::answers`.
    Request(NodeId, u8, Bytes),
}

/// Notes what is heard.
#[derive(Default)]
pub(crate) struct Ear {
    heard: Mutex<VecDeque<Heard>>,
    pub(crate) answers: Mutex<VecDeque<Answer>>,
    pub(crate) unwanted: Mutex<Option<&'static str>>,
    /// Why other nodes do not want this one.
    pub(crate) refused: Mutex<Vec<Reason>>,
    more: Notify,
}

impl Ear {
    fn note(&self, heard: Heard) {
        self.heard.lock().unwrap().push_back(heard);
        self.more.notify_one();
    }

    /// The next thing that is heard.
    pub(crate) async fn next(&self) -> Heard {
        let next = async {
            loop {
                if let Some(heard) = self.heard.lock().unwrap().pop_front() {
                    return heard;
                }
                self.more.notified().await;
            }
        };
        tokio::time::timeout(DEADLINE, next).await.expect("nothing was heard")
    }

    pub(crate) async fn up(&self) -> Identity {
        match self.next().await {
            Heard::Up(identity) => identity,
            other => panic!("expected up, heard {other:?}"),
        }
    }

    pub(crate) async fn down(&self) -> (Identity, Loss) {
        match self.next().await {
            Heard::Down(identity, why) => (identity, why),
            other => panic!("expected down, heard {other:?}"),
        }
    }

    pub(crate) async fn request(&self) -> (Bytes, Answer) {
        match self.next().await {
            Heard::Request(_, _, payload) => {
                (payload, self.answers.lock().unwrap().pop_front().unwrap())
            }
            other => panic!("expected a request, heard {other:?}"),
        }
    }

    pub(crate) fn silent(&self) -> bool {
        self.heard.lock().unwrap().is_empty()
    }
}

impl Handler for Ear {
    fn admit(&self, _: &Identity) -> Result<(), Refusal> {
        let unwanted = *self.unwanted.lock().unwrap();
        unwanted.map_or(Ok(()), |why| Err(Refusal::new(Reason::NotAdmitted, why)))
    }

    fn refused(&self, _: &str, refusal: &Refusal) {
        self.refused.lock().unwrap().push(refusal.reason);
    }

    fn up(&self, peer: &Identity) {
        self.note(Heard::Up(peer.clone()));
    }

    fn down(&self, peer: &Identity, why: Loss) {
        self.note(Heard::Down(peer.clone(), why));
    }

    fn messages(&self, from: NodeId, channel: u8, messages: &mut Vec<Bytes>) {
        self.note(Heard::Messages(from, channel, std::mem::take(messages)));
    }

    fn request(&self, from: NodeId, channel: u8, payload: Bytes, answer: Answer) {
        self.answers.lock().unwrap().push_back(answer);
        self.note(Heard::Request(from, channel, payload));
    }

    fn failed(&self, error: String) {
        panic!("{error}");
    }
}

/// A port that is taken and not listened on, until a node does: dials to it are refused.
pub(crate) struct Place(#[expect(dead_code, reason = "held")] TcpSocket, pub(crate) SocketAddr);

impl Place {
    pub(crate) fn new() -> Self {
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_reuseaddr(true).unwrap();
        socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = socket.local_addr().unwrap();
        Self(socket, address)
    }
}

pub(crate) struct Node {
    pub(crate) links: Arc<Links>,
    pub(crate) ear: Arc<Ear>,
}

impl std::ops::Deref for Node {
    type Target = Links;

    fn deref(&self) -> &Links {
        &self.links
    }
}

pub(crate) fn options(name: &str, id: u64, boot: u64, place: &Place) -> Options {
    let me = Identity {
        name: name.into(),
        id: NodeId(id),
        boot,
        address: String::new(),
        facts: Bytes::from(format!("facts of {name}")),
    };
    Options {
        me,
        cluster: "test".into(),
        secret: Secret::new(b"secret"),
        listen: place.1,
        peers: Vec::new(),
        silence_timeout: DEADLINE,
        queue_bytes_max: QUEUE_BYTES_MAX,
        tls: None,
    }
}

pub(crate) trait With: Sized {
    fn peer(self, name: &str, address: SocketAddr) -> Self;
    fn silence(self, timeout: Duration) -> Self;
    async fn start(self) -> Node;
}

impl With for Options {
    fn peer(mut self, name: &str, address: SocketAddr) -> Self {
        self.peers.push((name.into(), address.to_string()));
        self
    }

    fn silence(mut self, timeout: Duration) -> Self {
        self.silence_timeout = timeout;
        self
    }

    async fn start(self) -> Node {
        let ear = Arc::new(Ear::default());
        let links = Links::start(self, Arc::clone(&ear) as Arc<dyn Handler>).await.unwrap();
        Node { links, ear }
    }
}

/// Waits until the node's state says so.
pub(crate) async fn until<T>(mut condition: impl FnMut() -> Option<T>) -> T {
    let looking = async {
        loop {
            if let Some(found) = condition() {
                return found;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(DEADLINE, looking).await.expect("the condition has not come true")
}

/// Why the node is not connected to this peer.
pub(crate) async fn error(node: &Node, name: &str, part: &str) {
    until(|| {
        let peers = node.peers();
        let error = peers.iter().find(|peer| &*peer.name == name)?.error.clone()?;
        error.contains(part).then_some(())
    })
    .await;
}

/// Two nodes that are up.
pub(crate) async fn two(change: impl Fn(Options) -> Options) -> (Node, Node) {
    let (place_a, place_b) = (Place::new(), Place::new());
    let a = change(options("a", 1, 1, &place_a).peer("b", place_b.1)).start().await;
    let b = change(options("b", 2, 1, &place_b).peer("a", place_a.1)).start().await;
    assert_eq!(a.ear.up().await, *b.me());
    assert_eq!(b.ear.up().await, *a.me());
    (a, b)
}
