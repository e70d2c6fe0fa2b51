//! The headers exchange: bindings with the same criteria share one rule.

use std::sync::Arc;

use amq_protocol_types::{AMQPValue, FieldTable};
use imbl::OrdMap;

use crate::arguments;
use crate::objects::Name;
use crate::routes::content::Content;
use crate::routes::hop::{Hop, Hops};

#[derive(Debug, Clone, Default)]
pub(crate) struct Headers {
    /// By the canonical text of the criteria.
    rules: OrdMap<Name, Rule>,
}

#[derive(Debug, Clone)]
struct Rule {
    criteria: Arc<Criteria>,
    hops: Hops,
}

/// What a binding's arguments ask of a message's headers.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Criteria {
    /// One is enough, where otherwise all must hold.
    any: bool,
    /// Pairs of header and value, sorted; void: the header only has to be there.
    wanted: Vec<(Name, AMQPValue)>,
}

impl Headers {
    pub(crate) fn bind(&mut self, arguments: &FieldTable, hop: Hop) {
        let rule = self.rules.entry(arguments::canonical(arguments).into()).or_insert_with(|| {
            Rule { criteria: Arc::new(Criteria::of(arguments)), hops: Hops::default() }
        });
        rule.hops.add(hop);
    }

    pub(crate) fn unbind(&mut self, arguments: &FieldTable, hop: &Hop) {
        let key = arguments::canonical(arguments);
        if let Some(rule) = self.rules.get_mut(key.as_str()) {
            rule.hops.remove(hop);
            if rule.hops.is_empty() {
                self.rules.remove(key.as_str());
            }
        }
    }

    pub(crate) fn matching<'r>(&'r self, content: &dyn Content, visit: &mut impl FnMut(&'r Hops)) {
        if self.rules.is_empty() {
            return;
        }
        let none = FieldTable::default();
        let headers = content.headers().unwrap_or(&none);
        for rule in self.rules.values() {
            if rule.criteria.hold(headers) {
                visit(&rule.hops);
            }
        }
    }
}

impl Criteria {
    /// Reads `x-match`: `all` (also if it is absent), `any`, and both with `-with-x`, without
    /// which headers that begin with `x-` are not looked at.
    pub(crate) fn of(arguments: &FieldTable) -> Self {
        let (any, with_x) = match arguments::string(arguments, "x-match").as_deref() {
            Some("any") => (true, false),
            Some("any-with-x") => (true, true),
            Some("all-with-x") => (false, true),
            _ => (false, false),
        };
        let wanted = arguments
            .inner()
            .iter()
            .filter(|(name, _)| {
                name.as_str() != "x-match" && (with_x || !name.as_str().starts_with("x-"))
            })
            .map(|(name, value)| (Name::from(name.as_str()), value.clone()))
            .collect();
        Self { any, wanted }
    }

    pub(crate) fn hold(&self, headers: &FieldTable) -> bool {
        let mut each = self.wanted.iter().map(|(name, wanted)| {
            headers.inner().get(&**name).is_some_and(|value| {
                matches!(wanted, AMQPValue::Void) || arguments::value_equal(wanted, value)
            })
        });
        if self.any { each.any(|holds| holds) } else { each.all(|holds| holds) }
    }
}
