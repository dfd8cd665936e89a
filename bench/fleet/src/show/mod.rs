//! An analysis for people: text, Markdown, JUnit, a page.

mod elements;
mod junit;
mod markdown;
mod page;
mod tables;
mod text;
mod words;

pub use elements::{ElementEnd, ElementLine};
pub use junit::junit;
pub use markdown::markdown;
pub use page::page;
pub use text::text;
pub(super) use words::value;

#[cfg(test)]
mod tests;
