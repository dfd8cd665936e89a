//! Layout of the payload's guest-physical memory, which is identity-mapped.
//!
//! ```text
//! 0x0000_1000  GDT, IDT
//! 0x0000_4000  page tables
//! 0x0010_0000  the payload's image
//! 0x0040_0000  one block per vCPU: boot page, report, user page and stack, TSS, kernel stack, NMI stack
//!              then one log per vCPU, and the steps of a guest that is played back
//! ```

use guest::abi::{LogEntry, Step, Words as _};

/// A page.
pub const PAGE: u64 = 0x1000;
/// Global descriptor table.
pub const GDT: u64 = 0x1000;
/// Interrupt descriptor table.
pub const IDT: u64 = 0x2000;
/// Page tables, PML4 first.
pub const PAGE_TABLES: u64 = 0x4000;
/// End of the page tables.
pub const PAGE_TABLES_END: u64 = 0xa_0000;
/// The payload's image.
pub const IMAGE: u64 = 0x10_0000;
/// End of the image.
pub const IMAGE_END: u64 = 0x40_0000;
/// Blocks of the vCPUs.
pub const VCPUS: u64 = 0x40_0000;
/// One block.
pub const VCPU_STRIDE: u64 = 0x1_0000;
/// vCPUs at most.
pub const MAX_VCPUS: usize = guest::abi::MAX_VCPUS;
/// Log entries per vCPU at most.
pub const MAX_LOG: u64 = 1 << 20;
/// Steps at most.
pub const MAX_STEPS: usize = 1 << 18;

/// Addresses of one vCPU's block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VcpuBlock {
    /// Boot page.
    pub boot_page: u64,
    /// Report.
    pub report: u64,
    /// Page ring 3 may write; its stack follows.
    pub user_page: u64,
    /// Top of the ring-3 stack.
    pub user_stack_top: u64,
    /// Task state segment.
    pub tss: u64,
    /// Top of the ring-0 stack.
    pub stack_top: u64,
    /// Top of the NMI stack (IST1).
    pub nmi_stack_top: u64,
}

impl VcpuBlock {
    /// Returns the block of vCPU `cpu`.
    pub const fn of(cpu: usize) -> Self {
        let base = VCPUS + cpu as u64 * VCPU_STRIDE;
        Self {
            boot_page: base,
            report: base + PAGE,
            user_page: base + 2 * PAGE,
            user_stack_top: base + 5 * PAGE,
            tss: base + 5 * PAGE,
            stack_top: base + 11 * PAGE,
            nmi_stack_top: base + 15 * PAGE,
        }
    }
}

/// Guest memory for a number of vCPUs and log entries each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Number of vCPUs.
    pub vcpus: usize,
    /// Number of log entries per vCPU.
    pub log_entries: u64,
    steps: usize,
}

impl Layout {
    /// Creates a layout, bounded by [`MAX_VCPUS`], [`MAX_LOG`] and [`MAX_STEPS`].
    pub fn new(vcpus: usize, log_entries: u64, steps: usize) -> Self {
        Self {
            vcpus: vcpus.clamp(1, MAX_VCPUS),
            log_entries: log_entries.clamp(1, MAX_LOG),
            steps: steps.min(MAX_STEPS),
        }
    }

    /// Returns the address of the log of vCPU `cpu`.
    pub fn log(&self, cpu: usize) -> u64 {
        VCPUS + self.vcpus as u64 * VCPU_STRIDE + cpu as u64 * self.log_bytes()
    }

    fn log_bytes(&self) -> u64 {
        (self.log_entries * 8 * LogEntry::COUNT as u64).next_multiple_of(PAGE)
    }

    /// Returns the address of the steps, which all vCPUs share.
    pub fn steps(&self) -> u64 {
        self.log(self.vcpus)
    }

    /// Returns the size of all memory, a multiple of 2 MiB.
    pub fn memory(&self) -> u64 {
        (self.steps() + (self.steps * 8 * Step::COUNT) as u64).next_multiple_of(0x20_0000)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_and_logs_do_not_overlap() {
        let layout = Layout::new(3, 1000, 100_000);
        let block = VcpuBlock::of(2);
        assert!(block.nmi_stack_top <= VCPUS + 3 * VCPU_STRIDE && layout.log(0) == VCPUS + 3 * VCPU_STRIDE);
        assert_eq!(layout.log(1) - layout.log(0), 48_000u64.next_multiple_of(PAGE));
        assert!(layout.steps() >= layout.log(2) + 48_000 && layout.memory().is_multiple_of(0x20_0000));
        assert!(layout.memory() >= layout.steps() + 2_400_000);
    }
}
