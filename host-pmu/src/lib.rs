#![doc = include_str!("../README.md")]
//!
//! # Modules
//!
//! A vPMC counts by a host event, or without one by a clock and a timer.
//!
//! - [`strategy`]: the choices, as data; [`bank`]: the host events of one vCPU, kept by a strategy.
//! - [`backend`]: the host operations open, pause, resume, set period, release, and the counts; [`open`]: a bank over one of them.
//! - [`floor`]: no host event at all.
//! - [`kick`]: the signal of events and timers to the vCPU thread; [`stats`]: counts and costs of the host side.
//! - [`sampler`]: host events that sample the thread, apart from those behind its counters.
//! - [`trace`]: what a vCPU and its PMU met, row by row.
//! - [`kernel`]: the same strategies below KVM's own vPMU, by a kernel module.
//! - [`side`]: the bank or the floor, as a VMM or a simulator sees it. The PMU sees it as an [`arch_pmu::HostCounters`].
//!
//! Nothing here but [`kernel`] knows KVM, and nothing the width of a counter.

pub mod backend;
pub mod bank;
pub mod floor;
pub mod kernel;
pub mod kick;
pub mod open;
pub mod sampler;
pub mod side;
pub mod stats;
pub mod strategy;
mod sys;
pub mod trace;
