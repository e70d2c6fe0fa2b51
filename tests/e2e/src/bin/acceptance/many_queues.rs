//! B5: many quorum queues: how fast they are declared, and what they cost while nobody uses them.

use std::time::{Duration, Instant};

use e2e::client::Client;
use e2e::client::topology::DURABLE;
use e2e::cluster::{Cluster, Setup, quorum};
use e2e::wait::until_some_for;

use crate::Verdict;
use crate::gap::declare;

/// How long rest is measured.
const REST: Duration = Duration::from_mins(1);
/// How often somebody looks at metrics and queues.
const SCRAPE: Duration = Duration::from_secs(15);
/// Queues with a consumer and messages in the second part.
const USED: usize = 2000;
/// Queues of which the rate is measured.
const RATED: usize = 1000;

pub(crate) fn measure(count: usize) -> Vec<Verdict> {
    let mut cluster = Setup::new().set("journal.segment_size", "32MiB").start();
    let empty = cluster.resident();
    let mut client = cluster.channel(0);
    let rated = count.min(RATED);
    let took = declare(&mut client, "many", rated).expect("declares");
    let rate = per_second(rated, took);
    let rest = declare_rest(&mut client, rated, count);
    drop(client);
    let mut verdicts = vec![Verdict {
        figures: format!(
            "{rated} quorum queues one after the other through one client: {rate}/s, 300/s wanted; \
             up to {count} with 100 on their way: {rest}"
        ),
        holds: rate >= 300,
    }];
    // What the declarations left behind is put away.
    std::thread::sleep(Duration::from_secs(10));
    let share = at_rest(&cluster, false);
    let grown = cluster.resident().saturating_sub(empty);
    let each = grown / (count as u64 * 3);
    verdicts.push(Verdict {
        figures: format!(
            "{count} queues at rest: {} % of one core in all three, 5 wanted; {each} bytes of \
             resident memory per member, 20480 wanted ({} in all)",
            percent(share),
            crate::mib(grown)
        ),
        holds: share <= 50 && each <= 20 << 10,
    });
    let served = restart_all(&mut cluster, count);
    verdicts.push(Verdict {
        figures: format!("all three restarted: all {count} queues confirm after {served:?}"),
        holds: served <= Duration::from_secs(20),
    });
    let used = count.min(USED);
    let _consumers = use_some(&cluster, used);
    std::thread::sleep(Duration::from_secs(5));
    let share = at_rest(&cluster, false);
    let scraped = at_rest(&cluster, true);
    verdicts.push(Verdict {
        figures: format!(
            "with an idle consumer and ten messages on each of {used}: {} %; and scraped every \
             {SCRAPE:?}: {} %",
            percent(share),
            percent(scraped)
        ),
        holds: share <= 50 && scraped <= 50,
    });
    verdicts
}

fn per_second(count: usize, took: Duration) -> u128 {
    count as u128 * 1000 / took.as_millis().max(1)
}

/// Per mille as per cent.
fn percent(share: u128) -> String {
    format!("{}.{}", share / 10, share % 10)
}

pub(crate) fn declare_rest(client: &mut Client, from: usize, to: usize) -> String {
    use e2e::codec::Writer;
    let begin = Instant::now();
    for number in from..to {
        let declare = Writer::method(50, 10).u16(0).short(format!("many-{number}")).u8(DURABLE);
        client.send(1, &declare.table(&quorum())).expect("sends");
        if number - from >= 100 {
            client.await_event(1, |event| event.id == (50, 11)).expect("declares");
        }
    }
    for _ in 0..(to - from).min(100) {
        client.await_event(1, |event| event.id == (50, 11)).expect("declares");
    }
    if to == from {
        return "none left".to_owned();
    }
    format!("{}/s", per_second(to - from, begin.elapsed()))
}

/// Per mille of one core that all nodes together use.
fn at_rest(cluster: &Cluster, scraped: bool) -> u128 {
    let (begin, before) = (Instant::now(), cluster.cpu());
    let mut next = begin;
    while begin.elapsed() < REST {
        if scraped && Instant::now() >= next {
            next += SCRAPE;
            for node in 0..3 {
                cluster.api(node).get("queues");
                let metrics = cluster.nodes.get(node).map(|node| node.metrics).expect("a node");
                e2e::http::Api::new(metrics).request("GET", "/metrics", None).ok();
            }
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    cluster.cpu().saturating_sub(before).as_millis() * 1000 / begin.elapsed().as_millis()
}

fn restart_all(cluster: &mut Cluster, count: usize) -> Duration {
    for node in &mut cluster.nodes {
        node.signal_stop();
    }
    for node in &mut cluster.nodes {
        node.await_exit();
    }
    let begin = Instant::now();
    for node in 0..3 {
        cluster.run(node);
    }
    until_some_for(Duration::from_mins(5), "all queues confirm", || {
        let mut client = e2e::cluster::channel(cluster.amqp(1)).ok()?;
        client.confirm_select(1).ok()?;
        for number in 0..count {
            client.put(1, &format!("many-{number}"), "m").ok()?;
        }
        let confirms = client.confirms(1, count).ok()?;
        (confirms.acked().len() == count).then(|| begin.elapsed())
    })
}

/// A consumer that does nothing, and ten messages, for each of the first queues.
fn use_some(cluster: &Cluster, used: usize) -> Vec<Client> {
    let mut publisher = cluster.channel(1);
    publisher.confirm_select(1).expect("confirms");
    for number in 0..used {
        for _ in 0..10 {
            publisher.put(1, &format!("many-{number}"), "m").expect("publishes");
        }
    }
    publisher.confirms(1, used * 10).expect("confirmed");
    (0..3)
        .map(|node| {
            let mut client = cluster.channel(node);
            client.qos(1, 5, false).expect("qos");
            for number in (node..used).step_by(3) {
                let queue = format!("many-{number}");
                client.consume(1, &queue, &queue).expect("consumes");
            }
            client.drain();
            client
        })
        .collect()
}
