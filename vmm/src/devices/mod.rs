//! The few devices a guest has beside KVM's own interrupt controllers and timer.
//!
//! A vCPU's accesses reach its [`bus`]. The project's payloads have a [`doorbell`], third-party images and Linux guests a `board`
//! with a [`console`]. The others are parts of a board: state machines without KVM.

pub(crate) mod board;
pub mod bus;
pub mod console;
pub mod doorbell;
pub(crate) mod fw_cfg;
pub mod oops;
pub mod output;
mod serial;
pub mod virtio;
