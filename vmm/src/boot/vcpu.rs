//! The vCPU of an ELF64 image without a multiboot header: bare 64-bit mode without descriptor tables (SDM vol. 3, 4.5).
//!
//! All memory below 4 GiB is mapped at its own address, and each segment at its virtual address, too: the entry point may be
//! either. Everything is writable and executable in ring 0; an image that wants more makes its own tables.

use kvm_bindings::{kvm_regs, kvm_segment, kvm_sregs};

use super::image::{LoadError, Segment};

const PAGE: u64 = 0x1000;
const LARGE: u64 = 0x20_0000;
const IDENTITY_END: u64 = 1 << 32;
const PRESENT_WRITE: u64 = 0b11;
const PAGE_SIZE: u64 = 1 << 7;
const ADDRESS: u64 = 0x000f_ffff_ffff_f000;

/// Page tables that refer to each other by number until they are placed.
#[derive(Clone, Debug)]
pub struct Tables(Vec<[Entry; 512]>);

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Entry {
    #[default]
    Absent,
    Table(usize),
    Large(u64),
    Page(u64),
}

impl Tables {
    /// Tables for an image with `segments`, which lie in guest memory.
    ///
    /// # Errors
    /// [`LoadError::Elf`] if virtual addresses cannot be mapped.
    pub fn of(segments: &[Segment]) -> Result<Self, LoadError> {
        let mut tables = Self(vec![[Entry::Absent; 512]]);
        for at in (0..IDENTITY_END).step_by(LARGE as usize) {
            *tables.slot(at, 21)? = Entry::Large(at);
        }
        for segment in segments {
            tables.segment(segment)?;
        }
        Ok(tables)
    }

    fn segment(&mut self, segment: &Segment) -> Result<(), LoadError> {
        let (from, to) = (segment.virtual_address, segment.address);
        // Within the identity map, or nothing to map.
        if from == to || segment.memory_size == 0 {
            return Ok(());
        }
        let last = from.checked_add(segment.memory_size - 1).ok_or(LoadError::Elf("a virtual address wraps around"))?;
        let canonical = |address: u64| matches!(address.cast_signed() >> 47, 0 | -1);
        if !canonical(from) || !canonical(last) {
            return Err(LoadError::Elf("a virtual address is not canonical"));
        }
        if from % PAGE != to % PAGE {
            return Err(LoadError::Elf("a segment's virtual and physical addresses differ within a page"));
        }
        for at in (from / PAGE * PAGE..=last).step_by(PAGE as usize) {
            let page = Entry::Page((to / PAGE * PAGE).wrapping_add(at - from / PAGE * PAGE));
            let slot = self.slot(at, 12)?;
            if *slot != Entry::Absent && *slot != page {
                return Err(LoadError::Elf("two segments share a virtual page"));
            }
            *slot = page;
        }
        Ok(())
    }

    /// Returns the entry for `address` in a table with `1 << last` bytes per entry.
    fn slot(&mut self, address: u64, last: u32) -> Result<&mut Entry, LoadError> {
        let (mut table, mut shift) = (0, 39);
        while shift > last {
            let index = (address >> shift & 0x1ff) as usize;
            table = match self.0[table][index] {
                Entry::Table(next) => next,
                Entry::Absent => {
                    self.0.push([Entry::Absent; 512]);
                    self.0[table][index] = Entry::Table(self.0.len() - 1);
                    self.0.len() - 1
                }
                Entry::Large(_) | Entry::Page(_) => {
                    return Err(LoadError::Elf("a virtual address below 4 GiB differs from its physical address"));
                }
            };
            shift -= 9;
        }
        Ok(&mut self.0[table][(address >> last & 0x1ff) as usize])
    }

    /// Returns the size of the tables.
    pub fn size(&self) -> u64 {
        self.0.len() as u64 * PAGE
    }

    /// Returns the tables' bytes when they are placed at the page-aligned address `base`, the first one for CR3.
    pub fn place(&self, base: u64) -> Vec<u8> {
        let word = |entry: &Entry| match *entry {
            Entry::Absent => 0,
            Entry::Table(number) => (base + number as u64 * PAGE) | PRESENT_WRITE,
            Entry::Large(at) => at & ADDRESS | PAGE_SIZE | PRESENT_WRITE,
            Entry::Page(at) => at & ADDRESS | PRESENT_WRITE,
        };
        self.0.iter().flatten().flat_map(|entry| word(entry).to_le_bytes()).collect()
    }
}

/// Sets flat 64-bit segments and paging by `cr3`; no descriptor table is valid, interrupts are off.
pub fn enter_64_bit_mode(sregs: &mut kvm_sregs, cr3: u64) {
    let data = segment(0x10, DATA, false);
    sregs.cs = segment(0x08, CODE, true);
    (sregs.ds, sregs.es, sregs.fs, sregs.gs, sregs.ss) = (data, data, data, data, data);
    // PG ET PE; PAE; LMA LME.
    (sregs.cr0, sregs.cr3, sregs.cr4, sregs.efer) = (0x8000_0011, cr3, 1 << 5, 1 << 10 | 1 << 8);
}

/// Returns the registers at the first instruction; there is no stack.
pub fn long_mode_registers(rip: u64) -> kvm_regs {
    kvm_regs { rip, rflags: 2, ..kvm_regs::default() }
}

// The vCPU of a multiboot image: 32-bit protected mode, as a loader leaves it (Multiboot Specification 0.6.96, section 3.2):
// flat segments, paging and interrupts off.

/// CR0: protection on, and the bit that reads as one.
const CR0: u64 = 0x11;
/// RFLAGS: the bit that reads as one.
const RFLAGS: u64 = 2;

/// Sets flat 32-bit segments; no descriptor table is valid.
pub fn enter_protected_mode(sregs: &mut kvm_sregs) {
    let data = segment(0x10, DATA, false);
    sregs.cs = segment(0x08, CODE, false);
    (sregs.ds, sregs.es, sregs.fs, sregs.gs, sregs.ss) = (data, data, data, data, data);
    (sregs.cr0, sregs.cr3, sregs.cr4, sregs.efer) = (CR0, 0, 0, 0);
}

/// Returns the registers at the first instruction.
pub fn protected_mode_registers(eip: u32, eax: u32, ebx: u32) -> kvm_regs {
    kvm_regs { rip: eip.into(), rax: eax.into(), rbx: ebx.into(), rflags: RFLAGS, ..kvm_regs::default() }
}

/// Type of a code segment: execute, read, accessed.
pub(super) const CODE: u8 = 11;
/// Type of a data segment: read, write, accessed.
pub(super) const DATA: u8 = 3;

/// Creates a segment of 64-bit code if `long`, else of 32 bits.
pub(super) fn segment(selector: u16, type_: u8, long: bool) -> kvm_segment {
    kvm_segment {
        selector,
        type_,
        limit: u32::MAX,
        present: 1,
        s: 1,
        g: 1,
        l: long.into(),
        db: (!long).into(),
        ..kvm_segment::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HIGH: u64 = 0xffff_ffff_8010_0000;

    fn segment(virtual_address: u64, address: u64, memory_size: u64) -> Segment {
        Segment { address, virtual_address, file: 0..0, memory_size }
    }

    /// Translates an address as a processor does.
    fn walk(bytes: &[u8], base: u64, address: u64) -> Option<u64> {
        let mut table = base;
        for shift in [39, 30, 21, 12] {
            let at = (table - base + 8 * (address >> shift & 0x1ff)) as usize;
            let entry = u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
            if entry & 1 == 0 {
                return None;
            }
            table = entry & ADDRESS;
            if shift == 12 || entry & PAGE_SIZE != 0 {
                return Some(table + (address & ((1 << shift) - 1)));
            }
        }
        None
    }

    #[test]
    fn memory_is_mapped_at_its_own_address_and_segments_at_theirs() {
        let tables =
            Tables::of(&[segment(HIGH + 0x123, 0x10_0123, 0x1f_0000), segment(0x40_0000, 0x40_0000, 5)]).unwrap();
        let base = 0x9000;
        let bytes = tables.place(base);
        assert_eq!(bytes.len() as u64, tables.size());
        for address in [0, 0x10_0123, 0xfee0_0340, IDENTITY_END - 1] {
            assert_eq!(walk(&bytes, base, address), Some(address));
        }
        assert_eq!(walk(&bytes, base, HIGH + 0x123), Some(0x10_0123));
        assert_eq!(walk(&bytes, base, HIGH + 0x1f_0122), Some(0x2f_0122));
        assert_eq!(walk(&bytes, base, HIGH + 0x20_0000), None);
        assert_eq!(walk(&bytes, base, IDENTITY_END), None);
    }

    #[test]
    fn what_cannot_be_mapped_is_refused() {
        for (segments, why) in [
            (vec![segment(u64::MAX - 1, 0x10_0ffe, 5)], "wraps"),
            (vec![segment(0x8000_0000_0000, 0x10_0000, 5)], "canonical"),
            (vec![segment(HIGH + 1, 0x10_0000, 5)], "within a page"),
            (vec![segment(0x20_0000, 0x10_0000, 5)], "below 4 GiB"),
            (vec![segment(HIGH, 0x10_0000, 5), segment(HIGH + 8, 0x20_0008, 5)], "share"),
        ] {
            assert!(Tables::of(&segments).unwrap_err().to_string().contains(why), "{why}");
        }
    }
}
