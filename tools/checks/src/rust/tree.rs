//! The modules of a crate, by the files they are in.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use syn::{Attribute, Item, UseTree};

use super::item::{Segments, attributes, is_test_only, name};
use super::paths;

/// A crate's modules; the first is its root.
#[derive(Debug, Default)]
pub(super) struct Crate {
    /// Every module, inline ones too.
    pub(super) modules: Vec<Module>,
    /// Files, named from the root's folder.
    pub(super) files: Vec<String>,
}

/// A module and what its scope holds.
#[derive(Debug, Default)]
pub(super) struct Module {
    /// Index into [`Crate::files`].
    pub(super) file: usize,
    /// The module around it.
    pub(super) parent: Option<usize>,
    /// Modules in it, by name.
    pub(super) children: BTreeMap<String, usize>,
    /// Items defined in it.
    pub(super) items: BTreeSet<String>,
    /// Names that `use` brings in, and what they stand for.
    pub(super) imports: Vec<(String, Segments)>,
    /// Modules or enums whose names come in by `*`.
    pub(super) globs: Vec<Segments>,
    /// Every path written in it, imports included.
    pub(super) paths: Vec<Segments>,
}

impl Crate {
    /// Reads the file `root` and every file that a `mod` of it names.
    pub(super) fn read(root: &Path) -> Result<Self> {
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
            if is_test_only(attributes(item)) {
                continue;
            }
            if let Some(name) = name(item) {
                self.modules[at].items.insert(name);
            }
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
                Item::Use(import) => self.import(at, &mut Vec::new(), &import.tree),
                other => self.modules[at].paths.extend(paths::of_item(other)),
            }
        }
        Ok(())
    }

    fn import(&mut self, at: usize, prefix: &mut Segments, tree: &UseTree) {
        let module = &mut self.modules[at];
        match tree {
            UseTree::Path(path) => {
                prefix.push(path.ident.to_string());
                self.import(at, prefix, &path.tree);
                prefix.pop();
            }
            UseTree::Name(name) if name.ident == "self" => {
                let last = prefix.last().cloned().unwrap_or_default();
                module.imports.push((last, prefix.clone()));
            }
            UseTree::Name(name) => {
                let path = [&prefix[..], &[name.ident.to_string()]].concat();
                module.imports.push((name.ident.to_string(), path.clone()));
                module.paths.push(path);
            }
            UseTree::Rename(rename) => {
                let mut path = prefix.clone();
                if rename.ident != "self" {
                    path.push(rename.ident.to_string());
                }
                module.imports.push((rename.rename.to_string(), path.clone()));
                module.paths.push(path);
            }
            UseTree::Glob(_) => module.globs.push(prefix.clone()),
            UseTree::Group(group) => {
                for tree in &group.items {
                    self.import(at, prefix, tree);
                }
            }
        }
    }
}

/// The file of `mod name;` written in `path`, and the folder of its own modules.
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
