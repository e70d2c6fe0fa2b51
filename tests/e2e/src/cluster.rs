//! Several broker processes on loopback that form a cluster.
//!
//! Nodes are named `n0`, `n1`, … and started in any order. With [`Setup::proxied`] every node dials
//! every other one through a [`Proxy`] of its own, so that the way between any two can be cut in
//! either direction.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::client::connect::Options;
use crate::client::topology::DURABLE;
use crate::client::{Client, Failure, Outcome};
use crate::codec::Table;
use crate::http::{Api, segment};
use crate::node::{self, Node, free_port};
use crate::proxy::{Proxy, Way};
use crate::table;
use crate::wait::{PATIENCE, until_some, until_some_for};

/// What all nodes know, unless a test says otherwise.
pub const SECRET: &str = "known-to-all-nodes-of-this-test";
/// What a node says of its own address when nobody may reach it past the proxies: connecting there
/// fails at once, and not as it does where nobody listens.
const NOWHERE: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::BROADCAST), 1);
/// How long a single attempt may take while somebody polls.
const ATTEMPT: Duration = Duration::from_secs(3);

/// How a cluster is started.
#[derive(Debug)]
pub struct Setup {
    size: usize,
    proxied: bool,
    settings: Vec<(String, String)>,
    own: Vec<(usize, String, String)>,
    newcomers: Vec<(usize, usize)>,
}

impl Setup {
    /// Three nodes, defaults for the rest.
    pub fn new() -> Self {
        Self {
            size: 3,
            proxied: false,
            settings: Vec::new(),
            own: Vec::new(),
            newcomers: Vec::new(),
        }
    }

    /// Another number of nodes.
    #[must_use]
    pub fn size(mut self, size: usize) -> Self {
        self.size = size;
        self
    }

    /// Peers reach each other through proxies.
    #[must_use]
    pub fn proxied(mut self) -> Self {
        self.proxied = true;
        self
    }

    /// Sets a configuration key on all nodes.
    #[must_use]
    pub fn set(mut self, key: &str, value: impl Into<String>) -> Self {
        self.settings.push((key.to_owned(), value.into()));
        self
    }

    /// Sets a configuration key on one node.
    #[must_use]
    pub fn set_on(mut self, node: usize, key: &str, value: impl Into<String>) -> Self {
        self.own.push((node, key.to_owned(), value.into()));
        self
    }

    /// A node that nobody lists, and that lists no other but `known`.
    #[must_use]
    pub fn newcomer(mut self, node: usize, known: usize) -> Self {
        self.newcomers.push((node, known));
        self
    }

    fn lists(&self, node: usize, other: usize) -> bool {
        let known = |one: usize| self.newcomers.iter().find(|(newcomer, _)| *newcomer == one);
        let lists = known(node).map_or(known(other).is_none(), |(_, known)| *known == other);
        node == other || lists
    }

    /// Starts all nodes and waits until they are a cluster.
    pub fn start(self) -> Cluster {
        let mut cluster = self.prepare();
        for node in 0..cluster.nodes.len() {
            cluster.run(node);
        }
        cluster.await_formed();
        cluster
    }

    /// Chooses ports and directories and starts nothing.
    pub fn prepare(self) -> Cluster {
        let ports: Vec<u16> = (0..self.size).map(|_| free_port()).collect();
        let local = |port: u16| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let mut proxies = BTreeMap::new();
        let mut nodes = Vec::new();
        for (index, own) in ports.iter().enumerate() {
            let mut peers = Vec::new();
            let listed = ports.iter().enumerate().filter(|(other, _)| self.lists(index, *other));
            for (other, port) in listed {
                let dialled = match (self.proxied, other == index) {
                    (false, _) => local(*port),
                    (true, true) => NOWHERE,
                    (true, false) => {
                        let proxy = free_port();
                        proxies.insert((index, other), Proxy::start(proxy, local(*port)));
                        local(proxy)
                    }
                };
                peers.push(format!("\"{}@{dialled}\"", name(other)));
            }
            let mut setup = node::Setup::new()
                .set("node.name", name(index))
                .set("listeners.peer", local(*own).to_string())
                .set("cluster.peers", format!("[{}]", peers.join(",")));
            let own = self.own.iter().filter(|(node, ..)| *node == index);
            let mut settings: Vec<(&str, &str)> = vec![("cluster.secret", SECRET)];
            settings.extend(self.settings.iter().map(|(key, value)| (&**key, &**value)));
            settings.extend(own.map(|(_, key, value)| (&**key, &**value)));
            for (place, (key, value)) in settings.iter().enumerate() {
                // The last word counts.
                if !settings.iter().skip(place + 1).any(|(later, _)| later == key) {
                    setup = setup.set(key, *value);
                }
            }
            nodes.push(setup.prepare());
        }
        Cluster { nodes, proxies, frozen: vec![false; self.size], away: vec![false; self.size] }
    }
}

impl Default for Setup {
    fn default() -> Self {
        Self::new()
    }
}

/// The name of a node.
pub fn name(node: usize) -> String {
    format!("n{node}")
}

/// `x-queue-type: quorum`.
pub fn quorum() -> Table {
    table! { "x-queue-type" => "quorum" }
}

/// A connection with channel 1 open.
pub fn channel(address: SocketAddr) -> Outcome<Client> {
    channel_within(address, PATIENCE)
}

/// A connection with channel 1 open, which waits so long for each answer.
pub fn channel_within(address: SocketAddr, patience: Duration) -> Outcome<Client> {
    let mut client = Options::new(address).patience(patience).connect()?;
    client.open(1)?;
    Ok(client)
}

/// The processes, and what lies between them. Killed when dropped; their logs are printed if the
/// test fails, and kept in the folder that `E2E_LOGS` names.
#[derive(Debug)]
pub struct Cluster {
    /// The processes, some of which may not run.
    pub nodes: Vec<Node>,
    /// By who dials and who is dialled.
    proxies: BTreeMap<(usize, usize), Proxy>,
    frozen: Vec<bool>,
    away: Vec<bool>,
}

impl Cluster {
    /// A node.
    ///
    /// # Panics
    /// If there is none with this number.
    pub fn node(&mut self, node: usize) -> &mut Node {
        self.nodes.get_mut(node).expect("there is such a node")
    }

    /// Where a node serves AMQP.
    pub fn amqp(&self, node: usize) -> SocketAddr {
        self.nodes.get(node).expect("there is such a node").amqp
    }

    /// Where all nodes serve AMQP.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.nodes.iter().map(|node| node.amqp).collect()
    }

    /// The management API of a node.
    pub fn api(&self, node: usize) -> Api {
        Api::new(self.nodes.get(node).expect("there is such a node").http)
    }

    /// A connection to a node, with channel 1 open.
    pub fn channel(&self, node: usize) -> Client {
        channel(self.amqp(node)).expect("the node serves")
    }

    /// Starts a node's process and does not wait.
    pub fn run(&mut self, node: usize) {
        self.node(node).run();
    }

    /// Starts a node again on the data it has, and waits until all that run are one cluster.
    pub fn start(&mut self, node: usize) {
        self.run(node);
        self.await_formed();
    }

    /// SIGKILL.
    pub fn kill(&mut self, node: usize) {
        self.node(node).kill();
        self.mark(node, false);
    }

    /// SIGSTOP.
    pub fn freeze(&mut self, node: usize) {
        self.node(node).freeze();
        self.mark(node, true);
    }

    /// SIGCONT.
    pub fn thaw(&mut self, node: usize) {
        self.node(node).thaw();
        self.mark(node, false);
    }

    fn mark(&mut self, node: usize, frozen: bool) {
        *self.frozen.get_mut(node).expect("there is such a node") = frozen;
    }

    /// Cuts what goes from one node to another, or lets it flow again. Needs [`Setup::proxied`].
    pub fn cut(&self, from: usize, to: usize, cut: bool) {
        let proxy = |pair| self.proxies.get(&pair).expect("the cluster has proxies");
        proxy((from, to)).cut(Way::Forth, cut);
        proxy((to, from)).cut(Way::Back, cut);
    }

    /// Cuts a node off from all others, in both directions.
    pub fn isolate(&mut self, node: usize) {
        self.set_away(node, true);
    }

    /// Ends what [`isolate`](Self::isolate) has done.
    pub fn rejoin(&mut self, node: usize) {
        self.set_away(node, false);
    }

    fn set_away(&mut self, node: usize, away: bool) {
        *self.away.get_mut(node).expect("there is such a node") = away;
        for other in (0..self.nodes.len()).filter(|other| *other != node) {
            self.cut(node, other, away);
            self.cut(other, node, away);
        }
    }

    /// Breaks the connections between two nodes; they can be made anew at once.
    pub fn reset(&self, one: usize, other: usize) {
        for pair in [(one, other), (other, one)] {
            self.proxies.get(&pair).expect("the cluster has proxies").reset();
        }
    }

    /// The nodes that run, are not stopped and not cut off.
    pub fn reachable(&self) -> Vec<usize> {
        let flag = |list: &[bool], node: usize| list.get(node).copied().unwrap_or_default();
        (0..self.nodes.len())
            .filter(|node| self.nodes.get(*node).is_some_and(Node::runs))
            .filter(|node| !flag(&self.frozen, *node) && !flag(&self.away, *node))
            .collect()
    }

    /// Waits until every reachable node serves, changes topology, and sees what the others change.
    ///
    /// # Panics
    /// If a process exits, or they are no cluster in time.
    pub fn await_formed(&mut self) {
        for node in self.reachable() {
            self.node(node).await_ready();
        }
        for node in self.reachable() {
            let queue = format!("formed-{node}");
            let what = format!("{} changes topology", name(node));
            let change = |delete: bool| {
                let mut client = channel_within(self.amqp(node), ATTEMPT).ok()?;
                if delete {
                    client.delete_queue(1, &queue).ok().map(drop)
                } else {
                    client.queue(1, &queue, DURABLE, &table! {}).ok().map(drop)
                }
            };
            until_some_for(Duration::from_mins(1), &what, || change(false));
            for other in self.reachable() {
                until_some("all nodes see the same topology", || {
                    channel_within(self.amqp(other), ATTEMPT).ok()?.depth(1, &queue).ok()
                });
            }
            until_some(&what, || change(true));
        }
    }

    /// Waits until a quorum queue takes and gives a message through a node; how long that took.
    ///
    /// The queue must be empty and without consumers.
    pub fn await_served(&self, node: usize, queue: &str) -> Duration {
        let begin = Instant::now();
        until_some(&format!("{queue} is served through {}", name(node)), || {
            probe(self.amqp(node), queue).ok()
        });
        begin.elapsed()
    }

    /// Waits until a queue has so many ready messages at least, seen through a node.
    pub fn await_depth(&self, node: usize, queue: &str, messages: u32) {
        until_some(&format!("{queue} has {messages} messages, through {}", name(node)), || {
            let mut client = channel_within(self.amqp(node), ATTEMPT).ok()?;
            client.depth(1, queue).ok().filter(|queue| queue.messages >= messages)
        });
    }

    /// What the API of a node says of a queue of virtual host `/`.
    pub fn view(&self, node: usize, queue: &str) -> Value {
        self.api(node).json(&format!("queues/%2F/{}", segment(queue)))
    }

    /// Resident memory of all nodes that run, in bytes.
    pub fn resident(&self) -> u64 {
        self.nodes.iter().filter(|node| node.runs()).map(Node::resident).sum()
    }

    /// CPU time that the nodes that run have used.
    pub fn cpu(&self) -> Duration {
        self.nodes.iter().filter(|node| node.runs()).map(Node::cpu).sum()
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            return;
        }
        let mut text = String::new();
        for (index, node) in self.nodes.iter().enumerate() {
            let state = match (node.runs(), self.frozen.get(index), self.away.get(index)) {
                (false, ..) => "does not run",
                (_, Some(true), _) => "is stopped",
                (_, _, Some(true)) => "is cut off",
                _ => "runs",
            };
            write!(text, " {} {state};", name(index)).expect("writing to a string works");
        }
        eprintln!("--- the cluster:{text} AMQP at {:?}", self.addresses());
        self.keep_logs();
        if std::env::var_os("E2E_LOGS").is_some() {
            self.nodes.iter_mut().for_each(|node| node.quiet = true);
        }
    }
}

impl Cluster {
    /// Copies the logs to the folder that `E2E_LOGS` names, where they outlive the test.
    pub fn keep_logs(&self) {
        let Some(folder) = std::env::var_os("E2E_LOGS").map(std::path::PathBuf::from) else {
            return;
        };
        let test = std::thread::current().name().unwrap_or("main").replace("::", "-");
        for (index, node) in self.nodes.iter().enumerate() {
            let path = folder.join(format!("{test}-{}.log", name(index)));
            if std::fs::write(&path, node.log()).is_ok() {
                eprintln!("kept {}", path.display());
            }
        }
    }
}

/// Publishes a message and takes it out again.
fn probe(address: SocketAddr, queue: &str) -> Outcome<()> {
    let mut client = channel_within(address, ATTEMPT)?;
    client.confirm_select(1)?;
    client.put(1, queue, "probe")?;
    if client.confirms(1, 1)?.acked().is_empty() {
        return Err(Failure::Timeout);
    }
    while client.get(1, queue, true)?.is_some() {}
    Ok(())
}
