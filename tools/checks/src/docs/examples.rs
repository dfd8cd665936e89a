//! The Rust examples of docs/contributing.md: their structs have the fields, and their `impl`s the items, that the tree asks for.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use syn::visit::{self, Visit};

use super::text::{Line, lines};
use crate::lines::sources;

/// The document with the examples.
const DOCUMENT: &str = "docs/contributing.md";

type Names = BTreeSet<String>;

/// What the crates define, by name; a name may be defined in several crates.
#[derive(Debug, Default)]
struct Defined {
    /// The named fields of structs.
    structs: BTreeMap<String, Vec<Names>>,
    /// The items of traits: those that an `impl` must have, and all.
    traits: BTreeMap<String, Vec<(Names, Names)>>,
}

/// What the examples of the document at `root` have otherwise than the definitions in `folders`.
pub fn untrue(root: &Path, folders: &[&Path]) -> Result<Vec<String>> {
    let mut defined = Defined::default();
    for folder in folders {
        for path in sources(&folder.join("src"), &["rs"])? {
            let text = std::fs::read_to_string(&path)?;
            defined.visit_file(&syn::parse_file(&text).with_context(|| format!("cannot parse {}", path.display()))?);
        }
    }
    let text = std::fs::read_to_string(root.join(DOCUMENT)).with_context(|| format!("cannot read {DOCUMENT}"))?;
    let blocks = blocks(&text);
    ensure!(!blocks.is_empty(), "{DOCUMENT} has no examples");
    Ok(blocks.iter().flat_map(|(line, block)| differences(*line, block, &defined)).collect())
}

/// The blocks of Rust, with their first lines.
fn blocks(text: &str) -> Vec<(usize, String)> {
    let mut found: Vec<(usize, String)> = Vec::new();
    let mut last = 0;
    for (number, line) in lines(text) {
        let Line::Code("rust", line) = line else { continue };
        if found.is_empty() || number != last + 1 {
            found.push((number, String::new()));
        }
        let (_, block) = found.last_mut().expect("one was just added");
        *block += line;
        block.push('\n');
        last = number;
    }
    found
}

fn differences(line: usize, block: &str, defined: &Defined) -> Vec<String> {
    // An example is a file, or a part of a table; rows of macros are neither.
    let part = || syn::parse_str(&format!("const PART: () = [{block}];")).map(|item| vec![item]);
    let Ok(items) = syn::parse_file(block).map(|file| file.items).or_else(|_| part()) else { return Vec::new() };
    let mut example = Example { defined, own: Defined::default(), findings: Vec::new() };
    for item in &items {
        example.own.visit_item(item);
        example.visit_item(item);
    }
    example.findings.into_iter().map(|finding| format!("{DOCUMENT}: the example at line {line}: {finding}")).collect()
}

impl<'ast> Visit<'ast> for Defined {
    fn visit_item_struct(&mut self, item: &'ast syn::ItemStruct) {
        let fields = item.fields.iter().filter_map(|field| Some(field.ident.as_ref()?.to_string())).collect();
        self.structs.entry(item.ident.to_string()).or_default().push(fields);
    }

    fn visit_item_trait(&mut self, item: &'ast syn::ItemTrait) {
        let (mut needed, mut all) = (Names::new(), Names::new());
        for item in &item.items {
            let (name, has_default) = match item {
                syn::TraitItem::Fn(item) => (item.sig.ident.to_string(), item.default.is_some()),
                syn::TraitItem::Const(item) => (item.ident.to_string(), item.default.is_some()),
                syn::TraitItem::Type(item) => (item.ident.to_string(), item.default.is_some()),
                _ => continue,
            };
            if !has_default {
                needed.insert(name.clone());
            }
            all.insert(name);
        }
        self.traits.entry(item.ident.to_string()).or_default().push((needed, all));
    }
}

struct Example<'a> {
    defined: &'a Defined,
    own: Defined,
    findings: Vec<String>,
}

impl<'ast> Visit<'ast> for Example<'_> {
    fn visit_expr_struct(&mut self, literal: &'ast syn::ExprStruct) {
        visit::visit_expr_struct(self, literal);
        let Some(name) = literal.path.segments.last().map(|segment| segment.ident.to_string()) else { return };
        let Some(known) = self.own.structs.get(&name).or_else(|| self.defined.structs.get(&name)) else { return };
        let fields = literal.fields.iter().map(|field| match &field.member {
            syn::Member::Named(name) => name.to_string(),
            syn::Member::Unnamed(index) => index.index.to_string(),
        });
        let fields: Names = fields.collect();
        let fits = |known: &Names| if literal.rest.is_some() { fields.is_subset(known) } else { fields == *known };
        if !known.iter().any(fits) {
            self.findings.push(format!("no struct {name} has the fields {}", list(&fields)));
        }
    }

    fn visit_item_impl(&mut self, item: &'ast syn::ItemImpl) {
        visit::visit_item_impl(self, item);
        let Some((path, _)) = &item.trait_ else { return };
        let Some(name) = path.segments.last().map(|segment| segment.ident.to_string()) else { return };
        let Some(known) = self.defined.traits.get(&name) else { return };
        let items = item.items.iter().filter_map(|item| match item {
            syn::ImplItem::Fn(item) => Some(item.sig.ident.to_string()),
            syn::ImplItem::Const(item) => Some(item.ident.to_string()),
            syn::ImplItem::Type(item) => Some(item.ident.to_string()),
            _ => None,
        });
        let items: Names = items.collect();
        if !known.iter().any(|(needed, all)| needed.is_subset(&items) && items.is_subset(all)) {
            self.findings.push(format!("no trait {name} asks for the items {}", list(&items)));
        }
    }
}

fn list(names: &Names) -> String {
    names.iter().map(String::as_str).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(example: &str) -> Vec<String> {
        let mut defined = Defined::default();
        let tree =
            "pub struct Plan { pub a: u8, pub b: u8 } trait Guest { type Bus; fn load(&self); fn rest(&self) {} }";
        defined.visit_file(&syn::parse_file(tree).unwrap());
        let text = format!("Text.\n```rust\n{example}\n```\n");
        blocks(&text).iter().flat_map(|(line, block)| differences(*line, block, &defined)).collect()
    }

    #[test]
    fn examples_with_the_fields_and_items_of_the_tree_are_fine() {
        let guest = "impl Guest for G { type Bus = (); fn load(&self) { let _ = Plan { a: 1, b: 2 }; } }";
        assert_eq!(found(guest), [""; 0]);
        assert_eq!(found("    Plan { a: 1, ..old },"), [""; 0]);
        assert_eq!(found("struct Plan { c: u8 }\nfn f() -> Plan { Plan { c: 1 } }"), [""; 0]);
        assert_eq!(found("MSR = 0x1a6..=0x1a7, OffcoreRsp, \"21\";"), [""; 0]);
    }

    #[test]
    fn a_field_or_an_item_that_was_added_or_removed_since_is_found() {
        assert!(found("fn f() { let _ = Plan { a: 1 }; }")[0].contains("line 3: no struct Plan has the fields a"));
        assert!(found("Plan { c: 1, ..old },")[0].contains("fields c"));
        assert!(found("impl Guest for G { fn load(&self) {} }")[0].contains("no trait Guest asks for the items load"));
        assert_eq!(found("impl Guest for G { type Bus = (); fn load(&self) {} fn more(&self) {} }").len(), 1);
    }
}
