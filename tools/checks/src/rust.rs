//! Which source file of a crate takes which names from which other.
//!
//! A path is resolved as the compiler does it, as far as modules, items, imports and re-exports of the same crate go. A name
//! that a parent re-exports comes from the file that defines it. Test-only items and method calls are not followed.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use proc_macro2::{TokenStream, TokenTree};
use syn::visit::{self, Visit};
use syn::{Attribute, Item, UseTree};

use crate::graph::Graph;

/// Returns the arrows between the files below the folder of `root`, a `lib.rs` or `main.rs`. Files are named from that folder.
pub fn arrows(root: &Path) -> Result<Graph> {
    let krate = Crate::read(root)?;
    let mut graph = Graph::default();
    for (index, module) in krate.modules.iter().enumerate() {
        for path in &module.paths {
            for (file, name) in origins(&krate, index, path) {
                graph.add(&krate.files[module.file], &krate.files[file], &name);
            }
        }
    }
    Ok(graph)
}

// Names and attributes of items.

/// A path as written, by segments; `self`, `super`, `crate` included.
type Segments = Vec<String>;

/// Returns whether an attribute is `cfg(test)`, or one that needs `test` among others.
fn is_test_only(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        let syn::Meta::List(list) = &attribute.meta else { return false };
        let text = list.tokens.to_string();
        list.path.is_ident("cfg") && (text == "test" || text.starts_with("all (test") || text.starts_with("all(test"))
    })
}

/// Returns the attributes of an item, and the name that it adds to its module; modules and imports add none.
fn parts(item: &Item) -> (&[Attribute], Option<String>) {
    let (attributes, name) = match item {
        Item::Const(item) => (&item.attrs, Some(&item.ident)),
        Item::Enum(item) => (&item.attrs, Some(&item.ident)),
        Item::Fn(item) => (&item.attrs, Some(&item.sig.ident)),
        Item::Impl(item) => (&item.attrs, None),
        Item::Macro(item) => (&item.attrs, item.ident.as_ref()),
        Item::Mod(item) => (&item.attrs, None),
        Item::Static(item) => (&item.attrs, Some(&item.ident)),
        Item::Struct(item) => (&item.attrs, Some(&item.ident)),
        Item::Trait(item) => (&item.attrs, Some(&item.ident)),
        Item::Type(item) => (&item.attrs, Some(&item.ident)),
        Item::Union(item) => (&item.attrs, Some(&item.ident)),
        Item::Use(item) => (&item.attrs, None),
        _ => return (&[], None),
    };
    (attributes, name.map(ToString::to_string))
}

// The paths written in an item, those inside macro calls and attributes too.

/// Returns every path of `item`. Test-only parts are left out.
fn of_item(item: &syn::Item) -> Vec<Segments> {
    let mut found = Found::default();
    found.visit_item(item);
    found.0
}

#[derive(Default)]
struct Found(Vec<Segments>);

impl<'ast> Visit<'ast> for Found {
    fn visit_item(&mut self, item: &'ast syn::Item) {
        if !is_test_only(parts(item).0) {
            visit::visit_item(self, item);
        }
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        if !is_test_only(&item.attrs) {
            visit::visit_impl_item_fn(self, item);
        }
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        self.0.push(path.segments.iter().map(|segment| segment.ident.to_string()).collect());
        visit::visit_path(self, path);
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        // An import within a function.
        self.0.extend(imports(&item.tree).into_iter().map(|(_, path)| path));
    }

    fn visit_macro(&mut self, call: &'ast syn::Macro) {
        visit::visit_macro(self, call);
        in_tokens(call.tokens.clone(), &mut self.0);
    }

    fn visit_attribute(&mut self, attribute: &'ast syn::Attribute) {
        match &attribute.meta {
            syn::Meta::List(list) => in_tokens(list.tokens.clone(), &mut self.0),
            syn::Meta::Path(_) | syn::Meta::NameValue(_) => {}
        }
    }
}

/// Returns the names that a `use` brings in, `*` for all, each with its path.
fn imports(tree: &UseTree) -> Vec<(String, Segments)> {
    let under = |name: String, tree: &UseTree| {
        let under = |(alias, path): (String, Segments)| (alias, [vec![name.clone()], path].concat());
        imports(tree).into_iter().map(under).collect()
    };
    match tree {
        UseTree::Path(path) => under(path.ident.to_string(), &path.tree),
        UseTree::Name(name) => vec![(name.ident.to_string(), vec![name.ident.to_string()])],
        UseTree::Rename(rename) => vec![(rename.rename.to_string(), vec![rename.ident.to_string()])],
        UseTree::Glob(_) => vec![("*".to_owned(), Vec::new())],
        UseTree::Group(group) => group.items.iter().flat_map(imports).collect(),
    }
}

/// Identifiers joined by `::`, and string literals that read as such a path (serde's `with = "…"`).
fn in_tokens(tokens: TokenStream, found: &mut Vec<Segments>) {
    let mut path: Segments = Vec::new();
    let mut colons = 0;
    for token in tokens {
        match token {
            TokenTree::Ident(ident) => {
                if colons != 2 {
                    found.extend((!path.is_empty()).then(|| std::mem::take(&mut path)));
                }
                path.push(ident.to_string());
                colons = 0;
            }
            TokenTree::Punct(punct) if punct.as_char() == ':' && !path.is_empty() => colons += 1,
            other => {
                found.extend((!path.is_empty()).then(|| std::mem::take(&mut path)));
                colons = 0;
                match other {
                    TokenTree::Group(group) => in_tokens(group.stream(), found),
                    TokenTree::Literal(literal) => found.extend(in_literal(&literal.to_string())),
                    _ => {}
                }
            }
        }
    }
    found.extend((!path.is_empty()).then_some(path));
}

fn in_literal(literal: &str) -> Option<Segments> {
    let text = literal.strip_prefix('"')?.strip_suffix('"')?;
    let segments: Segments = text.split("::").map(str::to_owned).collect();
    let is_name = |name: &String| {
        name.chars().all(|c| c.is_alphanumeric() || c == '_')
            && name.starts_with(|c: char| c.is_alphabetic() || c == '_')
    };
    (segments.len() > 1 && segments.iter().all(is_name)).then_some(segments)
}

// The modules of a crate, by the files they are in.

/// A crate's modules; the first is its root.
#[derive(Debug, Default)]
struct Crate {
    /// Every module, inline ones too.
    modules: Vec<Module>,
    /// Files, named from the root's folder.
    files: Vec<String>,
}

/// A module and what its scope holds.
#[derive(Debug, Default)]
struct Module {
    /// Index into [`Crate::files`].
    file: usize,
    /// The module around it.
    parent: Option<usize>,
    /// Modules in it, by name.
    children: BTreeMap<String, usize>,
    /// Items defined in it.
    items: BTreeSet<String>,
    /// Names that `use` brings in, and what they stand for.
    imports: Vec<(String, Segments)>,
    /// Modules or enums whose names come in by `*`.
    globs: Vec<Segments>,
    /// Every path written in it, imports included.
    paths: Vec<Segments>,
}

impl Crate {
    /// Reads the file `root` and every file that a `mod` of it names.
    fn read(root: &Path) -> Result<Self> {
        let mut krate = Self::default();
        let base = root.parent().context("a crate's root has a folder")?;
        krate.file(base, root, base, None)?;
        Ok(krate)
    }

    /// Reads one file as a module; its child modules are in `folder`.
    fn file(&mut self, base: &Path, path: &Path, folder: &Path, parent: Option<usize>) -> Result<usize> {
        let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
        let parsed = syn::parse_file(&text).with_context(|| format!("cannot parse {}", path.display()))?;
        self.files.push(path.strip_prefix(base).unwrap_or(path).display().to_string());
        let module = self.module(self.files.len() - 1, parent);
        self.fill(base, module, path, folder, &parsed.items)?;
        Ok(module)
    }

    fn module(&mut self, file: usize, parent: Option<usize>) -> usize {
        self.modules.push(Module { file, parent, ..Module::default() });
        self.modules.len() - 1
    }

    fn fill(&mut self, base: &Path, at: usize, path: &Path, folder: &Path, items: &[Item]) -> Result<()> {
        for item in items {
            let (attributes, name) = parts(item);
            if is_test_only(attributes) {
                continue;
            }
            self.modules[at].items.extend(name);
            match item {
                Item::Mod(inner) => {
                    let name = inner.ident.to_string();
                    let child = if let Some((_, items)) = &inner.content {
                        let child = self.module(self.modules[at].file, Some(at));
                        self.fill(base, child, path, &folder.join(&name), items)?;
                        child
                    } else {
                        let (file, folder) = file_of(&name, &inner.attrs, path, folder)?;
                        self.file(base, &file, &folder, Some(at))?
                    };
                    self.modules[at].children.insert(name, child);
                }
                Item::Use(import) => self.import(at, &import.tree),
                other => self.modules[at].paths.extend(of_item(other)),
            }
        }
        Ok(())
    }

    fn import(&mut self, at: usize, tree: &UseTree) {
        let module = &mut self.modules[at];
        for (mut alias, mut path) in imports(tree) {
            if alias == "*" {
                module.globs.push(path);
                continue;
            }
            // `a::b::{self}` is `a::b`.
            path.pop_if(|last| last == "self");
            if alias == "self" {
                alias = path.last().cloned().unwrap_or_default();
            }
            module.imports.push((alias, path.clone()));
            module.paths.push(path);
        }
    }
}

/// Returns the file of `mod name;` written in `path`, and the folder of its own modules.
fn file_of(name: &str, attributes: &[Attribute], path: &Path, folder: &Path) -> Result<(PathBuf, PathBuf)> {
    let inner = folder.join(name);
    for attribute in attributes {
        if let syn::Meta::NameValue(pair) = &attribute.meta
            && pair.path.is_ident("path")
            && let syn::Expr::Lit(syn::ExprLit { lit: syn::Lit::Str(text), .. }) = &pair.value
        {
            let file = path.parent().unwrap_or(folder).join(text.value());
            let folder = file.parent().unwrap_or(folder).to_owned();
            return Ok((file, folder));
        }
    }
    for file in [folder.join(format!("{name}.rs")), inner.join("mod.rs")] {
        if file.is_file() {
            return Ok((file, inner));
        }
    }
    bail!("mod {name}; in {} has no file", path.display())
}

// Resolution of paths.

/// Meaning of a name.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Meaning {
    Module(usize),
    /// An item: the module that defines it, and its name.
    Item(usize, String),
}

/// Imports of imports are followed this far; a longer chain is a loop.
const MOST_HOPS: usize = 24;

/// Returns the files, other than that of module `from`, which define what `path` names when written there.
fn origins(krate: &Crate, from: usize, path: &Segments) -> Vec<(usize, String)> {
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

    /// Returns the arrows of a crate made of `files`.
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
