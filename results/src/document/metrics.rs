//! The metrics of an arm or a round.

use std::borrow::Cow;
use std::fmt;
use std::ops::Index;

use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::summary::Summary;
use crate::metric;

/// The key of a metric; one of [`metric::ALL`] takes no memory of its own.
type Key = Cow<'static, str>;

/// Metrics by key, such as `nmi_handler_ns`; below a phase by path, such as `phases/open/wall_ns`. In the order of their keys.
///
/// A folder of results has a set of them for every round of every run, with a few metrics each: a list takes an eighth of the memory
/// of a tree, and is searched faster.
#[derive(Clone, Default, PartialEq)]
pub struct Metrics(Vec<(Key, Summary)>);

/// So many are looked through one after the other, which is faster then.
const FEW: usize = 16;

fn key_of(key: &str) -> Key {
    metric::find(key).map_or_else(|| Cow::Owned(key.to_owned()), |known| Cow::Borrowed(known.key))
}

impl Metrics {
    /// None.
    #[must_use]
    pub const fn new() -> Self {
        Self(Vec::new())
    }

    /// None, with room for some.
    pub(crate) fn with_capacity(metrics: usize) -> Self {
        Self(Vec::with_capacity(metrics))
    }

    fn position(&self, key: &str) -> Option<usize> {
        if self.0.len() <= FEW {
            return self.0.iter().position(|(there, _)| *there == key);
        }
        self.0.binary_search_by(|(there, _)| (**there).cmp(key)).ok()
    }

    /// Whether there is none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// How many there are.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.0.len()
    }

    /// The metric of that key.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&Summary> {
        self.get_key_value(key).map(|(_, summary)| summary)
    }

    /// The metric of that key, to change it.
    pub fn get_mut(&mut self, key: &str) -> Option<&mut Summary> {
        self.position(key).map(|at| &mut self.0[at].1)
    }

    /// The metric of that key, with its key.
    #[must_use]
    pub fn get_key_value(&self, key: &str) -> Option<(&str, &Summary)> {
        self.position(key).map(|at| (&*self.0[at].0, &self.0[at].1))
    }

    /// The first one.
    #[must_use]
    pub fn first_key_value(&self) -> Option<(&str, &Summary)> {
        self.iter().next()
    }

    /// Whether there is a metric of that key.
    #[must_use]
    pub fn contains_key(&self, key: &str) -> bool {
        self.position(key).is_some()
    }

    /// Puts a metric in; gives back the one of the same key that was there.
    pub fn insert(&mut self, key: impl AsRef<str>, summary: Summary) -> Option<Summary> {
        let key = key.as_ref();
        match self.0.binary_search_by(|(there, _)| (**there).cmp(key)) {
            Ok(at) => Some(std::mem::replace(&mut self.0[at].1, summary)),
            Err(at) => {
                self.0.insert(at, (key_of(key), summary));
                None
            }
        }
    }

    /// Takes a metric out.
    pub fn remove(&mut self, key: &str) -> Option<Summary> {
        self.position(key).map(|at| self.0.remove(at).1)
    }

    /// Keeps those for which `keep` is true.
    pub fn retain(&mut self, mut keep: impl FnMut(&str, &mut Summary) -> bool) {
        self.0.retain_mut(|(key, summary)| keep(key, summary));
    }

    /// All of them, in the order of their keys.
    pub fn iter(&self) -> Iter<'_> {
        self.0.iter().map(|(key, summary)| (key, summary))
    }

    /// All of them, to change the summaries.
    pub fn iter_mut(&mut self) -> impl ExactSizeIterator<Item = (&str, &mut Summary)> {
        self.0.iter_mut().map(|(key, summary)| (&**key, summary))
    }

    /// All keys, in order.
    #[must_use]
    pub fn keys(&self) -> impl ExactSizeIterator<Item = &str> {
        self.0.iter().map(|(key, _)| &**key)
    }

    /// All summaries.
    #[must_use]
    pub fn values(&self) -> impl ExactSizeIterator<Item = &Summary> {
        self.0.iter().map(|(_, summary)| summary)
    }

    /// All summaries, to change them.
    pub fn values_mut(&mut self) -> impl ExactSizeIterator<Item = &mut Summary> {
        self.0.iter_mut().map(|(_, summary)| summary)
    }
}

impl Index<&str> for Metrics {
    type Output = Summary;

    /// # Panics
    /// Without a metric of that key.
    fn index(&self, key: &str) -> &Summary {
        self.get(key).expect("a metric of that key")
    }
}

impl<K: AsRef<str>> Extend<(K, Summary)> for Metrics {
    fn extend<I: IntoIterator<Item = (K, Summary)>>(&mut self, all: I) {
        for (key, summary) in all {
            self.insert(key, summary);
        }
    }
}

impl<K: AsRef<str>> FromIterator<(K, Summary)> for Metrics {
    fn from_iter<I: IntoIterator<Item = (K, Summary)>>(all: I) -> Self {
        let mut metrics = Self::new();
        metrics.extend(all);
        metrics
    }
}

impl IntoIterator for Metrics {
    type Item = (Key, Summary);
    type IntoIter = std::vec::IntoIter<(Key, Summary)>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

/// Metrics with their keys.
pub type Iter<'a> =
    std::iter::Map<std::slice::Iter<'a, (Key, Summary)>, fn(&'a (Key, Summary)) -> (&'a str, &'a Summary)>;

impl<'a> IntoIterator for &'a Metrics {
    type Item = (&'a str, &'a Summary);
    type IntoIter = Iter<'a>;

    fn into_iter(self) -> Iter<'a> {
        self.iter()
    }
}

impl fmt::Debug for Metrics {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_map().entries(self.iter()).finish()
    }
}

impl Serialize for Metrics {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.iter())
    }
}

impl<'de> Deserialize<'de> for Metrics {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Map;

        impl<'de> Visitor<'de> for Map {
            type Value = Metrics;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("metrics by key")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Metrics, A::Error> {
                let mut metrics = Metrics::new();
                while let Some((key, summary)) = map.next_entry::<String, Summary>()? {
                    metrics.insert(key, summary);
                }
                Ok(metrics)
            }
        }

        deserializer.deserialize_map(Map)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_are_in_the_order_of_their_keys_whatever_comes_first() {
        let of = |count| Summary { count, ..Summary::default() };
        let mut metrics = Metrics::new();
        for (key, count) in [("signal_ns", 1), ("exit_path_ns", 2), ("phases/open_ns", 3), ("signal_ns", 4)] {
            metrics.insert(key, of(count));
        }
        assert_eq!(metrics.keys().collect::<Vec<_>>(), ["exit_path_ns", "phases/open_ns", "signal_ns"]);
        assert_eq!((metrics["signal_ns"].count, metrics.get("x_ns"), metrics.len()), (4, None, 3));
        let again: Metrics = serde_json::from_str(&serde_json::to_string(&metrics).unwrap()).unwrap();
        assert_eq!(again, metrics);
        assert_eq!(metrics.remove("phases/open_ns"), Some(of(3)));
        metrics.retain(|key, _| key == "signal_ns");
        assert_eq!(
            metrics.into_iter().map(|(key, summary)| (key, summary.count)).collect::<Vec<_>>(),
            [("signal_ns".into(), 4)]
        );
    }
}
