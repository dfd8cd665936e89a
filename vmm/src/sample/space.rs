//! A guest's linear addresses, by its own page tables in the VMM's memory: no system call, whatever the tables hold.

use kvm_bindings::kvm_sregs;
use vm_memory::{Bytes as _, GuestAddress, GuestMemoryMmap};

const CR0_PG: u64 = 1 << 31;
const CR4_PSE: u64 = 1 << 4;
const CR4_PAE: u64 = 1 << 5;
const CR4_LA57: u64 = 1 << 12;
const EFER_LMA: u64 = 1 << 10;
const PRESENT: u64 = 1;
/// The entry maps a page above the lowest level.
const LARGE: u64 = 1 << 7;
/// Physical address bits of an entry.
const ADDRESS: u64 = 0x000f_ffff_ffff_f000;
const PAGE: u64 = 0x1000;

/// Paging mode: how linear addresses become physical ones (SDM vol. 3, 5.1.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Paging {
    Off,
    /// 32-bit paging, with pages of 4 MiB if the flag is set.
    Bits32 {
        large: bool,
    },
    Pae,
    Levels(u32),
}

/// The address space of a vCPU at one time.
#[derive(Debug)]
pub(super) struct Space<'a> {
    memory: &'a GuestMemoryMmap,
    paging: Paging,
    root: u64,
    /// The page that was translated last: chains stay on few pages.
    last: Option<(u64, u64)>,
}

impl<'a> Space<'a> {
    pub(super) fn new(memory: &'a GuestMemoryMmap, sregs: &kvm_sregs) -> Self {
        let paging = if sregs.cr0 & CR0_PG == 0 {
            Paging::Off
        } else if sregs.cr4 & CR4_PAE == 0 {
            Paging::Bits32 { large: sregs.cr4 & CR4_PSE != 0 }
        } else if sregs.efer & EFER_LMA == 0 {
            Paging::Pae
        } else {
            Paging::Levels(if sregs.cr4 & CR4_LA57 == 0 { 4 } else { 5 })
        };
        Self { memory, paging, root: sregs.cr3, last: None }
    }

    /// Reads 8 bytes.
    pub(super) fn u64(&mut self, linear: u64) -> Option<u64> {
        if linear % PAGE > PAGE - 8 {
            let (low, high) = (self.u32(linear)?, self.u32(linear.wrapping_add(4))?);
            return Some(u64::from(low) | u64::from(high) << 32);
        }
        let physical = self.translate(linear)?;
        self.memory.read_obj(GuestAddress(physical)).ok()
    }

    /// Reads 4 bytes.
    pub(super) fn u32(&mut self, linear: u64) -> Option<u32> {
        if linear % PAGE > PAGE - 4 {
            let mut bytes = [0; 4];
            for (at, byte) in bytes.iter_mut().enumerate() {
                *byte = self.u8(linear.wrapping_add(at as u64))?;
            }
            return Some(u32::from_le_bytes(bytes));
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
        let physical = match self.paging {
            Paging::Off => page,
            Paging::Bits32 { large } => self.walk_32(page, large)?,
            Paging::Pae => {
                let top = self.entry((self.root & 0xffff_ffe0) + 8 * (page >> 30 & 3))?;
                self.walk(top & ADDRESS, page, 2)?
            }
            Paging::Levels(levels) => {
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

    fn walk_32(&self, page: u64, large: bool) -> Option<u64> {
        let entry = self.entry_32((self.root & 0xffff_f000) + 4 * (page >> 22 & 1023))?;
        if large && entry & LARGE != 0 {
            return Some((entry & 0xffc0_0000) + (page & 0x003f_f000));
        }
        let entry = self.entry_32((entry & 0xffff_f000) + 4 * (page >> 12 & 1023))?;
        Some(entry & 0xffff_f000)
    }

    fn entry(&self, at: u64) -> Option<u64> {
        let entry: u64 = self.memory.read_obj(GuestAddress(at)).ok()?;
        (entry & PRESENT != 0).then_some(entry)
    }

    fn entry_32(&self, at: u64) -> Option<u64> {
        let entry: u32 = self.memory.read_obj(GuestAddress(at)).ok()?;
        (u64::from(entry) & PRESENT != 0).then_some(entry.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn memory() -> GuestMemoryMmap {
        GuestMemoryMmap::from_ranges(&[(GuestAddress(0), 0x10_0000)]).unwrap()
    }

    fn long_mode(cr3: u64) -> kvm_sregs {
        kvm_sregs { cr0: CR0_PG, cr3, cr4: CR4_PAE, efer: EFER_LMA, ..kvm_sregs::default() }
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
    }

    #[test]
    fn paging_of_32_bits_and_none() {
        let memory = memory();
        let put = |at: u64, value: u32| memory.write_obj(value, GuestAddress(at)).unwrap();
        put(0x1000 + 4, 0x2001);
        put(0x2000, 0x7001);
        put(0x1000 + 8, 0x81);
        put(0x7004, 9);
        let sregs = kvm_sregs { cr0: CR0_PG, cr3: 0x1000, cr4: CR4_PSE, ..kvm_sregs::default() };
        let mut space = Space::new(&memory, &sregs);
        assert_eq!((space.u32(0x40_0004), space.u32(0x80_7004), space.u32(0xc0_0000)), (Some(9), Some(9), None));
        let mut space = Space::new(&memory, &kvm_sregs::default());
        assert_eq!((space.u32(0x7004), space.u32(0x20_0000)), (Some(9), None));
    }
}
