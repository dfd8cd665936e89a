//! Boots a Linux kernel: `linux KERNEL INITRD [COMMAND LINE [MiB [VCPUS [clx|generic [SECONDS]]]]]`.

use std::io;
use std::os::fd::AsFd as _;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use arch_pmu::caps::PmuCaps;
use vmm::kvm::Host;
use vmm::machine::linux::{self, Ends, Kernel, LinuxPlan};
use vmm::machine::{Behind, Cpu, Plan};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let kernel = arguments.next().ok_or("which kernel?")?;
    let initrd = arguments.next().ok_or("which initrd?")?;
    let command_line = arguments.next().unwrap_or_default();
    let mut number = |default: u64| arguments.next().map_or(Ok(default), |text| text.parse::<u64>());
    let (memory, vcpus) = (number(256)?, number(1)?);
    let cpu = if arguments.next().as_deref() == Some("generic") { Cpu::Generic } else { Cpu::CascadeLake };
    let seconds = arguments.next().map_or(Ok(60), |text| text.parse::<u64>())?;
    let began = Instant::now();
    let kernel = Kernel::parse(&std::fs::read(kernel)?)?;
    eprintln!("{:?}: {} unpacked", began.elapsed(), kernel.release().unwrap_or("?"));
    let plan = LinuxPlan {
        machine: Plan {
            behind: Behind::Floor,
            cpu,
            pmu: PmuCaps::default(),
            vcpus: vcpus as usize,
            pin: Vec::new(),
            time_limit: Duration::from_secs(seconds),
            seccomp: true,
        },
        memory: memory << 20,
        initrd: std::fs::read(initrd)?,
        command_line,
    };
    let input = io::stdin().as_fd().try_clone_to_owned()?;
    let mut out = io::stdout();
    let ends = Ends { console: &mut out as _, input: Some(input), channel: None };
    let outcome = linux::run(&Host::open()?, kernel, plan, ends, &AtomicBool::new(false))?;
    let absent: Vec<_> = outcome.vcpus.iter().map(|vcpu| vcpu.left.absent).collect();
    eprintln!(
        "{:?}: {}; run {:?}, {} RDPMCs rewritten, absent accesses {absent:?}, {:?}, {:?}",
        began.elapsed(),
        outcome.end,
        outcome.wall,
        outcome.rewritten,
        outcome.console,
        outcome.complaints
    );
    Ok(())
}
