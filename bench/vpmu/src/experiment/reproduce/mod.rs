//! `reproduce`: published figures on vPMUs and on `perf stat`'s set-up beside simulated and measured ones.

pub mod compression;
pub mod measured;
mod perf_stat;
pub mod run;
pub mod show;
mod simulated;

#[cfg(test)]
mod tests;
