//! One message's way through the exchanges of a vhost.

use std::collections::BTreeSet;
use std::sync::Arc;

use smallvec::SmallVec;

use crate::routes::content::Content;
use crate::routes::exchange::ExchangeRoutes;
use crate::routes::hop::{Hop, Hops};
use crate::routes::targets::RouteSet;
use crate::routes::{Routed, VhostRoutes};

/// Visits every exchange that the message reaches, each once, so that cycles end. An exchange in
/// which nothing matches hands on to its alternate exchange, wherever in the walk it stands.
pub(super) fn walk(
    vhost: &VhostRoutes,
    first: &ExchangeRoutes,
    routing_keys: &[&str],
    content: &dyn Content,
    out: &mut RouteSet,
) -> Routed {
    let lists = usize::from(!out.is_empty());
    let mut sink = Sink { vhost, out, lists, queues: 0, exchanges: SmallVec::new() };
    let mut seen = Seen::default();
    let mut via_alternate = false;
    let mut by_keys_alone = true;
    let mut exchange = first;
    loop {
        seen.insert(&exchange.name);
        let before = (sink.queues, sink.exchanges.len());
        by_keys_alone &= exchange.table.reads_keys_alone();
        exchange.table.route(routing_keys, content, &mut sink);
        if before == (sink.queues, sink.exchanges.len())
            && let Some(alternate) = &exchange.alternate
            && vhost.exchanges.contains_key(alternate)
        {
            via_alternate = true;
            sink.exchanges.push(alternate);
        }
        let next = std::iter::from_fn(|| sink.exchanges.pop())
            .filter(|name| !seen.contains(name))
            .find_map(|name| vhost.exchanges.get(name).map(Arc::as_ref));
        match next {
            Some(next) => exchange = next,
            None => break,
        }
    }
    let (matched, lists) = (sink.queues > 0, sink.lists);
    if lists > 1 {
        out.dedup();
    }
    Routed { matched, via_alternate, by_keys_alone }
}

/// Where tables put the hops that match.
pub(crate) struct Sink<'r, 'o> {
    vhost: &'r VhostRoutes,
    out: &'o mut RouteSet,
    /// How many lists went to `out`: only several can repeat a queue.
    lists: usize,
    /// How many queues matched, with repetitions.
    queues: usize,
    /// Exchanges that the message goes on to.
    exchanges: SmallVec<[&'r str; 8]>,
}

impl<'r> Sink<'r, '_> {
    pub(crate) fn queue_named(&mut self, name: &str) {
        if let Some(queue) = self.vhost.queues.get(name) {
            self.lists += 1;
            self.queues += 1;
            self.out.push(super::Target { id: queue.id, durable: queue.durable });
        }
    }

    pub(crate) fn hops(&mut self, hops: &'r Hops) {
        self.lists += 1;
        hops.for_each(|hop| self.push(hop));
    }

    pub(crate) fn hop(&mut self, hop: Option<&'r Hop>) {
        if let Some(hop) = hop {
            self.lists += 1;
            self.push(hop);
        }
    }

    fn push(&mut self, hop: &'r Hop) {
        match hop {
            Hop::Queue(target) => {
                self.queues += 1;
                self.out.push(*target);
            }
            Hop::Exchange(name) => self.exchanges.push(name),
        }
    }
}

/// Exchanges that were visited: a list as long as it is short.
#[derive(Default)]
struct Seen<'r> {
    few: SmallVec<[&'r str; 8]>,
    many: BTreeSet<&'r str>,
}

impl<'r> Seen<'r> {
    fn insert(&mut self, name: &'r str) {
        if self.few.len() < 8 {
            self.few.push(name);
        } else {
            self.many.insert(name);
        }
    }

    fn contains(&self, name: &str) -> bool {
        self.few.contains(&name) || self.many.contains(name)
    }
}
