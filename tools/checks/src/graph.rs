//! Arrows between named things, and the circles among them.

use std::collections::{BTreeMap, BTreeSet};

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

    /// Returns all arrows: from, to, names.
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

    /// Returns the strongly connected components of more than one member.
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
            let arrows = arrows
                .map(|(a, b, names)| {
                    format!("{a} -> {b}: {}", names.iter().map(String::as_str).collect::<Vec<_>>().join(", "))
                })
                .collect();
            circles.push(Circle { members, arrows });
        }
        circles
    }
}

// The arrows among the files and folders of one folder have no circle: its files and folders have levels, and every
// arrow leads down.

/// Circles among the files and folders of some folder: at least one arrow of each runs back up.
pub fn circles_in_folders(files: &Graph) -> Vec<(String, Circle)> {
    let owners: BTreeSet<String> = files
        .arrows()
        .flat_map(|(from, to, _)| [from, to])
        .filter_map(|file| Some(file.rsplit_once('/')?.0.to_owned()))
        .collect();
    let place = |file: &str| place(file, &owners);
    let mut folders: BTreeMap<String, Graph> = BTreeMap::new();
    for (from, to, names) in files.arrows() {
        let (from_place, to_place) = (place(from), place(to));
        let shared = from_place.iter().zip(&to_place).take_while(|(a, b)| a == b).count();
        let graph = folders.entry(from_place[..shared].join("/")).or_default();
        let names = names.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
        graph.add(&from_place[shared], &to_place[shared], &format!("{names} ({from} -> {to})"));
    }
    let of = |(folder, graph): (String, Graph)| {
        graph.circles().into_iter().map(move |circle| (folder.clone(), circle)).collect::<Vec<_>>()
    };
    folders.into_iter().flat_map(of).collect()
}

/// Returns the way to a file: its folders and itself. `x.rs` beside a folder `x` is that folder's own file, as `mod.rs` is.
fn place(file: &str, folders: &BTreeSet<String>) -> Vec<String> {
    let stem = file.strip_suffix(".rs").unwrap_or(file);
    let mut place: Vec<String> = file.split('/').map(str::to_owned).collect();
    if folders.contains(stem) {
        let last = place.last_mut().expect("a file has a name");
        *last = last.trim_end_matches(".rs").to_owned();
        place.push("mod.rs".to_owned());
    }
    place
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
    fn each_circle_is_found_once_with_the_arrows_that_tie_it() {
        let circles = graph(&[("a", "b"), ("b", "c"), ("c", "a"), ("c", "d"), ("d", "e"), ("e", "d")]).circles();
        let members: Vec<_> = circles.iter().map(|circle| circle.members.join(" ")).collect();
        assert_eq!(members, ["a b c", "d e"]);
        assert_eq!(circles[1].arrows, ["d -> e: name", "e -> d: name"]);
    }

    fn places(arrows: &[(&str, &str)]) -> Vec<(String, Vec<String>)> {
        circles_in_folders(&graph(arrows)).into_iter().map(|(folder, circle)| (folder, circle.members)).collect()
    }

    #[test]
    fn files_without_a_circle_may_still_send_an_arrow_back_up() {
        let down = [("cli/a.rs", "plan/b.rs"), ("plan/b.rs", "plan/c.rs")];
        assert!(places(&down).is_empty());
        let planted = [&down[..], &[("plan/c.rs", "cli/d.rs")]].concat();
        assert_eq!(places(&planted), [(String::new(), vec!["cli".to_owned(), "plan".to_owned()])]);
    }

    #[test]
    fn a_file_beside_its_folder_is_part_of_it() {
        assert!(places(&[("bank.rs", "bank/gate.rs"), ("bank/gate.rs", "spec.rs")]).is_empty());
        let found = places(&[("bank.rs", "spec.rs"), ("spec.rs", "bank/gate.rs")]);
        assert_eq!(found, [(String::new(), vec!["bank".to_owned(), "spec.rs".to_owned()])]);
    }
}
