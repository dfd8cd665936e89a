//! The numbers of queues and ports (5.3.2). Port 0 is a console and is not offered; its queues exist.

/// The name of the port, in the guest's `/sys/class/virtio-ports/*/name`.
pub const PORT_NAME: &str = "vpmu";

/// Its number.
pub(super) const PORT: u32 = 1;

/// Ports, for the configuration space.
pub(super) const MAX_PORTS: u32 = 2;

/// Virtqueues: two of port 0, two of the control messages, two of port 1.
pub(super) const QUEUES: usize = 6;

/// Control messages to the driver.
pub(super) const CONTROL_RECEIVE: usize = 2;
/// Control messages of the driver.
pub(super) const CONTROL_TRANSMIT: usize = 3;
/// The port's bytes to the driver.
pub(super) const RECEIVE: usize = 4;
/// The port's bytes of the driver.
pub(super) const TRANSMIT: usize = 5;
