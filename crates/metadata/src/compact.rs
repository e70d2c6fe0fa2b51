//! A persistent ordered map that is small while it has few entries.
//!
//! Most sets in a routing table have one or two members (the children of a word in the topic
//! trie, the queues of a key) and there are hundreds of thousands of them. A B-tree node for each
//! would take two kilobytes; here up to [`FEW`] entries are a sorted list.

use std::borrow::Borrow;

use imbl::OrdMap;
use smallvec::SmallVec;

/// The largest size that is kept as a list. Copying a list of this size on a write costs about as
/// much as copying the path to a leaf of a B-tree.
const FEW: usize = 16;

#[derive(Debug, Clone)]
pub(crate) enum Compact<K: Ord + Clone, V: Clone> {
    Few(SmallVec<[(K, V); 1]>),
    Many(OrdMap<K, V>),
}

impl<K: Ord + Clone, V: Clone> Default for Compact<K, V> {
    fn default() -> Self {
        Self::Few(SmallVec::new())
    }
}

impl<K: Ord + Clone, V: Clone> Compact<K, V> {
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Few(entries) => entries.len(),
            Self::Many(map) => map.len(),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(crate) fn get<Q>(&self, key: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
        Q: Ord + ?Sized,
    {
        match self {
            Self::Few(entries) => {
                let index = entries.binary_search_by(|(own, _)| own.borrow().cmp(key)).ok()?;
                Some(&entries[index].1)
            }
            Self::Many(map) => map.get(key),
        }
    }

    pub(crate) fn get_mut<Q>(&mut self, key: &Q) -> Option<&mut V>
    where
        K: Borrow<Q>,
        Q: Ord + ?Sized,
    {
        match self {
            Self::Few(entries) => {
                let index = entries.binary_search_by(|(own, _)| own.borrow().cmp(key)).ok()?;
                Some(&mut entries[index].1)
            }
            Self::Many(map) => map.get_mut(key),
        }
    }

    /// The value of `key`, put there first if it was absent.
    pub(crate) fn entry(&mut self, key: K, absent: impl FnOnce() -> V) -> &mut V {
        if let Self::Few(entries) = self
            && entries.len() == FEW
            && entries.binary_search_by(|(own, _)| own.cmp(&key)).is_err()
        {
            *self = Self::Many(std::mem::take(entries).into_iter().collect());
        }
        match self {
            Self::Few(entries) => {
                let index = match entries.binary_search_by(|(own, _)| own.cmp(&key)) {
                    Ok(index) => index,
                    Err(index) => {
                        entries.insert(index, (key, absent()));
                        index
                    }
                };
                &mut entries[index].1
            }
            Self::Many(map) => map.entry(key).or_insert_with(absent),
        }
    }

    pub(crate) fn remove<Q>(&mut self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
        Q: Ord + ?Sized,
    {
        match self {
            Self::Few(entries) => {
                let index = entries.binary_search_by(|(own, _)| own.borrow().cmp(key)).ok()?;
                Some(entries.remove(index).1)
            }
            Self::Many(map) => {
                let removed = map.remove(key);
                // Half, so that a set at the border does not change its form with every write.
                if map.len() <= FEW / 2 {
                    *self = Self::Few(std::mem::take(map).into_iter().collect());
                }
                removed
            }
        }
    }

    pub(crate) fn for_each<'a>(&'a self, mut visit: impl FnMut(&'a K, &'a V)) {
        match self {
            Self::Few(entries) => entries.iter().for_each(|(key, value)| visit(key, value)),
            Self::Many(map) => map.iter().for_each(|(key, value)| visit(key, value)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn behaves_as_a_map(steps in proptest::collection::vec((0u8..40, any::<bool>()), 0..200)) {
            let mut compact = Compact::default();
            let mut model = BTreeMap::new();
            for (step, (key, insert)) in steps.into_iter().enumerate() {
                if insert {
                    *compact.entry(key, || 0) = step;
                    model.insert(key, step);
                } else {
                    prop_assert_eq!(compact.remove(&key), model.remove(&key));
                }
                let mut listed = Vec::new();
                compact.for_each(|key, value| listed.push((*key, *value)));
                prop_assert_eq!(listed, model.clone().into_iter().collect::<Vec<_>>());
                prop_assert_eq!(compact.get(&key), model.get(&key));
                prop_assert_eq!(compact.len(), model.len());
            }
        }
    }
}
