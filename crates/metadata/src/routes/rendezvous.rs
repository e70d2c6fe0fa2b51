//! The consistent-hash exchange: one binding per message, in proportion to the weights.
//!
//! Weighted rendezvous hashing instead of a ring of points: each binding draws a number from the
//! message's hash and its own, and the best draw wins. The shares are exact for any weight where a
//! ring's are as coarse as it has points; a binding that goes moves only its own messages; and a
//! weight of a million takes no more memory than one of 1. The price is a visit to each binding per
//! message, some ten nanoseconds, which is little for the dozens of queues that are usual.

use amq_protocol_types::{AMQPValue, FieldTable};

use crate::arguments;
use crate::compact::Compact;
use crate::objects::Name;
use crate::objects::binding::Binding;
use crate::routes::content::Content;
use crate::routes::hop::Hop;
use crate::routes::index;

#[derive(Debug, Clone)]
pub(crate) struct Rendezvous {
    subject: Subject,
    contestants: Compact<Entry, Contestant>,
}

/// Which part of a message is hashed.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Subject {
    RoutingKey,
    Header(Name),
    MessageId,
    CorrelationId,
    Timestamp,
}

/// A binding among those of the exchange.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Entry {
    hop: Hop,
    weight: Name,
    arguments: Name,
}

#[derive(Debug, Clone, Copy)]
struct Contestant {
    hash: u64,
    weight: f64,
}

/// The weight that a binding key stands for: a positive integer.
pub(crate) fn weight(routing_key: &str) -> Option<u32> {
    routing_key.parse().ok().filter(|&weight| weight > 0)
}

impl Rendezvous {
    /// Reads `hash-header` and `hash-property` of the exchange's arguments.
    pub(crate) fn new(arguments: &FieldTable) -> Self {
        let subject = if let Some(header) = arguments::string(arguments, "hash-header") {
            Subject::Header(header.as_ref().into())
        } else {
            match arguments::string(arguments, "hash-property").as_deref() {
                Some("message_id") => Subject::MessageId,
                Some("correlation_id") => Subject::CorrelationId,
                Some("timestamp") => Subject::Timestamp,
                _ => Subject::RoutingKey,
            }
        };
        Self { subject, contestants: Compact::default() }
    }

    pub(crate) fn reads_keys_alone(&self) -> bool {
        self.subject == Subject::RoutingKey
    }

    pub(crate) fn bind(&mut self, hop: Hop, binding: &Binding) {
        let weight = f64::from(weight(&binding.routing_key).unwrap_or(1));
        let entry = Entry::new(hop, binding);
        let hash = entry.hash();
        self.contestants.entry(entry, || Contestant { hash, weight });
    }

    pub(crate) fn unbind(&mut self, hop: &Hop, binding: &Binding) {
        self.contestants.remove(&Entry::new(hop.clone(), binding));
    }

    /// The binding that wins the message. A message that lacks the header or property goes where
    /// one with an empty value goes.
    pub(crate) fn choose(&self, routing_keys: &[&str], content: &dyn Content) -> Option<&Hop> {
        let message = match &self.subject {
            Subject::RoutingKey => index::hash(routing_keys.first()?),
            Subject::Header(name) => {
                hash_value(content.headers().and_then(|headers| headers.inner().get(&**name)))
            }
            Subject::MessageId => index::hash(content.message_id().unwrap_or_default()),
            Subject::CorrelationId => index::hash(content.correlation_id().unwrap_or_default()),
            Subject::Timestamp => content
                .timestamp()
                .map_or_else(|| index::hash(""), |seconds| index::hash(&seconds.to_string())),
        };
        let mut winner = None;
        let mut lowest = f64::INFINITY;
        self.contestants.for_each(|entry, contestant| {
            // An exponentially distributed draw with the weight as its rate: the lowest of several
            // belongs to each with the probability of its share.
            let draw = uniform(index::mix(message ^ contestant.hash));
            let value = -draw.ln() / contestant.weight;
            if value < lowest {
                lowest = value;
                winner = Some(&entry.hop);
            }
        });
        winner
    }
}

/// A number above 0 and at most 1.
#[expect(clippy::cast_precision_loss, reason = "53 bits fit a double")]
fn uniform(hash: u64) -> f64 {
    ((hash >> 11) + 1) as f64 / (1u64 << 53) as f64
}

fn hash_value(value: Option<&AMQPValue>) -> u64 {
    match value {
        None => index::hash(""),
        Some(AMQPValue::LongString(text)) => index::hash(&text.to_string()),
        Some(value) => index::hash(&arguments::canonical_value(value)),
    }
}

impl Entry {
    fn new(hop: Hop, binding: &Binding) -> Self {
        Self {
            hop,
            weight: Name::clone(&binding.routing_key),
            arguments: arguments::canonical(&binding.arguments).into(),
        }
    }

    /// The weight takes part, so that two bindings of one queue draw independently and their
    /// weights add up.
    fn hash(&self) -> u64 {
        let place = match &self.hop {
            Hop::Queue(target) => target.id.0,
            Hop::Exchange(name) => index::hash(name) ^ 1 << 63,
        };
        index::mix(place.wrapping_add(1))
            ^ index::hash(&self.weight).rotate_left(1)
            ^ index::hash(&self.arguments).rotate_left(2)
    }
}
