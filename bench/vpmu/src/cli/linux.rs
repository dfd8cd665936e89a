//! `vpmu linux`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use results::error::{Error, Exit};
use vmm::boot::linux::layout::{MAX_MEMORY, MIN_MEMORY};
use vmm::kvm::Cpu;

use super::options::CountersOptions;
use super::run::environ;
use crate::arms::linux_boot::job;
use crate::arms::linux_boot::load::Load;
use crate::arms::linux_boot::place::Placed;
use crate::arms::linux_boot::spec::{LinuxSpec, TIME_LIMIT};
use crate::arms::machine::MachineSpec;
use crate::setting::parse::{duration_in, folder, number_in, size_in};

pub(super) const EXAMPLES: &str = "\
Examples:
  # a shell in the guest; Ctrl-] ends it
  vpmu linux /boot/vmlinuz-6.1.0-50-amd64
  # stock perf on the vPMU
  vpmu linux vmlinuz --with perf \\
    --run 'perf stat -e cycles,instructions sleep 1'
  # a recording, brought out to the current folder
  vpmu linux vmlinuz --vcpus 2 --with perf --with ./work \\
    --run 'perf record -a -o /tmp/perf.data work' \\
    --get /tmp/perf.data
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

/// Processor of the guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum CpuArg {
    /// Cascade Lake-SP: family 6, model 0x55
    Clx,
    /// An Intel processor of no known model: Linux uses the architectural PMU alone
    Generic,
    /// AMD EPYC 7003: family 0x19, six counters without a global control
    Milan,
    /// AMD EPYC 9004: family 0x19, PerfMonV2
    Genoa,
}

impl CpuArg {
    /// Returns the processor.
    #[must_use]
    pub const fn cpu(self) -> Cpu {
        match self {
            Self::Clx => Cpu::CascadeLake,
            Self::Generic => Cpu::Generic,
            Self::Milan => Cpu::Milan,
            Self::Genoa => Cpu::Genoa,
        }
    }
}

/// Options of `vpmu linux`.
#[derive(Clone, Debug, Args)]
pub struct LinuxArgs {
    /// A distribution's kernel: bzImage or vmlinux
    pub kernel: PathBuf,

    /// Run this command by the guest's shell, then power off
    ///
    /// Its stdout and stderr are this program's, apart from the guest's console, and its exit status is this program's. Files and pipes get its
    /// bytes as they are; a terminal shows control bytes as cat -v does. The shell without --run has the terminal to itself, unfiltered.
    #[arg(long, value_name = "COMMAND")]
    pub run: Option<String>,

    /// Set a variable of the command's environment; repeat for more
    #[arg(long, value_name = "KEY=VALUE", requires = "run", value_parser = environ)]
    pub env: Vec<(String, String)>,

    /// Give the command the bytes of this file as input; - is this program's own
    ///
    /// Without it the command's input is empty.
    #[arg(long, value_name = "FILE", requires = "run")]
    pub stdin: Option<PathBuf>,

    /// Put a program, file or folder into the guest; repeat for more
    ///
    /// A program comes with the shared libraries it needs. A name without a slash is a program of PATH and keeps its path;
    /// other programs go to /bin, files and folders to /root, or to PATH of FILE:PATH. A library or interpreter that not everybody may read
    /// on this host goes in only if it is named by a --with of its own, before the program.
    #[arg(long, value_name = "FILE[:PATH]")]
    pub with: Vec<Placed>,

    /// After the command, bring this file or folder of the guest to the folder of --output; repeat for more
    #[arg(long, value_name = "PATH", requires = "run")]
    pub get: Vec<String>,

    /// Folder for what --get brings
    #[arg(short, long, value_name = "DIR", default_value = ".", value_parser = folder)]
    pub output: PathBuf,

    /// Copy this folder to /share of the guest, and back after the command
    #[arg(long, value_name = "DIR", requires = "run")]
    pub share: Option<PathBuf>,

    /// Write the guest's console to this file; without it, its last lines are shown if the guest fails
    #[arg(long, value_name = "FILE", requires = "run")]
    pub console: Option<PathBuf>,

    /// The kernel's modules: its /lib/modules/RELEASE; the default is beside the kernel
    #[arg(long, value_name = "DIR")]
    pub modules: Option<PathBuf>,

    /// Load this module, with those it needs; repeat for more
    ///
    /// Parameters follow its name: --load 'kvm-amd enable_mediated_pmu=1'.
    #[arg(long, value_name = "NAME[ PARAM=VALUE...]")]
    pub load: Vec<Load>,

    /// Boot this initial RAM disk as it is, in place of one that is made
    #[arg(long, value_name = "FILE", conflicts_with_all = ["run", "env", "stdin", "with", "modules", "load", "get", "share", "console"])]
    pub initrd: Option<PathBuf>,

    /// Add this to the kernel's command line
    #[arg(long, value_name = "TEXT", default_value = "", allow_hyphen_values = true)]
    pub append: String,

    /// Guest memory: a number and K, M or G
    #[arg(long, value_name = "SIZE", default_value = "512M", value_parser = memory())]
    pub memory: u64,

    /// Virtual CPUs
    #[arg(long, value_name = "N", default_value = "1", value_parser = number_in(1..=vmm::machine::linux::MAX_VCPUS as u64))]
    pub vcpus: u64,

    /// Processor of the guest
    #[arg(long, value_name = "MODEL", value_enum, default_value = "clx")]
    pub cpu: CpuArg,

    /// Give the guest's processor SVM, so that it can run KVM (with --load kvm-amd)
    ///
    /// Needs --cpu milan or genoa, and SVM of this host with kvm_amd's nested=1.
    #[arg(long)]
    pub nested: bool,

    /// Let an access to a register of the PMU cost the guest NS nanoseconds, by holding its TSC back: a modelled cost [default: the whole exit]
    ///
    /// Each access is an exit to this program, which costs a guest that is a host far more than a processor's register. What the exits
    /// took beyond NS is taken from the guest's time. The events behind its counters go on meanwhile. Needs one vCPU, and Linux 5.16 here.
    #[arg(long, value_name = "NS", value_parser = number_in(0..=1_000_000))]
    pub msr_cost: Option<u64>,

    /// Counters of the guest.
    #[command(flatten)]
    pub counters: CountersOptions,

    /// Kill the command after this time, and then end the guest; without --run, end it after this time
    ///
    /// The default is 10m with --run, and no limit without. Its files are brought out within the limit, too, or within 30 s after the command.
    #[arg(long, value_name = "TIME",
          value_parser = duration_in(Duration::from_millis(1)..=Duration::from_secs(86_400)))]
    pub time_limit: Option<Duration>,

    /// Let the threads of vCPUs and devices make any system call; for debugging
    #[arg(long)]
    pub no_seccomp: bool,

    /// No summary on stderr
    #[arg(short, long)]
    pub quiet: bool,
}

impl LinuxArgs {
    /// Returns the run that these options specify.
    #[must_use]
    pub fn into_spec(self) -> LinuxSpec {
        let default = if self.run.is_some() { TIME_LIMIT } else { Duration::MAX };
        let time_limit = self.time_limit.unwrap_or(default);
        LinuxSpec {
            kernel: self.kernel,
            initrd: self.initrd,
            append: self.append,
            modules: self.modules,
            load: self.load,
            with: self.with,
            run: self.run,
            env: self.env,
            stdin: self.stdin,
            get: self.get,
            output: self.output,
            symbols: None,
            share: self.share,
            console: self.console,
            machine: MachineSpec {
                cpu: self.cpu.cpu(),
                memory: self.memory,
                vcpus: self.vcpus,
                pin: self.counters.pin,
                strategy: self.counters.strategy,
                backend: self.counters.backend,
                pmu_version: self.counters.pmu_version,
                nested: self.nested,
                register_cost_ns: self.msr_cost,
                time_limit,
                seccomp: !self.no_seccomp,
                sampling: None,
                diverted: None,
            },
            quiet: self.quiet,
        }
    }
}

/// Parses a size of guest memory.
fn memory() -> impl Fn(&str) -> Result<u64, String> + Clone + Send + Sync + 'static {
    size_in(MIN_MEMORY..=MAX_MEMORY)
}

pub(super) fn run(args: LinuxArgs) -> Result<Exit, Error> {
    let spec = args.into_spec();
    let backend = job::backend(&spec)?;
    job::run(&spec, &backend)
}

#[cfg(test)]
mod tests {
    use super::super::usage::parsed;
    use super::*;

    fn linux(args: &[&str]) -> Result<LinuxArgs, Error> {
        parsed(args)
    }

    #[test]
    fn defaults_of_options_are_those_of_the_specification() {
        let (given, default) = (linux(&["vmlinuz"]).unwrap().into_spec(), LinuxSpec::new("vmlinuz"));
        assert_eq!(format!("{given:?}"), format!("{default:?}"));
    }

    #[test]
    fn options_that_do_not_go_together_are_refused_in_one_line() {
        for (args, needle) in [
            (&["k", "--get", "/x"][..], "--run"),
            (&["k", "--share", "d"], "--run"),
            (&["k", "--stdin", "-"], "--run"),
            (&["k", "--run", "x", "--env", "A"], "KEY=VALUE"),
            (&["k", "--run", "x", "--env", "=1"], "KEY of letters"),
            (&["k", "--console", "d"], "--run"),
            (&["k", "--initrd", "i", "--run", "x"], "--initrd"),
            (&["k", "--initrd", "i", "--get", "/x"], "--initrd"),
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
