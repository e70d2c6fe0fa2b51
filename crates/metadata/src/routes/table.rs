//! The bindings of one exchange, in the form in which its type reads them.

use std::sync::Arc;

use crate::objects::binding::Binding;
use crate::objects::exchange::{Exchange, ExchangeKind};
use crate::routes::content::Content;
use crate::routes::direct::Direct;
use crate::routes::headers::Headers;
use crate::routes::hop::{Hop, Hops};
use crate::routes::lottery::Lottery;
use crate::routes::rendezvous::Rendezvous;
use crate::routes::topic::Topic;
use crate::routes::walk::Sink;

#[derive(Debug, Clone)]
pub(crate) enum Table {
    /// The default exchange: every queue by its name. It has no bindings of its own.
    Default,
    Direct(Direct),
    Fanout(Hops),
    Topic(Topic),
    Headers(Headers),
    ConsistentHash(Rendezvous),
    ModulusHash(Lottery),
    Random(Lottery),
}

impl Table {
    pub(crate) fn new(exchange: &Exchange) -> Self {
        match exchange.kind {
            ExchangeKind::Direct if exchange.name.is_empty() => Self::Default,
            ExchangeKind::Direct => Self::Direct(Direct::default()),
            ExchangeKind::Fanout => Self::Fanout(Hops::default()),
            ExchangeKind::Topic => Self::Topic(Topic::default()),
            ExchangeKind::Headers => Self::Headers(Headers::default()),
            ExchangeKind::ConsistentHash => {
                Self::ConsistentHash(Rendezvous::new(&exchange.arguments))
            }
            ExchangeKind::ModulusHash => Self::ModulusHash(Lottery::default()),
            ExchangeKind::Random | ExchangeKind::LocalRandom => Self::Random(Lottery::default()),
        }
    }

    pub(crate) fn bind(&mut self, hop: Hop, binding: &Binding) {
        match self {
            Self::Default => {}
            Self::Direct(direct) => direct.bind(Arc::clone(&binding.routing_key), hop),
            Self::Fanout(hops) => hops.add(hop),
            Self::Topic(topic) => topic.bind(&binding.routing_key, hop),
            Self::Headers(headers) => headers.bind(&binding.arguments, hop),
            Self::ConsistentHash(rendezvous) => rendezvous.bind(hop, binding),
            Self::ModulusHash(lottery) | Self::Random(lottery) => lottery.bind(hop, binding),
        }
    }

    pub(crate) fn unbind(&mut self, hop: &Hop, binding: &Binding) {
        match self {
            Self::Default => {}
            Self::Direct(direct) => direct.unbind(&binding.routing_key, hop),
            Self::Fanout(hops) => hops.remove(hop),
            Self::Topic(topic) => topic.unbind(&binding.routing_key, hop),
            Self::Headers(headers) => headers.unbind(&binding.arguments, hop),
            Self::ConsistentHash(rendezvous) => rendezvous.unbind(hop, binding),
            Self::ModulusHash(lottery) | Self::Random(lottery) => lottery.unbind(hop, binding),
        }
    }

    /// Whether content and chance have no part in it.
    pub(crate) fn reads_keys_alone(&self) -> bool {
        match self {
            Self::Default
            | Self::Direct(_)
            | Self::Fanout(_)
            | Self::Topic(_)
            | Self::ModulusHash(_) => true,
            Self::ConsistentHash(rendezvous) => rendezvous.reads_keys_alone(),
            Self::Headers(_) | Self::Random(_) => false,
        }
    }

    /// Gives `sink` every hop whose binding matches one of the keys. Types that choose one
    /// destination look at the first key only.
    pub(crate) fn route<'r>(
        &'r self,
        routing_keys: &[&str],
        content: &dyn Content,
        sink: &mut Sink<'r, '_>,
    ) {
        match self {
            Self::Default => routing_keys.iter().for_each(|key| sink.queue_named(key)),
            Self::Direct(direct) => {
                for key in routing_keys {
                    if let Some(hops) = direct.get(key) {
                        sink.hops(hops);
                    }
                }
            }
            Self::Fanout(hops) => sink.hops(hops),
            Self::Topic(topic) => {
                for key in routing_keys {
                    topic.matching(key, &mut |hops| sink.hops(hops));
                }
            }
            Self::Headers(headers) => headers.matching(content, &mut |hops| sink.hops(hops)),
            Self::ConsistentHash(rendezvous) => {
                sink.hop(rendezvous.choose(routing_keys, content));
            }
            Self::ModulusHash(lottery) => sink.hop(lottery.of_key(routing_keys)),
            Self::Random(lottery) => {
                if !lottery.is_empty() {
                    sink.hop(lottery.of_number(content.random()));
                }
            }
        }
    }
}
