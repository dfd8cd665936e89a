//! Reading documents back. A file is not trusted: what is wrong with it is an error in one line that names the file.
//!
//! [`record`] reads a document of any experiment, [`document`] one with its experiment's own types. Both are the types' own derived
//! reader, and make the same checks.
//! Nothing is skipped: a folder with one bad document is a bad folder.

mod check;
mod file;
mod refuse;
mod source;

#[cfg(any(test, feature = "testing"))]
pub(crate) use file::of_text;
pub use file::{MAX_DOCUMENT, document, found, record, record_with};
pub use source::copied;
pub use source::{BASELINES, MAX_DOCUMENTS, baseline_folder, check_name, files, folder, gather};

#[cfg(test)]
mod tests;
