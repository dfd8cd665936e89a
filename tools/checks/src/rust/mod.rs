//! Which source file of a crate takes which names from which other.
//!
//! A path is resolved as the compiler does it, as far as modules, items, imports and re-exports of the same crate go. A name
//! that a parent re-exports comes from the file that defines it. Test-only items and method calls are not followed.

mod item;
mod names;
mod paths;
mod tree;

use std::path::Path;

use anyhow::Result;

use crate::graph::Graph;
use tree::Crate;

/// The arrows between the files below the folder of `root`, a `lib.rs` or `main.rs`. Files are named from that folder.
pub fn arrows(root: &Path) -> Result<Graph> {
    let krate = Crate::read(root)?;
    let mut graph = Graph::default();
    for (index, module) in krate.modules.iter().enumerate() {
        for path in &module.paths {
            for (file, name) in names::origins(&krate, index, path) {
                graph.add(&krate.files[module.file], &krate.files[file], &name);
            }
        }
    }
    Ok(graph)
}
