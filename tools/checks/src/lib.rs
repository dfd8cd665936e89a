//! Promises of the tree about itself, checked by `cargo test -p checks`.
//!
//! - [`workspace`]: arrows between crates lead down the folders at the top.
//! - [`rust`]: which source file takes names from which other. No two in a circle.
//! - [`graph`]: the files and folders of a folder have levels, and no arrow leads up.
//! - [`structure`]: these over the whole tree.
//! - [`docs`]: links, paths and commands in the documents.

pub mod docs;
pub mod graph;
pub mod rust;
pub mod structure;
pub mod workspace;
