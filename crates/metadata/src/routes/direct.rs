//! The direct exchange: hops by binding key.

use crate::objects::Name;
use crate::routes::hop::{Hop, Hops};
use crate::routes::index::Index;

#[derive(Debug, Clone, Default)]
pub(crate) struct Direct {
    keys: Index<Hops>,
}

impl Direct {
    pub(crate) fn bind(&mut self, key: Name, hop: Hop) {
        self.keys.entry(key).or_default().add(hop);
    }

    pub(crate) fn unbind(&mut self, key: &str, hop: &Hop) {
        if let Some(hops) = self.keys.get_mut(key) {
            hops.remove(hop);
            if hops.is_empty() {
                self.keys.remove(key);
            }
        }
    }

    pub(crate) fn get(&self, key: &str) -> Option<&Hops> {
        self.keys.get(key)
    }
}
