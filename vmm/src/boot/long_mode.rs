//! A vCPU in 64-bit mode: descriptor tables, page tables, segment registers (SDM vol. 3, chapters 3 to 6).

use kvm_bindings::{kvm_segment, kvm_sregs};

use super::layout::{GDT, IDT, PAGE, PAGE_TABLES, PAGE_TABLES_END, VcpuBlock};

/// Ring-0 code.
pub const KERNEL_CS: u16 = 0x08;
/// Ring-0 data.
pub const KERNEL_DS: u16 = 0x10;
/// Ring-3 code.
pub const USER_CS: u16 = 0x1b;
/// Ring-3 data.
pub const USER_DS: u16 = 0x23;
const TSS_SELECTOR: u16 = 0x28;

/// The global descriptor table: null, kernel code and data, user code and data.
pub const GDT_ENTRIES: [u64; 5] =
    [0, 0x00af_9b00_0000_ffff, 0x00cf_9300_0000_ffff, 0x00af_fb00_0000_ffff, 0x00cf_f300_0000_ffff];

const PRESENT: u64 = 1;
const WRITE: u64 = 1 << 1;
const USER: u64 = 1 << 2;
const TABLE: u64 = PRESENT | WRITE | USER;
const ENTRIES: u64 = 512;

/// Who may do what with a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Nobody.
    None,
    /// Ring 0 reads and writes.
    Kernel,
    /// Ring 0 reads.
    KernelReadOnly,
    /// Both rings read.
    UserReadOnly,
    /// Both rings read and write.
    User,
}

impl Access {
    const fn bits(self) -> u64 {
        match self {
            Self::None => 0,
            Self::Kernel => PRESENT | WRITE,
            Self::KernelReadOnly => PRESENT,
            Self::UserReadOnly => PRESENT | USER,
            Self::User => PRESENT | WRITE | USER,
        }
    }
}

/// Memory needs more page tables than fit below 640 KiB.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0} bytes of guest memory need more page tables than there is room for; use fewer vCPUs or samples")]
pub struct TooMuchMemory(pub u64);

/// Page tables that identity-map `memory` bytes, as (address, words) of each table that is not empty.
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
        let entry = |page: u64| match access(page * PAGE).bits() {
            0 => 0,
            bits => page * PAGE | bits,
        };
        tables.push((table(first_leaf + leaf), mine.map(entry).collect()));
    }
    Ok(tables)
}

/// An interrupt gate to `handler` in ring 0; vector 2 runs on the NMI stack (IST1).
#[must_use]
pub fn gate(vector: usize, handler: u64) -> [u64; 2] {
    let ist = u64::from(vector == 2);
    let low = handler & 0xffff | u64::from(KERNEL_CS) << 16 | ist << 32 | 0x8e << 40 | (handler >> 16 & 0xffff) << 48;
    [low, handler >> 32]
}

/// A 64-bit TSS: RSP0, IST1, and no I/O permission bitmap.
#[must_use]
pub fn tss(block: VcpuBlock) -> [u8; 104] {
    let mut tss = [0; 104];
    tss[4..12].copy_from_slice(&block.stack_top().to_le_bytes());
    tss[36..44].copy_from_slice(&block.nmi_stack_top().to_le_bytes());
    tss[102..104].copy_from_slice(&104u16.to_le_bytes());
    tss
}

/// Puts a vCPU into 64-bit mode with paging on and interrupts off.
pub fn enter_long_mode(sregs: &mut kvm_sregs, block: VcpuBlock, vectors: usize) {
    let segment = |selector: u16, type_: u8| kvm_segment {
        selector,
        type_,
        limit: u32::MAX,
        present: 1,
        s: 1,
        g: 1,
        l: u8::from(selector == KERNEL_CS),
        db: u8::from(selector != KERNEL_CS),
        ..kvm_segment::default()
    };
    let data = segment(KERNEL_DS, 3);
    sregs.cs = segment(KERNEL_CS, 11);
    (sregs.ds, sregs.es, sregs.ss, sregs.fs) = (data, data, data, data);
    sregs.gs = kvm_segment { base: block.boot_page(), ..data };
    sregs.tr = kvm_segment {
        base: block.tss(),
        limit: 103,
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
    // PG WP NE ET MP PE; PAE; LMA LME.
    sregs.cr0 = 0x8001_0033;
    sregs.cr4 = 1 << 5;
    sregs.efer = 1 << 10 | 1 << 8;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_page_is_found_with_its_rights() {
        let memory = 6 << 20;
        let access = |page: u64| if page == 0 { Access::None } else if page == 0x40_2000 { Access::User } else { Access::Kernel };
        let tables = page_tables(memory, access).unwrap();
        let word = |table: u64, index: u64| tables.iter().find(|(at, _)| *at == table & !0xfff).map(|(_, t)| t[index as usize]);
        let walk = |address: u64| {
            let index = |shift: u32| address >> shift & 0x1ff;
            let pdpt = word(PAGE_TABLES, index(39))?;
            let directory = word(pdpt, index(30))?;
            let leaf = word(directory, index(21))?;
            word(leaf, index(12))
        };
        assert_eq!(walk(0), Some(0));
        assert_eq!(walk(0x1000), Some(0x1003));
        assert_eq!(walk(0x40_2000), Some(0x40_2007));
        assert_eq!(walk(memory - PAGE), Some((memory - PAGE) | 3));
        assert!(page_tables(4 << 30, access).is_err());
    }

    #[test]
    fn gates_and_tss_hold_their_addresses() {
        let [low, high] = gate(2, 0x1122_3344_5566_7788);
        assert_eq!((low & 0xffff | (low >> 48) << 16, high, low >> 32 & 7), (0x5566_7788, 0x1122_3344, 1));
        assert_eq!(gate(13, 0x10_0000)[0] >> 32 & 7, 0);
        let block = VcpuBlock::of(1);
        assert_eq!(tss(block)[36..44], block.nmi_stack_top().to_le_bytes());
    }
}
