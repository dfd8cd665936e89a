//! `vpmu run`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use results::error::{Error, Exit};
use vmm::machine::Cpu;
use vmm::machine::image::Rdpmc;

use super::options::CountersOptions;
use crate::arms::machine::MachineSpec;
use crate::inspect::run;
use crate::inspect::run::spec::RunSpec;
use crate::setting::abilities::ThisHost;
use crate::setting::backend::choose;
use crate::setting::parse::{duration_in, number_in, size_in};

pub(super) const EXAMPLES: &str = "\
Examples:
  # a multiboot image; its serial port on stdout
  vpmu run x86/pmu.flat
  vpmu run x86/apic.flat --vcpus 2 --memory 512M
  vpmu run x86/vmexit.flat --time-limit 2m \\
    --append 'cpuid wr_tsc_adjust_msr'
  vpmu run kernel.elf --module initrd --environ NR_CPUS=1

Exit codes: 0 the guest ended with code 0 (OUT 0 to port 0xf4:
status 1), 1 it ended with another code, 2 bad usage or input,
3 it skipped its work (status 77) or did not end by itself
(time limit, interruption, triple fault, reset, KVM error),
4 the host cannot do it, 70 a bug of vpmu.";

/// Treatment of an image's RDPMC instructions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum RdpmcArg {
    /// Rewritten to RDMSR, which the userspace vPMU answers
    Rewrite,
    /// Left alone: #GP, unless KVM has a vPMU of its own
    Fault,
}

/// Options of `vpmu run`.
#[derive(Clone, Debug, Args)]
pub struct RunArgs {
    /// A multiboot 1 or ELF kernel
    pub image: PathBuf,

    /// The kernel's command line, after its name; -append, too
    #[arg(long, value_name = "TEXT", default_value = "", allow_hyphen_values = true)]
    pub append: String,

    /// A multiboot module; repeat for more. -initrd, too
    #[arg(long, value_name = "FILE", visible_alias = "initrd")]
    pub module: Vec<PathBuf>,

    /// A line of the module "environ", over NR_CPUS, MEMSIZE (MiB) and TEST_DEVICE=0
    ///
    /// kvm-unit-tests read their environment from there. Without --module that module is always given; with --module
    /// only if --environ is, too, and as the last one.
    #[arg(long, value_name = "KEY=VALUE", value_parser = environ)]
    pub environ: Vec<(String, String)>,

    /// Guest memory: a number and K, M or G
    #[arg(long, value_name = "SIZE", default_value = "256M", value_parser = memory())]
    pub memory: u64,

    /// Virtual CPUs; all but the first wait for a start-up IPI
    #[arg(long, value_name = "N", default_value = "1", value_parser = number_in(1..=vmm::machine::image::MAX_VCPUS as u64))]
    pub vcpus: u64,

    /// Counters of the guest.
    #[command(flatten)]
    pub counters: CountersOptions,

    /// Treatment of RDPMC instructions in the image
    #[arg(long, value_name = "HOW", value_enum, default_value = "rewrite")]
    pub rdpmc: RdpmcArg,

    /// Stop the run after this time
    #[arg(long, value_name = "TIME", default_value = "10m",
          value_parser = duration_in(Duration::from_millis(1)..=Duration::from_secs(86_400)))]
    pub time_limit: Duration,

    /// Let vCPU threads make any system call; for debugging
    #[arg(long)]
    pub no_seccomp: bool,

    /// No summary on stderr
    #[arg(short, long)]
    pub quiet: bool,
}

impl RunArgs {
    /// Returns the run that these options specify.
    #[must_use]
    pub fn into_spec(self) -> RunSpec {
        RunSpec {
            image: self.image,
            append: self.append,
            module: self.module,
            environ: self.environ,
            machine: MachineSpec {
                cpu: Cpu::default(),
                memory: self.memory,
                vcpus: self.vcpus,
                pin: self.counters.pin,
                strategy: self.counters.strategy,
                backend: self.counters.backend,
                pmu_version: self.counters.pmu_version,
                nested: false,
                register_cost_ns: None,
                time_limit: self.time_limit,
                seccomp: !self.no_seccomp,
                sampling: None,
                diverted: None,
            },
            rdpmc: match self.rdpmc {
                RdpmcArg::Rewrite => Rdpmc::Rewrite,
                RdpmcArg::Fault => Rdpmc::Fault,
            },
            quiet: self.quiet,
        }
    }
}

/// Parses a size of guest memory.
fn memory() -> impl Fn(&str) -> Result<u64, String> + Clone + Send + Sync + 'static {
    size_in(vmm::boot::image::MIN_MEMORY..=vmm::boot::image::MAX_MEMORY)
}

pub(super) fn run(args: RunArgs) -> Result<Exit, Error> {
    let spec = args.into_spec();
    let chosen = choose(&spec.machine.backend, &ThisHost)?;
    run::run(&spec, &chosen.backend)
}

/// Reads `KEY=VALUE`.
pub(super) fn environ(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or("give KEY=VALUE, e.g. NR_CPUS=2")?;
    let is_name = !key.is_empty() && key.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
    if !is_name || value.contains(['\n', '\0']) {
        return Err("give a KEY of letters, digits and _, and a VALUE of one line".to_owned());
    }
    Ok((key.to_owned(), value.to_owned()))
}

/// Accepts QEMU's spelling of what comes with an image, `-append` and `-initrd`, after `run`.
pub(super) fn as_qemu_spells(args: Vec<OsString>) -> Vec<OsString> {
    if args.get(1).is_none_or(|command| command != "run") {
        return args;
    }
    args.into_iter()
        .map(|arg| match arg.to_str() {
            Some("-append") => "--append".into(),
            Some("-initrd") => "--initrd".into(),
            _ => arg,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::usage::parsed;
    use super::*;

    fn run(args: &[&str]) -> Result<RunArgs, Error> {
        let words = ["vpmu", "run"].iter().chain(args).map(OsString::from).collect();
        let spelt: Vec<_> = as_qemu_spells(words).into_iter().skip(2).map(|word| word.into_string().unwrap()).collect();
        parsed(&spelt.iter().map(String::as_str).collect::<Vec<_>>())
    }

    #[test]
    fn defaults_of_options_are_those_of_the_specification() {
        let (given, default) = (run(&["x.flat"]).unwrap().into_spec(), RunSpec::new("x.flat"));
        assert_eq!(format!("{given:?}"), format!("{default:?}"));
    }

    #[test]
    fn options_as_users_of_qemu_know_them() {
        let args = run(&["x.flat", "-append", "-v a=1", "-initrd", "e", "--memory", "1G", "--vcpus", "2"]).unwrap();
        assert_eq!((args.append.as_str(), args.memory, args.vcpus), ("-v a=1", 1 << 30, 2));
        assert_eq!(args.module, [PathBuf::from("e")]);
        let args = run(&["x.flat", "--environ", "A=b=c", "--environ", "NR_CPUS=3"]).unwrap();
        assert_eq!(args.environ, [("A".to_owned(), "b=c".to_owned()), ("NR_CPUS".to_owned(), "3".to_owned())]);
        assert_eq!((args.memory, args.rdpmc, args.no_seccomp), (256 << 20, RdpmcArg::Rewrite, false));
    }

    #[test]
    fn bad_values_are_refused_in_one_line() {
        for (args, needle) in [
            (&["x", "--memory", "256"][..], "unit"),
            (&["x", "--memory", "1K"], "out of range"),
            (&["x", "--memory", "4G"], "2M to 3G"),
            (&["x", "--memory=-1M"], "not a size"),
            (&["x", "--memory", "99999999999999999999G"], "not a size"),
            (&["x", "--memory", "M"], "not a size"),
            (&["x", "--memory", "2049K"], "multiple"),
            (&["x", "--vcpus", "255"], "1 to 254"),
            (&["x", "--environ", "A"], "KEY=VALUE"),
            (&["x", "--environ", "A B=1"], "letters"),
            (&["x", "--rdpmc", "maybe"], "--rdpmc"),
            (&["x", "y"], "y"),
            (&[], "IMAGE"),
        ] {
            let error = run(args).unwrap_err();
            assert_eq!(error.exit.code(), 2);
            assert!(error.to_string().contains(needle), "{error} lacks {needle:?}");
        }
    }
}
