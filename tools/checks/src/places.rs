//! The arrows among the files and folders of one folder have no circle: its files and folders have levels, and every arrow leads down.

use std::collections::BTreeSet;

use crate::graph::{Circle, Graph};

/// Circles among the files and folders of some folder: at least one arrow of each runs back up.
#[must_use]
pub fn circles(files: &Graph) -> Vec<(String, Circle)> {
    let owners: BTreeSet<String> = files
        .arrows()
        .flat_map(|(from, to, _)| [from, to])
        .filter_map(|file| Some(file.rsplit_once('/')?.0.to_owned()))
        .collect();
    let place = |file: &str| place(file, &owners);
    let mut folders: std::collections::BTreeMap<String, Graph> = std::collections::BTreeMap::new();
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

/// The way to a file: its folders and itself. `x.rs` beside a folder `x` is that folder's own file, as `mod.rs` is.
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

    fn places(arrows: &[(&str, &str)]) -> Vec<(String, Vec<String>)> {
        let mut graph = Graph::default();
        for (from, to) in arrows {
            graph.add(from, to, "name");
        }
        circles(&graph).into_iter().map(|(folder, circle)| (folder, circle.members)).collect()
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
