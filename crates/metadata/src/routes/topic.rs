//! The topic exchange: a persistent trie of words.
//!
//! ```text
//!  bindings a.b.*, a.#      root ─ a ─┬─ b ─ * (hops)
//!                                     └─ # (hops)
//! ```
//!
//! A key is matched word by word with the set of all nodes that can stand at that point, as one
//! runs a nondeterministic automaton. Every node is in the set at most once, so that bindings with
//! many `#` cost no more than their nodes, where backtracking would cost a power of the words.
//! Words are what stands between dots; the empty key has none, so only `#` and the empty binding
//! key match it.

use std::sync::Arc;

use smallvec::SmallVec;

use crate::compact::Compact;
use crate::objects::Name;
use crate::routes::hop::{Hop, Hops};

#[derive(Debug, Clone, Default)]
pub(crate) struct Topic {
    root: Node,
}

#[derive(Debug, Clone, Default)]
struct Node {
    /// Next words.
    words: Compact<Name, Arc<Node>>,
    /// `*`
    star: Option<Arc<Node>>,
    /// `#`
    hash: Option<Arc<Node>>,
    /// Bindings that end here.
    hops: Hops,
}

/// The nodes at which a match can stand, and whether each is behind a `#` and so stays.
type Places<'r> = SmallVec<[(&'r Node, bool); 16]>;

impl Topic {
    pub(crate) fn bind(&mut self, key: &str, hop: Hop) {
        let mut node = &mut self.root;
        for word in words(key) {
            let next = match word {
                "*" => node.star.get_or_insert_default(),
                "#" => node.hash.get_or_insert_default(),
                _ => node.words.entry(Name::from(word), Arc::default),
            };
            node = Arc::make_mut(next);
        }
        node.hops.add(hop);
    }

    pub(crate) fn unbind(&mut self, key: &str, hop: &Hop) {
        self.root.unbind(words(key), hop);
    }

    /// Visits the hops of every binding whose key matches. A place in the trie is visited once,
    /// but two of them may name the same hop.
    pub(crate) fn matching<'r>(&'r self, key: &str, visit: &mut impl FnMut(&'r Hops)) {
        let mut places = Places::new();
        let mut next = Places::new();
        enter(&mut places, &self.root, false);
        for word in words(key) {
            for &(node, stays) in &places {
                if stays {
                    enter(&mut next, node, true);
                }
                if let Some(child) = node.words.get(word) {
                    enter(&mut next, child, false);
                }
                if let Some(child) = &node.star {
                    enter(&mut next, child, false);
                }
            }
            std::mem::swap(&mut places, &mut next);
            next.clear();
            if places.is_empty() {
                return;
            }
        }
        for (node, _) in places {
            if !node.hops.is_empty() {
                visit(&node.hops);
            }
        }
    }
}

/// Adds a node, and what `#` reaches from it without taking a word. Only nodes behind a `#` can be
/// reached in two ways, by staying and from their parent.
fn enter<'r>(places: &mut Places<'r>, node: &'r Node, stays: bool) {
    if stays && places.iter().any(|&(other, _)| std::ptr::eq(other, node)) {
        return;
    }
    places.push((node, stays));
    if let Some(child) = &node.hash {
        enter(places, child, true);
    }
}

impl Node {
    /// Removes the hop and, on the way back, the nodes that nothing needs any more.
    fn unbind<'k>(&mut self, mut words: impl Iterator<Item = &'k str>, hop: &Hop) {
        let Some(word) = words.next() else {
            self.hops.remove(hop);
            return;
        };
        let child = match word {
            "*" => self.star.as_mut(),
            "#" => self.hash.as_mut(),
            _ => self.words.get_mut(word),
        };
        let Some(child) = child else { return };
        let child = Arc::make_mut(child);
        child.unbind(words, hop);
        if child.is_unused() {
            match word {
                "*" => self.star = None,
                "#" => self.hash = None,
                _ => drop(self.words.remove(word)),
            }
        }
    }

    fn is_unused(&self) -> bool {
        self.hops.is_empty() && self.star.is_none() && self.hash.is_none() && self.words.is_empty()
    }
}

/// The words of a key; none for the empty one.
fn words(key: &str) -> impl Iterator<Item = &str> {
    key.split('.').take(if key.is_empty() { 0 } else { usize::MAX })
}
