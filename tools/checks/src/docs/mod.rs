//! Documents in Markdown: links, anchors and paths that lead somewhere; layout; examples; the commands they show.

pub mod commands;
pub mod crate_tables;
pub mod examples;
pub mod layout;
pub mod links;
mod text;
