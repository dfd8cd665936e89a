//! The machine of `vpmu run` and `vpmu linux`: its options, the files that it reads, its report at the end.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use arch_pmu::amd::AmdCaps;
use arch_pmu::caps::PmuCaps;
use host_pmu::backend::BackendKey;
use results::error::Error;
use results::host::{HostFacts, HostFs};
use vmm::kvm::KvmError;
use vmm::machine::{CounterSource, Cpu, MachineError, Plan};
use vmm::sample::Sampling;

use crate::arms::rounds::pin::{PinChoice, usable_cpus};
use crate::arms::rounds::plan::check_version;
use crate::arms::summary::Report;
use crate::setting::backend::BackendChoice;
use crate::setting::strategy::{StrategyChoice, resolve_one};
use crate::terminal::console::{complain, internal};
use crate::terminal::output::Diverted;

/// Options of a machine.
#[derive(Clone, Debug)]
pub struct MachineSpec {
    /// Processor.
    pub cpu: Cpu,
    /// Guest memory, bytes.
    pub memory: u64,
    /// Virtual CPUs.
    pub vcpus: u64,
    /// Host CPU of each vCPU.
    pub pin: PinChoice,
    /// Strategy of the host events.
    pub strategy: StrategyChoice,
    /// Event source behind the guest's counters.
    pub backend: BackendChoice,
    /// Architectural PMU version of the guest: 2 or 4.
    pub pmu_version: u64,
    /// The guest's processor has SVM, for guests of its own.
    pub nested: bool,
    /// Modelled cost of an access to a register of the guest's PMU, ns.
    pub register_cost_ns: Option<u64>,
    /// Time after which the run is ended.
    pub time_limit: Duration,
    /// The threads that the guest reaches run under seccomp filters.
    pub seccomp: bool,
    /// Samples of the guest, if it is recorded.
    pub sampling: Option<Arc<Sampling>>,
    /// Destination of the guest's own output, if not this program's.
    pub diverted: Option<Diverted>,
}

impl MachineSpec {
    /// The defaults, for a guest with so many bytes and so much time.
    #[must_use]
    pub fn new(memory: u64, time_limit: Duration) -> Self {
        Self {
            cpu: Cpu::CascadeLake,
            memory,
            vcpus: 1,
            pin: PinChoice::Nowhere,
            strategy: StrategyChoice::Preset("reuse-lazy".to_owned()),
            backend: BackendChoice::Auto,
            pmu_version: 2,
            nested: false,
            register_cost_ns: None,
            time_limit,
            seccomp: true,
            sampling: None,
            diverted: None,
        }
    }

    /// The guest's PMU.
    fn pmu(&self) -> Result<PmuCaps, Error> {
        match self.cpu.pmu_of_version(self.pmu_version as u8) {
            PmuCaps::Amd(pmu) => Ok(PmuCaps::Amd(AmdCaps { svm: self.nested, ..pmu })),
            PmuCaps::Intel(_) if self.nested => Err(Error::usage(
                "--nested: a guest is a host by AMD's SVM alone",
                format!("--cpu {} is an Intel processor", self.cpu.name()),
                "give --cpu milan or --cpu genoa",
            )),
            intel @ PmuCaps::Intel(_) => Ok(intel),
        }
    }

    /// The machine, with `backend` behind its counters.
    ///
    /// # Errors
    /// The strategy cannot be read, or the CPUs to pin to are not usable.
    pub fn plan(&self, backend: &BackendKey) -> Result<Plan, Error> {
        check_version(self.cpu, self.pmu_version)?;
        let pmu = self.pmu()?;
        if self.register_cost_ns.is_some() && self.vcpus > 1 {
            return Err(Error::usage(
                "--msr-cost holds the TSC of one vCPU back",
                format!("the TSCs of {} vCPUs would differ", self.vcpus),
                "give --vcpus 1",
            ));
        }
        let behind = if *backend == BackendKey::None {
            CounterSource::Floor
        } else {
            CounterSource::Events { backend: backend.clone(), strategy: resolve_one(&self.strategy)? }
        };
        let fs = HostFs::default();
        let usable = usable_cpus(&HostFacts::read(&fs), fs.text("proc/self/status").as_deref());
        let pin = self.pin.cpus(self.vcpus, usable.as_deref())?;
        Ok(Plan {
            behind,
            cpu: self.cpu,
            pmu,
            vcpus: self.vcpus as usize,
            pin: pin.into_iter().map(|cpu| cpu as usize).collect(),
            time_limit: self.time_limit,
            seccomp: self.seccomp,
            register_cost_ns: self.register_cost_ns,
            sampling: self.sampling.clone(),
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

    #[test]
    fn a_plan_has_the_options_and_refuses_what_this_host_has_not() {
        let spec =
            MachineSpec { pmu_version: 4, pin: "0".parse().unwrap(), ..MachineSpec::new(1 << 28, Duration::MAX) };
        let plan = spec.plan(&BackendKey::CpuClock).unwrap();
        let pmu = Cpu::default().pmu_of_version(4);
        assert_eq!((plan.pmu, plan.pin.as_slice(), plan.vcpus), (pmu, &[0][..], 1));
        assert!(matches!(plan.behind, CounterSource::Events { backend: BackendKey::CpuClock, .. }));
        assert!(matches!(spec.plan(&BackendKey::None).unwrap().behind, CounterSource::Floor));
        let few = MachineSpec { vcpus: 2, ..spec.clone() };
        assert!(few.plan(&BackendKey::CpuClock).unwrap_err().to_string().contains("1 CPUs for 2 vCPUs"));
        let misspelt = StrategyChoice::Preset("reues".to_owned());
        assert!(MachineSpec { strategy: misspelt, ..spec }.plan(&BackendKey::CpuClock).is_err());
    }

    #[test]
    fn a_panic_is_a_bug_and_no_fault_of_the_host() {
        let code = |error| not_begun("cannot boot", &error).exit.code();
        assert_eq!(code(MachineError::Panicked("a vCPU's thread")), 70);
        assert_eq!(code(MachineError::Host("no memory".to_owned())), 4);
    }

    #[test]
    fn a_guest_that_is_a_host_is_an_amd() {
        let spec = |cpu| MachineSpec { cpu, nested: true, ..MachineSpec::new(1 << 28, Duration::MAX) };
        let plan = spec(Cpu::Genoa).plan(&BackendKey::CpuClock).unwrap();
        assert_eq!(plan.pmu, PmuCaps::Amd(AmdCaps { svm: true, ..AmdCaps::GENOA }));
        let error = spec(Cpu::CascadeLake).plan(&BackendKey::CpuClock).unwrap_err();
        assert!(error.exit.code() == 2 && error.to_string().contains("--cpu genoa"), "{error}");
    }

    #[test]
    fn a_file_that_cannot_be_read_is_named() {
        let error = read(Path::new("no/such"), "the image").unwrap_err();
        assert!(error.exit.code() == 2 && error.to_string().contains("the image no/such"), "{error}");
    }
}
