//! A fleet with a known truth, as runs and as documents: what statistics by host must find, and what they must not.

mod documents;
mod model;
mod runs;

pub use documents::{document, size_of, write};
pub use model::{Cell, Change, Fleet, STRATEGIES, name};
pub use runs::runs;
