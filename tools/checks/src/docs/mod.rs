//! Documents in Markdown: links, anchors and paths that lead somewhere; the commands they show.

pub mod commands;
pub mod links;
mod text;
