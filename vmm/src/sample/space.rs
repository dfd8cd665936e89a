//! A guest's linear addresses, by its own page tables in the VMM's memory: no system call, whatever the tables hold.

use kvm_bindings::kvm_sregs;
use vm_memory::{Bytes as _, GuestAddress, GuestMemoryMmap};

const CR0_PG: u64 = 1 << 31;
const CR4_LA57: u64 = 1 << 12;
const EFER_LMA: u64 = 1 << 10;
const PRESENT: u64 = 1;
/// The entry maps a page above the lowest level.
const LARGE: u64 = 1 << 7;
/// Physical address bits of an entry.
const ADDRESS: u64 = 0x000f_ffff_ffff_f000;
const PAGE: u64 = 0x1000;

/// The address space of a vCPU at one time.
#[derive(Debug)]
pub(super) struct Space<'a> {
    memory: &'a GuestMemoryMmap,
    /// Levels of its page tables, 0 without paging; `None`: those of 32 bits, which are not followed.
    levels: Option<u32>,
    root: u64,
    /// The page that was translated last: chains stay on few pages.
    last: Option<(u64, u64)>,
}

impl<'a> Space<'a> {
    pub(super) fn new(memory: &'a GuestMemoryMmap, sregs: &kvm_sregs) -> Self {
        let levels = match (sregs.cr0 & CR0_PG != 0, sregs.efer & EFER_LMA != 0) {
            (false, _) => Some(0),
            (true, false) => None,
            (true, true) => Some(if sregs.cr4 & CR4_LA57 == 0 { 4 } else { 5 }),
        };
        Self { memory, levels, root: sregs.cr3, last: None }
    }

    /// Reads 8 bytes.
    pub(super) fn u64(&mut self, linear: u64) -> Option<u64> {
        if linear % PAGE > PAGE - 8 {
            let mut bytes = [0; 8];
            for (at, byte) in bytes.iter_mut().enumerate() {
                *byte = self.u8(linear.wrapping_add(at as u64))?;
            }
            return Some(u64::from_le_bytes(bytes));
        }
        let physical = self.translate(linear)?;
        self.memory.read_obj(GuestAddress(physical)).ok()
    }

    /// Reads a byte.
    pub(super) fn u8(&mut self, linear: u64) -> Option<u8> {
        let physical = self.translate(linear)?;
        self.memory.read_obj(GuestAddress(physical)).ok()
    }

    /// Returns the physical address, if the guest's tables map it. They are read once: a guest that changes them
    /// meanwhile gets an answer of both.
    fn translate(&mut self, linear: u64) -> Option<u64> {
        let page = linear & !(PAGE - 1);
        if let Some((known, physical)) = self.last
            && known == page
        {
            return Some(physical + linear % PAGE);
        }
        let physical = match self.levels? {
            0 => page,
            levels => {
                // Linear addresses are canonical.
                let unused = 64 - 12 - 9 * levels;
                if ((page << unused).cast_signed() >> unused).cast_unsigned() != page {
                    return None;
                }
                self.walk(self.root & ADDRESS, page, levels)?
            }
        };
        self.last = Some((page, physical));
        Some(physical + linear % PAGE)
    }

    /// Tables of 512 entries from level `levels` down.
    fn walk(&self, mut table: u64, page: u64, levels: u32) -> Option<u64> {
        for level in (0..levels).rev() {
            let shift = 12 + 9 * level;
            let entry = self.entry(table + 8 * (page >> shift & 511))?;
            if level == 0 || (level < 3 && entry & LARGE != 0) {
                let size = 1 << shift;
                return Some((entry & ADDRESS & !(size - 1)) + page % size);
            }
            table = entry & ADDRESS;
        }
        None
    }

    fn entry(&self, at: u64) -> Option<u64> {
        let entry: u64 = self.memory.read_obj(GuestAddress(at)).ok()?;
        (entry & PRESENT != 0).then_some(entry)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn memory() -> GuestMemoryMmap {
        GuestMemoryMmap::from_ranges(&[(GuestAddress(0), 0x10_0000)]).unwrap()
    }

    fn long_mode(cr3: u64) -> kvm_sregs {
        kvm_sregs { cr0: CR0_PG, cr3, efer: EFER_LMA, ..kvm_sregs::default() }
    }

    #[test]
    fn four_levels_and_large_pages_are_followed() {
        let memory = memory();
        let put = |at: u64, value: u64| memory.write_obj(value, GuestAddress(at)).unwrap();
        // 0x40_0000 → page table → 0x7000; 0x60_0000: a large page at 0.
        put(0x1000, 0x2001);
        put(0x2000, 0x3001);
        put(0x3000 + 8 * 2, 0x4001);
        put(0x3000 + 8 * 3, 0x81);
        put(0x4000, 0x7001);
        put(0x7008, 42);
        put(0x7ffc, 0x1111_1111_2222_2222);
        let sregs = long_mode(0x1000);
        let mut space = Space::new(&memory, &sregs);
        assert_eq!((space.u64(0x40_0008), space.u64(0x60_7008)), (Some(42), Some(42)));
        assert_eq!(space.u8(0x40_0008), Some(42));
        assert_eq!((space.u64(0x40_1000), space.u64(0x80_0000), space.u64(1 << 63)), (None, None, None));
        assert_eq!(space.u64(0x40_0ffc), None, "its second half is not mapped");
        assert_eq!(space.u64(0x60_7ffc), Some(0x1111_1111_2222_2222), "over the end of a page");
        // A table that points to itself, and one outside of memory.
        put(0x1000, 0x1001);
        assert_eq!(Space::new(&memory, &sregs).u64(0), Some(0x1001));
        put(0x1000, 0xffff_ffff_f001);
        assert_eq!(Space::new(&memory, &sregs).u64(0), None);
        let of_32_bits = kvm_sregs { efer: 0, ..sregs };
        assert_eq!(Space::new(&memory, &of_32_bits).u64(0x7008), None);
        assert_eq!(Space::new(&memory, &kvm_sregs::default()).u64(0x7008), Some(42), "without paging");
    }
}
