//! The control queues' messages (5.3.6.2): which ports there are, their names, and which end is open.

use std::collections::VecDeque;

/// Events of `struct virtio_console_control`.
mod event {
    pub(super) const DEVICE_READY: u16 = 0;
    pub(super) const PORT_ADD: u16 = 1;
    pub(super) const PORT_READY: u16 = 3;
    pub(super) const PORT_OPEN: u16 = 6;
    pub(super) const PORT_NAME: u16 = 7;
}

/// Bytes of `struct virtio_console_control`: le32 id, le16 event, le16 value.
pub(super) const MESSAGE: usize = 8;

/// Messages kept for a driver that does not take them; the next are not asked for until it does.
const MOST_PENDING: usize = 8;

/// The state of the ports.
#[derive(Debug, Default)]
pub(super) struct Control {
    pending: VecDeque<Vec<u8>>,
    /// The driver knows the port.
    port_ready: bool,
    /// A program of the guest has the port open.
    guest_open: bool,
    /// The host's end is closed.
    host_closed: bool,
}

fn message(id: u32, event: u16, value: u16) -> Vec<u8> {
    [&id.to_le_bytes()[..], &event.to_le_bytes(), &value.to_le_bytes()].concat()
}

impl Control {
    /// Resets the driver's part; whether the host's end is closed is not the driver's.
    pub(super) fn reset(&mut self) {
        *self = Self { host_closed: self.host_closed, ..Self::default() };
    }

    /// Returns whether a message of the driver can be taken.
    pub(super) fn has_room(&self) -> bool {
        // One message has two answers at most.
        self.pending.len() + 2 <= MOST_PENDING
    }

    /// Takes a message of the driver. An unknown one, or one about another port, is of no interest.
    pub(super) fn take(&mut self, bytes: [u8; MESSAGE]) {
        let [i0, i1, i2, i3, e0, e1, v0, v1] = bytes;
        let id = u32::from_le_bytes([i0, i1, i2, i3]);
        let value = u16::from_le_bytes([v0, v1]);
        match (u16::from_le_bytes([e0, e1]), id) {
            (event::DEVICE_READY, _) if value == 1 => {
                self.pending.push_back(message(PORT, event::PORT_ADD, 1));
            }
            (event::PORT_READY, PORT) if value == 1 => {
                let mut name = message(PORT, event::PORT_NAME, 1);
                name.extend_from_slice(PORT_NAME.as_bytes());
                self.pending.push_back(name);
                self.pending.push_back(message(PORT, event::PORT_OPEN, u16::from(!self.host_closed)));
                self.port_ready = true;
            }
            (event::PORT_OPEN, PORT) => self.guest_open = value != 0,
            _ => {}
        }
    }

    /// Closes the host's end.
    pub(super) fn close_host(&mut self) {
        if !self.host_closed && self.port_ready {
            self.pending.push_back(message(PORT, event::PORT_OPEN, 0));
        }
        self.host_closed = true;
    }

    /// Returns whether a program of the guest has the port open.
    pub(super) const fn guest_is_open(&self) -> bool {
        self.guest_open
    }

    /// Returns the next message for the driver.
    pub(super) fn next(&self) -> Option<&[u8]> {
        self.pending.front().map(Vec::as_slice)
    }

    /// Drops the next message, which the driver has.
    pub(super) fn sent(&mut self) {
        self.pending.pop_front();
    }
}

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

#[cfg(test)]
mod tests {
    use super::*;

    fn take(control: &mut Control, id: u32, event: u16, value: u16) {
        let bytes: [u8; MESSAGE] = message(id, event, value).try_into().unwrap();
        control.take(bytes);
    }

    #[test]
    fn other_ports_unknown_events_and_refusals_change_nothing() {
        let mut control = Control::default();
        take(&mut control, 0, event::DEVICE_READY, 0);
        take(&mut control, 1, event::PORT_READY, 0);
        take(&mut control, 7, event::PORT_READY, 1);
        take(&mut control, 7, event::PORT_OPEN, 1);
        take(&mut control, 1, 0xffff, 1);
        assert!(control.next().is_none() && !control.guest_is_open());
    }
}
