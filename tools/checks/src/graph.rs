//! Arrows between named things, and the circles among them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

/// Arrows by (from, to); each carries the names that tie it.
#[derive(Clone, Debug, Default)]
pub struct Graph {
    arrows: BTreeMap<String, BTreeMap<String, BTreeSet<String>>>,
}

/// Things that reach each other, with the arrows among them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Circle {
    /// The members, sorted.
    pub members: Vec<String>,
    /// `from -> to: names`.
    pub arrows: Vec<String>,
}

impl Graph {
    /// Adds an arrow; one from a thing to itself is none.
    pub fn add(&mut self, from: &str, to: &str, name: &str) {
        if from != to {
            let names = self.arrows.entry(from.to_owned()).or_default().entry(to.to_owned()).or_default();
            names.insert(name.to_owned());
        }
    }

    /// All arrows: from, to, names.
    pub fn arrows(&self) -> impl Iterator<Item = (&str, &str, &BTreeSet<String>)> {
        self.arrows
            .iter()
            .flat_map(|(from, targets)| targets.iter().map(move |(to, names)| (from.as_str(), to.as_str(), names)))
    }

    fn reachable<'a>(&'a self, from: &'a str) -> BTreeSet<&'a str> {
        let mut seen = BTreeSet::new();
        let mut next = vec![from];
        while let Some(at) = next.pop() {
            for to in self.arrows.get(at).into_iter().flat_map(BTreeMap::keys) {
                if seen.insert(to.as_str()) {
                    next.push(to);
                }
            }
        }
        seen
    }

    /// The strongly connected components of more than one member.
    #[must_use]
    pub fn circles(&self) -> Vec<Circle> {
        let reach: BTreeMap<&str, BTreeSet<&str>> =
            self.arrows.keys().map(|from| (from.as_str(), self.reachable(from))).collect();
        let mutual = |a: &str, b: &str| reach[a].contains(b) && reach.get(b).is_some_and(|back| back.contains(a));
        let mut placed = BTreeSet::new();
        let mut circles = Vec::new();
        for &from in reach.keys().filter(|&&from| reach[from].contains(from)) {
            if placed.contains(from) {
                continue;
            }
            let members: Vec<String> =
                reach[from].iter().filter(|to| mutual(from, to)).map(|&to| to.to_owned()).collect();
            placed.extend(reach[from].iter().copied().filter(|to| mutual(from, to)));
            let arrows = self.arrows().filter(|(a, b, _)| [a, b].iter().all(|end| members.iter().any(|m| m == *end)));
            let arrows = arrows.map(|(a, b, names)| format!("{a} -> {b}: {}", few(names))).collect();
            circles.push(Circle { members, arrows });
        }
        circles
    }
}

/// The first eight names, and how many more there are.
fn few(names: &BTreeSet<String>) -> String {
    let mut text = names.iter().take(8).map(String::as_str).collect::<Vec<_>>().join(", ");
    if names.len() > 8 {
        let _ = write!(text, " and {} more", names.len() - 8);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn graph(arrows: &[(&str, &str)]) -> Graph {
        let mut graph = Graph::default();
        for (from, to) in arrows {
            graph.add(from, to, "name");
        }
        graph
    }

    #[test]
    fn a_graph_without_a_way_back_has_no_circle() {
        assert!(graph(&[("a", "b"), ("a", "c"), ("b", "c"), ("c", "d"), ("a", "a")]).circles().is_empty());
    }

    #[test]
    fn each_circle_is_found_once_with_the_arrows_that_tie_it() {
        let circles = graph(&[("a", "b"), ("b", "c"), ("c", "a"), ("c", "d"), ("d", "e"), ("e", "d")]).circles();
        let members: Vec<_> = circles.iter().map(|circle| circle.members.join(" ")).collect();
        assert_eq!(members, ["a b c", "d e"]);
        assert_eq!(circles[1].arrows, ["d -> e: name", "e -> d: name"]);
    }
}
