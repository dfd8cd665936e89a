//! Resolution of paths.

use super::item::Segments;
use super::tree::Crate;

/// Meaning of a name.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Meaning {
    Module(usize),
    /// An item: the module that defines it, and its name.
    Item(usize, String),
}

/// Imports of imports are followed this far; a longer chain is a loop.
const MOST_HOPS: usize = 24;

/// The files, other than that of module `from`, which define what `path` names when written there.
pub(super) fn origins(krate: &Crate, from: usize, path: &Segments) -> Vec<(usize, String)> {
    let Some(Meaning::Item(module, name)) = resolve(krate, from, path, MOST_HOPS) else { return Vec::new() };
    let file = krate.modules[module].file;
    if file == krate.modules[from].file { Vec::new() } else { vec![(file, name)] }
}

fn resolve(krate: &Crate, from: usize, path: &[String], hops: usize) -> Option<Meaning> {
    let (first, rest) = path.split_first()?;
    let mut meaning = match first.as_str() {
        "crate" => Meaning::Module(0),
        "self" => Meaning::Module(from),
        "super" => Meaning::Module(krate.modules[from].parent?),
        name => in_scope(krate, from, name, hops)?,
    };
    for segment in rest {
        match meaning {
            Meaning::Module(at) if segment == "super" => meaning = Meaning::Module(krate.modules[at].parent?),
            Meaning::Module(at) => meaning = in_scope(krate, at, segment, hops)?,
            // A variant or an associated item.
            item @ Meaning::Item(..) => return Some(item),
        }
    }
    Some(meaning)
}

/// Resolves `name` in module `at`: its definitions, then its imports, then its glob imports.
fn in_scope(krate: &Crate, at: usize, name: &str, hops: usize) -> Option<Meaning> {
    let hops = hops.checked_sub(1)?;
    let module = &krate.modules[at];
    if let Some(&child) = module.children.get(name) {
        return Some(Meaning::Module(child));
    }
    if module.items.contains(name) {
        return Some(Meaning::Item(at, name.to_owned()));
    }
    if let Some((_, path)) = module.imports.iter().find(|(alias, _)| alias == name) {
        return resolve(krate, at, path, hops);
    }
    module.globs.iter().find_map(|glob| match resolve(krate, at, glob, hops)? {
        Meaning::Module(target) if target != at => in_scope(krate, target, name, hops),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use crate::rust::arrows;

    /// The arrows of a crate made of `files`.
    fn of(files: &[(&str, &str)]) -> Vec<String> {
        let dir = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = dir.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        let graph = arrows(&dir.path().join("lib.rs")).unwrap();
        graph.arrows().map(|(from, to, names)| format!("{from} -> {to}: {names:?}")).collect()
    }

    #[test]
    fn a_reexported_name_comes_from_the_file_that_defines_it() {
        let arrows = of(&[
            ("lib.rs", "mod a; mod b;"),
            ("a/mod.rs", "mod inner; pub use inner::Thing;"),
            ("a/inner.rs", "pub struct Thing;"),
            ("b.rs", "use crate::a::Thing; fn f() -> Thing { Thing }"),
        ]);
        assert_eq!(arrows, [r#"a/mod.rs -> a/inner.rs: {"Thing"}"#, r#"b.rs -> a/inner.rs: {"Thing"}"#]);
    }

    #[test]
    fn paths_by_super_by_alias_by_star_in_macros_and_in_attributes_are_followed() {
        let arrows = of(&[
            ("lib.rs", "mod a; mod b; mod c; mod d; mod e; mod f;"),
            ("a.rs", "pub fn one() {} pub const N: u8 = 1;"),
            ("b.rs", "fn f() { super::a::one(); }"),
            ("c.rs", "use crate::a as other; fn f() { other::one(); }"),
            ("d.rs", "use crate::a::*; fn f() { one(); }"),
            ("e.rs", "fn f() { println!(\"{}\", crate::a::N); }"),
            ("f.rs", "struct S { #[serde(with = \"crate::a::one\")] x: u8 }"),
        ]);
        let name = |file| if file == "e" { "N" } else { "one" };
        let expected = ["b", "c", "d", "e", "f"].map(|file| format!("{file}.rs -> a.rs: {{{:?}}}", name(file)));
        assert_eq!(arrows, expected);
    }

    #[test]
    fn tests_foreign_crates_and_imports_of_modules_make_no_arrow() {
        let arrows = of(&[
            ("lib.rs", "mod a; mod b; #[cfg(test)] mod t;"),
            ("a.rs", "pub fn one() {}"),
            ("b.rs", "use crate::a; use std::fmt::Debug; use serde; #[cfg(test)] mod tests { use crate::a::one; }"),
        ]);
        assert_eq!(arrows, [""; 0]);
    }
}
