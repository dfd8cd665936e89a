//! Which source file of a crate takes which names from which other.
//!
//! Files are read as tokens, and a path is resolved as the compiler does it, as far as modules, items, imports and re-exports of
//! the same crate go. A name that a parent re-exports comes from the file that defines it. Test-only items and method calls are not
//! followed.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, anyhow, bail};
use proc_macro2::{Delimiter, TokenStream, TokenTree};

use crate::graph::Arrows;

/// Returns the arrows between the files below the folder of `root`, a `lib.rs` or `main.rs`. Files are named from that folder.
pub fn arrows(root: &Path) -> Result<Arrows> {
    let mut krate =
        Crate { base: root.parent().context("a crate's root has a folder")?.to_owned(), ..Crate::default() };
    krate.file(root, &krate.base.clone(), None)?;
    let mut arrows = Arrows::new();
    for (index, module) in krate.modules.iter().enumerate() {
        for path in &module.paths {
            if let Some((at, Some(name))) = krate.resolve(index, path, MOST_HOPS)
                && krate.modules[at].file != module.file
            {
                let ends = (module.file.clone(), krate.modules[at].file.clone());
                arrows.entry(ends).or_default().insert(name);
            }
        }
    }
    Ok(arrows)
}

/// A path as written, by segments; `self`, `super`, `crate` included.
type Segments = Vec<String>;

/// Returns whether a token is this identifier or mark.
fn is(token: Option<&TokenTree>, text: &str) -> bool {
    matches!(token, Some(TokenTree::Ident(_) | TokenTree::Punct(_)))
        && token.is_some_and(|token| token.to_string() == text)
}

/// Returns whether the brackets of an attribute hold `cfg(test)`, or one that needs `test` among others.
fn is_test_only(token: &TokenTree) -> bool {
    let text = token.to_string().replace(' ', "");
    matches!(token, TokenTree::Group(_)) && (text.starts_with("[cfg(test)") || text.starts_with("[cfg(all(test"))
}

/// Splits the tokens of a module into items: each ends with `;`, or with the braces of its body.
fn items(tokens: TokenStream) -> Vec<Vec<TokenTree>> {
    let mut all = vec![Vec::new()];
    for token in tokens {
        let item = all.last_mut().expect("there is a last one");
        let ends = match &token {
            TokenTree::Punct(mark) => mark.as_char() == ';',
            TokenTree::Group(group) => group.delimiter() == Delimiter::Brace && !is(item.get(keyword(item)), "use"),
            _ => false,
        };
        item.push(token);
        if ends {
            all.push(Vec::new());
        }
    }
    all
}

/// Returns the place of an item's first word behind its attributes and `pub`.
fn keyword(item: &[TokenTree]) -> usize {
    let mut at = 0;
    while is(item.get(at), "#")
        || is(item.get(at), "!")
        || is(item.get(at), "pub")
        || matches!(item.get(at), Some(TokenTree::Group(_)))
    {
        at += 1;
    }
    at
}

/// Returns the name that an item adds to its module, if it has one.
fn name(item: &[TokenTree]) -> Option<String> {
    const KINDS: [&str; 9] = ["const", "enum", "fn", "macro_rules", "static", "struct", "trait", "type", "union"];
    let is_kind = |token: &TokenTree| KINDS.iter().any(|kind| is(Some(token), kind));
    let words: Vec<_> = item.iter().filter(|token| matches!(token, TokenTree::Ident(_))).collect();
    words.windows(2).find(|pair| is_kind(pair[0]) && !is_kind(pair[1])).map(|pair| pair[1].to_string())
}

/// Returns the names that a `use` brings in, `*` for all, each with its path.
fn imports(tokens: impl IntoIterator<Item = TokenTree>) -> Vec<(String, Segments)> {
    let (mut found, mut path, mut alias, mut renames) = (Vec::new(), Segments::new(), None, false);
    let end = |path: &mut Segments, alias: &mut Option<String>| {
        let path = std::mem::take(path);
        alias.take().or_else(|| path.last().cloned()).map(|alias| (alias, path))
    };
    for token in tokens {
        match token {
            TokenTree::Ident(word) if word == "as" => renames = true,
            TokenTree::Ident(word) if std::mem::take(&mut renames) => alias = Some(word.to_string()),
            TokenTree::Ident(word) => path.push(word.to_string()),
            TokenTree::Group(group) => {
                let under = std::mem::take(&mut path);
                found.extend(
                    imports(group.stream()).into_iter().map(|(alias, inner)| (alias, [under.clone(), inner].concat())),
                );
            }
            TokenTree::Punct(mark) if mark.as_char() == '*' => found.push(("*".to_owned(), std::mem::take(&mut path))),
            TokenTree::Punct(mark) if mark.as_char() == ',' => found.extend(end(&mut path, &mut alias)),
            _ => {}
        }
    }
    found.extend(end(&mut path, &mut alias));
    found
}

/// Finds identifiers joined by `::`, and string literals that read as such a path (serde's `with = "…"`). Test-only parts are left out.
fn paths(tokens: TokenStream, found: &mut Vec<Segments>) {
    let (mut path, mut colons, mut skips) = (Segments::new(), 0, false);
    for token in tokens {
        if skips {
            skips = !matches!(&token, TokenTree::Group(group) if group.delimiter() == Delimiter::Brace)
                && !is(Some(&token), ";");
            continue;
        }
        skips = is_test_only(&token);
        match token {
            TokenTree::Ident(word) => {
                if colons != 2 {
                    found.push(std::mem::take(&mut path));
                }
                path.push(word.to_string());
                colons = 0;
            }
            TokenTree::Punct(mark) if mark.as_char() == ':' => colons += 1,
            other => {
                found.push(std::mem::take(&mut path));
                colons = 0;
                match other {
                    TokenTree::Group(group) => paths(group.stream(), found),
                    TokenTree::Literal(text) => {
                        found.push(text.to_string().trim_matches('"').split("::").map(str::to_owned).collect());
                    }
                    _ => {}
                }
            }
        }
    }
    found.push(path);
}

/// A crate's modules, inline ones too; the first is its root.
#[derive(Default)]
struct Crate {
    modules: Vec<Module>,
    /// The root's folder.
    base: PathBuf,
}

/// A module and what its scope holds.
#[derive(Default)]
struct Module {
    /// Its file, named from the root's folder.
    file: String,
    /// The module around it.
    parent: Option<usize>,
    /// Modules in it, by name.
    children: BTreeMap<String, usize>,
    /// Items defined in it.
    items: BTreeSet<String>,
    /// Names that `use` brings in, and what they stand for.
    imports: Vec<(String, Segments)>,
    /// Every path written in it, imports included.
    paths: Vec<Segments>,
}

/// A module, or an item with the module that defines it.
type Meaning = (usize, Option<String>);

/// Imports of imports are followed this far; a longer chain is a loop.
const MOST_HOPS: usize = 24;

impl Crate {
    /// Reads one file as a module; its child modules are in `folder`.
    fn file(&mut self, path: &Path, folder: &Path, parent: Option<usize>) -> Result<usize> {
        let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
        let tokens = text.parse().map_err(|error| anyhow!("cannot parse {}: {error}", path.display()))?;
        let file = path.strip_prefix(&self.base).unwrap_or(path).display().to_string();
        self.module(&file, parent, path, folder, tokens)
    }

    fn module(
        &mut self,
        file: &str,
        parent: Option<usize>,
        path: &Path,
        folder: &Path,
        tokens: TokenStream,
    ) -> Result<usize> {
        let at = self.modules.len();
        self.modules.push(Module { file: file.to_owned(), parent, ..Module::default() });
        for item in items(tokens) {
            let keyword = keyword(&item);
            if item[..keyword].iter().any(is_test_only) {
                continue;
            }
            match item.get(keyword) {
                Some(TokenTree::Ident(word)) if word == "mod" => {
                    let name = item.get(keyword + 1).context("a module has a name")?.to_string();
                    let inner = folder.join(&name);
                    let child = match item.get(keyword + 2) {
                        Some(TokenTree::Group(body)) => self.module(file, Some(at), path, &inner, body.stream())?,
                        _ => {
                            let (file, folder) = file_of(&name, &item[..keyword], path, folder)?;
                            self.file(&file, &folder, Some(at))?
                        }
                    };
                    self.modules[at].children.insert(name, child);
                }
                Some(TokenTree::Ident(word)) if word == "use" => {
                    for (mut alias, mut path) in imports(item.into_iter().skip(keyword + 1)) {
                        // `a::b::{self}` is `a::b`.
                        if path.pop_if(|last| last == "self").is_some() && alias == "self" {
                            alias = path.last().cloned().unwrap_or_default();
                        }
                        let module = &mut self.modules[at];
                        module.paths.extend((alias != "*").then(|| path.clone()));
                        module.imports.push((alias, path));
                    }
                }
                _ => {
                    self.modules[at].items.extend(name(&item));
                    paths(item.into_iter().collect(), &mut self.modules[at].paths);
                }
            }
        }
        Ok(at)
    }

    /// Resolves what `path` names when it is written in module `from`.
    fn resolve(&self, from: usize, path: &[String], hops: usize) -> Option<Meaning> {
        let (first, rest) = path.split_first()?;
        let mut at = match first.as_str() {
            "crate" => 0,
            "self" => from,
            "super" => self.modules[from].parent?,
            name => match self.in_scope(from, name, hops)? {
                (at, None) => at,
                item => return Some(item),
            },
        };
        for segment in rest {
            at = match self.in_scope(at, segment, hops) {
                _ if segment == "super" => self.modules[at].parent?,
                Some((at, None)) => at,
                // An item; what follows is a variant, or an associated item.
                other => return other,
            };
        }
        Some((at, None))
    }

    /// Resolves `name` in module `at`: its definitions, then its imports, then its glob imports.
    fn in_scope(&self, at: usize, name: &str, hops: usize) -> Option<Meaning> {
        let hops = hops.checked_sub(1)?;
        let module = &self.modules[at];
        if let Some(&child) = module.children.get(name) {
            return Some((child, None));
        }
        if module.items.contains(name) {
            return Some((at, Some(name.to_owned())));
        }
        if let Some((_, path)) = module.imports.iter().find(|(alias, _)| alias == name) {
            return self.resolve(at, path, hops);
        }
        module.imports.iter().filter(|(alias, _)| alias == "*").find_map(|(_, glob)| {
            match self.resolve(at, glob, hops)? {
                (target, None) if target != at => self.in_scope(target, name, hops),
                _ => None,
            }
        })
    }
}

/// Returns the file of `mod name;` written in `path`, and the folder of its own modules.
fn file_of(name: &str, attributes: &[TokenTree], path: &Path, folder: &Path) -> Result<(PathBuf, PathBuf)> {
    let inner = folder.join(name);
    for attribute in attributes {
        if let Some(text) = attribute.to_string().strip_prefix("[path = \"") {
            let file = path.parent().unwrap_or(folder).join(text.trim_end_matches("\"]"));
            let folder = file.parent().unwrap_or(folder).to_owned();
            return Ok((file, folder));
        }
    }
    let files = [folder.join(format!("{name}.rs")), inner.join("mod.rs")];
    match files.into_iter().find(|file| file.is_file()) {
        Some(file) => Ok((file, inner)),
        None => bail!("mod {name}; in {} has no file", path.display()),
    }
}

#[cfg(test)]
mod tests {
    use crate::rust::arrows;

    #[test]
    fn a_name_comes_from_the_file_that_defines_it_however_it_is_written() {
        let dir = tempfile::tempdir().unwrap();
        for (name, text) in [
            ("lib.rs", "mod a; mod b; mod c; mod d; mod e; mod f; mod g; mod h; #[cfg(test)] mod t;"),
            ("a.rs", "pub fn one() {} pub const N: u8 = 1;"),
            ("b.rs", "fn f() { super::a::one(); }"),
            ("c.rs", "use crate::a as other; fn f() { other::one(); }"),
            ("d.rs", "use crate::a::*; fn f() { one(); }"),
            ("e.rs", "fn f() { println!(\"{}\", crate::a::N); }"),
            ("f.rs", "struct S { #[serde(with = \"crate::a::one\")] x: u8 }"),
            ("g/mod.rs", "mod inner; pub use inner::{Thing, self as other};"),
            ("g/inner.rs", "pub struct Thing;"),
            // Modules, other crates and tests make no arrow.
            (
                "h.rs",
                "use crate::{a, g::Thing}; use serde; #[cfg(test)] mod tests { use crate::a::one; } impl Thing { #[cfg(test)] fn t() { a::one() } }",
            ),
        ] {
            let path = dir.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        let arrows = arrows(&dir.path().join("lib.rs")).unwrap();
        let found: Vec<_> = arrows.iter().map(|((from, to), names)| format!("{from} -> {to}: {names:?}")).collect();
        let mut expected = ["b", "c", "d", "e", "f"]
            .map(|file| format!("{file}.rs -> a.rs: {{{:?}}}", if file == "e" { "N" } else { "one" }))
            .to_vec();
        expected.extend(["g/mod.rs", "h.rs"].map(|file| format!("{file} -> g/inner.rs: {{\"Thing\"}}")));
        assert_eq!(found, expected);
    }
}
