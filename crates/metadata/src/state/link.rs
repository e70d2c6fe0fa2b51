//! Bindings in their two orders.

use std::cmp::Ordering;
use std::sync::Arc;

use amq_protocol_types::FieldTable;

use crate::arguments;
use crate::objects::Name;
use crate::objects::binding::{Binding, Destination};

/// A binding in the order of source, destination, key, arguments.
#[derive(Debug, Clone)]
pub(crate) struct BySource(pub(crate) Arc<Binding>);

/// A binding in the order of destination, source, key, arguments.
#[derive(Debug, Clone)]
pub(crate) struct ByDestination(pub(crate) Arc<Binding>);

impl BySource {
    /// What comes before every binding of a source: no destination is less than the queue without
    /// a name, which does not exist.
    pub(crate) fn first(vhost: &Name, source: &Name) -> Self {
        Self(Arc::new(Binding {
            vhost: Arc::clone(vhost),
            source: Arc::clone(source),
            destination: Destination::Queue("".into()),
            routing_key: "".into(),
            arguments: FieldTable::default(),
        }))
    }
}

impl ByDestination {
    /// What comes before every binding to a destination.
    pub(crate) fn first(vhost: &Name, destination: &Destination) -> Self {
        Self(Arc::new(Binding {
            vhost: Arc::clone(vhost),
            source: "".into(),
            destination: destination.clone(),
            routing_key: "".into(),
            arguments: FieldTable::default(),
        }))
    }
}

/// Most bindings have no arguments, so that no text is made for the comparison.
fn by_properties(one: &Binding, other: &Binding) -> Ordering {
    one.routing_key.cmp(&other.routing_key).then_with(|| {
        match (one.arguments.inner().is_empty(), other.arguments.inner().is_empty()) {
            (true, true) => Ordering::Equal,
            (true, false) => Ordering::Less,
            (false, true) => Ordering::Greater,
            (false, false) => {
                arguments::canonical(&one.arguments).cmp(&arguments::canonical(&other.arguments))
            }
        }
    })
}

impl Ord for BySource {
    fn cmp(&self, other: &Self) -> Ordering {
        let (one, other) = (&self.0, &other.0);
        one.source
            .cmp(&other.source)
            .then_with(|| one.destination.cmp(&other.destination))
            .then_with(|| by_properties(one, other))
    }
}

impl Ord for ByDestination {
    fn cmp(&self, other: &Self) -> Ordering {
        let (one, other) = (&self.0, &other.0);
        one.destination
            .cmp(&other.destination)
            .then_with(|| one.source.cmp(&other.source))
            .then_with(|| by_properties(one, other))
    }
}

macro_rules! order_by_cmp {
    ($type:ty) => {
        impl PartialOrd for $type {
            fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
                Some(self.cmp(other))
            }
        }

        impl PartialEq for $type {
            fn eq(&self, other: &Self) -> bool {
                self.cmp(other).is_eq()
            }
        }

        impl Eq for $type {}
    };
}

order_by_cmp!(BySource);
order_by_cmp!(ByDestination);
