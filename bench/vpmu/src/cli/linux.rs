//! `vpmu linux`.

use results::error::{Error, Exit};

use crate::machine::linux::job;
use crate::machine::linux::spec::LinuxSpec;

pub(super) const EXAMPLES: &str = "\
Examples:
  # a shell in the guest; Ctrl-] ends it
  vpmu linux /boot/vmlinuz-6.1.0-50-amd64
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

Exit codes: 0 the guest powered off, or what the command of --run
ended with (128+N: signal N). Without a command's status: 2 bad
usage or input, 3 the guest panicked, rebooted or did not end
(time limit, interruption), 4 the host cannot do it,
70 a bug of vpmu.";

pub(super) fn run(args: &LinuxSpec) -> Result<Exit, Error> {
    let backend = job::backend(args)?;
    job::run(args, &backend)
}

#[cfg(test)]
mod tests {
    use super::super::usage::parsed;
    use super::*;

    fn linux(args: &[&str]) -> Result<LinuxSpec, Error> {
        parsed(args)
    }

    #[test]
    fn options_that_do_not_go_together_are_refused_in_one_line() {
        for (args, needle) in [
            (&["k", "--get", "/x", "-o", "d"][..], "--run"),
            (&["k", "--run", "x", "--get", "/x"], "--output"),
            (&["k", "--run", "x", "--output", "d"], "--get"),
            (&["k", "--stdin", "-"], "--run"),
            (&["k", "--run", "x", "--env", "A"], "KEY=VALUE"),
            (&["k", "--run", "x", "--env", "=1"], "KEY of letters"),
            (&["k", "--console", "d"], "--run"),
            (&["k", "--initrd", "i", "--run", "x"], "--initrd"),
            (&["k", "--initrd", "i", "--get", "/x", "-o", "d"], "--initrd"),
            (&["k", "--memory", "1M"], "out of range"),
            (&["k", "--vcpus", "0"], "out of range"),
            (&["k", "--cpu", "epyc"], "clx"),
            (&["k", "--with", ""], "FILE"),
            (&["k", "--load", "nested=1"], "NAME PARAMETER=VALUE"),
            (&["k", "--msr-cost", "10s"], "--msr-cost"),
            (&[], "KERNEL"),
        ] {
            let error = linux(args).unwrap_err();
            assert_eq!(error.exit.code(), 2);
            assert!(error.to_string().contains(needle), "{error} lacks {needle:?}");
        }
    }
}
