//! Case 117: many restarts; neither paths nor start time grow.

use std::time::Duration;

use e2e::client::connect::Options;
use e2e::client::topology::DURABLE;
use e2e::node::Setup;
use e2e::table;

use crate::{Verdict, mib};

pub(crate) fn measure(rounds: usize) -> Verdict {
    let mut node = Setup::new().start();
    let mut client = Options::new(node.amqp).connect().expect("connects");
    client.open(1).expect("opens");
    client.queue(1, "q", DURABLE, &table! {}).expect("declares");
    client.confirm_select(1).expect("confirms");
    client.put(1, "q", "m").expect("publishes");
    client.confirms(1, 1).expect("confirmed");
    drop(client);
    let mut times = Vec::with_capacity(rounds);
    let mut disks = Vec::with_capacity(rounds);
    for round in 0..rounds {
        times.push(if round % 2 == 0 { node.restart() } else { node.crash() });
        disks.push(node.disk());
    }
    let tenth = (rounds / 10).max(1);
    let first: Duration = times.iter().take(tenth).sum();
    let last: Duration = times.iter().rev().take(tenth).sum();
    let disk = disks.first().copied().unwrap_or_default();
    let disk_at_end = disks.last().copied().unwrap_or_default();
    Verdict {
        figures: format!(
            "{rounds} restarts: first tenth {first:?}, last tenth {last:?}; data {} at first, {} \
             at last",
            mib(disk),
            mib(disk_at_end)
        ),
        holds: last < first * 2 && disk_at_end < disk + (16 << 20),
    }
}
