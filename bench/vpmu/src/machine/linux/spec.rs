//! The options of `vpmu linux`: what it boots, and with what.

use std::path::PathBuf;

use arch_pmu::amd::AmdCaps;
use arch_pmu::caps::PmuCaps;
use clap::Args;
use host_pmu::backend::BackendKey;
use linux_guest::initramfs::{Initramfs, InitramfsError};
use results::error::Error;
use vmm::boot::linux::layout::{MAX_MEMORY, MIN_MEMORY};
use vmm::machine::linux::LinuxPlan;
use vmm::machine::{Cpu, Plan};

use super::place::Placed;
use crate::machine::CountersOptions;
use crate::setting::options::{FolderOption, QuietOption, TimeLimitOption};
use crate::setting::parse::{processor, size_in};

/// What a Linux guest boots with, whatever it is for.
#[derive(Clone, Debug, PartialEq, Eq, Args)]
pub struct BootOptions {
    /// The kernel's modules: its /lib/modules/RELEASE; the default is beside the kernel
    #[arg(long, value_name = "DIR", requires = "kernel")]
    pub modules: Option<PathBuf>,

    /// Add this to the kernel's command line
    #[arg(
        long,
        value_name = "TEXT",
        requires = "kernel",
        default_value = "",
        hide_default_value = true,
        allow_hyphen_values = true
    )]
    pub append: String,

    /// Guest memory: a number and K, M or G [default: 768M]
    #[arg(long, value_name = "SIZE", requires = "kernel", default_value = "768M", hide_default_value = true, value_parser = size_in(MIN_MEMORY..=MAX_MEMORY))]
    pub memory: u64,
}

impl BootOptions {
    /// Returns the plan of a guest on this machine with this initial RAM disk.
    ///
    /// # Errors
    /// Exit 2 for files that cannot be together in it.
    pub fn plan(&self, machine: Plan, initramfs: Initramfs) -> Result<LinuxPlan, Error> {
        let cannot = |error: InitramfsError| {
            Error::usage("cannot make the initial RAM disk", error.to_string(), "leave a file out")
        };
        let initrd = initramfs.finish().map_err(cannot)?;
        Ok(LinuxPlan { machine, memory: self.memory, initrd, command_line: self.append.clone() })
    }
}

/// Options of `vpmu linux`.
#[derive(Clone, Debug, Args)]
pub struct LinuxSpec {
    /// A distribution's kernel: bzImage or vmlinux
    pub kernel: PathBuf,

    /// Command that the guest's shell runs before the guest powers off
    ///
    /// Its stdout and stderr are this program's, apart from the guest's console, and its exit status is this program's; it has no input but
    /// what its own line gives it: --with data --run 'A=b command <data'. Files and pipes get its
    /// bytes as they are; a terminal shows control bytes and does not obey them.
    #[arg(long, value_name = "COMMAND")]
    pub run: String,

    /// Put a program, file or folder into the guest; repeat for more
    ///
    /// A program comes with the shared libraries that glibc's loader finds for it. A name without a slash is a program of PATH.
    /// Programs go to /bin, files and folders to /root, or to PATH of FILE:PATH.
    #[arg(long, value_name = "FILE[:PATH]")]
    pub with: Vec<Placed>,

    /// After the command, bring this file or folder of the guest to the folder of --output; repeat for more
    #[arg(long, value_name = "PATH", requires = "output")]
    pub get: Vec<String>,

    /// The folder for what --get brings: a new one, or an empty one.
    #[command(flatten)]
    pub output: FolderOption,

    /// Load this module, with those it needs; repeat for more
    ///
    /// Parameters are of the kernel's command line: --load kvm-amd --append kvm_amd.enable_mediated_pmu=1.
    #[arg(long, value_name = "NAME")]
    pub load: Vec<String>,

    /// The kernel's modules, command line and memory.
    #[command(flatten)]
    pub boot: BootOptions,

    /// Processor of the guest
    #[arg(long, value_name = "MODEL", default_value = "clx", value_parser = processor())]
    pub cpu: Cpu,

    /// Give the guest's processor SVM, so that it can run KVM (with --load kvm-amd)
    ///
    /// Needs --cpu milan or genoa, SVM of this host with kvm_amd's nested=1, and for counters of its guests, or of itself, alone KVM's
    /// tracepoints.
    #[arg(long)]
    pub nested: bool,

    /// Counters of the guest.
    #[command(flatten)]
    pub counters: CountersOptions,

    /// Bound on the command, and then on the guest.
    #[command(flatten)]
    pub limit: TimeLimitOption,

    /// No summary on stderr.
    #[command(flatten)]
    pub quiet: QuietOption,
}

impl LinuxSpec {
    /// Returns the machine, with `backend` behind its counters.
    ///
    /// # Errors
    /// The strategy cannot be read, the CPUs to pin to are not usable, or the processor cannot be what was asked for.
    pub fn plan(&self, backend: &BackendKey) -> Result<Plan, Error> {
        if *backend == BackendKey::Step {
            return Err(Error::usage(
                "backend step does not count in a Linux guest",
                "its clocks go on while each instruction is stepped, so that a tick is due at every step, and it gets nowhere",
                "count time with --backend cpu-clock, or step an image with `vpmu run`",
            ));
        }
        let mut plan = self.counters.plan(self.cpu, backend, self.limit)?;
        match &mut plan.pmu {
            PmuCaps::Amd(AmdCaps { svm, .. }) => *svm = self.nested,
            PmuCaps::Intel(_) if self.nested => {
                return Err(Error::usage(
                    "--nested: a guest is a host by AMD's SVM alone",
                    format!("--cpu {} is an Intel processor", self.cpu.name()),
                    "give --cpu milan or --cpu genoa",
                ));
            }
            PmuCaps::Intel(_) => {}
        }
        Ok(plan)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::setting::parse::options;

    #[test]
    fn a_guest_that_is_a_host_is_an_amd() {
        let spec = |cpu| LinuxSpec { cpu, nested: true, ..options(&["vmlinuz", "--run", "true"]).unwrap() };
        let plan = spec(Cpu::Genoa).plan(&BackendKey::CpuClock).unwrap();
        assert_eq!(plan.pmu, PmuCaps::Amd(AmdCaps { svm: true, ..AmdCaps::GENOA }));
        let error = spec(Cpu::CascadeLake).plan(&BackendKey::CpuClock).unwrap_err();
        assert!(error.exit.code() == 2 && error.to_string().contains("--cpu genoa"), "{error}");
        let error = spec(Cpu::Genoa).plan(&BackendKey::Step).unwrap_err();
        assert!(error.exit.code() == 2 && error.to_string().contains("cpu-clock"), "{error}");
    }
}
