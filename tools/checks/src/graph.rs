//! Arrows between files, and the circles among the files and folders of a folder: these have levels, and every arrow leads down.

use std::collections::{BTreeMap, BTreeSet};

/// The names that tie each (from, to).
pub type Arrows = BTreeMap<(String, String), BTreeSet<String>>;

/// Returns the arrows that lead back to where they came from, at once or through others.
fn back(arrows: &Arrows) -> Vec<String> {
    let reaches = |from: &str, to: &str| {
        let (mut seen, mut next) = (BTreeSet::new(), vec![from]);
        while let Some(at) = next.pop() {
            if at == to {
                return true;
            }
            next.extend(arrows.keys().filter(|(from, to)| from == at && seen.insert(to)).map(|(_, to)| to.as_str()));
        }
        false
    };
    let names = |names: &BTreeSet<String>| names.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
    let circles = arrows.iter().filter(|((from, to), _)| reaches(to, from));
    circles.map(|((from, to), tied)| format!("{from} -> {to}: {}", names(tied))).collect()
}

/// Returns folders whose files and folders have a circle, with its arrows: at least one of each runs back up.
pub fn circles_in_folders(files: &Arrows) -> Vec<(String, Vec<String>)> {
    let owners: BTreeSet<&str> =
        files.keys().flat_map(|(from, to)| [from, to]).filter_map(|file| Some(file.rsplit_once('/')?.0)).collect();
    let mut folders: BTreeMap<String, Arrows> = BTreeMap::new();
    for ((from, to), names) in files {
        let [above, below] = [from, to].map(|file| place(file, &owners));
        let shared = above.iter().zip(&below).take_while(|(a, b)| a == b).count();
        let ends = (above[shared].to_owned(), below[shared].to_owned());
        let tied = names.iter().map(|name| format!("{name} ({from} -> {to})"));
        folders.entry(above[..shared].join("/")).or_default().entry(ends).or_default().extend(tied);
    }
    folders.into_iter().map(|(folder, arrows)| (folder, back(&arrows))).filter(|(_, back)| !back.is_empty()).collect()
}

/// Returns the way to a file: its folders and itself. `x.rs` beside a folder `x` is that folder's own file, as `mod.rs` is.
fn place<'a>(file: &'a str, folders: &BTreeSet<&str>) -> Vec<&'a str> {
    match file.strip_suffix(".rs").filter(|stem| folders.contains(stem)) {
        Some(stem) => stem.split('/').chain(["mod.rs"]).collect(),
        None => file.split('/').collect(),
    }
}
