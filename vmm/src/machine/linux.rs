//! A distribution's Linux kernel as a guest.

use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use arch_pmu::amd::AmdCaps;
use arch_pmu::caps::PmuCaps;
use kvm_bindings::{kvm_regs, kvm_sregs};
use kvm_ioctls::VmFd;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use vm_memory::{Bytes as _, GuestAddress, GuestMemoryMmap};

use super::error::MachineError;
use super::guest::{Guest, InKernel, RunFacts, Start};
use super::plan::Plan;
use super::run::{self, Run};
use crate::boot::elf::Elf;
use crate::boot::image::LoadPlan;
use crate::boot::linux::layout::{
    ACPI, COMMAND_LINE, COMMAND_LINE_MAX, GDT, HIGH_START, MAX_MEMORY, MIN_MEMORY, PAGE_TABLES, VIRTIO, VIRTIO_GSI,
    ZERO_PAGE, allocate, split,
};
pub use crate::boot::linux::{BootError, Kernel, KernelError};
use crate::boot::linux::{acpi, zero_page};
use crate::boot::rdpmc::Site;
use crate::boot::segment::LoadError;
use crate::boot::vcpu;
use crate::devices::console::Console;
use crate::devices::linux_board::{LinuxBoard, Shared as Devices};
pub use crate::devices::oops::{Complaints, Log};
pub use crate::devices::output::Output;
use crate::devices::virtio;
pub use crate::devices::virtio::Faults;
use crate::kvm::msr_filter::Also;
use crate::kvm::other_msrs::OtherMsrs;
use crate::kvm::{Host, linux_refusal};
use crate::outcome::{End, VcpuOutcome};
use crate::sys::IrqLine;

/// Most vCPUs.
pub const MAX_VCPUS: usize = 254;

/// Interrupt of the serial port.
const SERIAL_GSI: u32 = 4;

/// Our part of the command line: the console, with RTS and CTS so that input waits for room, a reset after a panic, the
/// way to reset (with hardware-reduced ACPI Linux looks for EFI), no search for a PCI bus, which is not there, and a
/// console with warnings, which [`Complaints`] reads by their stamps, and no more.
pub const COMMAND_LINE_START: &str = "console=ttyS0,115200n8r panic=-1 reboot=acpi pci=off printk.time=1 loglevel=5";

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

/// The host's ends of what a guest is connected to.
#[derive(Debug)]
pub struct Ends<'a, W: ?Sized> {
    /// The serial port's output.
    pub console: &'a mut W,
    /// Bytes for the serial port.
    pub input: Option<OwnedFd>,
    /// The agent's port.
    pub channel: Option<UnixStream>,
}

/// Results of one vCPU of a Linux guest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinuxLeft {
    /// Accesses to absent ports and memory.
    pub absent: u64,
}

/// One run of Linux.
#[derive(Debug)]
pub struct LinuxOutcome {
    /// The reason for the end: that of the first vCPU that did not just stop, or the panic that led to it.
    pub end: End,
    /// One per vCPU.
    pub vcpus: Vec<VcpuOutcome<LinuxLeft>>,
    /// RDPMCs that were rewritten.
    pub rewritten: usize,
    /// The state of the console.
    pub console: Output,
    /// Complaints of the kernel on its console; a caller with the kernel's log has [more](Complaints::decided_by).
    pub complaints: Complaints,
    /// Faults that broke the agent's port.
    pub channel: Faults,
    /// From creating the VM to the last vCPU's end.
    pub wall: Duration,
}

/// Runs `kernel` by `plan` until it ends, fails, `interrupted` is set, or the time limit passes.
///
/// # Errors
/// [`MachineError`] if it could not begin.
pub fn run(
    host: &Host,
    kernel: Kernel,
    plan: LinuxPlan,
    // One type, so that the vCPU loop is compiled here, for speed, and not in the crate of the caller.
    ends: Ends<'_, dyn Write + Send + '_>,
    interrupted: &AtomicBool,
) -> Result<LinuxOutcome, MachineError> {
    linux_refusal().map_err(MachineError::Host)?;
    let LinuxPlan { machine, memory, initrd, command_line } = plan;
    let Ends { console: out, input, channel } = ends;
    let console = Console::default();
    let devices = Devices::new(&console);
    let over = AtomicBool::new(false);
    let mut guest = LinuxGuest {
        kernel: Some(kernel),
        vcpus: machine.vcpus,
        confined: machine.seccomp,
        memory,
        initrd,
        command_line,
        console: &console,
        devices: &devices,
        channel: channel.map(virtio::Console::new),
        sites: Vec::new(),
        svm: matches!(machine.pmu, PmuCaps::Amd(AmdCaps { svm: true, .. })),
        entry: 0,
    };
    let (ran, written) = std::thread::scope(|scope| {
        let writer = scope.spawn(|| console.write_to(out));
        if let Some(input) = input {
            let (devices, over) = (&devices, &over);
            scope.spawn(move || feed(&input, devices, over));
        }
        let ran = {
            let _ending = Ending { over: &over, console: &console };
            run::run(host, &mut guest, &machine, interrupted)
        };
        (ran, writer.join())
    });
    let Run { end, vcpus, wall, .. } = ran?;
    let (output, complaints) = written.map_err(|_| MachineError::Panicked("the console's thread"))?;
    let end = match (&complaints.panic, end) {
        (Some(why), End::Reset | End::TimedOut | End::TripleFault) => End::Panic(why.clone()),
        (_, end) => end,
    };
    let channel = guest.channel.take().map(virtio::Console::end).transpose();
    let channel = channel.map_err(|_| MachineError::Panicked("a virtio device's thread"))?.unwrap_or_default();
    Ok(LinuxOutcome { end, vcpus, rewritten: guest.sites.len(), console: output, complaints, channel, wall })
}

/// Ends the console's threads at the end of a run, also when it panics: the scope waits for them.
struct Ending<'a> {
    over: &'a AtomicBool,
    console: &'a Console,
}

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        self.console.close();
    }
}

/// Passes `input` to the serial port until its end or the run's.
fn feed(input: &OwnedFd, devices: &Devices<'_>, over: &AtomicBool) {
    /// Interval at which the end of the run is looked for.
    const POLL: Duration = Duration::from_millis(20);
    /// Interval at which room for more input is looked for.
    const ROOM: Duration = Duration::from_millis(2);
    /// Longest pause between two pieces of input.
    const PAUSE: Duration = Duration::from_millis(100);
    let mut buffer = [0; 64];
    let timeout = Timespec { tv_sec: 0, tv_nsec: POLL.as_nanos() as i64 };
    while !over.load(Ordering::Relaxed) {
        let mut ready = [PollFd::new(input, PollFlags::IN)];
        match poll(&mut ready, Some(&timeout)) {
            Ok(0) | Err(rustix::io::Errno::INTR) => continue,
            Ok(_) => {}
            Err(_) => return,
        }
        let Ok(length @ 1..) = rustix::io::read(input, &mut buffer) else { return };
        let mut bytes = &buffer[..length];
        while !bytes.is_empty() && !over.load(Ordering::Relaxed) {
            let taken = devices.receive(bytes);
            bytes = &bytes[taken..];
            let given = Instant::now();
            std::thread::sleep(ROOM);
            while taken > 0 && devices.has_input() && !over.load(Ordering::Relaxed) {
                std::thread::sleep(ROOM);
            }
            if taken > 1 {
                // The guest has as much time again for other work: each byte costs it exits in its interrupt handler.
                std::thread::sleep(given.elapsed().min(PAUSE));
            }
        }
    }
}

/// Linux in a machine.
struct LinuxGuest<'a> {
    kernel: Option<Kernel>,
    vcpus: usize,
    /// The thread of its device is confined, as those of its vCPUs are.
    confined: bool,
    memory: u64,
    initrd: Vec<u8>,
    command_line: String,
    console: &'a Console,
    devices: &'a Devices<'a>,
    channel: Option<virtio::Console>,
    sites: Vec<Site>,
    /// Its processor has SVM.
    svm: bool,
    entry: u64,
}

impl<'a> Guest for LinuxGuest<'a> {
    type Bus<'b>
        = LinuxBoard<'b, 'a>
    where
        Self: 'b;
    type Left = LinuxLeft;

    fn max_vcpus(&self) -> usize {
        MAX_VCPUS
    }

    fn memory(&self) -> Result<GuestMemoryMmap, MachineError> {
        if !(MIN_MEMORY..=MAX_MEMORY).contains(&self.memory) || !self.memory.is_multiple_of(0x1000) {
            return Err(BootError::Memory(self.memory).into());
        }
        Ok(allocate(self.memory)?)
    }

    fn load(&mut self, memory: &GuestMemoryMmap, facts: RunFacts) -> Result<InKernel, MachineError> {
        // Both are freed here: their bytes are in guest memory when the guest runs.
        let Some(mut kernel) = self.kernel.take() else { return Err(MachineError::Host("no kernel".to_owned())) };
        let initrd = std::mem::take(&mut self.initrd);
        if facts.userspace_pmu {
            self.sites = kernel.rewrite_rdpmcs()?;
        }
        self.entry = place(&kernel, self.memory, &initrd, &self.command_line, memory)?;
        memory.write_slice(&acpi::tables(self.vcpus, u32::from(self.channel.is_some())), GuestAddress(ACPI))?;
        // Linux writes canonical addresses only: they need no check where the processor makes none.
        let also = Also { rdpmc: !self.sites.is_empty(), addresses: false, efer: self.svm };
        Ok(InKernel { pit: true, also, without_misemulated: facts.emulated_host })
    }

    fn attach(&mut self, vm: &VmFd, memory: &GuestMemoryMmap) -> Result<(), MachineError> {
        let failed = |what: &'static str| move |error: io::Error| MachineError::Host(format!("{what}: {error}"));
        let line = IrqLine::new(vm, SERIAL_GSI).map_err(failed("the serial port's interrupt"))?;
        self.devices.connect(Box::new(move |level| line.set(level)));
        match &mut self.channel {
            Some(channel) => {
                let attached = channel.attach(vm, memory, VIRTIO, VIRTIO_GSI, self.confined);
                attached.map_err(failed("the virtio console for the agent"))
            }
            None => Ok(()),
        }
    }

    fn start(
        &self,
        cpu: usize,
        _tsc_khz: u64,
        sregs: &mut kvm_sregs,
        _memory: &GuestMemoryMmap,
    ) -> Result<Start, MachineError> {
        if cpu > 0 {
            return Ok(Start::Waits);
        }
        vcpu::enter_64_bit_mode(sregs, PAGE_TABLES);
        sregs.cs.selector = CODE;
        for segment in [&mut sregs.ds, &mut sregs.es, &mut sregs.fs, &mut sregs.gs, &mut sregs.ss] {
            segment.selector = DATA;
        }
        (sregs.gdt.base, sregs.gdt.limit) = (GDT, size_of_val(&GDT_ENTRIES) as u16 - 1);
        Ok(Start::At(kvm_regs { rsi: ZERO_PAGE, ..vcpu::registers(self.entry) }))
    }

    fn bus(&self) -> LinuxBoard<'_, 'a> {
        LinuxBoard::new(self.devices, self.channel.as_ref())
    }

    fn other_msrs(&self) -> Option<OtherMsrs> {
        Some(OtherMsrs::new(&self.sites))
    }

    fn others_write_the_lapic(&self) -> bool {
        true
    }

    /// Returns the first reason that is not "stopped".
    fn overall(&self, ends: &[&End]) -> End {
        ends.iter().find(|end| ***end != End::Stopped).map_or(End::Stopped, |end| (**end).clone())
    }

    fn harvest(
        &self,
        _cpu: usize,
        _tsc_khz: u64,
        _end: &mut End,
        bus: &mut LinuxBoard<'_, 'a>,
        _memory: &GuestMemoryMmap,
    ) -> Result<LinuxLeft, MachineError> {
        Ok(LinuxLeft { absent: bus.absent() })
    }

    fn stop_resting(&self) {
        // A vCPU may wait for room on the console, where no kick reaches it.
        self.console.abandon();
    }
}

/// Puts the kernel and all it finds at its start into `memory`, but for ACPI's tables. Returns its entry point.
fn place(
    kernel: &Kernel,
    size: u64,
    initrd: &[u8],
    command_line: &str,
    memory: &GuestMemoryMmap,
) -> Result<u64, MachineError> {
    let (low, _) = split(size);
    if kernel.setup.end > low {
        return Err(BootError::KernelTooLarge { end: kernel.setup.end, memory: low }.into());
    }
    let Elf { segments, entry, .. } = Elf::parse(kernel.image())?;
    let image = LoadPlan::new(segments, low)?;
    if image.segments.iter().any(|segment| segment.address < HIGH_START) {
        return Err(LoadError::Elf("a segment lies in the first megabyte").into());
    }
    if !image.covers(entry) {
        return Err(LoadError::Entry { entry }.into());
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
    let gdt: Vec<u8> = GDT_ENTRIES.iter().flat_map(|entry| entry.to_le_bytes()).collect();
    memory.write_slice(&gdt, GuestAddress(GDT))?;
    Ok(entry)
}

/// Returns the command line with its terminating zero.
fn full_command_line(kernel: &Kernel, appended: &str) -> Result<Vec<u8>, BootError> {
    if appended.contains('\0') {
        return Err(BootError::CommandLineZero);
    }
    let line = [COMMAND_LINE_START, appended.trim()].join(" ");
    let line = line.trim_end();
    let max = (kernel.setup.command_line as usize).min(COMMAND_LINE_MAX - 1);
    if line.len() > max {
        return Err(BootError::CommandLineTooLong { length: line.len(), max });
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
        None => Err(BootError::InitrdTooLarge { size, room: end.saturating_sub(start) }),
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

    fn placed(kernel: &Kernel, initrd: &[u8], line: &str) -> Result<(u64, GuestMemoryMmap), MachineError> {
        let memory = allocate(MEMORY)?;
        Ok((place(kernel, MEMORY, initrd, line, &memory)?, memory))
    }

    #[test]
    fn the_kernel_finds_all_it_needs() {
        let (entry, memory) = placed(&kernel_at(BASE), &[0xaa; 5000], " vpmu.shell \n").unwrap();
        assert_eq!(entry, BASE);
        let read = |at: u64, length: usize| {
            let mut bytes = vec![0; length];
            memory.read_slice(&mut bytes, GuestAddress(at)).unwrap();
            bytes
        };
        assert_eq!(read(BASE, 1), [0xf4]);
        let line = format!("{COMMAND_LINE_START} vpmu.shell\0");
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
        let refused = |kernel: &Kernel, initrd: &[u8], line: &str| match placed(kernel, initrd, line) {
            Err(MachineError::Boot(why)) => why,
            other => panic!("{:?}", other.map(|(entry, _)| entry)),
        };
        let room = MEMORY - (BASE + 0x1000);
        assert!(placed(&kernel, &vec![0; room as usize], "").is_ok());
        let large = vec![0; room as usize + 1];
        assert_eq!(refused(&kernel, &large, ""), BootError::InitrdTooLarge { size: large.len(), room });
        let max = kernel.setup.command_line as usize;
        let length = COMMAND_LINE_START.len() + 1 + max;
        assert_eq!(refused(&kernel, &[], &"x".repeat(max)), BootError::CommandLineTooLong { length, max });
        assert_eq!(refused(&kernel, &[], "a\0b"), BootError::CommandLineZero);
        let high = kernel_at(MEMORY);
        assert!(matches!(refused(&high, &[], ""), BootError::KernelTooLarge { .. }));
        let low = placed(&kernel_at(0x1_0000), &[], "");
        assert!(matches!(low, Err(MachineError::Load(LoadError::Elf(why))) if why.contains("megabyte")));
    }
}
