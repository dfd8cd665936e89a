//! Guests with a PC's minimum of devices: a third-party image or a distribution's Linux kernel.

use std::io::{self, Write};
use std::os::unix::net::UnixStream;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use kvm_bindings::{kvm_regs, kvm_sregs};
use kvm_ioctls::VmFd;
use vm_memory::GuestMemoryMmap;

use super::error::MachineError;
use super::guest::{Guest, InKernel, RunFacts};
use super::plan::Plan;
use super::run::{self, Run};
use crate::boot::linux::layout::{VIRTIO, VIRTIO_GSI};
use crate::boot::rdpmc::Site;
use crate::devices::board::{Board, Devices};
use crate::devices::console::Console;
use crate::devices::fw_cfg::FwCfg;
use crate::devices::oops::Complaints;
use crate::devices::output::Output;
use crate::devices::virtio;
use crate::devices::virtio::Faults;
use crate::kvm::Host;
use crate::kvm::other_msrs::OtherMsrs;
use crate::outcome::{End, VcpuOutcome};
use crate::sys::IrqLine;

/// Most vCPUs: their APIC ids fit xAPIC mode.
pub const MAX_VCPUS: usize = 254;

/// Interrupt of the serial port.
const SERIAL_GSI: u32 = 4;

/// The host's ends of what a guest is connected to.
#[derive(Debug)]
pub struct Ends<'a, W: ?Sized> {
    /// The serial port's output.
    pub console: &'a mut W,
    /// The agent's port.
    pub channel: Option<UnixStream>,
}

/// Results of one vCPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PcLeft {
    /// Accesses to absent ports and memory.
    pub absent: u64,
}

/// One run of an image or of Linux.
#[derive(Debug)]
pub struct PcOutcome {
    /// The reason for the end: that of the first vCPU that did not just stop, or Linux's panic that led to it.
    pub end: End,
    /// One per vCPU.
    pub vcpus: Vec<VcpuOutcome<PcLeft>>,
    /// RDPMCs that were rewritten.
    pub rewritten: usize,
    /// The state of the console.
    pub console: Output,
    /// Complaints of Linux on its console; a caller with the kernel's log has [more](Complaints::decided_by).
    pub complaints: Complaints,
    /// Faults that broke the agent's port.
    pub channel: Faults,
    /// From creating the VM to the last vCPU's end.
    pub wall: Duration,
}

/// A guest in its memory, and the registers of its first vCPU.
pub(super) struct Booted {
    pub(super) memory: GuestMemoryMmap,
    pub(super) in_kernel: InKernel,
    /// RDPMCs that were rewritten.
    pub(super) sites: Vec<Site>,
    pub(super) entry: Entry,
}

/// Sets the mode of the first vCPU's first instruction, and its other registers.
pub(super) type Entry = (fn(&mut kvm_sregs), kvm_regs);

/// Puts what is booted into memory, with an agent's port if the flag says so.
pub(super) type Boot<'a> = Box<dyn FnOnce(RunFacts, bool) -> Result<Booted, MachineError> + Sync + 'a>;

/// Runs what is booted until it ends, fails, `interrupted` is set, or the time limit passes. An image has `fw_cfg`, and
/// polls its serial port.
pub(super) fn run(
    host: &Host,
    boot: Boot<'_>,
    machine: &Plan,
    fw_cfg: Option<FwCfg>,
    Ends { console: out, channel }: Ends<'_, dyn Write + Send + '_>,
    interrupted: &AtomicBool,
) -> Result<PcOutcome, MachineError> {
    let console = Console::default();
    let is_linux = fw_cfg.is_none();
    let devices = Devices::new(&console, fw_cfg);
    let mut guest = PcGuest {
        boot: Some(boot),
        entry: None,
        console: &console,
        devices: &devices,
        has_line: is_linux,
        channel: channel.map(virtio::Console::new),
        sites: Vec::new(),
    };
    let (ran, written) = std::thread::scope(|scope| {
        let writer = scope.spawn(|| console.write_to(out));
        let ran = {
            let _ending = Ending(&console);
            run::run(host, &mut guest, machine, interrupted)
        };
        (ran, writer.join())
    });
    let Run { end, vcpus, wall, .. } = ran?;
    let (console, complaints) = written.map_err(|_| MachineError::Panicked("the console's thread"))?;
    let end = match (&complaints.panic, end) {
        (Some(why), End::Reset | End::TimedOut | End::TripleFault) if is_linux => End::Panic(why.clone()),
        (_, end) => end,
    };
    let channel = guest.channel.take().map(virtio::Console::end).transpose();
    let channel = channel.map_err(|_| MachineError::Panicked("a virtio device's thread"))?.unwrap_or_default();
    Ok(PcOutcome { end, vcpus, rewritten: guest.sites.len(), console, complaints, channel, wall })
}

/// Ends the console's thread at the end of a run, also when it panics: the scope waits for it.
struct Ending<'a>(&'a Console);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// A guest in a machine.
struct PcGuest<'a> {
    boot: Option<Boot<'a>>,
    /// Its first vCPU's mode and registers, once it is loaded.
    entry: Option<Entry>,
    console: &'a Console,
    devices: &'a Devices<'a>,
    /// Its serial port has an interrupt.
    has_line: bool,
    channel: Option<virtio::Console>,
    sites: Vec<Site>,
}

impl<'a> Guest for PcGuest<'a> {
    type Bus<'b>
        = Board<'b, 'a>
    where
        Self: 'b;
    type Left = PcLeft;

    const MAX_VCPUS: usize = MAX_VCPUS;
    const SHARES_LAPIC: bool = true;

    fn load(&mut self, facts: RunFacts) -> Result<(GuestMemoryMmap, InKernel), MachineError> {
        let Some(boot) = self.boot.take() else { return Err(MachineError::Host("it is loaded already".to_owned())) };
        let Booted { memory, in_kernel, sites, entry } = boot(facts, self.channel.is_some())?;
        (self.sites, self.entry) = (sites, Some(entry));
        Ok((memory, in_kernel))
    }

    fn attach(&mut self, vm: &VmFd, memory: &GuestMemoryMmap) -> Result<(), MachineError> {
        let failed = |what: &'static str| move |error: io::Error| MachineError::Host(format!("{what}: {error}"));
        if self.has_line {
            let line = IrqLine::new(vm, SERIAL_GSI).map_err(failed("the serial port's interrupt"))?;
            self.devices.connect(Box::new(move |level| line.set(level)));
        }
        match &mut self.channel {
            Some(channel) => {
                let attached = channel.attach(vm, memory, VIRTIO, VIRTIO_GSI);
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
    ) -> Result<Option<kvm_regs>, MachineError> {
        let first = self.entry.filter(|_| cpu == 0);
        Ok(first.map(|(mode, regs)| {
            mode(sregs);
            regs
        }))
    }

    fn bus(&self) -> Board<'_, 'a> {
        Board::new(self.devices, self.channel.as_ref())
    }

    fn other_msrs(&self) -> Option<OtherMsrs> {
        Some(OtherMsrs::new(&self.sites))
    }

    fn harvest(
        &self,
        _cpu: usize,
        _tsc_khz: u64,
        _end: &mut End,
        bus: &mut Board<'_, 'a>,
        _memory: &GuestMemoryMmap,
    ) -> Result<PcLeft, MachineError> {
        Ok(PcLeft { absent: bus.absent })
    }

    fn stop_resting(&self) {
        // A vCPU may wait for room on the console, where no kick reaches it.
        self.console.abandon();
    }
}
