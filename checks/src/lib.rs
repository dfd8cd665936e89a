//! What the tree promises about itself, checked by `cargo test -p checks` and shown by `cargo run -p checks`.
//!
//! - [`workspace`]: arrows between crates by the floor plan of docs/contributing.md; licences of dependencies.
//! - [`rust`], [`c`]: which source file takes names from which other. No two in a circle.
//! - [`rooms`]: the folders of a crate have floors, and no arrow leads up.
//! - [`lines`]: sizes of files and crates; unsafe code.
//! - [`docs`]: links, paths, commands and the floor plan in the documents; runs of blanks in messages.

pub mod c;
pub mod docs;
pub mod graph;
pub mod lines;
pub mod rooms;
pub mod rust;
pub mod structure;
pub mod workspace;
