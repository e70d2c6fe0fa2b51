//! A8, second half: a small file system that runs full.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use e2e::client::confirms::Confirms;
use e2e::client::connect::Options;
use e2e::client::topology::DURABLE;
use e2e::client::{Client, Failure};
use e2e::node::{Node, Setup};
use e2e::table;

use crate::Verdict;

/// Size of the file system.
const SIZE: u64 = 192 << 20;

/// A mounted tmpfs, unmounted when dropped.
struct Small(PathBuf);

impl Small {
    fn mount() -> Option<Self> {
        let path = std::env::temp_dir().join(format!("e2e-small-{}", std::process::id()));
        fs::create_dir_all(&path).ok()?;
        let status = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &format!("size={SIZE}"), "tmpfs"])
            .arg(&path)
            .stderr(std::process::Stdio::null())
            .status()
            .ok()?;
        status.success().then_some(Self(path))
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        Command::new("umount").arg(&self.0).status().ok();
        fs::remove_dir(&self.0).ok();
    }
}

pub(crate) fn measure() -> Verdict {
    let Some(small) = Small::mount() else {
        return Verdict { figures: "full disk: cannot mount a tmpfs here".into(), holds: true };
    };
    let mut figures = Vec::new();
    let mut holds = true;
    // Once with an alarm in time, once with none before the last byte.
    for limit in ["48MiB", "0"] {
        let directory = small.0.join("data");
        let mut node = Setup::new().directory(&directory).set("disk.free_limit", limit).start();
        let outcome = fill_and_drain(&mut node, &small.0);
        holds &= outcome.is_ok();
        let text = match outcome {
            Ok(text) | Err(text) => text,
        };
        figures.push(format!("full disk, free limit {limit}: {text}"));
        node.quiet = true;
        node.stop();
        drop(node);
        fs::remove_dir_all(&directory).ok();
    }
    Verdict { figures: figures.join("; "), holds }
}

fn channel(node: &Node) -> Client {
    let mut client = Options::new(node.amqp).connect().expect("connects");
    client.open(1).expect("opens");
    client
}

/// How many messages each queue gets that is not drained.
const FEW: u32 = 10;

/// What [`change_topology`] will change.
fn prepare(client: &mut Client) {
    client.exchange(1, "x", "direct", DURABLE, &table! {}).expect("declares");
    for queue in ["doomed", "purged"] {
        client.queue(1, queue, DURABLE, &table! {}).expect("declares");
        client.bind(1, queue, "x", queue, &table! {}).expect("binds");
        for _ in 0..FEW {
            client.put(1, queue, "few").expect("publishes");
        }
        let depth = client.depth(1, queue).expect("is there").messages;
        assert_eq!(depth, FEW, "{queue}");
    }
}

/// Whoever wants to make room must not wait for it. Each call has ten seconds.
fn change_topology(node: &Node) -> Result<(), String> {
    let mut client = channel(node);
    client.patience = Duration::from_secs(10);
    let failed = |what: &str, failure: Failure| format!("{what} on a full disk: {failure:?}");
    let purged = client.purge(1, "purged").map_err(|failure| failed("purge", failure))?;
    client
        .unbind(1, "purged", "x", "purged", &table! {})
        .map_err(|failure| failed("unbind", failure))?;
    let deleted = client.delete_queue(1, "doomed").map_err(|failure| failed("delete", failure))?;
    client.queue(1, "new", DURABLE, &table! {}).map_err(|failure| failed("declare", failure))?;
    client.bind(1, "new", "x", "new", &table! {}).map_err(|failure| failed("bind", failure))?;
    if (purged, deleted) != (FEW, FEW) {
        return Err(format!("{purged} purged and {deleted} deleted of {FEW} each"));
    }
    Ok(())
}

fn fill_and_drain(node: &mut Node, mount: &Path) -> Result<String, String> {
    prepare(&mut channel(node));
    let mut publisher = channel(node);
    publisher.queue(1, "q", DURABLE, &table! {}).expect("declares");
    publisher.confirm_select(1).expect("confirms");
    let mut confirms = Confirms::default();
    let body = vec![b'x'; 4096];
    let mut published = 0;
    let mut blocked = None;
    // Until the broker says that it is blocked, or stops reading.
    publisher.patience = Duration::from_secs(10);
    while blocked.is_none() && published < 200_000 {
        if let Err(failure) = publisher.put(1, "q", &body) {
            return Err(format!("publishing failed: {failure:?}"));
        }
        published += 1;
        if published > 200 {
            match publisher.await_confirms(1, &mut confirms, published - 200) {
                Ok(()) => {}
                Err(Failure::Timeout) => blocked = publisher.await_blocked().ok(),
                Err(failure) => return Err(format!("while filling: {failure:?}")),
            }
            if blocked.is_none() && publisher.waiting(0).contains(&(10, 60)) {
                blocked = publisher.await_blocked().ok();
            }
        }
    }
    let Some(reason) = blocked else {
        return Err(format!("never blocked, {published} published"));
    };
    if let Some(status) = node.exited() {
        return Err(format!("the node exited: {status}"));
    }
    // Nothing is left at all: somebody else takes the rest of the disk.
    let filler = mount.join("filler");
    let mut file = File::create(&filler).expect("the filler can be made");
    while file.write_all(&[0; 4096]).is_ok() {}
    drop(file);
    let begin = Instant::now();
    change_topology(node)?;
    let changed = begin.elapsed();
    // Consumers drain meanwhile.
    let begin = Instant::now();
    let mut consumer = channel(node);
    consumer.consume(1, "q", "c").map_err(|failure| format!("consume: {failure:?}"))?;
    let confirmed = confirms.acked().len();
    for n in 0..confirmed {
        let message =
            consumer.delivery(1).map_err(|failure| format!("delivery {n}: {failure:?}"))?;
        if message.body.len() != body.len() {
            return Err(format!("message {n} has {} bytes", message.body.len()));
        }
        if n % 100 == 99 {
            consumer.ack(1, message.tag, true).map_err(|failure| format!("ack: {failure:?}"))?;
        }
    }
    consumer.sync(1).map_err(|failure| format!("after draining: {failure:?}"))?;
    let drained = begin.elapsed();
    fs::remove_file(&filler).expect("the filler can be removed");
    // It recovers by itself.
    publisher.patience = Duration::from_secs(30);
    publisher.await_unblocked().map_err(|failure| format!("unblocked: {failure:?}"))?;
    publisher
        .await_confirms(1, &mut confirms, published)
        .map_err(|failure| format!("the rest is not confirmed: {failure:?}"))?;
    publisher.put(1, "q", "after").map_err(|failure| format!("after: {failure:?}"))?;
    publisher
        .await_confirms(1, &mut confirms, published + 1)
        .map_err(|failure| format!("after: {failure:?}"))?;
    if let Some(status) = node.exited() {
        return Err(format!("the node exited: {status}"));
    }
    Ok(format!(
        "blocked ({reason}) after {published} of 4 KiB, a queue deleted and others changed in {changed:?} \
         and {confirmed} drained in {drained:?} with no byte free, {} nacked, publishing again",
        confirms.nacked().len()
    ))
}
