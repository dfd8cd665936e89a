//! What a person sees while a command runs: results on stdout, warnings and progress on stderr, files of a guest's output.

pub mod console;
mod filter;
pub mod output;
pub mod progress;
