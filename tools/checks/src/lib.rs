//! What the tree promises about itself, checked by `cargo test -p checks` and shown by `cargo run -p checks`.
//!
//! - [`workspace`]: arrows between crates by the table of crates in docs/contributing.md; licences of dependencies.
//! - [`rust`], [`c`]: which source file takes names from which other. No two in a circle.
//! - [`places`]: the files and folders of a folder have levels, and no arrow leads up.
//! - [`lines`]: sizes of files and crates; unsafe code.
//! - [`docs`]: links, paths, commands and the table of crates in the documents; runs of blanks in messages.

pub mod c;
pub mod docs;
pub mod graph;
pub mod lines;
pub mod places;
pub mod rust;
pub mod structure;
pub mod workspace;
