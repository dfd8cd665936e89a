//! Output of a command for a person: results on stdout, warnings and progress on stderr, files of a guest's output.

pub mod console;
pub mod output;
pub mod progress;
