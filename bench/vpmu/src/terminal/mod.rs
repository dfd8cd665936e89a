//! Output of a command for a person: results on stdout, warnings and progress on stderr.

pub mod console;
pub mod progress;
