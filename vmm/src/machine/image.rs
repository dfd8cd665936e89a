//! A third-party image as a guest.

use std::io::Write;
use std::sync::atomic::AtomicBool;

use kvm_bindings::kvm_regs;
use vm_memory::{Bytes as _, GuestAddress, GuestMemoryMmap};

use super::error::MachineError;
use super::guest::{InKernel, RunFacts};
pub use super::pc::MAX_VCPUS;
use super::pc::{self, Booted, Ends, PcOutcome};
use super::plan::Plan;
use crate::boot::error::BootError;
use crate::boot::image::{BOOT_MAGIC, Image, MAX_MEMORY, MIN_MEMORY, Protocol};
use crate::boot::information::Information;
pub use crate::boot::information::Module;
use crate::boot::memory::allocate;
use crate::boot::rdpmc;
use crate::boot::vcpu;
use crate::devices::fw_cfg::FwCfg;
use crate::kvm::Host;
use crate::kvm::msr_filter::Also;

/// One run.
#[derive(Clone, Debug)]
pub struct ImagePlan {
    /// The machine.
    pub machine: Plan,
    /// Bytes of guest memory, from address 0.
    pub memory: u64,
    /// First word of the command line.
    pub program: String,
    /// The rest of the command line.
    pub arguments: String,
    /// Multiboot modules.
    pub modules: Vec<Module>,
}

/// One run of an image.
#[derive(Debug)]
pub struct ImageOutcome {
    /// The run.
    pub ran: PcOutcome,
    /// The name of the protocol by which it was booted.
    pub protocol: &'static str,
    /// It asked for a video mode, which it did not get.
    pub asked_for_video: bool,
    /// The VMM checked addresses written to MSRs, since the host's processor is emulated without that check.
    pub checked_addresses: bool,
}

/// Runs `image` by `plan`, its serial output to `out`, until it ends, fails, `interrupted` is set, or the time limit
/// passes.
///
/// # Errors
/// [`MachineError`] if it could not begin.
pub fn run(
    host: &Host,
    image: &[u8],
    plan: &ImagePlan,
    // This is one type, so that the vCPU loop is compiled here, for speed, and not in the crate of the caller.
    out: &mut (dyn Write + Send),
    interrupted: &AtomicBool,
) -> Result<ImageOutcome, MachineError> {
    let mut found = ("", false, false);
    let boot = |facts: RunFacts, _channel| {
        if !(MIN_MEMORY..=MAX_MEMORY).contains(&plan.memory) {
            return Err(BootError(format!(
                "{:#x} bytes of guest memory are not between {MIN_MEMORY:#x} and {MAX_MEMORY:#x}",
                plan.memory
            ))
            .into());
        }
        let memory = allocate(plan.memory)?;
        let mut image = image.to_vec();
        let sites = if facts.userspace_pmu { rdpmc::rewrite(&mut image)? } else { Vec::new() };
        let (Image { protocol, eip, asks_for_video, .. }, rbx) = load(&image, plan, &memory)?;
        let addresses = facts.emulated_host && facts.userspace_pmu;
        found = (protocol.name(), asks_for_video, addresses);
        let also = Also { rdpmc: !sites.is_empty(), addresses, efer: false };
        let rax = if protocol == Protocol::Multiboot { BOOT_MAGIC } else { 0 };
        Ok(Booted {
            memory,
            in_kernel: InKernel { pit: true, also, ..InKernel::default() },
            sites,
            entry: (vcpu::enter_protected_mode, kvm_regs { rax, rbx, ..vcpu::registers(eip.into()) }),
        })
    };
    let fw_cfg = FwCfg::new(plan.machine.vcpus as u16, plan.memory);
    let ends = Ends { console: out, channel: None };
    let ran = pc::run(host, Box::new(boot), &plan.machine, Some(fw_cfg), ends, interrupted)?;
    let (protocol, asked_for_video, checked_addresses) = found;
    Ok(ImageOutcome { ran, protocol, asked_for_video, checked_addresses })
}

/// Puts the image and its boot information into memory. Returns it, and the address of the information.
fn load(image: &[u8], plan: &ImagePlan, memory: &GuestMemoryMmap) -> Result<(Image, u64), BootError> {
    let loaded = Image::of(image, plan.memory)?;
    loaded.plan.copy(image, |address, bytes| memory.write_slice(bytes, GuestAddress(address)))?;
    let information = Information {
        protocol: loaded.protocol,
        ram: plan.memory,
        program: &plan.program,
        arguments: &plan.arguments,
        modules: &plan.modules,
    };
    let at = loaded.plan.free_range(information.size()?)?;
    // free_range gives addresses below 4 GiB.
    memory.write_slice(&information.build(at as u32)?, GuestAddress(at))?;
    Ok((loaded, at))
}
