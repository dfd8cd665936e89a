//! A guest's linear addresses, by its own page tables in the VMM's memory: no system call, whatever the tables hold.

use std::cell::Cell;
use std::ops::Range;

use kvm_bindings::kvm_sregs;
use vm_memory::{Bytes as _, GuestAddress, GuestMemoryBackend as _, GuestMemoryMmap};

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
pub(crate) struct Space<'a> {
    memory: &'a GuestMemoryMmap,
    /// Levels of its page tables, 0 without paging; `None`: those of 32 bits, which are not followed.
    levels: Option<u32>,
    root: u64,
    /// The page that was translated last: accesses stay on few pages.
    last: Cell<Option<(u64, u64)>>,
}

impl<'a> Space<'a> {
    pub(crate) fn new(memory: &'a GuestMemoryMmap, sregs: &kvm_sregs) -> Self {
        let levels = match (sregs.cr0 & CR0_PG != 0, sregs.efer & EFER_LMA != 0) {
            (false, _) => Some(0),
            (true, false) => None,
            (true, true) => Some(if sregs.cr4 & CR4_LA57 == 0 { 4 } else { 5 }),
        };
        Self { memory, levels, root: sregs.cr3, last: Cell::new(None) }
    }

    /// Reads 8 bytes.
    pub(crate) fn u64(&self, linear: u64) -> Option<u64> {
        self.word(linear, 8)
    }

    /// Reads a byte.
    pub(crate) fn u8(&self, linear: u64) -> Option<u8> {
        let mut byte = [0];
        (self.read(linear, &mut byte) == 1).then_some(byte[0])
    }

    /// Reads a little-endian word of 2, 4 or 8 bytes.
    pub(crate) fn word(&self, linear: u64, size: usize) -> Option<u64> {
        let mut bytes = [0; 8];
        let got = self.read(linear, &mut bytes[..size]);
        (got == size).then(|| u64::from_le_bytes(bytes))
    }

    /// Reads from `linear` on, up to the first byte that is not there. Returns how many bytes were read.
    pub(crate) fn read(&self, linear: u64, bytes: &mut [u8]) -> usize {
        let mut done = 0;
        for (part, physical) in self.pages(linear, bytes.len()) {
            let wanted = part.len();
            match physical.map(|at| self.memory.read(&mut bytes[part], GuestAddress(at))) {
                Some(Ok(got)) if got == wanted => done += got,
                Some(Ok(got)) => return done + got,
                _ => break,
            }
        }
        done
    }

    /// Writes `bytes`, all or nothing. Returns whether that was possible.
    pub(crate) fn write(&self, linear: u64, bytes: &[u8]) -> bool {
        let is_there = |(part, physical): (Range<usize>, Option<u64>)| {
            physical.is_some_and(|at| self.memory.check_range(GuestAddress(at), part.len()))
        };
        self.pages(linear, bytes.len()).all(is_there)
            && self.pages(linear, bytes.len()).all(|(part, physical)| {
                physical.is_some_and(|at| self.memory.write_slice(&bytes[part], GuestAddress(at)).is_ok())
            })
    }

    /// Returns for each page of `length` bytes from `linear` on the bytes that lie in it, and the first one's physical address.
    pub(crate) fn pages(&self, linear: u64, length: usize) -> impl Iterator<Item = (Range<usize>, Option<u64>)> {
        let first = (PAGE - linear % PAGE) as usize;
        let starts =
            std::iter::once(0).chain((first..length).step_by(PAGE as usize)).take_while(move |&at| at < length);
        starts.map(move |at| {
            let linear = linear.wrapping_add(at as u64);
            let end = length.min(at + (PAGE - linear % PAGE) as usize);
            (at..end, self.physical(linear))
        })
    }

    /// Returns the physical address, if the guest's tables map it. They are read once: a guest that changes them
    /// meanwhile gets an answer of both.
    pub(crate) fn physical(&self, linear: u64) -> Option<u64> {
        let page = linear & !(PAGE - 1);
        if let Some((known, physical)) = self.last.get()
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
        self.last.set(Some((page, physical)));
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
pub(crate) mod tests {
    use super::*;

    /// Returns the registers of 64-bit mode with these page tables.
    pub(crate) fn long_mode(cr3: u64) -> kvm_sregs {
        kvm_sregs { cr0: CR0_PG, cr3, efer: EFER_LMA, ..kvm_sregs::default() }
    }

    #[test]
    fn four_levels_and_large_pages_are_followed() {
        let memory = GuestMemoryMmap::from_ranges(&[(GuestAddress(0), 0x10_0000)]).unwrap();
        let put = |at: u64, value: u64| memory.write_obj(value, GuestAddress(at)).unwrap();
        // 0x40_0000 → page table → 0x7000, then 0x9000, and no more; 0x60_0000: a large page at 0.
        for (at, value) in [(0x1000, 0x2001), (0x2000, 0x3001), (0x3010, 0x4001), (0x3018, 0x81), (0x4000, 0x7001)] {
            put(at, value);
        }
        put(0x4008, 0x9001);
        put(0x7008, 42);
        let sregs = long_mode(0x1000);
        let space = Space::new(&memory, &sregs);
        assert_eq!((space.u64(0x40_0008), space.u64(0x60_7008), space.u8(0x40_0008)), (Some(42), Some(42), Some(42)));
        assert_eq!((space.u64(0x40_2000), space.u64(0x80_0000), space.u64(1 << 63)), (None, None, None));
        // Pages that lie apart.
        assert!(space.write(0x40_0ffd, &[0, 1, 2, 3, 4]));
        assert_eq!((space.word(0x40_0ffe, 4), space.word(0x60_8000, 2)), (Some(0x0403_0201), Some(0)));
        let mut bytes = [0; 4];
        assert_eq!((space.read(0x40_1ffe, &mut bytes), space.u64(0x40_1ffc)), (2, None));
        assert!(!space.write(0x40_1ffe, &[7, 7, 7]) && !space.write(0x40_2000, &[9]));
        assert_eq!(space.word(0x40_1ffe, 2), Some(0), "nothing was written");
        // A table that points to itself, and one outside of memory.
        put(0x1000, 0x1001);
        assert_eq!(Space::new(&memory, &sregs).u64(0), Some(0x1001));
        put(0x1000, 0xffff_ffff_f001);
        assert_eq!(Space::new(&memory, &sregs).u64(0), None);
        let of_32_bits = kvm_sregs { efer: 0, ..sregs };
        assert_eq!(Space::new(&memory, &of_32_bits).u64(0x7008), None);
        assert_eq!(Space::new(&memory, &kvm_sregs::default()).u64(0x7008), Some(42), "without paging");
        assert_eq!(Space::new(&memory, &kvm_sregs::default()).u64(0xf_fffc), None, "the end of memory");
    }
}
