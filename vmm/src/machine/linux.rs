//! A distribution's Linux kernel as a guest.

use std::io::Write;
use std::sync::atomic::AtomicBool;

use arch_pmu::amd::AmdCaps;
use arch_pmu::caps::PmuCaps;
use kvm_bindings::{kvm_regs, kvm_sregs};
use vm_memory::{Bytes as _, GuestAddress, GuestMemoryMmap};

use super::error::MachineError;
use super::guest::{InKernel, RunFacts};
use super::pc::{self, Booted};
pub use super::pc::{Ends, PcOutcome};
use super::plan::Plan;
use crate::boot::elf::{Elf, bad, entry_outside};
use crate::boot::error::{BootError, refused};
use crate::boot::image::LoadPlan;
pub use crate::boot::linux::Kernel;
use crate::boot::linux::layout::{
    ACPI, COMMAND_LINE, COMMAND_LINE_MAX, GDT, HIGH_START, MAX_MEMORY, MIN_MEMORY, PAGE_TABLES, ZERO_PAGE, split,
};
use crate::boot::linux::{acpi, zero_page};
use crate::boot::memory::{allocate, write_words};
use crate::boot::vcpu;
pub use crate::devices::oops::{Complaints, Log};
pub use crate::devices::output::Output;
pub use crate::devices::virtio::Faults;
use crate::kvm::msr_filter::Also;
use crate::kvm::{Host, linux_refusal};

/// Our part of the command line: the console, a reset after a panic, the way to
/// reset (with hardware-reduced ACPI Linux looks for EFI), no search for a PCI bus, which is not there, and a
/// console with warnings, which [`Complaints`] reads by their stamps, and no more.
pub const COMMAND_LINE_START: &str = "console=ttyS0,115200n8 panic=-1 reboot=acpi pci=off printk.time=1 loglevel=5";

/// Data segment and code segment of the boot protocol, at their place in the table.
const GDT_ENTRIES: [u64; 4] = [0, 0, 0x00af_9b00_0000_ffff, 0x00cf_9300_0000_ffff];
const CODE: u16 = 0x10;
const DATA: u16 = 0x18;

/// One run.
#[derive(Clone, Debug)]
pub struct LinuxPlan {
    /// The machine.
    pub machine: Plan,
    /// Bytes of guest memory.
    pub memory: u64,
    /// Initial RAM disk; empty = none. Freed when it is in guest memory.
    pub initrd: Vec<u8>,
    /// Appended to [`COMMAND_LINE_START`].
    pub command_line: String,
}

/// Runs `kernel` by `plan` until it ends, fails, `interrupted` is set, or the time limit passes.
///
/// # Errors
/// [`MachineError`] if it could not begin.
pub fn run(
    host: &Host,
    kernel: Kernel,
    plan: LinuxPlan,
    // This is one type, so that the vCPU loop is compiled here, for speed, and not in the crate of the caller.
    ends: Ends<'_, dyn Write + Send + '_>,
    interrupted: &AtomicBool,
) -> Result<PcOutcome, MachineError> {
    linux_refusal().map_err(MachineError::Host)?;
    let LinuxPlan { machine, memory: size, initrd, command_line } = plan;
    // The kernel and the RAM disk are freed when they are in guest memory.
    let boot = |facts: RunFacts, channel: bool| {
        let mut kernel = kernel;
        if !(MIN_MEMORY..=MAX_MEMORY).contains(&size) || !size.is_multiple_of(0x1000) {
            return Err(BootError(format!(
                "{size:#x} bytes of guest memory are not between {MIN_MEMORY:#x} and {MAX_MEMORY:#x}; give another size with --memory"
            ))
            .into());
        }
        let memory = allocate(size)?;
        let sites = if facts.userspace_pmu { kernel.rewrite_rdpmcs()? } else { Vec::new() };
        let entry = place(&kernel, size, &initrd, &command_line, &memory)?;
        drop((kernel, initrd));
        let tables = acpi::tables(machine.vcpus, channel);
        memory.write_slice(&tables, GuestAddress(ACPI)).map_err(BootError::from)?;
        let svm = matches!(machine.pmu, PmuCaps::Amd(AmdCaps { svm: true, .. }));
        // Linux writes canonical addresses only: they need no check where the processor makes none.
        let also = Also { rdpmc: !sites.is_empty(), addresses: false, efer: svm };
        Ok(Booted {
            memory,
            in_kernel: InKernel { pit: true, also, without_misemulated: facts.emulated_host },
            sites,
            entry: (enter, kvm_regs { rsi: ZERO_PAGE, ..vcpu::registers(entry) }),
        })
    };
    pc::run(host, Box::new(boot), &machine, None, ends, interrupted)
}

/// Sets the mode of the 64-bit boot protocol.
fn enter(sregs: &mut kvm_sregs) {
    vcpu::enter_64_bit_mode(sregs, PAGE_TABLES);
    sregs.cs.selector = CODE;
    for segment in [&mut sregs.ds, &mut sregs.es, &mut sregs.fs, &mut sregs.gs, &mut sregs.ss] {
        segment.selector = DATA;
    }
    (sregs.gdt.base, sregs.gdt.limit) = (GDT, size_of_val(&GDT_ENTRIES) as u16 - 1);
}

/// Puts the kernel and all it finds at its start into `memory`, but for ACPI's tables. Returns its entry point.
fn place(
    kernel: &Kernel,
    size: u64,
    initrd: &[u8],
    command_line: &str,
    memory: &GuestMemoryMmap,
) -> Result<u64, BootError> {
    let (low, _) = split(size);
    if kernel.setup.end > low {
        let end = kernel.setup.end;
        return refused(format!(
            "the kernel needs memory to {end:#x}, and the guest has {low:#x}; give more with --memory"
        ));
    }
    let Elf { segments, entry, .. } = Elf::parse(kernel.image())?;
    let image = LoadPlan::new(segments, low)?;
    if image.segments.iter().any(|segment| segment.address < HIGH_START) {
        return Err(bad("a segment lies in the first megabyte"));
    }
    if !image.covers(entry) {
        return Err(entry_outside(entry));
    }
    image.copy(kernel.image(), |address, bytes| memory.write_slice(bytes, GuestAddress(address)))?;

    let line = full_command_line(kernel, command_line)?;
    memory.write_slice(&line, GuestAddress(COMMAND_LINE))?;
    let initrd_at = initrd_place(kernel, low, initrd.len())?;
    if let Some((at, _)) = initrd_at {
        memory.write_slice(initrd, GuestAddress(at.into()))?;
    }
    memory.write_slice(&zero_page::build(&kernel.setup.bytes, size, initrd_at), GuestAddress(ZERO_PAGE))?;
    memory.write_slice(&vcpu::identity_map(PAGE_TABLES), GuestAddress(PAGE_TABLES))?;
    write_words(memory, GDT, &GDT_ENTRIES)?;
    Ok(entry)
}

/// Returns the command line with its terminating zero.
fn full_command_line(kernel: &Kernel, appended: &str) -> Result<Vec<u8>, BootError> {
    if appended.contains('\0') {
        return refused("the command line holds a zero byte, which would end it");
    }
    let line = [COMMAND_LINE_START, appended.trim()].join(" ");
    let line = line.trim_end();
    let max = (kernel.setup.command_line as usize).min(COMMAND_LINE_MAX - 1);
    if line.len() > max {
        return refused(format!("the command line has {} bytes; this kernel takes {max}", line.len()));
    }
    Ok([line.as_bytes(), &[0]].concat())
}

/// Address and size of an initrd: as high as the kernel takes it, behind the kernel.
fn initrd_place(kernel: &Kernel, low: u64, size: usize) -> Result<Option<(u32, u32)>, BootError> {
    if size == 0 {
        return Ok(None);
    }
    let end = low.min(u64::from(kernel.setup.initrd_max) + 1);
    let start = kernel.setup.end.next_multiple_of(0x1000);
    let at = end.checked_sub(size as u64).map(|at| at & !0xfff).filter(|&at| at >= start);
    match at {
        // Both are below the hole.
        Some(at) => Ok(Some((at as u32, size as u32))),
        None => refused(format!(
            "an initrd of {size:#x} bytes has no place beside the kernel: {:#x} bytes are left; give more with --memory",
            end.saturating_sub(start)
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::boot::tests::TestElf;

    const BASE: u64 = 0x100_0000;
    const MEMORY: u64 = 64 << 20;

    fn kernel_at(address: u64) -> Kernel {
        let code = [&[0xf4][..], b"Linux version 6.1.0-test "].concat();
        Kernel::parse(&TestElf::new(true, address).code(address, &code).bytes()).unwrap()
    }

    fn placed(kernel: &Kernel, initrd: &[u8], line: &str) -> Result<(u64, GuestMemoryMmap), BootError> {
        let memory = allocate(MEMORY)?;
        Ok((place(kernel, MEMORY, initrd, line, &memory)?, memory))
    }

    #[test]
    fn the_kernel_finds_all_it_needs() {
        let (entry, memory) = placed(&kernel_at(BASE), &[0xaa; 5000], " quiet \n").unwrap();
        assert_eq!(entry, BASE);
        let read = |at: u64, length: usize| {
            let mut bytes = vec![0; length];
            memory.read_slice(&mut bytes, GuestAddress(at)).unwrap();
            bytes
        };
        assert_eq!(read(BASE, 1), [0xf4]);
        let line = format!("{COMMAND_LINE_START} quiet\0");
        assert_eq!(read(COMMAND_LINE, line.len()), line.as_bytes());
        let initrd = MEMORY - 0x2000;
        assert_eq!(read(ZERO_PAGE + 0x218, 8), [(initrd as u32).to_le_bytes(), 5000_u32.to_le_bytes()].concat());
        assert_eq!(read(initrd, 5001), [&[0xaa; 5000][..], &[0]].concat());
        assert_eq!(read(GDT + u64::from(CODE), 8), GDT_ENTRIES[2].to_le_bytes());
        assert_ne!(read(PAGE_TABLES, 8), [0; 8]);
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let kernel = kernel_at(BASE);
        let room = (MEMORY - (BASE + 0x1000)) as usize;
        let max = kernel.setup.command_line as usize - COMMAND_LINE_START.len() - 1;
        assert!(placed(&kernel, &vec![0; room], &"x".repeat(max)).is_ok());
        for (kernel, initrd, line, words) in [
            (&kernel, room + 1, "", "no place beside the kernel"),
            (&kernel, 0, &*"x".repeat(max + 1), "the command line has"),
            (&kernel, 0, "a\0b", "a zero byte"),
            (&kernel_at(MEMORY), 0, "", "the kernel needs memory"),
            (&kernel_at(0x1_0000), 0, "", "first megabyte"),
        ] {
            let error = placed(kernel, &vec![0; initrd], line).map(|(entry, _)| entry).unwrap_err();
            assert!(error.0.contains(words), "{words}: {error}");
        }
    }
}
