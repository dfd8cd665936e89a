//! Loading one of the project's own payloads (crate `guest`).

use std::ops::Range;

use guest::abi::{
    BootPage, CONFORMANCE_MAGIC, ConformanceReport, FLAG_TURNS, ISR_COUNT, LOG_NMI, LogEntry, MAGIC, PORT_WORKLOAD,
    Report, VERSION, Words,
};
use kvm_bindings::{kvm_regs, kvm_sregs};
use object::{Object as _, ObjectSegment as _, ObjectSymbol as _, SegmentFlags, elf};
use thiserror::Error;
use vm_memory::{Bytes as _, GuestAddress, GuestMemoryMmap};

use super::layout::{GDT, IDT, IMAGE, IMAGE_END, Layout, PAGE, VCPU_STRIDE, VCPUS, VcpuBlock};
use super::payload_vcpu::{self, Access, GDT_ENTRIES, TooMuchMemory};

/// Reason why a payload cannot be loaded.
#[derive(Debug, Error)]
pub enum PayloadError {
    /// The file is not the ELF image that the payload's build makes.
    #[error("the payload is no ELF image: {0}")]
    Elf(#[from] object::Error),
    /// A symbol the machine needs is not there.
    #[error("the payload has no symbol '{0}'")]
    NoSymbol(&'static str),
    /// A segment lies outside its place.
    #[error("a payload segment at {0:#x} lies outside of its place in memory")]
    Misplaced(u64),
    /// The guest has too much memory.
    #[error(transparent)]
    Memory(#[from] TooMuchMemory),
    /// Guest memory could not be written.
    #[error("guest memory: {0}")]
    Guest(#[from] vm_memory::GuestMemoryError),
}

/// A payload in guest memory.
#[derive(Clone, Copy, Debug)]
pub struct Payload {
    entry: u64,
}

/// Writes `words` at `address`.
pub(crate) fn write_words(memory: &GuestMemoryMmap, address: u64, words: &[u64]) -> Result<(), PayloadError> {
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    Ok(memory.write_slice(&bytes, GuestAddress(address))?)
}

fn read_words(memory: &GuestMemoryMmap, address: u64, count: usize) -> Result<Vec<u64>, PayloadError> {
    let mut bytes = vec![0; count * 8];
    memory.read_slice(&mut bytes, GuestAddress(address))?;
    let word = |chunk: &[u8]| chunk.iter().rev().fold(0, |word, &byte| word << 8 | u64::from(byte));
    Ok(bytes.chunks_exact(8).map(word).collect())
}

pub(super) fn read<T: Words>(memory: &GuestMemoryMmap, address: u64, count: usize) -> Result<Vec<T>, PayloadError> {
    let mut words = read_words(memory, address, count * T::COUNT)?.into_iter();
    Ok((0..count).map(|_| T::from_words(&mut || words.next().unwrap_or(0))).collect())
}

impl Payload {
    /// Loads `elf`, the descriptor tables and the page tables.
    pub fn load(elf: &[u8], layout: &Layout, memory: &GuestMemoryMmap) -> Result<Self, PayloadError> {
        let file = object::File::parse(elf)?;
        let mut segments = Vec::new();
        for segment in file.segments() {
            let (at, size) = (segment.address(), segment.size());
            if at < IMAGE || at.checked_add(size).is_none_or(|end| end > IMAGE_END) {
                return Err(PayloadError::Misplaced(at));
            }
            memory.write_slice(segment.data()?, GuestAddress(at))?;
            segments.push((at / PAGE * PAGE..at + size, rights(segment.flags())));
        }
        let symbol = |name: &'static str| {
            let found = file.symbols().find(|symbol| symbol.name() == Ok(name));
            found.map(|symbol| symbol.address()).ok_or(PayloadError::NoSymbol(name))
        };
        let handlers = read_words(memory, symbol("isr_table")?, ISR_COUNT)?;
        let gates: Vec<u64> =
            handlers.into_iter().enumerate().flat_map(|(vector, at)| payload_vcpu::gate(vector, at)).collect();
        write_words(memory, IDT, &gates)?;
        write_words(memory, GDT, &GDT_ENTRIES)?;
        let user_text = symbol("user_start")?..symbol("user_end")?;
        for (at, table) in
            payload_vcpu::page_tables(layout.memory(), |page| access(page, &segments, &user_text, layout))?
        {
            write_words(memory, at, &table)?;
        }
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
    ) -> Result<kvm_regs, PayloadError> {
        let block = VcpuBlock::of(cpu);
        let boot = BootPage {
            self_addr: block.boot_page(),
            magic: MAGIC,
            version: VERSION,
            cpu: cpu as u64,
            cpus: layout.vcpus() as u64,
            report_addr: block.report(),
            log_addr: layout.log(cpu),
            log_capacity: layout.log_entries(),
            user_addr: block.user_page(),
            user_stack: block.user_stack_top(),
            ..*boot
        };
        let mut words = Vec::with_capacity(BootPage::COUNT);
        boot.for_each_word(&mut |word| words.push(word));
        write_words(memory, block.boot_page(), &words)?;
        memory.write_slice(&payload_vcpu::tss(block, PORT_WORKLOAD), GuestAddress(block.tss()))?;
        payload_vcpu::enter_64_bit_mode(sregs, block, ISR_COUNT);
        Ok(kvm_regs {
            rip: self.entry,
            rdi: block.boot_page(),
            rsp: block.stack_top(),
            rflags: 2,
            ..kvm_regs::default()
        })
    }
}

fn rights(flags: SegmentFlags) -> Access {
    let SegmentFlags::Elf { p_flags, .. } = flags else { return Access::KERNEL_DATA };
    Access { read: true, write: p_flags.0 & elf::PF_W.0 != 0, execute: p_flags.0 & elf::PF_X.0 != 0, user: false }
}

/// Returns the access to the image as its segments say, ring 3 its text, page and stack; page 0 and the rest of the image's place are not
/// accessible.
fn access(page: u64, segments: &[(Range<u64>, Access)], user_text: &Range<u64>, layout: &Layout) -> Access {
    if page == 0 {
        return Access::default();
    }
    if (IMAGE..IMAGE_END).contains(&page) {
        let segment = segments.iter().find(|(place, _)| place.contains(&page));
        let rights = segment.map_or(Access::default(), |(_, rights)| *rights);
        return Access { user: user_text.contains(&page), ..rights };
    }
    let cpu = usize::try_from(page.saturating_sub(VCPUS) / VCPU_STRIDE).unwrap_or(usize::MAX);
    let block = VcpuBlock::of(cpu.min(layout.vcpus()));
    let is_user = page >= VCPUS && cpu < layout.vcpus() && (block.user_page()..block.user_stack_top()).contains(&page);
    if is_user { Access::USER_DATA } else { Access::KERNEL_DATA }
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
) -> Result<(Option<Box<Report>>, Vec<LogEntry>), PayloadError> {
    let report = read::<Report>(memory, VcpuBlock::of(cpu).report(), 1)?.pop();
    let mut report = report.filter(|report| report.magic == MAGIC).map(Box::new);
    // The guest wrote the count: bounded by what its log can hold.
    let logged = report.as_ref().map_or(0, |report| report.logged.min(layout.log_entries()));
    let whole = if complete { logged } else { layout.log_entries() };
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

/// Prepares the memory of vCPU `cpu` for what is next: a turn, which begins with an empty log, of which `logged` entries were used, and
/// a report with no figures but those of the boot; or the end.
pub(crate) fn begin_turn(
    memory: &GuestMemoryMmap,
    layout: &Layout,
    cpu: usize,
    logged: usize,
    next: Option<u64>,
) -> Result<(), PayloadError> {
    let block = VcpuBlock::of(cpu);
    let field = |name: &str| {
        let offset = BootPage::OFFSETS.iter().find(|(field, _)| *field == name).map_or(0, |(_, offset)| *offset);
        block.boot_page() + offset as u64
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
    if let Some(report) = read::<Report>(memory, block.report(), 1)?.pop() {
        let Report { magic, syncs, sync_before, sync_after, .. } = report;
        let mut words = Vec::with_capacity(Report::COUNT);
        Report { magic, syncs, sync_before, sync_after, ..Report::default() }
            .for_each_word(&mut |word| words.push(word));
        write_words(memory, block.report(), &words)?;
    }
    Ok(())
}

/// Returns the conformance payload's report of vCPU `cpu`, if it began.
pub(crate) fn harvest_conformance(
    memory: &GuestMemoryMmap,
    cpu: usize,
) -> Result<Option<Box<ConformanceReport>>, PayloadError> {
    let report = read::<ConformanceReport>(memory, VcpuBlock::of(cpu).report(), 1)?.pop();
    Ok(report.filter(|report| report.magic == CONFORMANCE_MAGIC).map(Box::new))
}

/// Allocates the guest memory of a layout.
pub(crate) fn allocate(layout: &Layout) -> Result<GuestMemoryMmap, vm_memory::mmap::FromRangesError> {
    let size = layout.memory().next_multiple_of(PAGE) as usize;
    GuestMemoryMmap::from_ranges(&[(GuestAddress(0), size)])
}
