//! The machine of `vpmu run` and `vpmu linux`: the options of its counters, the files that it reads, its report at the end.
//! [`linux`]: a distribution's Linux as its guest.

pub mod linux;

use std::path::Path;
use std::time::Duration;

use arch_pmu::msr::MsrExits;
use clap::Args;
use host_pmu::backend::BackendKey;
use host_pmu::stats::OpKind;
use minijinja::value::Serde;
use minijinja::{Value, context};
use results::error::Error;
use results::host::{HostFacts, HostFs};
use results::open;
use vmm::machine::image::MAX_VCPUS;
use vmm::machine::linux::PcOutcome;
use vmm::machine::{CounterSource, Cpu, MachineError, Plan};
use vmm::outcome::Counts;

use crate::setting::options::{BehindOptions, GuestOptions, TimeLimitOption};
use crate::setting::pin::{PinChoice, usable};
use crate::setting::strategy::{StrategyChoice, resolve_one};
use crate::terminal::console::{complain, filled};

/// The counters of one guest: an image, a Linux guest, or the payload that is recorded.
#[derive(Clone, Debug, PartialEq, Args)]
pub struct CountersOptions {
    /// What stands behind them.
    #[command(flatten)]
    pub behind: BehindOptions,

    /// Strategy: preset or .toml file
    #[arg(long, value_name = "NAME", default_value = "reuse-lazy")]
    pub strategy: StrategyChoice,

    /// The guest's virtual CPUs.
    #[command(flatten)]
    pub guest: GuestOptions,
}

impl CountersOptions {
    /// Returns what stands behind them, of this backend.
    ///
    /// # Errors
    /// The strategy cannot be read.
    pub(crate) fn source(&self, backend: &BackendKey) -> Result<CounterSource, Error> {
        if *backend == BackendKey::None {
            return Ok(CounterSource::Floor);
        }
        Ok(CounterSource::Events { backend: backend.clone(), strategy: resolve_one(&self.strategy)? })
    }

    /// Returns a machine of vCPUs like `cpu`, with `backend` behind their counters.
    ///
    /// # Errors
    /// The strategy cannot be read, or the CPUs to pin to are not usable.
    pub(crate) fn plan(&self, cpu: Cpu, backend: &BackendKey, limit: TimeLimitOption) -> Result<Plan, Error> {
        let vcpus = self.guest.vcpus;
        if vcpus > MAX_VCPUS as u64 {
            let what = format!("--vcpus {vcpus} is out of range");
            return Err(Error::usage(what, "a machine has room for fewer", format!("give 1 to {MAX_VCPUS}")));
        }
        let usable = usable(&HostFacts::read(&HostFs::default()));
        Ok(Plan {
            behind: self.source(backend)?,
            cpu,
            pmu: cpu.pmu(),
            vcpus: vcpus as usize,
            pin: self.behind.pin.clone().unwrap_or(PinChoice::Nowhere).cpus(vcpus, usable.as_deref())?,
            time_limit: limit.time_limit.unwrap_or(TIME_LIMIT),
            sampling: None,
            trace: None,
        })
    }
}

/// Time of a guest, unless another is given.
const TIME_LIMIT: Duration = Duration::from_secs(600);

/// Largest file of a guest: a kernel with all its symbols, or a RAM disk.
const MAX_FILE: u64 = 1 << 30;

/// Reads a file of a guest.
///
/// # Errors
/// Exit 2 if it cannot be read or is too large.
pub fn read(path: &Path, what: &str) -> Result<Vec<u8>, Error> {
    let read = open::named(path, MAX_FILE).and_then(open::bytes);
    read.map_err(|error| {
        Error::usage(format!("cannot read {what} {}", path.display()), error.to_string(), "give another file")
    })
}

/// The error of a guest that could not begin.
pub fn not_begun(what: impl Into<String>, error: &MachineError) -> Error {
    if let MachineError::Panicked(_) = error {
        Error::internal(&error.to_string(), "")
    } else if error.is_the_hosts() {
        Error::host(what, error.to_string(), "`vpmu doctor` says what is missing")
    } else {
        Error::usage(what, error.to_string(), "")
    }
}

/// Says on stderr what a run did, unless `quiet`, and why its results may be wrong.
pub(crate) fn say(report: &[String], quiet: bool) {
    for line in report {
        match line.strip_prefix("! ") {
            Some(warning) => complain(&format!("warning: {warning}")),
            None if quiet => {}
            None => complain(line),
        }
    }
}

/// Reports on a run that ended, a line each, with what else its template takes; "! " is before the reasons why its results may be wrong.
pub(crate) fn report_of(ran: &PcOutcome, behind: &CounterSource, others: Value) -> Result<Vec<String>, Error> {
    let mut counts = Counts::default();
    let vcpus = || ran.vcpus.iter();
    vcpus().for_each(|vcpu| counts.merge(&vcpu.account.counts));
    let exits = |of: fn(&MsrExits) -> u64| vcpus().flat_map(|vcpu| &vcpu.account.msr_exits).map(of).sum::<u64>();
    let steps: Vec<_> = vcpus().filter_map(|vcpu| vcpu.steps).collect();
    let values = context! {
        end => ran.end.to_string(),
        seconds => format!("{:.1}", ran.wall.as_secs_f64()),
        rewritten => ran.rewritten,
        rdpmcs => counts.rdpmcs,
        elsewhere => (counts.rdpmcs_elsewhere > 0).then(|| rdpmcs_elsewhere(counts.rdpmcs_elsewhere)),
        accesses => exits(|line| line.reads + line.writes),
        faults => exits(|line| line.faults),
        nmis => counts.nmis_injected,
        ticks_uncertain => counts.ticks_uncertain,
        absent => vcpus().map(|vcpu| vcpu.left.absent).sum::<u64>(),
        backend => if let CounterSource::Events { backend, .. } = behind { Some(backend.to_string()) } else { None },
        opened => vcpus().map(|vcpu| vcpu.account.host.ops.count(OpKind::Open)).sum::<u64>(),
        stepped => !steps.is_empty(),
        instructions => steps.iter().map(|steps| steps.instructions).sum::<u64>(),
        unsupported => steps.iter().map(|steps| steps.unsupported).sum::<u64>(),
        // A selector or FIXED_CTR_CTRL that is only cleared programs none.
        programmed => vcpus().any(|vcpu| vcpu.account.turned_on > 0),
        last_error => vcpus().find_map(|vcpu| vcpu.account.host.last_error.as_deref()),
        console_error => ran.console.error.as_ref().map(ToString::to_string),
        dropped => ran.console.dropped,
        ..context! { ..Value::from(Serde(&counts)), ..others }
    };
    filled(include_str!("report.txt"), values)
}

/// Formats a line about rewritten RDPMCs that were #GP.
pub(crate) fn rdpmcs_elsewhere(count: u64) -> String {
    format!("{count} RDPMCs were #GP: they were rewritten, and ran at another address (code that the guest copied)")
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use hdrhistogram::Histogram;
    use host_pmu::stats::HostSide;
    use vmm::machine::linux::{Complaints, Faults, Output};
    use vmm::outcome::{Account, End, Steps, VcpuOutcome};

    use super::*;
    use crate::setting::parse::options;

    #[test]
    fn a_panic_is_a_bug_and_no_fault_of_the_host() {
        let code = |error| not_begun("cannot boot", &error).exit.code();
        assert_eq!(code(MachineError::Panicked("a vCPU's thread")), 70);
        assert_eq!(code(MachineError::Host("no memory".to_owned())), 4);
        assert_eq!(code(MachineError::StepsOne(2)), 2);
    }

    /// A run of two vCPUs that took a few PMIs each.
    fn ran() -> PcOutcome {
        let counts = Counts {
            overflows: 5,
            pmis: 2,
            nmis_injected: 2,
            deferred: 3,
            deferred_delivered: 1,
            deferred_dropped: 2,
            rdpmcs: 7,
            ..Counts::default()
        };
        let account = Account {
            counts,
            host: HostSide::default(),
            msr_exits: vec![MsrExits { msr: 0x38f, reads: 1, writes: 2, faults: 1 }],
            deliveries: Vec::new(),
            exit_path_ns: Histogram::new(3).unwrap(),
            phases: Default::default(),
            turned_on: 0,
        };
        let end = End::GuestExit { status: 3 };
        PcOutcome {
            vcpus: vec![VcpuOutcome { end: end.clone(), left: <_>::default(), account, steps: None }; 2],
            end,
            rewritten: 4,
            console: Output::default(),
            complaints: Complaints::default(),
            channel: Faults::default(),
            wall: Duration::from_millis(1500),
        }
    }

    type Change = fn(&mut PcOutcome);

    /// Two vCPUs, with what is changed. A selector that is only cleared programs no counter; the step backend opens events of its own,
    /// and what counts are instructions.
    #[test]
    fn vcpus_are_added_up_and_what_spoils_a_run_is_said() {
        let cases: [(&str, BackendKey, Change); 7] = [
            ("nothing of note", BackendKey::CpuClock, |_| ()),
            ("doubts", BackendKey::None, |ran| {
                (ran.vcpus[1].account.counts.throttled, ran.vcpus[1].account.counts.undeliverable) = (2, 1);
                (ran.vcpus[0].account.counts.rdpmcs_elsewhere, ran.vcpus[0].account.counts.ticks_uncertain) = (6, 4);
                ran.vcpus[1].left.absent = 3;
                ran.console = Output { error: Some(std::io::ErrorKind::BrokenPipe.into()), dropped: 9 };
            }),
            ("a cleared selector", BackendKey::CpuClock, |ran| {
                ran.vcpus[0].account.msr_exits.push(MsrExits { msr: 0x187, writes: 1, ..<_>::default() });
            }),
            ("a counter that never counted", BackendKey::CpuClock, |ran| ran.vcpus[0].account.turned_on = 1),
            ("one that did", BackendKey::CpuClock, |ran| {
                ran.vcpus[0].account.turned_on = 1;
                ran.vcpus[0].account.host.ops.record(OpKind::Open, 1);
            }),
            ("no step", BackendKey::Step, |ran| {
                ran.vcpus[0].account.turned_on = 1;
                ran.vcpus[0].steps = Some(Steps { instructions: 0, unsupported: 2 });
            }),
            ("steps", BackendKey::Step, |ran| {
                ran.vcpus[0].account.turned_on = 1;
                ran.vcpus[0].steps = Some(Steps { instructions: 9, unsupported: 0 });
            }),
        ];
        let mut text = String::new();
        for (what, backend, change) in cases {
            let mut ran = ran();
            change(&mut ran);
            let behind = options::<CountersOptions>(&[]).unwrap().source(&backend).unwrap();
            writeln!(text, "# {what}\n{}", report_of(&ran, &behind, context! {}).unwrap().join("\n")).unwrap();
        }
        trials::golden(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src/machine/reports.txt"), &text);
    }
}
