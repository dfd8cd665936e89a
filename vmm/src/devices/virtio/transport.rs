//! The registers of virtio-mmio version 2 (4.2.2) and a device's initialization (3.1).

use virtio_queue::QueueT as _;
use vm_memory::{GuestAddress, GuestMemoryMmap};

use super::control::{MAX_PORTS, QUEUES};
use super::stream::Queue;

/// Device status bits (2.1).
pub(super) mod status {
    pub(in super::super) const ACKNOWLEDGE: u32 = 1;
    pub(in super::super) const DRIVER: u32 = 2;
    pub(in super::super) const DRIVER_OK: u32 = 4;
    pub(in super::super) const FEATURES_OK: u32 = 8;
    pub(in super::super) const NEEDS_RESET: u32 = 64;
    pub(in super::super) const FAILED: u32 = 128;
}

/// Offsets of the registers.
pub(super) mod register {
    pub(in super::super) const MAGIC: u64 = 0x000;
    pub(in super::super) const VERSION: u64 = 0x004;
    pub(in super::super) const DEVICE_ID: u64 = 0x008;
    pub(in super::super) const VENDOR_ID: u64 = 0x00c;
    pub(in super::super) const DEVICE_FEATURES: u64 = 0x010;
    pub(in super::super) const DEVICE_FEATURES_SEL: u64 = 0x014;
    pub(in super::super) const DRIVER_FEATURES: u64 = 0x020;
    pub(in super::super) const DRIVER_FEATURES_SEL: u64 = 0x024;
    pub(in super::super) const QUEUE_SEL: u64 = 0x030;
    pub(in super::super) const QUEUE_NUM_MAX: u64 = 0x034;
    pub(in super::super) const QUEUE_NUM: u64 = 0x038;
    pub(in super::super) const QUEUE_READY: u64 = 0x044;
    pub(in super::super) const QUEUE_NOTIFY: u64 = 0x050;
    pub(in super::super) const INTERRUPT_STATUS: u64 = 0x060;
    pub(in super::super) const INTERRUPT_ACK: u64 = 0x064;
    pub(in super::super) const STATUS: u64 = 0x070;
    pub(in super::super) const QUEUE_DESC_LOW: u64 = 0x080;
    pub(in super::super) const QUEUE_DESC_HIGH: u64 = 0x084;
    pub(in super::super) const QUEUE_DRIVER_LOW: u64 = 0x090;
    pub(in super::super) const QUEUE_DRIVER_HIGH: u64 = 0x094;
    pub(in super::super) const QUEUE_DEVICE_LOW: u64 = 0x0a0;
    pub(in super::super) const QUEUE_DEVICE_HIGH: u64 = 0x0a4;
    pub(in super::super) const SHM_LEN_LOW: u64 = 0x0b0;
    pub(in super::super) const SHM_BASE_HIGH: u64 = 0x0bc;
    pub(in super::super) const CONFIG: u64 = 0x100;
}

const MAGIC: u32 = u32::from_le_bytes(*b"virt");
const CONSOLE: u32 = 3;
const VENDOR: u32 = u32::from_le_bytes(*b"vpmu");

/// VIRTIO_CONSOLE_F_MULTIPORT, VIRTIO_F_VERSION_1.
const OFFERED: u64 = 1 << 1 | VERSION_1;
const VERSION_1: u64 = 1 << 32;

/// Largest size of a queue.
const QUEUE_SIZE: u16 = 256;

/// One queue, as the driver has described it.
#[derive(Clone, Copy, Debug)]
struct Description {
    size: u32,
    descriptors: u64,
    driver: u64,
    device: u64,
}

impl Default for Description {
    fn default() -> Self {
        Self { size: u32::from(QUEUE_SIZE), descriptors: 0, driver: 0, device: 0 }
    }
}

impl Description {
    /// Builds the queue, if all of it is in memory and aligned.
    fn queue(self, memory: &GuestMemoryMmap) -> Option<Queue> {
        let mut queue = Queue::new(QUEUE_SIZE).ok()?;
        queue.try_set_size(u16::try_from(self.size).ok()?).ok()?;
        queue.try_set_desc_table_address(GuestAddress(self.descriptors)).ok()?;
        queue.try_set_avail_ring_address(GuestAddress(self.driver)).ok()?;
        queue.try_set_used_ring_address(GuestAddress(self.device)).ok()?;
        queue.set_ready(true);
        // A ring at 0 is one that was never described.
        (self.driver != 0 && self.device != 0 && queue.is_valid(memory)).then_some(queue)
    }
}

/// The registers, but for the interrupt's.
#[derive(Debug, Default)]
pub(super) struct Transport {
    status: u32,
    device_features_sel: u32,
    driver_features_sel: u32,
    driver_features: u64,
    queue_sel: usize,
    descriptions: [Description; QUEUES],
    queues: [Option<Queue>; QUEUES],
    /// The driver was notified of DEVICE_NEEDS_RESET.
    announced: bool,
}

fn low(value: &mut u64, half: u32) {
    *value = *value & !0xffff_ffff | u64::from(half);
}

fn high(value: &mut u64, half: u32) {
    *value = *value & 0xffff_ffff | u64::from(half) << 32;
}

fn half(value: u64, select: u32) -> u32 {
    match select {
        0 => value as u32,
        1 => (value >> 32) as u32,
        _ => 0,
    }
}

impl Transport {
    /// Returns whether the driver has set the device up and the device works.
    pub(super) const fn is_live(&self) -> bool {
        self.status & (status::DRIVER_OK | status::NEEDS_RESET | status::FAILED) == status::DRIVER_OK
    }

    /// Returns whether a driver has found the device, and is not done with it.
    pub(super) const fn is_being_set_up(&self) -> bool {
        self.status & status::DRIVER != 0 && self.status & (status::DRIVER_OK | status::FAILED) == 0
    }

    /// Stops the device until a reset.
    pub(super) const fn give_up(&mut self) {
        self.status |= status::NEEDS_RESET;
    }

    /// Returns whether the driver is to be notified that the device needs a reset, once. It is not before DRIVER_OK (2.1.2).
    pub(super) const fn announces_reset(&mut self) -> bool {
        const BOTH: u32 = status::NEEDS_RESET | status::DRIVER_OK;
        self.status & BOTH == BOTH && !std::mem::replace(&mut self.announced, true)
    }

    /// Returns a queue, if the driver made it ready.
    pub(super) const fn queue(&mut self, number: usize) -> Option<&mut Queue> {
        self.queues[number].as_mut()
    }

    /// Reads a 32-bit register.
    pub(super) fn read(&self, offset: u64) -> u32 {
        match offset {
            register::MAGIC => MAGIC,
            register::VERSION => 2,
            register::DEVICE_ID => CONSOLE,
            register::VENDOR_ID => VENDOR,
            register::DEVICE_FEATURES => half(OFFERED, self.device_features_sel),
            register::QUEUE_NUM_MAX if self.queue_sel < QUEUES => u32::from(QUEUE_SIZE),
            register::QUEUE_READY => u32::from(self.queues.get(self.queue_sel).is_some_and(Option::is_some)),
            register::STATUS => self.status,
            // There is no shared memory: its length and base read as all ones.
            register::SHM_LEN_LOW..=register::SHM_BASE_HIGH => u32::MAX,
            _ => 0,
        }
    }

    /// Writes a 32-bit register; returns whether that reset the device. What the driver may not write, and what it may not write
    /// now, changes nothing.
    pub(super) fn write(&mut self, offset: u64, value: u32, memory: &GuestMemoryMmap) -> bool {
        match offset {
            register::DEVICE_FEATURES_SEL => self.device_features_sel = value,
            register::DRIVER_FEATURES_SEL => self.driver_features_sel = value,
            register::DRIVER_FEATURES if self.status & status::FEATURES_OK == 0 => match self.driver_features_sel {
                0 => low(&mut self.driver_features, value),
                1 => high(&mut self.driver_features, value),
                // A feature without a bit is not offered, so this cannot be what was agreed on.
                _ => self.status |= if value == 0 { 0 } else { status::NEEDS_RESET },
            },
            register::QUEUE_SEL => self.queue_sel = value as usize,
            register::QUEUE_READY => self.make_ready(value != 0, memory),
            register::STATUS => return self.write_status(value),
            _ => self.describe(offset, value),
        }
        false
    }

    fn describe(&mut self, offset: u64, value: u32) {
        let Some(description) = self.descriptions.get_mut(self.queue_sel) else { return };
        if self.queues[self.queue_sel].is_some() {
            return;
        }
        match offset {
            register::QUEUE_NUM => description.size = value,
            register::QUEUE_DESC_LOW => low(&mut description.descriptors, value),
            register::QUEUE_DESC_HIGH => high(&mut description.descriptors, value),
            register::QUEUE_DRIVER_LOW => low(&mut description.driver, value),
            register::QUEUE_DRIVER_HIGH => high(&mut description.driver, value),
            register::QUEUE_DEVICE_LOW => low(&mut description.device, value),
            register::QUEUE_DEVICE_HIGH => high(&mut description.device, value),
            _ => {}
        }
    }

    fn make_ready(&mut self, ready: bool, memory: &GuestMemoryMmap) {
        let Some(slot) = self.queues.get_mut(self.queue_sel) else { return };
        if !ready {
            *slot = None;
        } else if slot.is_none() && self.status & status::FEATURES_OK != 0 {
            *slot = self.descriptions[self.queue_sel].queue(memory);
            if slot.is_none() {
                self.status |= status::NEEDS_RESET;
            }
        }
    }

    fn write_status(&mut self, value: u32) -> bool {
        if value == 0 {
            *self = Self::default();
            return true;
        }
        let mut asked =
            value & (status::ACKNOWLEDGE | status::DRIVER | status::FEATURES_OK | status::DRIVER_OK | status::FAILED);
        // Features that were not offered, or a driver of a version before 1: FEATURES_OK stays clear.
        if self.driver_features & !OFFERED != 0 || self.driver_features & VERSION_1 == 0 {
            asked &= !status::FEATURES_OK;
        }
        if (self.status | asked) & status::FEATURES_OK == 0 {
            asked &= !status::DRIVER_OK;
        }
        self.status |= asked;
        false
    }
}

/// Reads the configuration space (5.3.4): columns and rows, which are not offered, then max_nr_ports.
pub(super) fn read_config(offset: u64, data: &mut [u8]) {
    let mut config = [0; 12];
    config[4..8].copy_from_slice(&MAX_PORTS.to_le_bytes());
    for (at, byte) in data.iter_mut().enumerate() {
        *byte =
            usize::try_from(offset).ok().and_then(|first| config.get(first.checked_add(at)?)).map_or(0, |byte| *byte);
    }
}
