//! Results of the vPMU lab: the document that experiments leave, and everything that needs nothing but documents.
//!
//! [`document`] are the types, [`write`] puts them into files, [`read`] reads them back. [`compare`] judges two results,
//! [`history`] a series of them; [`export`], [`report`] and [`table`] show them. [`host`] are the facts about the host that a document holds.

pub mod compare;
pub mod cpu_list;
pub mod document;
pub mod error;
pub mod export;
#[cfg(any(test, feature = "testing"))]
pub mod fixture;
pub mod history;
pub mod host;
pub mod metric;
pub mod published;
pub mod read;
pub mod report;
pub mod stats;
pub mod sweep;
pub mod table;
pub mod write;
