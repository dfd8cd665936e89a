//! The few devices an image needs beside KVM's own interrupt controllers and timer.
//!
//! Each is a state machine without KVM: `read(port, data)` and `write(port, data)` take one access of 1, 2 or 4 bytes;
//! a string instruction's exit is a sequence of them. A port beside the device's own reads as all ones.

pub mod debug_exit;
pub mod fw_cfg;
pub mod serial;
