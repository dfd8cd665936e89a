//! Loading one of the project's own payloads (crate `guest`).

use std::ops::Range;

use guest::abi::{
    BootPage, CONFORMANCE_MAGIC, ConformanceReport, FLAG_TURNS, ISR_COUNT, LOG_NMI, LogEntry, MAGIC, PORT_WORKLOAD,
    Report, Step, VERSION, Words,
};
use kvm_bindings::{kvm_regs, kvm_segment, kvm_sregs};
use object::{Object as _, ObjectSegment as _, ObjectSymbol as _, SegmentFlags, elf};
use vm_memory::{Bytes as _, GuestAddress, GuestMemoryMmap};

use super::error::{BootError, refused};
use super::layout::{
    GDT, IDT, IMAGE, IMAGE_END, Layout, MAX_STEPS, PAGE, PAGE_TABLES, PAGE_TABLES_END, VCPU_STRIDE, VCPUS, VcpuBlock,
};
use super::memory::write_words;
use super::vcpu;

/// A payload in guest memory.
#[derive(Clone, Copy, Debug)]
pub struct Payload {
    entry: u64,
}

/// Writes `values` at `address`.
fn write<T: Words>(memory: &GuestMemoryMmap, address: u64, values: &[T]) -> Result<(), BootError> {
    let mut words = Vec::with_capacity(values.len() * T::COUNT);
    for value in values {
        value.for_each_word(&mut |word| words.push(word));
    }
    write_words(memory, address, &words)
}

fn read_words(memory: &GuestMemoryMmap, address: u64, count: usize) -> Result<Vec<u64>, BootError> {
    let mut bytes = vec![0; count * 8];
    memory.read_slice(&mut bytes, GuestAddress(address))?;
    let word = |chunk: &[u8]| chunk.iter().rev().fold(0, |word, &byte| word << 8 | u64::from(byte));
    Ok(bytes.chunks_exact(8).map(word).collect())
}

pub(super) fn read<T: Words>(memory: &GuestMemoryMmap, address: u64, count: usize) -> Result<Vec<T>, BootError> {
    let mut words = read_words(memory, address, count * T::COUNT)?.into_iter();
    Ok((0..count).map(|_| T::from_words(&mut || words.next().unwrap_or(0))).collect())
}

impl Payload {
    /// Loads `elf`, the descriptor tables and the page tables.
    pub fn load(elf: &[u8], layout: &Layout, memory: &GuestMemoryMmap) -> Result<Self, BootError> {
        let no_elf = |error| BootError(format!("the payload is no ELF image: {error}"));
        let file = object::File::parse(elf).map_err(no_elf)?;
        let mut segments = Vec::new();
        for segment in file.segments() {
            let (at, size) = (segment.address(), segment.size());
            if at < IMAGE || at.checked_add(size).is_none_or(|end| end > IMAGE_END) {
                return refused(format!("a payload segment at {at:#x} lies outside of its place in memory"));
            }
            memory.write_slice(segment.data().map_err(no_elf)?, GuestAddress(at))?;
            segments.push((at / PAGE * PAGE..at + size, rights(segment.flags())));
        }
        let symbol = |name: &'static str| {
            let found = file.symbols().find(|symbol| symbol.name() == Ok(name));
            found.map(|symbol| symbol.address()).ok_or_else(|| BootError(format!("the payload has no symbol '{name}'")))
        };
        let handlers = read_words(memory, symbol("isr_table")?, ISR_COUNT)?;
        let gates: Vec<u64> = handlers.into_iter().enumerate().flat_map(|(vector, at)| gate(vector, at)).collect();
        write_words(memory, IDT, &gates)?;
        write_words(memory, GDT, &GDT_ENTRIES)?;
        let user_text = symbol("user_start")?..symbol("user_end")?;
        let tables = page_tables(layout.memory(), |page| access(page, &segments, &user_text, layout))?;
        write_words(memory, PAGE_TABLES, &tables)?;
        Ok(Self { entry: file.entry() })
    }

    /// Puts `boot` (completed here) and the TSS of vCPU `cpu` into memory, and `sregs` into 64-bit mode. Returns the
    /// registers at the payload's entry.
    pub(crate) fn start(
        self,
        cpu: usize,
        boot: &BootPage,
        layout: &Layout,
        sregs: &mut kvm_sregs,
        memory: &GuestMemoryMmap,
    ) -> Result<kvm_regs, BootError> {
        let block = VcpuBlock::of(cpu);
        let boot = BootPage {
            self_addr: block.boot_page,
            magic: MAGIC,
            version: VERSION,
            cpu: cpu as u64,
            cpus: layout.vcpus as u64,
            report_addr: block.report,
            log_addr: layout.log(cpu),
            log_capacity: layout.log_entries,
            user_addr: block.user_page,
            user_stack: block.user_stack_top,
            ..*boot
        };
        write(memory, block.boot_page, &[boot])?;
        memory.write_slice(&tss(block, PORT_WORKLOAD), GuestAddress(block.tss))?;
        enter_64_bit_mode(sregs, block, ISR_COUNT);
        Ok(kvm_regs { rip: self.entry, rdi: block.boot_page, rsp: block.stack_top, rflags: 2, ..kvm_regs::default() })
    }
}

/// Returns the bits of a page of a segment.
fn rights(flags: SegmentFlags) -> u64 {
    let SegmentFlags::Elf { p_flags, .. } = flags else { return KERNEL_DATA };
    let write = if p_flags.0 & elf::PF_W.0 != 0 { WRITE } else { 0 };
    PRESENT | write | if p_flags.0 & elf::PF_X.0 != 0 { 0 } else { NO_EXECUTE }
}

/// Returns the bits of a page: the image's as its segments say, ring 3 its text, page and stack; page 0 and the rest of the
/// image's place are not present.
fn access(page: u64, segments: &[(Range<u64>, u64)], user_text: &Range<u64>, layout: &Layout) -> u64 {
    if page == 0 {
        return 0;
    }
    if (IMAGE..IMAGE_END).contains(&page) {
        let segment = segments.iter().find(|(place, _)| place.contains(&page));
        return segment.map_or(0, |(_, rights)| rights | if user_text.contains(&page) { USER } else { 0 });
    }
    let cpu = usize::try_from(page.saturating_sub(VCPUS) / VCPU_STRIDE).unwrap_or(usize::MAX);
    let block = VcpuBlock::of(cpu.min(layout.vcpus));
    let is_user = page >= VCPUS && cpu < layout.vcpus && (block.user_page..block.user_stack_top).contains(&page);
    KERNEL_DATA | if is_user { USER } else { 0 }
}

/// Writes the steps of a guest that is played back, whose times are ns, for a TSC of `khz`. Returns their place and number.
pub(crate) fn write_steps(
    memory: &GuestMemoryMmap,
    layout: &Layout,
    steps: &[Step],
    khz: u64,
) -> Result<(u64, u64), BootError> {
    let ticks = |ns: u64| u64::try_from(u128::from(ns) * u128::from(khz) / 1_000_000).unwrap_or(u64::MAX);
    let steps = steps.iter().take(MAX_STEPS).map(|step| Step { think: ticks(step.think), ..*step });
    let steps: Vec<_> = steps.collect();
    write(memory, layout.steps(), &steps)?;
    Ok((layout.steps(), steps.len() as u64))
}

/// Returns the report of vCPU `cpu`, if it ran at all, and its log.
///
/// The payload fills its report at the end. If it did not get there (`complete` is false), the log shows its progress: the
/// entries with a kind, without a last one that is half written.
pub(crate) fn harvest(
    memory: &GuestMemoryMmap,
    layout: &Layout,
    cpu: usize,
    complete: bool,
) -> Result<(Option<Box<Report>>, Vec<LogEntry>), BootError> {
    let report = read::<Report>(memory, VcpuBlock::of(cpu).report, 1)?.pop();
    let mut report = report.filter(|report| report.magic == MAGIC).map(Box::new);
    // The guest wrote the count: bounded by what its log can hold.
    let logged = report.as_ref().map_or(0, |report| report.logged.min(layout.log_entries));
    let whole = if complete { logged } else { layout.log_entries };
    let mut log = read::<LogEntry>(memory, layout.log(cpu), whole as usize)?;
    if let Some(report) = &mut report
        && !complete
    {
        let written = log.iter().take_while(|entry| entry.kind != 0 && entry.tsc_exit != 0 && entry.rip != 0).count();
        log.truncate(written);
        report.logged = written as u64;
        report.nmis = log.iter().filter(|entry| entry.kind == LOG_NMI).count() as u64;
    }
    Ok((report, log))
}

/// Prepares the memory of vCPU `cpu` for what is next: a turn, which begins with an empty log, of which `logged`
/// entries were used, and a report with no figures but those of the boot; or the end.
pub(crate) fn begin_turn(
    memory: &GuestMemoryMmap,
    layout: &Layout,
    cpu: usize,
    logged: usize,
    next: Option<u64>,
) -> Result<(), BootError> {
    let block = VcpuBlock::of(cpu);
    let field = |name: &str| {
        let offset = BootPage::OFFSETS.iter().find(|(field, _)| *field == name).map_or(0, |(_, offset)| *offset);
        block.boot_page + offset as u64
    };
    match next {
        Some(samples) => write_words(memory, field("sample_target"), &[samples])?,
        None => {
            let flags = read_words(memory, field("flags"), 1)?;
            let flags = flags.first().map_or(0, |flags| flags & !FLAG_TURNS);
            write_words(memory, field("flags"), &[flags])?;
        }
    }
    // Entries of an unfinished log are recognized by a kind other than 0.
    write_words(memory, layout.log(cpu), &vec![0; logged * LogEntry::COUNT])?;
    if let Some(report) = read::<Report>(memory, block.report, 1)?.pop() {
        let Report { magic, syncs, sync_before, sync_after, .. } = report;
        write(memory, block.report, &[Report { magic, syncs, sync_before, sync_after, ..Report::default() }])?;
    }
    Ok(())
}

/// Returns the conformance payload's report of vCPU `cpu`, if it began.
pub(crate) fn harvest_conformance(
    memory: &GuestMemoryMmap,
    cpu: usize,
) -> Result<Option<Box<ConformanceReport>>, BootError> {
    let report = read::<ConformanceReport>(memory, VcpuBlock::of(cpu).report, 1)?.pop();
    Ok(report.filter(|report| report.magic == CONFORMANCE_MAGIC).map(Box::new))
}

/// Ring-0 code.
const KERNEL_CS: u16 = 0x08;
const TSS_SELECTOR: u16 = 0x28;

/// The global descriptor table: null, kernel code and data, user code and data.
const GDT_ENTRIES: [u64; 5] =
    [0, 0x00af_9b00_0000_ffff, 0x00cf_9300_0000_ffff, 0x00af_fb00_0000_ffff, 0x00cf_f300_0000_ffff];

const PRESENT: u64 = 1;
const WRITE: u64 = 1 << 1;
const USER: u64 = 1 << 2;
const NO_EXECUTE: u64 = 1 << 63;
const TABLE: u64 = PRESENT | WRITE | USER;
const ENTRIES: u64 = 512;

/// Ring 0 reads and writes.
const KERNEL_DATA: u64 = PRESENT | WRITE | NO_EXECUTE;

/// Returns page tables that identity-map `memory` bytes, in one piece for [`PAGE_TABLES`]: PML4, directories' directory,
/// directories, tables of pages.
fn page_tables(memory: u64, access: impl Fn(u64) -> u64) -> Result<Vec<u64>, BootError> {
    let pages = memory / PAGE;
    let leaves = pages.div_ceil(ENTRIES);
    let directories = leaves.div_ceil(ENTRIES);
    let table = |number: u64| PAGE_TABLES + number * PAGE;
    if table(2 + directories + leaves) > PAGE_TABLES_END || directories > ENTRIES {
        return refused(format!(
            "{memory} bytes of guest memory need more page tables than there is room for; use fewer vCPUs or samples"
        ));
    }
    let mut words = Vec::new();
    // Each level refers to all tables of the next one, in their order.
    for (first, count) in [(1, 1), (2, directories), (2 + directories, leaves)] {
        words.extend((first..first + count).map(|number| table(number) | TABLE));
        words.resize(words.len().next_multiple_of(ENTRIES as usize), 0);
    }
    words.extend((0..pages).map(|page| match access(page * PAGE) {
        0 => 0,
        bits => (page * PAGE) | bits,
    }));
    Ok(words)
}

/// Returns an interrupt gate to `handler` in ring 0; vector 2 runs on the NMI stack (IST1).
pub(crate) fn gate(vector: usize, handler: u64) -> [u64; 2] {
    let ist = u64::from(vector == 2);
    let low = handler & 0xffff | u64::from(KERNEL_CS) << 16 | ist << 32 | 0x8e << 40 | (handler >> 16 & 0xffff) << 48;
    [low, handler >> 32]
}

/// Bytes of a TSS with its I/O permission bitmap.
const TSS_BYTES: usize = 0x200;
/// Offset of the I/O bitmap.
const IO_BITMAP: usize = 104;

/// Returns a 64-bit TSS: RSP0, IST1, and a bitmap that opens `port` to ring 3. (IOPL would open them all, and is lost
/// on hosts where ring 3 runs with the host's own flags.)
fn tss(block: VcpuBlock, port: u16) -> [u8; TSS_BYTES] {
    let mut tss = [0; TSS_BYTES];
    tss[4..12].copy_from_slice(&block.stack_top.to_le_bytes());
    tss[36..44].copy_from_slice(&block.nmi_stack_top.to_le_bytes());
    tss[102..104].copy_from_slice(&(IO_BITMAP as u16).to_le_bytes());
    tss[IO_BITMAP..].fill(0xff);
    if let Some(byte) = tss.get_mut(IO_BITMAP + usize::from(port / 8)) {
        *byte &= !(1 << (port % 8));
    }
    tss
}

/// Puts a vCPU into 64-bit mode with paging on and interrupts off.
pub fn enter_64_bit_mode(sregs: &mut kvm_sregs, block: VcpuBlock, vectors: usize) {
    vcpu::enter_64_bit_mode(sregs, PAGE_TABLES);
    sregs.gs.base = block.boot_page;
    sregs.tr = kvm_segment {
        base: block.tss,
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
    // WP NE MP; NXE.
    sregs.cr0 |= 0x1_0022;
    sregs.efer |= 1 << 11;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_page_is_found_with_its_rights() {
        let memory = 6 << 20;
        let access = |page: u64| match page {
            0 => 0,
            0x1000 => PRESENT,
            0x40_2000 => KERNEL_DATA | USER,
            _ => KERNEL_DATA,
        };
        let tables = page_tables(memory, access).unwrap();
        let word =
            |table: u64, index: u64| tables.get((((table & !0xfff) - PAGE_TABLES) / 8 + index) as usize).copied();
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
}
