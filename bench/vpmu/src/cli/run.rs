//! `vpmu run`.

use results::error::{Error, Exit};

use crate::inspect::run;
use crate::inspect::run::spec::RunSpec;
use crate::machine;
use crate::setting::backend::{ThisHost, choose};

pub(super) const EXAMPLES: &str = "\
Examples:
  # its serial port on stdout
  vpmu run x86/pmu.flat
  vpmu run x86/apic.flat --vcpus 2 --memory 512M
  vpmu run x86/vmexit.flat --time-limit 2m \\
    --append 'cpuid wr_tsc_adjust_msr'
  vpmu run kernel.elf --module initrd

Exit codes: 0 the guest ended with code 0 (OUT 0 to port 0xf4:
status 1), 1 it ended with another code, 2 bad usage or input,
3 it skipped its work (status 77) or did not end by itself
(time limit, interruption, triple fault, reset, KVM error),
4 the host cannot do it, 70 a bug of vpmu.";

pub(super) fn run(args: &RunSpec) -> Result<Exit, Error> {
    let image = machine::read(&args.image, "the image")?;
    let chosen = choose(&args.counters.behind.backend, &ThisHost)?;
    run::run(args, &image, &chosen.backend, <_>::default()).map(|(exit, _)| exit)
}
