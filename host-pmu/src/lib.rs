//! What may stand behind a virtual performance counter (vPMC).
//!
//! A vPMC counts because some host event counts for it, or because nothing does and a timer pretends.
//! This crate holds the choices — [`stats`] of what they cost — and knows neither KVM nor registers.

pub mod stats;
