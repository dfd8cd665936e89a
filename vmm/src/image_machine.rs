//! One run of somebody else's image: memory, VM, a PC's minimum of devices, a thread per vCPU, and what they leave.

use std::io::Write;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use host_pmu::kick;
use host_pmu::side::HostPmu;
use kvm_ioctls::{VcpuFd, VmFd};
use thiserror::Error;
use vm_memory::{Bytes as _, GuestAddress, GuestMemoryMmap};

use crate::boot::image::{Entry, LoadError, LoadPlan};
use crate::boot::long64::{self, Tables};
use crate::boot::multiboot::{BOOT_MAGIC, Information, Module};
use crate::boot::protected;
use crate::boot::rdpmc::{self, Site};
use crate::crew::{Crew, Left, Limits};
use crate::devices::board::{Board, Output, Shared as Devices};
use crate::kvm::foreign::ForeignMsrs;
use crate::kvm::msr_filter::Also;
use crate::kvm::vcpu::{Parts, Vcpu};
use crate::kvm::{GuestPmu, Host, KvmError};
use crate::machine::{Behind, MachineError, OnHost, Tell, pin};
use crate::outcome::{End, HostSide, MsrExits, PmiStats};
use crate::seccomp::Jail;
use crate::sys;
use arch_pmu::Vpmu;
use arch_pmu::caps::PmuCaps;

/// Most guest memory: above it lie the LAPIC's, the IOAPIC's and KVM's own pages, and there is no memory beyond them.
pub const MAX_MEMORY: u64 = 3 << 30;
/// Least guest memory: the first megabyte and room for an image.
pub const MIN_MEMORY: u64 = 2 << 20;
/// vCPUs at most: their APIC ids fit xAPIC mode.
pub const MAX_VCPUS: usize = 254;

/// What becomes of an image's RDPMCs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Rdpmc {
    /// They are rewritten to RDMSR, so that a userspace vPMU can answer them.
    #[default]
    Rewrite,
    /// They stay, and fault in a guest without a vPMU of KVM's own.
    Fault,
}

/// A file for the image.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FileForImage {
    /// Its name.
    pub name: String,
    /// Its bytes.
    pub contents: Vec<u8>,
}

/// One run.
#[derive(Clone, Debug)]
pub struct ImagePlan {
    /// What stands behind the counters.
    pub behind: Behind,
    /// The guest's PMU.
    pub pmu: PmuCaps,
    /// Number of vCPUs.
    pub vcpus: usize,
    /// CPUs to bind vCPU threads to, in turn; empty = not bound.
    pub pin: Vec<usize>,
    /// Bytes of guest memory, from address 0.
    pub memory: u64,
    /// First word of the command line.
    pub program: String,
    /// The rest of the command line.
    pub arguments: String,
    /// Multiboot modules.
    pub modules: Vec<FileForImage>,
    /// RDPMC.
    pub rdpmc: Rdpmc,
    /// When the run is ended from outside.
    pub time_limit: Duration,
    /// Whether vCPU threads run under a seccomp filter.
    pub seccomp: bool,
}

/// Why a run could not begin.
#[derive(Debug, Error)]
pub enum ImageError {
    /// The image, or what it is given.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// Guest memory out of range.
    #[error("{0:#x} bytes of guest memory are not between {MIN_MEMORY:#x} and {MAX_MEMORY:#x}")]
    MemorySize(u64),
    /// Guest memory could not be written.
    #[error("guest memory: {0}")]
    Guest(#[from] vm_memory::GuestMemoryError),
    /// The machine.
    #[error(transparent)]
    Machine(#[from] MachineError),
}

impl From<KvmError> for ImageError {
    fn from(error: KvmError) -> Self {
        Self::Machine(error.into())
    }
}

/// One vCPU's part of a run.
#[derive(Clone, Debug)]
pub struct ImageVcpu {
    /// Why it ended.
    pub end: End,
    /// PMIs.
    pub pmi: PmiStats,
    /// MSR exits of the PMU, one line per MSR that exited at all.
    pub msr_exits: Vec<MsrExits>,
    /// Rewritten RDPMCs that were answered.
    pub rdpmcs: u64,
    /// Accesses to ports and memory that are not there.
    pub absent: u64,
    /// Host events.
    pub host: HostSide,
}

/// One run of an image.
#[derive(Debug)]
pub struct ImageOutcome {
    /// The first vCPU's reason that is not "stopped", else "stopped".
    pub end: End,
    /// One per vCPU.
    pub vcpus: Vec<ImageVcpu>,
    /// RDPMCs that were rewritten.
    pub rewritten: usize,
    /// Whether registers that hold addresses were checked here, as the host's processor is emulated without that check.
    pub checked_addresses: bool,
    /// The serial output's fate.
    pub output: Output,
    /// From creating the VM to the last vCPU's end.
    pub wall: Duration,
}

/// Runs `image` by `plan`, its serial output to `out`, until it ends, fails, `interrupted` is set, or its time is up.
///
/// # Errors
/// [`ImageError`] if it could not begin.
pub fn run<W: Write + Send>(
    host: &Host,
    image: &[u8],
    plan: &ImagePlan,
    out: W,
    interrupted: &AtomicBool,
) -> Result<ImageOutcome, ImageError> {
    let began = Instant::now();
    host.check_vcpus(plan.vcpus, MAX_VCPUS)?;
    if !(MIN_MEMORY..=MAX_MEMORY).contains(&plan.memory) {
        return Err(ImageError::MemorySize(plan.memory));
    }
    let pmu = plan.behind.pmu(host, plan.pmu)?;
    let mut image = image.to_vec();
    let rewrite = plan.rdpmc == Rdpmc::Rewrite && plan.behind != Behind::Kvm;
    let sites = if rewrite { rdpmc::rewrite(&mut image)? } else { Vec::new() };
    let memory =
        GuestMemoryMmap::<()>::from_ranges(&[(GuestAddress(0), plan.memory as usize)]).map_err(MachineError::Memory)?;
    let start = load(&image, plan, &memory)?;

    sys::install_kick_handler(kick::signal()).map_err(|error| MachineError::Host(format!("sigaction: {error}")))?;
    let checked_addresses = sys::emulated_host() && pmu != GuestPmu::Kvm;
    let also = Also { rdpmc: !sites.is_empty(), addresses: checked_addresses };
    let vm = host.create_image_vm(&memory, pmu, also)?;
    let mut vcpus = Vec::with_capacity(plan.vcpus);
    for cpu in 0..plan.vcpus {
        let vcpu = host.create_waiting_vcpu(&vm, cpu, plan.vcpus, pmu)?;
        let call = |call: &'static str| move |error| KvmError::Call { call, error };
        let tsc_khz = u64::from(vcpu.get_tsc_khz().map_err(call("KVM_GET_TSC_KHZ"))?);
        if cpu == 0 {
            let mut sregs = vcpu.get_sregs().map_err(call("KVM_GET_SREGS"))?;
            let regs = match start {
                Start::Protected { eip, eax, ebx } => {
                    protected::enter_protected_mode(&mut sregs);
                    protected::registers(eip, eax, ebx)
                }
                Start::Long { rip, cr3 } => {
                    long64::enter_64_bit_mode(&mut sregs, cr3);
                    long64::registers(rip)
                }
            };
            vcpu.set_sregs(&sregs).map_err(call("KVM_SET_SREGS"))?;
            vcpu.set_regs(&regs).map_err(call("KVM_SET_REGS"))?;
        }
        vcpus.push((vcpu, tsc_khz));
    }

    let jail = if plan.seccomp { Some(Jail::new().map_err(MachineError::from)?) } else { None };
    let devices = Devices::new(plan.vcpus as u16, plan.memory, out);
    let crew = Crew::default();
    let shared = Shared { vm: &vm, plan, devices: &devices, sites: &sites, crew: &crew, jail };
    let vcpus = shared.run_all(vcpus, &Limits { interrupted, began, time_limit: plan.time_limit })?;
    Ok(ImageOutcome {
        end: overall(&vcpus),
        vcpus,
        rewritten: sites.len(),
        checked_addresses,
        output: devices.finish(),
        wall: began.elapsed(),
    })
}

/// Where the first vCPU starts, and with what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Start {
    Protected { eip: u32, eax: u32, ebx: u32 },
    Long { rip: u64, cr3: u64 },
}

/// Puts the image, and what it is told, into memory.
fn load(image: &[u8], plan: &ImagePlan, memory: &GuestMemoryMmap) -> Result<Start, ImageError> {
    let loaded = LoadPlan::of(image, plan.memory)?;
    loaded.copy(image, |address, bytes| memory.write_slice(bytes, GuestAddress(address)))?;
    match loaded.entry {
        Entry::Multiboot { eip } => {
            let modules: Vec<_> =
                plan.modules.iter().map(|file| Module { contents: &file.contents, name: &file.name }).collect();
            let information =
                Information { ram: plan.memory, program: &plan.program, arguments: &plan.arguments, modules: &modules };
            let at = loaded.free_range(information.size()?)?;
            // free_range gives addresses below 4 GiB.
            let ebx = at as u32;
            memory.write_slice(&information.build(ebx)?, GuestAddress(at))?;
            Ok(Start::Protected { eip, eax: BOOT_MAGIC, ebx })
        }
        Entry::Protected32 { eip } => Ok(Start::Protected { eip, eax: 0, ebx: 0 }),
        Entry::Long64 { rip } => {
            let tables = Tables::of(&loaded.segments)?;
            let cr3 = loaded.free_range(tables.size())?;
            memory.write_slice(&tables.place(cr3), GuestAddress(cr3))?;
            Ok(Start::Long { rip, cr3 })
        }
    }
}

/// The first reason that is not "stopped".
fn overall(vcpus: &[ImageVcpu]) -> End {
    vcpus.iter().map(|vcpu| &vcpu.end).find(|end| **end != End::Stopped).cloned().unwrap_or(End::Stopped)
}

/// What the vCPU threads share.
struct Shared<'a, W: Write> {
    vm: &'a VmFd,
    plan: &'a ImagePlan,
    devices: &'a Devices<W>,
    sites: &'a [Site],
    crew: &'a Crew,
    jail: Option<Jail>,
}

impl<W: Write + Send> Shared<'_, W> {
    fn run_all(&self, vcpus: Vec<(VcpuFd, u64)>, limits: &Limits<'_>) -> Result<Vec<ImageVcpu>, MachineError> {
        let (left, timed_out) = self.crew.run(vcpus, limits, |cpu, (fd, tsc_khz)| {
            let outcome = pin(&self.plan.pin, cpu)
                .and_then(|()| self.plan.behind.open(tsc_khz, Work { shared: self, cpu, fd, tsc_khz })?);
            // Whatever ends one vCPU ends the machine.
            Left { others_go_on: false, outcome }
        });
        left.into_iter()
            .map(|outcome| {
                let mut vcpu = outcome.ok_or_else(|| MachineError::Host("a vCPU thread panicked".to_owned()))??;
                if timed_out && vcpu.end == End::Stopped {
                    vcpu.end = End::TimedOut;
                }
                Ok(vcpu)
            })
            .collect()
    }
}

/// One vCPU of an image.
struct Work<'a, W: Write> {
    shared: &'a Shared<'a, W>,
    cpu: usize,
    fd: VcpuFd,
    tsc_khz: u64,
}

impl<W: Write> OnHost for Work<'_, W> {
    type Out = Result<ImageVcpu, MachineError>;

    fn run<H: HostPmu + Tell>(self, host: H) -> Self::Out {
        let Self { shared, cpu, fd, tsc_khz } = self;
        let vcpu = Vcpu::new(Parts {
            vm: shared.vm,
            fd,
            apic_id: cpu as u32,
            pmu: Vpmu::new(shared.plan.pmu, host),
            bus: Board::new(shared.devices),
            foreign: Some(ForeignMsrs::new(shared.sites)),
            tsc_khz,
            log_entries: 0,
            stop: &shared.crew.stop,
        });
        if let Some(jail) = &shared.jail {
            jail.enter()?;
        }
        let mut left = vcpu.run();
        Ok(ImageVcpu {
            end: left.end,
            pmi: left.pmi,
            msr_exits: left.msr_exits,
            rdpmcs: left.rdpmcs,
            absent: left.bus.absent(),
            host: HostSide {
                signals: left.signals,
                empty_kicks: left.empty_kicks,
                held_at_end: left.host.held(),
                ..left.host.tell()
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vcpu(end: End) -> ImageVcpu {
        ImageVcpu {
            end,
            pmi: PmiStats::default(),
            msr_exits: Vec::new(),
            rdpmcs: 0,
            absent: 0,
            host: HostSide::default(),
        }
    }

    #[test]
    fn the_vcpu_that_ended_the_run_tells_why() {
        let status = End::GuestExit { status: 3 };
        assert_eq!(overall(&[vcpu(End::Stopped), vcpu(status.clone()), vcpu(End::Stopped)]), status);
        assert_eq!(overall(&[vcpu(End::Stopped)]), End::Stopped);
        assert_eq!(overall(&[vcpu(End::TimedOut), vcpu(End::TimedOut)]), End::TimedOut);
    }

    fn plan(memory: u64) -> ImagePlan {
        ImagePlan {
            behind: Behind::Floor,
            pmu: PmuCaps::default(),
            vcpus: 1,
            pin: Vec::new(),
            memory,
            program: "x".to_owned(),
            arguments: "y".to_owned(),
            modules: vec![FileForImage { name: "m".to_owned(), contents: b"12345".to_vec() }],
            rdpmc: Rdpmc::Rewrite,
            time_limit: Duration::from_secs(1),
            seccomp: true,
        }
    }

    #[test]
    fn an_image_and_its_information_are_put_in_memory() {
        // A multiboot header with addresses: all of the file to 1 MiB, entered behind the header.
        let words = [
            0x1bad_b002_u32,
            1 << 16,
            0_u32.wrapping_sub(0x1bad_b002 + (1 << 16)),
            0x10_0000,
            0x10_0000,
            0,
            0,
            0x10_0020,
        ];
        let mut image: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        image.push(0xf4);
        let ram = 4 << 20;
        let memory = GuestMemoryMmap::<()>::from_ranges(&[(GuestAddress(0), ram as usize)]).unwrap();
        let start = load(&image, &plan(ram), &memory).unwrap();
        let Start::Protected { eip: 0x10_0020, eax: BOOT_MAGIC, ebx } = start else { panic!("{start:?}") };
        let mut code = [0];
        memory.read_slice(&mut code, GuestAddress(0x10_0020)).unwrap();
        assert_eq!(code, [0xf4]);
        let mut flags = [0; 4];
        memory.read_slice(&mut flags, GuestAddress(ebx.into())).unwrap();
        assert_eq!(u32::from_le_bytes(flags) & 0b1101, 0b1101, "memory, command line, modules");
        assert!(matches!(load(b"", &plan(ram), &memory), Err(ImageError::Load(LoadError::NotAnImage))));
    }
}
