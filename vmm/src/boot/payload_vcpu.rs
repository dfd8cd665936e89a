//! The vCPU of a payload: 64-bit mode with descriptor tables, page tables, segment registers (SDM vol. 3, chapters 3 to 6).

use kvm_bindings::{kvm_segment, kvm_sregs};

use super::flat::{CODE, DATA, segment};
use super::layout::{GDT, IDT, PAGE, PAGE_TABLES, PAGE_TABLES_END, VcpuBlock};

/// Ring-0 code.
pub const KERNEL_CS: u16 = 0x08;
/// Ring-0 data.
pub const KERNEL_DS: u16 = 0x10;
const TSS_SELECTOR: u16 = 0x28;

/// The global descriptor table: null, kernel code and data, user code and data.
pub const GDT_ENTRIES: [u64; 5] =
    [0, 0x00af_9b00_0000_ffff, 0x00cf_9300_0000_ffff, 0x00af_fb00_0000_ffff, 0x00cf_f300_0000_ffff];

const PRESENT: u64 = 1;
const WRITE: u64 = 1 << 1;
const USER: u64 = 1 << 2;
const NO_EXECUTE: u64 = 1 << 63;
const TABLE: u64 = PRESENT | WRITE | USER;
const ENTRIES: u64 = 512;

/// Permissions of a page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Access {
    /// Anybody at all; the page is not mapped otherwise.
    pub read: bool,
    /// Whoever may read it, too.
    pub write: bool,
    /// Whoever may read it, too.
    pub execute: bool,
    /// Ring 3.
    pub user: bool,
}

impl Access {
    /// Ring 0 reads and writes.
    pub const KERNEL_DATA: Self = Self { read: true, write: true, execute: false, user: false };
    /// Both rings read and write.
    pub const USER_DATA: Self = Self { user: true, ..Self::KERNEL_DATA };

    const fn entry(self, page: u64) -> u64 {
        if !self.read {
            return 0;
        }
        let mut bits = page | PRESENT;
        if self.write {
            bits |= WRITE;
        }
        if self.user {
            bits |= USER;
        }
        if !self.execute {
            bits |= NO_EXECUTE;
        }
        bits
    }
}

/// Memory needs more page tables than fit below 640 KiB.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0} bytes of guest memory need more page tables than there is room for; use fewer vCPUs or samples")]
pub struct TooMuchMemory(pub u64);

/// Returns page tables that identity-map `memory` bytes, as (address, words) of each table that is not empty.
pub fn page_tables(memory: u64, access: impl Fn(u64) -> Access) -> Result<Vec<(u64, Vec<u64>)>, TooMuchMemory> {
    let pages = memory / PAGE;
    let leaves = pages.div_ceil(ENTRIES);
    let directories = leaves.div_ceil(ENTRIES);
    let table = |n: u64| PAGE_TABLES + n * PAGE;
    if table(2 + directories + leaves) > PAGE_TABLES_END || directories > ENTRIES {
        return Err(TooMuchMemory(memory));
    }
    let (first_directory, first_leaf) = (2, 2 + directories);
    let mut tables = vec![(table(0), vec![table(1) | TABLE])];
    tables.push((table(1), (0..directories).map(|n| table(first_directory + n) | TABLE).collect()));
    for directory in 0..directories {
        let mine = directory * ENTRIES..leaves.min((directory + 1) * ENTRIES);
        tables.push((table(first_directory + directory), mine.map(|n| table(first_leaf + n) | TABLE).collect()));
    }
    for leaf in 0..leaves {
        let mine = leaf * ENTRIES..pages.min((leaf + 1) * ENTRIES);
        let entry = |page: u64| access(page * PAGE).entry(page * PAGE);
        tables.push((table(first_leaf + leaf), mine.map(entry).collect()));
    }
    Ok(tables)
}

/// Returns an interrupt gate to `handler` in ring 0; vector 2 runs on the NMI stack (IST1).
#[must_use]
pub fn gate(vector: usize, handler: u64) -> [u64; 2] {
    let ist = u64::from(vector == 2);
    let low = handler & 0xffff | u64::from(KERNEL_CS) << 16 | ist << 32 | 0x8e << 40 | (handler >> 16 & 0xffff) << 48;
    [low, handler >> 32]
}

/// Bytes of a TSS with its I/O permission bitmap.
pub const TSS_BYTES: usize = 0x200;
/// Offset of the I/O bitmap.
const IO_BITMAP: usize = 104;

/// Returns a 64-bit TSS: RSP0, IST1, and a bitmap that opens `port` to ring 3. (IOPL would open them all, and is lost on hosts where ring 3
/// runs with the host's own flags.)
#[must_use]
pub fn tss(block: VcpuBlock, port: u16) -> [u8; TSS_BYTES] {
    let mut tss = [0; TSS_BYTES];
    tss[4..12].copy_from_slice(&block.stack_top().to_le_bytes());
    tss[36..44].copy_from_slice(&block.nmi_stack_top().to_le_bytes());
    tss[102..104].copy_from_slice(&(IO_BITMAP as u16).to_le_bytes());
    tss[IO_BITMAP..].fill(0xff);
    if let Some(byte) = tss.get_mut(IO_BITMAP + usize::from(port / 8)) {
        *byte &= !(1 << (port % 8));
    }
    tss
}

/// Puts a vCPU into 64-bit mode with paging on and interrupts off.
pub fn enter_64_bit_mode(sregs: &mut kvm_sregs, block: VcpuBlock, vectors: usize) {
    let data = segment(KERNEL_DS, DATA, false);
    sregs.cs = segment(KERNEL_CS, CODE, true);
    (sregs.ds, sregs.es, sregs.ss, sregs.fs) = (data, data, data, data);
    sregs.gs = kvm_segment { base: block.boot_page(), ..data };
    sregs.tr = kvm_segment {
        base: block.tss(),
        limit: TSS_BYTES as u32 - 1,
        selector: TSS_SELECTOR,
        type_: 11,
        present: 1,
        ..kvm_segment::default()
    };
    sregs.ldt = kvm_segment { unusable: 1, ..kvm_segment::default() };
    sregs.gdt.base = GDT;
    sregs.gdt.limit = (GDT_ENTRIES.len() * 8 - 1) as u16;
    sregs.idt.base = IDT;
    sregs.idt.limit = (vectors * 16 - 1) as u16;
    sregs.cr3 = PAGE_TABLES;
    // PG WP NE ET MP PE; PAE; NXE LMA LME.
    sregs.cr0 = 0x8001_0033;
    sregs.cr4 = 1 << 5;
    sregs.efer = 1 << 11 | 1 << 10 | 1 << 8;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_page_is_found_with_its_rights() {
        let memory = 6 << 20;
        let access = |page: u64| match page {
            0 => Access::default(),
            0x1000 => Access { write: false, execute: true, ..Access::KERNEL_DATA },
            0x40_2000 => Access::USER_DATA,
            _ => Access::KERNEL_DATA,
        };
        let tables = page_tables(memory, access).unwrap();
        let word = |table: u64, index: u64| {
            tables.iter().find(|(at, _)| *at == table & !0xfff).map(|(_, t)| t[index as usize])
        };
        let walk = |address: u64| {
            let index = |shift: u32| address >> shift & 0x1ff;
            let pdpt = word(PAGE_TABLES, index(39))?;
            let directory = word(pdpt, index(30))?;
            let leaf = word(directory, index(21))?;
            word(leaf, index(12))
        };
        assert_eq!(walk(0), Some(0));
        assert_eq!(walk(0x1000), Some(0x1001));
        assert_eq!(walk(0x40_2000), Some(0x40_2007 | NO_EXECUTE));
        assert_eq!(walk(memory - PAGE), Some((memory - PAGE) | 3 | NO_EXECUTE));
        assert!(page_tables(4 << 30, access).is_err());
    }

    #[test]
    fn gates_and_tss_hold_their_addresses() {
        let [low, high] = gate(2, 0x1122_3344_5566_7788);
        assert_eq!((low & 0xffff | (low >> 48) << 16, high, low >> 32 & 7), (0x5566_7788, 0x1122_3344, 1));
        assert_eq!(gate(13, 0x10_0000)[0] >> 32 & 7, 0);
        let block = VcpuBlock::of(1);
        let tss = tss(block, 0x5b8);
        assert_eq!(tss[36..44], block.nmi_stack_top().to_le_bytes());
        let open: Vec<_> =
            (0..(TSS_BYTES - IO_BITMAP) * 8).filter(|p| tss[IO_BITMAP + p / 8] & 1 << (p % 8) == 0).collect();
        assert_eq!(open, [0x5b8]);
    }
}
