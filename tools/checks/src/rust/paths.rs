//! The paths written in an item, those inside macro calls and attributes too.

use proc_macro2::{TokenStream, TokenTree};
use syn::visit::{self, Visit};

use super::item::{Segments, attributes, is_test_only};

/// Every path of `item`. Test-only parts are left out.
pub(super) fn of_item(item: &syn::Item) -> Vec<Segments> {
    let mut found = Found::default();
    found.visit_item(item);
    found.0
}

#[derive(Default)]
struct Found(Vec<Segments>);

impl<'ast> Visit<'ast> for Found {
    fn visit_item(&mut self, item: &'ast syn::Item) {
        if !is_test_only(attributes(item)) {
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
        within(&item.tree, &mut Vec::new(), &mut self.0);
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

fn within(tree: &syn::UseTree, prefix: &mut Segments, found: &mut Vec<Segments>) {
    match tree {
        syn::UseTree::Path(path) => {
            prefix.push(path.ident.to_string());
            within(&path.tree, prefix, found);
            prefix.pop();
        }
        syn::UseTree::Name(name) => found.push([&prefix[..], &[name.ident.to_string()]].concat()),
        syn::UseTree::Rename(rename) => found.push([&prefix[..], &[rename.ident.to_string()]].concat()),
        syn::UseTree::Glob(_) => found.push(prefix.clone()),
        syn::UseTree::Group(group) => group.items.iter().for_each(|tree| within(tree, prefix, found)),
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
