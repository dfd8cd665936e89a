//! Parts that commands share which sample a guest: the guest, the events, the payload, the unwind tables of a Linux kernel, and the turns of vCPUs.

pub mod events;
pub mod guest;
pub mod kernel;
pub mod payload;
pub mod turn;
