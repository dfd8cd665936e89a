//! Guest-physical addresses of a Linux guest.

/// Global descriptor table of the first instructions.
pub const GDT: u64 = 0x500;
/// Boot parameters.
pub const ZERO_PAGE: u64 = 0x7000;
/// Page tables of the first instructions.
pub const PAGE_TABLES: u64 = 0x9000;
/// Command line.
pub const COMMAND_LINE: u64 = 0x2_0000;
/// Most bytes for it, with its terminating zero.
pub const COMMAND_LINE_MAX: usize = 0x1_0000;
/// End of conventional memory; an EBDA would follow.
pub const LOW_END: u64 = 0x9_fc00;
/// ACPI tables: where Linux looks for the root pointer, too.
pub const ACPI: u64 = 0xe_0000;
/// End of the area for ACPI tables and of the first megabyte.
pub const HIGH_START: u64 = 0x10_0000;
/// End of memory below 4 GiB: devices' windows and the interrupt controllers follow.
pub const HOLE_START: u64 = 3 << 30;
/// Address at which memory continues above the hole.
pub const HOLE_END: u64 = 4 << 30;
/// Window of the virtio device.
pub const VIRTIO: u64 = 0xd000_0000;
/// Its size.
pub const VIRTIO_SIZE: u64 = 0x1000;
/// Its interrupt.
pub const VIRTIO_GSI: u32 = 5;
/// Least memory: the kernel alone unpacks to more than 32 MiB.
pub const MIN_MEMORY: u64 = 64 << 20;
/// Most memory: 38 bits of address, which every host with KVM has.
pub const MAX_MEMORY: u64 = 128 << 30;

/// Returns the bytes of memory below the hole, and above it.
pub const fn split(memory: u64) -> (u64, u64) {
    let low = if memory < HOLE_START { memory } else { HOLE_START };
    (low, memory - low)
}
