//! A third-party image as a guest.

use std::io::Write;
use std::sync::atomic::AtomicBool;

use kvm_bindings::{kvm_regs, kvm_sregs};
use vm_memory::{Bytes as _, GuestAddress, GuestMemoryMmap};

use super::error::MachineError;
use super::guest::{InKernel, RunFacts};
pub use super::pc::MAX_VCPUS;
use super::pc::{self, Boot, Ends, PcOutcome};
use super::plan::Plan;
use crate::boot::image::{BOOT_MAGIC, Image, MAX_MEMORY, MIN_MEMORY, Protocol};
use crate::boot::information::{Information, Module};
use crate::boot::rdpmc::{self, Site};
use crate::boot::vcpu;
use crate::devices::fw_cfg::FwCfg;
use crate::kvm::Host;
use crate::kvm::msr_filter::Also;

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
    /// The machine.
    pub machine: Plan,
    /// Bytes of guest memory, from address 0.
    pub memory: u64,
    /// First word of the command line.
    pub program: String,
    /// The rest of the command line.
    pub arguments: String,
    /// Multiboot modules.
    pub modules: Vec<FileForImage>,
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
    // One type, so that the vCPU loop is compiled here, for speed, and not in the crate of the caller.
    out: &mut (dyn Write + Send),
    interrupted: &AtomicBool,
) -> Result<ImageOutcome, MachineError> {
    let mut boot = ImageBoot { image, plan, loaded: None, checked_addresses: false };
    let fw_cfg = FwCfg::new(plan.machine.vcpus as u16, plan.memory);
    let ends = Ends { console: out, input: None, channel: None };
    let ran = pc::run(host, &mut boot, &plan.machine, Some(fw_cfg), ends, interrupted)?;
    let (protocol, asked_for_video) =
        boot.loaded.map_or(("", false), |(image, _)| (image.protocol.name(), image.asks_for_video));
    Ok(ImageOutcome { ran, protocol, asked_for_video, checked_addresses: boot.checked_addresses })
}

/// An image, and once it is loaded the address of its boot information.
struct ImageBoot<'a> {
    image: &'a [u8],
    plan: &'a ImagePlan,
    loaded: Option<(Image, u64)>,
    checked_addresses: bool,
}

impl Boot for ImageBoot<'_> {
    fn memory(&self) -> Result<GuestMemoryMmap, MachineError> {
        if !(MIN_MEMORY..=MAX_MEMORY).contains(&self.plan.memory) {
            return Err(MachineError::MemorySize(self.plan.memory));
        }
        Ok(GuestMemoryMmap::<()>::from_ranges(&[(GuestAddress(0), self.plan.memory as usize)])?)
    }

    fn load(
        &mut self,
        memory: &GuestMemoryMmap,
        facts: RunFacts,
        _channel: bool,
    ) -> Result<(InKernel, Vec<Site>), MachineError> {
        let mut image = self.image.to_vec();
        let rewrites = facts.userspace_pmu;
        let sites = if rewrites { rdpmc::rewrite(&mut image)? } else { Vec::new() };
        self.loaded = Some(load(&image, self.plan, memory)?);
        self.checked_addresses = facts.emulated_host && facts.userspace_pmu;
        let also = Also { rdpmc: !sites.is_empty(), addresses: self.checked_addresses, efer: false };
        Ok((InKernel { pit: true, also, ..InKernel::default() }, sites))
    }

    fn enter(&self, sregs: &mut kvm_sregs) -> kvm_regs {
        vcpu::enter_protected_mode(sregs);
        // The machine enters what it has loaded.
        let Some((image, information)) = &self.loaded else { return kvm_regs::default() };
        let rax = if image.protocol == Protocol::Multiboot { BOOT_MAGIC } else { 0 };
        kvm_regs { rax, rbx: *information, ..vcpu::registers(image.eip.into()) }
    }
}

/// Puts the image and its boot information into memory. Returns it, and the address of the information.
fn load(image: &[u8], plan: &ImagePlan, memory: &GuestMemoryMmap) -> Result<(Image, u64), MachineError> {
    let loaded = Image::of(image, plan.memory)?;
    loaded.plan.copy(image, |address, bytes| memory.write_slice(bytes, GuestAddress(address)))?;
    let modules: Vec<_> =
        plan.modules.iter().map(|file| Module { contents: &file.contents, name: &file.name }).collect();
    let information = Information {
        protocol: loaded.protocol,
        ram: plan.memory,
        program: &plan.program,
        arguments: &plan.arguments,
        modules: &modules,
    };
    let at = loaded.plan.free_range(information.size()?)?;
    // free_range gives addresses below 4 GiB.
    memory.write_slice(&information.build(at as u32)?, GuestAddress(at))?;
    Ok((loaded, at))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use arch_pmu::caps::PmuCaps;

    use super::super::plan::{CounterSource, Cpu};
    use super::*;
    use crate::boot::segment::LoadError;

    fn plan(memory: u64) -> ImagePlan {
        ImagePlan {
            machine: Plan {
                behind: CounterSource::Floor,
                cpu: Cpu::default(),
                pmu: PmuCaps::default(),
                vcpus: 1,
                pin: Vec::new(),
                time_limit: Duration::from_secs(1),
                seccomp: true,
                register_cost_ns: None,
                sampling: None,
                trace: None,
            },
            memory,
            program: "x".to_owned(),
            arguments: "y".to_owned(),
            modules: vec![FileForImage { name: "m".to_owned(), contents: b"12345".to_vec() }],
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
        let (loaded, information) = load(&image, &plan(ram), &memory).unwrap();
        assert_eq!((loaded.protocol, loaded.eip), (Protocol::Multiboot, 0x10_0020));
        let mut code = [0];
        memory.read_slice(&mut code, GuestAddress(0x10_0020)).unwrap();
        assert_eq!(code, [0xf4]);
        let mut flags = [0; 4];
        memory.read_slice(&mut flags, GuestAddress(information)).unwrap();
        assert_eq!(u32::from_le_bytes(flags) & 0b1101, 0b1101, "memory, command line, modules");
        assert!(matches!(load(b"", &plan(ram), &memory), Err(MachineError::Load(LoadError::NotAnImage))));
    }
}
