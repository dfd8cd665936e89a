//! Measures the cost and the savings of compression: the published table of `perf record -z`, measured here.
//!
//! `guest` is recorded by [`measure`]; [`document`] has the findings and their table. [`overhead`] records the same
//! guest by frequency.

pub mod document;
pub mod measure;
pub mod overhead;
