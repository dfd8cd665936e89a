//! `vpmu linux`.

use results::error::{Error, Exit};

use crate::machine::linux::job;
use crate::machine::linux::spec::LinuxSpec;
use crate::machine::linux::userland;
use crate::setting::backend::{ThisHost, choose};

pub(super) const EXAMPLES: &str = "\
Examples:
  # stock perf on the vPMU
  vpmu linux vmlinuz --with perf \\
    --run 'perf stat -e cycles,instructions sleep 1'
  # a recording, brought out to the new folder out
  vpmu linux vmlinuz --vcpus 2 --with perf --with ./work \\
    --run 'perf record -a -o /tmp/perf.data work' \\
    --get /tmp/perf.data -o out
  # a KVM host with a PMU
  vpmu linux vmlinuz --cpu genoa --nested --load kvm-amd \\
    --memory 1G --with vpmu --run 'vpmu doctor'
  # a kernel of another place with its modules
  vpmu linux root/boot/vmlinuz-6.12 --run dmesg \\
    --modules root/lib/modules/6.12

Exit codes: 0 or what the command of --run ended with (128+N:
signal N). Without its status: 2 bad usage or input, 3 the guest
panicked, rebooted or did not end (time limit, interruption),
4 the host cannot do it, 70 a bug of vpmu.";

pub(super) fn run(args: &LinuxSpec) -> Result<Exit, Error> {
    let backend = choose(&args.counters.behind.backend, &ThisHost)?.backend;
    job::run(args, userland::kernel(&args.kernel)?, &backend, <_>::default(), None).map(|(exit, _)| exit)
}
