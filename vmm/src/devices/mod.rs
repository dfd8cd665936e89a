//! The few devices a guest has.

pub mod doorbell;
