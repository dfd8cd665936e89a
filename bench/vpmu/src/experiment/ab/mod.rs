//! `ab`: guests of two builds, or of two sets of options, take turns in one session.
//!
//! Two runs minutes apart meet different hosts, and what differs between them is mostly that. Here a turn of an arm of BASE
//! is followed, or preceded, by the same arm's turn of NEW, tens of milliseconds apart, so that their ratio shows the
//! builds. Each side is a process of its own ([`child`]), driven line by line ([`protocol`], [`peer`]); only one guest runs
//! at a time. A session has two fresh processes, so that the layout of one process is not taken for a difference of builds:
//! [`verdict`] treats the rounds of a session as related.

pub mod child;
pub mod document;
pub mod peer;
pub mod protocol;
pub mod run;
pub mod show;
pub mod spec;
pub mod verdict;
