//! What many groups cost: `groups [GROUPS]` runs so many on three nodes in one process, over
//! three journals on disk and a network of channels, and measures founding, a first entry,
//! memory, idleness, the death of a node and its return.

use bytes::Bytes;
use journal::disk::real::RealDisk;
use journal::journal::Journal;
use model::id::{NodeId, Seq};
use parking_lot::Mutex;
use quorum::group::GroupId;
use quorum::host::{Care, Host, Options};
use quorum::member::{
    Body, BodyPlace, Boxed, Committed, Member, NotConnected, RequestError, Role, Transport,
};
use quorum::records::Records;
use quorum::recovered::Recovered;
use quorum::watermark::Watermark;
use std::collections::BTreeMap;
use std::io::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};
use tokio::sync::{mpsc, oneshot};

#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// Counts what all members of a node hear.
#[derive(Default)]
struct Counts {
    led: AtomicU64,
    payloads: AtomicU64,
}

struct Counter {
    counts: Arc<Counts>,
    leads: Mutex<bool>,
}

impl Member for Counter {
    fn opened(&self, _: Records) {}

    fn committed(&self, entries: Vec<Committed>) {
        let payloads = entries.iter().filter(|entry| !entry.payload.is_empty()).count() as u64;
        self.counts.payloads.fetch_add(payloads, Ordering::Relaxed);
    }

    fn role(&self, role: Role) {
        let leads = matches!(role, Role::Leader { .. });
        let led = std::mem::replace(&mut *self.leads.lock(), leads);
        match (led, leads) {
            (false, true) => self.counts.led.fetch_add(1, Ordering::Relaxed),
            (true, false) => self.counts.led.fetch_sub(1, Ordering::Relaxed),
            _ => 0,
        };
    }

    fn checkpoint(&self, answer: oneshot::Sender<Bytes>) {
        answer.send(Bytes::new()).ok();
    }

    fn install(&self, _: u64, _: Bytes, _: Vec<Body>, done: oneshot::Sender<()>) {
        done.send(()).ok();
    }

    fn export(&self, _: &Bytes) -> Vec<(u64, BodyPlace)> {
        Vec::new()
    }

    fn purged(&self, _: u64) {}

    fn members(&self, _: Vec<NodeId>, _: Vec<NodeId>) {}

    fn failed(&self, error: String) {
        eprintln!("a group failed: {error}");
    }
}

#[derive(Default)]
struct Net {
    hosts: Mutex<BTreeMap<NodeId, Host>>,
    queues: Mutex<BTreeMap<(NodeId, NodeId), mpsc::UnboundedSender<Bytes>>>,
}

struct Port {
    me: NodeId,
    net: Weak<Net>,
}

impl Net {
    fn connect(&self, from: NodeId, to: NodeId) {
        let host = self.hosts.lock()[&to].clone();
        let (sender, mut receiver) = mpsc::unbounded_channel::<Bytes>();
        self.queues.lock().insert((from, to), sender);
        host.on_up(from);
        tokio::spawn(async move {
            let mut batch = Vec::new();
            while receiver.recv_many(&mut batch, 256).await > 0 {
                host.on_messages(from, &mut batch);
            }
        });
    }

    fn cut(&self, from: NodeId, to: NodeId) {
        self.queues.lock().remove(&(from, to));
        self.hosts.lock()[&to].clone().on_down(from);
    }
}

impl Transport for Port {
    fn send(&self, to: NodeId, payload: Bytes) -> Result<(), NotConnected> {
        let net = self.net.upgrade().ok_or(NotConnected)?;
        let queues = net.queues.lock();
        let queue = queues.get(&(self.me, to)).ok_or(NotConnected)?;
        queue.send(payload).map_err(|_| NotConnected)
    }

    fn has_room(&self, _: NodeId) -> bool {
        true
    }

    fn room(&self, _: NodeId) -> Boxed<()> {
        Box::pin(std::future::ready(()))
    }

    fn request(
        &self,
        to: NodeId,
        payload: Bytes,
        within: Duration,
    ) -> Boxed<Result<Bytes, RequestError>> {
        let (net, me) = (self.net.clone(), self.me);
        Box::pin(async move {
            let net = net.upgrade().ok_or(RequestError::NotConnected)?;
            if !net.queues.lock().contains_key(&(me, to)) {
                return Err(RequestError::NotConnected);
            }
            let host = net.hosts.lock()[&to].clone();
            let (sender, answer) = oneshot::channel();
            host.on_request(me, payload, Box::new(move |bytes| drop(sender.send(bytes))));
            match tokio::time::timeout(within, answer).await {
                Ok(Ok(bytes)) => Ok(bytes),
                Ok(Err(_)) => Err(RequestError::Refused("dropped".into())),
                Err(_) => Err(RequestError::TimedOut),
            }
        })
    }
}

/// Processor time of the process so far.
fn cpu() -> Duration {
    let stat = std::fs::read_to_string("/proc/self/stat").expect("linux");
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or("").split_whitespace().collect();
    let ticks: u64 = fields[11..13].iter().filter_map(|field| field.parse::<u64>().ok()).sum();
    Duration::from_millis(ticks * 10)
}

/// Resident memory in MiB.
fn memory() -> f64 {
    let status = std::fs::read_to_string("/proc/self/statm").expect("linux");
    let pages: f64 = status.split(' ').nth(1).and_then(|pages| pages.parse().ok()).unwrap_or(0.0);
    pages * 4096.0 / (1024.0 * 1024.0)
}

fn say(line: &str) {
    writeln!(std::io::stdout(), "{line}").expect("stdout is there");
}

/// Runs something and says what it took.
async fn measure<T>(what: &str, work: impl Future<Output = T>) -> T {
    let (wall, before) = (Instant::now(), cpu());
    let result = work.await;
    let (wall, cpu) = (wall.elapsed(), cpu().saturating_sub(before));
    say(&format!("{what:32} {wall:>9.2?} wall {cpu:>9.2?} cpu {:>7.0} MiB", memory()));
    result
}

async fn until(is_so: impl Fn() -> bool) {
    while !is_so() {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

#[tokio::main]
async fn main() {
    let count: u64 = std::env::args().nth(1).and_then(|count| count.parse().ok()).unwrap_or(1000);
    let dir = tempfile::tempdir().expect("a directory for the journals");
    let net = Arc::new(Net::default());
    let ids: Vec<NodeId> = (1..=3).map(NodeId).collect();
    let counts: Vec<Arc<Counts>> = ids.iter().map(|_| Arc::default()).collect();
    for id in &ids {
        let watermark = Arc::new(Watermark::default());
        let options = journal::options::Options::new(dir.path().join(id.to_string()));
        let listener = Arc::clone(&watermark);
        let (journal, recovery) =
            Journal::open(options, Arc::new(RealDisk), listener).expect("a journal");
        drop(recovery);
        let port = Port { me: *id, net: Arc::downgrade(&net) };
        let host = Host::new(Options::new(*id), Arc::new(journal), watermark, Arc::new(port));
        net.hosts.lock().insert(*id, host);
    }
    let pairs = || ids.iter().flat_map(|from| ids.iter().map(move |to| (*from, *to)));
    for (from, to) in pairs().filter(|(from, to)| from != to) {
        net.connect(from, to);
    }
    let hosts: Vec<Host> = net.hosts.lock().values().cloned().collect();
    let groups: Vec<GroupId> = (100..100 + count).map(GroupId).collect();
    say(&format!("{count} groups on 3 nodes"));
    measure("start", async {
        for group in &groups {
            for (host, counts) in hosts.iter().zip(&counts) {
                let counter = Counter { counts: Arc::clone(counts), leads: Mutex::new(false) };
                let member: Arc<dyn Member> = Arc::new(counter);
                let started =
                    host.start(*group, Care::Supervised, member, Recovered::new(Seq(0))).await;
                started.expect("a new group starts");
            }
        }
    })
    .await;
    let led = |node: usize| counts[node].led.load(Ordering::Relaxed);
    let all_led = || led(0) + led(1) + led(2) == count;
    measure("found and elect", async {
        for (number, group) in groups.iter().enumerate() {
            let host = &hosts[number % 3];
            host.initialise(*group, &ids).await.expect("a group is founded");
        }
        until(all_led).await;
    })
    .await;
    let have = |each: u64| {
        let has = |counts: &Arc<Counts>| counts.payloads.load(Ordering::Relaxed) >= each;
        counts.iter().all(has)
    };
    for round in 1..=3 {
        measure("an entry of 1 KiB in each", async {
            for group in &groups {
                let payload = Bytes::from(vec![7; 1024]);
                let proposed =
                    hosts.iter().any(|host| host.propose(*group, payload.clone()).is_ok());
                assert!(proposed, "{group} has a leader");
            }
            until(|| have(round * count)).await;
        })
        .await;
    }
    measure("idle for 10 s", tokio::time::sleep(Duration::from_secs(10))).await;
    say(&format!("led by each: {} {} {}", led(0), led(1), led(2)));
    measure("fail over from node 1", async {
        for other in [ids[1], ids[2]] {
            net.cut(ids[0], other);
            net.cut(other, ids[0]);
        }
        until(|| led(1) + led(2) == count).await;
    })
    .await;
    say(&format!("led by each: {} {} {}", led(0), led(1), led(2)));
    measure("idle for 10 s, one node away", tokio::time::sleep(Duration::from_secs(10))).await;
    measure("node 1 comes back", async {
        for other in [ids[1], ids[2]] {
            net.connect(ids[0], other);
            net.connect(other, ids[0]);
        }
        until(all_led).await;
    })
    .await;
    measure("an entry of 1 KiB in each", async {
        for group in &groups {
            let payload = Bytes::from(vec![7; 1024]);
            let leader = [1, 2]
                .into_iter()
                .find(|at| matches!(hosts[*at].role(*group), Some(Role::Leader { .. })));
            let proposed = hosts[leader.expect("a leader")].propose(*group, payload);
            proposed.expect("the leader takes it");
        }
        until(|| have(4 * count)).await;
    })
    .await;
    measure("stop", async {
        for group in &groups {
            for host in &hosts {
                host.stop(*group).await;
            }
        }
    })
    .await;
}
