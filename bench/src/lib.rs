//! The `vpmu` tool: experiments on what stands behind a guest's performance counters.
//!
//! [`cli`] reads the command line, [`commands`] carries it out. An experiment is a [`experiment::plan::Plan`] of
//! arms and rounds over an [`experiment::ArmRunner`]; [`result`] folds what runs leave behind into the document
//! that [`table`] and [`export`] show. [`load`] reads documents back. [`run`] boots somebody else's kernel. [`host`] and [`doctor`] tell what the figures were measured on.

pub mod backend;
pub mod calibrate;
pub mod cli;
pub mod commands;
pub mod compare;
pub mod conformance;
pub mod console;
pub mod doctor;
pub mod error;
pub mod experiment;
pub mod export;
pub mod history;
pub mod host;
pub mod load;
pub mod report;
pub mod reproduce;
pub mod result;
pub mod run;
pub mod runner;
pub mod simulated;
pub mod stat_setup;
pub mod stats;
pub mod sweep;
pub mod sys;
pub mod table;
pub mod workload;
