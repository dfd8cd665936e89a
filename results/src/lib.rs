//! Results of the vPMU lab: the document that an experiment leaves behind, and everything that needs nothing but documents.
//!
//! | module | does |
//! |---|---|
//! | [`document`] | the types of a document, for writing and reading alike |
//! | [`metric`] | the metrics that documents hold |
//! | [`advice`], [`choice`] | which strategy to take, by several results, and the rule |
//! | [`answers`] | a run's answer, as its table gives it and its document keeps it |
//! | [`error`] | errors as a user meets them, with exit codes |
//! | [`read`], [`open`], [`mod@write`] | files: checked when read, whole or absent when written |
//! | [`parse`] | values as people write them |
//! | [`child`] | child processes, bounded in output and time |
//! | [`host`] | facts about the host, and its noise sources |
//! | [`stats`] | medians, intervals, tests, change points, Pareto fronts |
//! | [`paired`] | one arm against another: ratio, interval, rounds |
//! | [`verdict`] | slower, faster, no change or inconclusive: one decision for every comparison |
//! | [`compare`], [`history`] | two results; change points in a series of them |
//! | [`mod@sweep`] | lines of a sweep |
//! | [`plot`] | plots as SVG, with a strategy's colour |
//! | [`table`], [`export`], [`report`] | a table for terminals, other tools' formats, an HTML page with plots |
//! | [`template`], [`junit`] | HTML templates that escape; reports for CI systems |
//! | [`shown`] | text of others, fit to be printed |
//!
//! # Reading a result
//! ```
//! use results::document::Any;
//! use results::metric::NMI_HANDLER;
//! use results::read;
//! use std::path::Path;
//!
//! let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("baselines/development-host");
//! let record = read::document::<Any>(&folder.join("nmi-latency.json"))?;
//! let floor = record.arm("floor").and_then(|arm| arm.metric(&NMI_HANDLER)).expect("the floor's figure");
//! let reuse = record.arm("reuse").and_then(|arm| arm.metric(&NMI_HANDLER)).expect("the figure of reuse");
//! assert!(reuse.p50 >= floor.p50 / 2);
//! # Ok::<(), results::error::Error>(())
//! ```

// The documents and hosts of tests are those that other crates' tests have: tools/trials makes them of this crate's types,
// which are other types than the tests' own unless they are compiled with them.
#[cfg(test)]
extern crate self as results;
#[cfg(test)]
#[path = "../../tools/trials/src/fixture.rs"]
pub mod fixture;
#[cfg(test)]
#[path = "../../tools/trials/src/hosts.rs"]
pub mod hosts;
#[cfg(test)]
#[path = "../../tools/trials/src/synthetic.rs"]
pub mod synthetic;

pub mod advice;
pub mod answers;
pub mod child;
pub mod choice;
pub mod compare;
pub mod document;
pub mod error;
pub mod export;
pub mod history;
pub mod host;
pub mod junit;
pub mod metric;
pub mod open;
pub mod paired;
pub mod parse;
pub mod plot;
pub mod read;
pub mod report;
pub mod shown;
pub mod stats;
pub mod sweep;
pub mod table;
pub mod template;
pub mod verdict;
pub mod write;
