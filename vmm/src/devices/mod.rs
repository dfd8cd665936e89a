//! The few devices a guest has beside KVM's own interrupt controllers and timer.
//!
//! The project's payloads have a [`doorbell`]. The others are for somebody else's images: state machines without KVM, whose
//! `read(port, data)` and `write(port, data)` take one access of 1, 2 or 4 bytes; a string instruction's exit is a
//! sequence of them. A port beside the device's own reads as all ones.

pub mod debug_exit;
pub mod doorbell;
pub mod fw_cfg;
pub mod serial;
