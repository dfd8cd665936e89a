//! The few devices a guest has beside KVM's own interrupt controllers and timer.
//!
//! A vCPU's accesses reach its [`bus`]. The project's payloads have a [`doorbell`], third-party images a [`board`], Linux guests a
//! [`linux_board`] with a [`console`]. The others are parts of a board: state machines without KVM. Their `read(port, data)` and
//! `write(port, data)` take one access of 1, 2 or 4 bytes; a string instruction's exit is a sequence of them. A port beside the
//! device's own reads as all ones.

pub mod board;
pub mod bus;
pub mod console;
pub mod doorbell;
pub mod linux_board;
pub mod oops;
pub mod output;
mod pc;
pub mod serial;
pub mod virtio;
