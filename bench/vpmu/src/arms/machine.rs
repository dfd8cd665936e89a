//! The machine of `vpmu run` and `vpmu linux`: the options of its counters, the files that it reads, its report at the end.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;
use std::time::Duration;

use clap::Args;
use host_pmu::backend::BackendKey;
use results::error::Error;
use results::host::{HostFacts, HostFs};
use vmm::kvm::KvmError;
use vmm::machine::{CounterSource, Cpu, MachineError, Plan};

use crate::arms::rounds::pin::{PinChoice, usable_cpus};
use crate::arms::rounds::plan::check_version;
use crate::arms::summary::Report;
use crate::setting::backend::BackendChoice;
use crate::setting::parse::pmu_version;
use crate::setting::strategy::{StrategyChoice, resolve_one};
use crate::terminal::console::{complain, internal};

/// The counters of one guest: an image, a Linux guest, or the payload that is recorded.
#[derive(Clone, Debug, PartialEq, Args)]
pub struct CountersOptions {
    /// Pin vCPU i to the i-th CPU of this list, e.g. 2,3 or 4-7; auto or none
    #[arg(long, value_name = "CPULIST", default_value = "none")]
    pub pin: PinChoice,

    /// Strategy: preset or .toml file
    #[arg(long, value_name = "NAME", default_value = "reuse-lazy")]
    pub strategy: StrategyChoice,

    /// Event source behind the guest's counters; none = the TSC, and a timer raises the PMIs
    ///
    /// cpu-clock counts at the TSC's rate. cpu-clock:RATE counts at one of its own, e.g. cpu-clock:20MHz on a host with slow exits: there
    /// the handling of a PMI takes longer than a short period at the TSC's rate, and the guest makes no progress.
    #[arg(long, value_name = "KEY", default_value = "auto")]
    pub backend: BackendChoice,

    /// Architectural PMU version of the guest: 2, as KVM's, or 4, as Cascade Lake's
    #[arg(long, value_name = "N", default_value = "2", value_parser = pmu_version)]
    pub pmu_version: u64,
}

impl CountersOptions {
    /// Returns a machine of `vcpus` vCPUs like `cpu`, with `backend` behind their counters and without a time limit.
    ///
    /// # Errors
    /// The strategy cannot be read, or the CPUs to pin to are not usable.
    pub fn plan(&self, cpu: Cpu, vcpus: u64, backend: &BackendKey) -> Result<Plan, Error> {
        check_version(cpu, self.pmu_version)?;
        let behind = if *backend == BackendKey::None {
            CounterSource::Floor
        } else {
            CounterSource::Events { backend: backend.clone(), strategy: resolve_one(&self.strategy)? }
        };
        let fs = HostFs::default();
        let usable = usable_cpus(&HostFacts::read(&fs), fs.text("proc/self/status").as_deref());
        Ok(Plan {
            behind,
            cpu,
            pmu: cpu.pmu_of_version(self.pmu_version as u8),
            vcpus: vcpus as usize,
            pin: self.pin.cpus(vcpus, usable.as_deref())?,
            time_limit: Duration::MAX,
            seccomp: true,
            register_cost_ns: None,
            sampling: None,
        })
    }
}

/// Largest file of a guest: a kernel with all its symbols, or a RAM disk.
const MAX_FILE: u64 = 1 << 30;

/// Reads a file of a guest.
///
/// # Errors
/// Exit 2 if it cannot be read or is too large.
pub fn read(path: &Path, what: &str) -> Result<Vec<u8>, Error> {
    let mut bytes = Vec::new();
    let read = File::open(path).and_then(|file| file.take(MAX_FILE + 1).read_to_end(&mut bytes));
    let cannot = || format!("cannot read {what} {}", path.display());
    read.map_err(|error| Error::usage(cannot(), error.to_string(), ""))?;
    if bytes.len() as u64 > MAX_FILE {
        return Err(Error::usage(cannot(), format!("it is larger than {} MiB", MAX_FILE >> 20), ""));
    }
    Ok(bytes)
}

/// The error of a guest that could not begin.
#[must_use]
pub fn not_begun(what: impl Into<String>, error: &MachineError) -> Error {
    if let MachineError::Kvm(KvmError::NoTscOffset(_)) = error {
        // It says what helps, and doctor knows nothing of it.
        Error::host(what, error.to_string(), "")
    } else if let MachineError::Panicked(_) = error {
        internal(&error.to_string(), "")
    } else if error.is_the_hosts() {
        Error::host(what, error.to_string(), "`vpmu doctor` says what is missing")
    } else {
        Error::usage(what, error.to_string(), "")
    }
}

/// Says on stderr what a run did, unless `quiet`, and why its results may be wrong.
pub(crate) fn say(report: &Report, quiet: bool) {
    let summary = report.summary.iter().filter(|_| !quiet).cloned();
    for line in summary.chain(report.warnings.iter().map(|warning| format!("warning: {warning}"))) {
        complain(&line);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::setting::parse::options;

    #[test]
    fn a_plan_has_the_options_and_refuses_what_this_host_has_not() {
        let plan = |line: &[&str], vcpus, backend| {
            options::<CountersOptions>(line).unwrap().plan(Cpu::default(), vcpus, &backend)
        };
        let line = ["--pmu-version", "4", "--pin", "0"];
        let found = plan(&line, 1, BackendKey::CpuClock).unwrap();
        let pmu = Cpu::default().pmu_of_version(4);
        assert_eq!((found.pmu, found.pin.as_slice(), found.vcpus), (pmu, &[0][..], 1));
        assert!(matches!(found.behind, CounterSource::Events { backend: BackendKey::CpuClock, .. }));
        assert!(matches!(plan(&line, 1, BackendKey::None).unwrap().behind, CounterSource::Floor));
        assert!(plan(&line, 2, BackendKey::CpuClock).unwrap_err().to_string().contains("1 CPUs for 2 vCPUs"));
        assert!(plan(&["--strategy", "reues"], 1, BackendKey::CpuClock).is_err());
    }

    #[test]
    fn a_panic_is_a_bug_and_no_fault_of_the_host() {
        let code = |error| not_begun("cannot boot", &error).exit.code();
        assert_eq!(code(MachineError::Panicked("a vCPU's thread")), 70);
        assert_eq!(code(MachineError::Host("no memory".to_owned())), 4);
    }

    #[test]
    fn a_file_that_cannot_be_read_is_named() {
        let error = read(Path::new("no/such"), "the image").unwrap_err();
        assert!(error.exit.code() == 2 && error.to_string().contains("the image no/such"), "{error}");
    }
}
