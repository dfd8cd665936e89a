//! Which source file of a crate takes names from which other.
//!
//! Files are read as tokens, and a path is resolved as the compiler does it, as far as modules, imports and re-exports of the same
//! crate go. A name that a parent re-exports comes from the file that defines it. Globs (`clippy::wildcard_imports` refuses private ones),
//! test-only items and method calls are not followed.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, anyhow};
use proc_macro2::{Delimiter, Group, TokenStream, TokenTree};

use crate::graph::Arrows;

/// Returns the arrows between the files below the folder of `root`, a `lib.rs` or `main.rs`. Files are named from that folder.
pub fn arrows(root: &Path) -> Result<Arrows> {
    let base = root.parent().context("a crate's root has a folder")?;
    let mut krate = Crate { modules: Vec::new(), base: base.to_owned() };
    krate.file(root, base, None)?;
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

/// Returns whether an attribute is `cfg(test)`, or one that needs `test` among others.
fn is_test_only(attribute: &Group) -> bool {
    let text = attribute.to_string().replace(' ', "");
    text.starts_with("[cfg(test)") || text.starts_with("[cfg(all(test")
}

/// Returns whether an item ends with this token: a semicolon, or the braces of its body.
fn ends_item(token: &TokenTree) -> bool {
    matches!(token, TokenTree::Group(group) if group.delimiter() == Delimiter::Brace) || is(token, ';')
}

fn is(token: &TokenTree, mark: char) -> bool {
    matches!(token, TokenTree::Punct(found) if found.as_char() == mark)
}

/// Adds the names that a `use` brings in, each with its path. `before` is the path in front of the braces around these.
fn imports(tokens: &[TokenTree], before: &[String], found: &mut Vec<(String, Segments)>) {
    for part in tokens.split(|token| is(token, ',')) {
        let (mut path, mut alias, mut is_whole) = (before.to_vec(), None, true);
        for token in part {
            match token {
                TokenTree::Ident(word) if word == "as" => alias = Some(String::new()),
                TokenTree::Ident(word) if alias.is_some() => alias = Some(word.to_string()),
                // `a::b::{self}` is `a::b`.
                TokenTree::Ident(word) if word == "self" && !path.is_empty() => {}
                TokenTree::Ident(word) => path.push(word.to_string()),
                TokenTree::Punct(mark) if mark.as_char() == '*' => is_whole = false,
                TokenTree::Group(group) => {
                    imports(&group.stream().into_iter().collect::<Vec<_>>(), &path, found);
                    is_whole = false;
                }
                _ => {}
            }
        }
        if let Some(last) = path.last().filter(|_| is_whole && !part.is_empty()) {
            found.push((alias.unwrap_or_else(|| last.clone()), path));
        }
    }
}

/// A crate's modules, inline ones too; the first is its root.
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
    /// Names that `use` brings in, and what they stand for.
    imports: Vec<(String, Segments)>,
    /// Every path written in it, imports included.
    paths: Vec<Segments>,
}

/// A module, or a name in the module that defines it.
type Meaning = (usize, Option<String>);

/// Imports of imports are followed this far; a longer chain is a loop.
const MOST_HOPS: usize = 24;

impl Crate {
    /// Reads one file as a module; its child modules are in `folder`.
    fn file(&mut self, path: &Path, folder: &Path, parent: Option<usize>) -> Result<usize> {
        let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
        let tokens = text.parse().map_err(|error| anyhow!("cannot parse {}: {error}", path.display()))?;
        let file = path.strip_prefix(&self.base).unwrap_or(path).display().to_string();
        self.module(file, folder, parent, tokens)
    }

    fn module(&mut self, file: String, folder: &Path, parent: Option<usize>, tokens: TokenStream) -> Result<usize> {
        let at = self.modules.len();
        self.modules.push(Module { file, parent, ..Module::default() });
        self.read(at, folder, tokens)?;
        Ok(at)
    }

    /// Reads the tokens of a module, or a group of them: its modules, imports and paths. A path is identifiers joined by `::`, or a
    /// string literal that reads as one (serde's `with = "…"`).
    fn read(&mut self, at: usize, folder: &Path, tokens: TokenStream) -> Result<()> {
        let tokens: Vec<TokenTree> = tokens.into_iter().collect();
        let mut rest = &tokens[..];
        while let Some((token, after)) = rest.split_first() {
            rest = after;
            match (token, after) {
                (_, [TokenTree::Group(group), ..]) if is(token, '#') && is_test_only(group) => {
                    let end = after.iter().position(ends_item).map_or(after.len(), |end| end + 1);
                    rest = &after[end..];
                }
                (TokenTree::Ident(word), [TokenTree::Ident(name), body, ..]) if word == "mod" && ends_item(body) => {
                    let (name, parent) = (name.to_string(), Some(at));
                    let inner = folder.join(&name);
                    let child = if let TokenTree::Group(body) = body {
                        self.module(self.modules[at].file.clone(), &inner, parent, body.stream())?
                    } else {
                        let beside = folder.join(format!("{name}.rs"));
                        let file = if beside.is_file() { beside } else { inner.join("mod.rs") };
                        self.file(&file, &inner, parent)?
                    };
                    self.modules[at].children.insert(name, child);
                    rest = &after[2..];
                }
                // This is not the `use<'a>` of a type.
                (TokenTree::Ident(word), [next, ..]) if word == "use" && !is(next, '<') => {
                    let end = after.iter().position(|token| is(token, ';')).unwrap_or(after.len());
                    let mut found = Vec::new();
                    imports(&after[..end], &[], &mut found);
                    self.modules[at].paths.extend(found.iter().map(|(_, path)| path.clone()));
                    self.modules[at].imports.extend(found);
                    rest = &after[end..];
                }
                (TokenTree::Ident(word), _) => {
                    let mut path = vec![word.to_string()];
                    while let [first, second, TokenTree::Ident(word), further @ ..] = rest
                        && is(first, ':')
                        && is(second, ':')
                    {
                        path.push(word.to_string());
                        rest = further;
                    }
                    self.modules[at].paths.push(path);
                }
                (TokenTree::Literal(text), _) => {
                    let path = text.to_string().trim_matches('"').split("::").map(str::to_owned).collect();
                    self.modules[at].paths.push(path);
                }
                (TokenTree::Group(group), _) => self.read(at, folder, group.stream())?,
                (TokenTree::Punct(_), _) => {}
            }
        }
        Ok(())
    }

    /// Resolves what `path` names when it is written in module `from`.
    fn resolve(&self, from: usize, path: &[String], hops: usize) -> Option<Meaning> {
        let hops = hops.checked_sub(1)?;
        let mut at = from;
        for (place, segment) in path.iter().enumerate() {
            let module = &self.modules[at];
            let child = module.children.get(segment);
            at = match segment.as_str() {
                "crate" => 0,
                "self" => at,
                "super" => module.parent?,
                _ if child.is_some() => *child?,
                name => match module.imports.iter().find(|(alias, _)| alias == name) {
                    // An item ends the path; what follows is a variant, or an associated item.
                    Some((_, import)) => match self.resolve(at, import, hops)? {
                        (at, None) => at,
                        item => return Some(item),
                    },
                    // The first word is of this file, or of another crate.
                    None if place == 0 => return None,
                    None => return Some((at, Some(segment.clone()))),
                },
            };
        }
        Some((at, None))
    }
}
