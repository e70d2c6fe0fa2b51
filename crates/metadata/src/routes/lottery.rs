//! One of the bindings, by a number: `x-modulus-hash`, `x-random` and `x-local-random`.

use imbl::Vector;

use crate::arguments;
use crate::objects::Name;
use crate::objects::binding::Binding;
use crate::routes::hop::Hop;
use crate::routes::index;

/// The bindings in an order that depends only on which they are.
#[derive(Debug, Clone, Default)]
pub(crate) struct Lottery {
    tickets: Vector<Ticket>,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Ticket {
    hop: Hop,
    key: Name,
    arguments: Name,
}

impl Lottery {
    pub(crate) fn bind(&mut self, hop: Hop, binding: &Binding) {
        let ticket = Ticket::new(hop, binding);
        if let Err(place) = self.tickets.binary_search(&ticket) {
            self.tickets.insert(place, ticket);
        }
    }

    pub(crate) fn unbind(&mut self, hop: &Hop, binding: &Binding) {
        if let Ok(place) = self.tickets.binary_search(&Ticket::new(hop.clone(), binding)) {
            self.tickets.remove(place);
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.tickets.is_empty()
    }

    pub(crate) fn of_key(&self, routing_keys: &[&str]) -> Option<&Hop> {
        self.of_number(index::hash(routing_keys.first()?))
    }

    pub(crate) fn of_number(&self, number: u64) -> Option<&Hop> {
        let count = self.tickets.len() as u64;
        let place = usize::try_from(number.checked_rem(count)?).expect("below a length");
        self.tickets.get(place).map(|ticket| &ticket.hop)
    }
}

impl Ticket {
    fn new(hop: Hop, binding: &Binding) -> Self {
        Self {
            hop,
            key: Name::clone(&binding.routing_key),
            arguments: arguments::canonical(&binding.arguments).into(),
        }
    }
}
