//! A virtio console: a byte stream between a program of the guest and one of the host.
//!
//! Source: Virtual I/O Device (VIRTIO) version 1.2, sections 2.7 (split virtqueues), 4.2 (virtio over MMIO), 5.3 (console).
//!
//! - `transport`: the registers of virtio-mmio version 2.
//! - `control`: the messages about ports.
//! - `stream`: bytes between descriptor chains and a socket.
//! - `device`: all work on the queues.
//! - [`Console`]: the device, with its thread.
//!
//! vCPU threads access the registers only. A kick is an ioeventfd, an interrupt an irqfd, and all work on queues is done by the
//! device's thread. A driver that breaks the rules meets DEVICE_NEEDS_RESET, and the host an end of the
//! stream.

mod console;
mod control;
mod device;
mod stream;
#[cfg(test)]
mod tests;
mod transport;

pub use console::Console;
pub use control::PORT_NAME;
pub use device::Faults;
