//! Arms on simulated hosts: the same plan, vPMU, strategies and result document as on KVM, no host needed.

use std::io::Read;
use std::path::Path;
use std::time::Duration;

use arch_pmu::caps::PmuCaps;
use host_pmu::backend::BackendKey;
use host_pmu::strategy::Strategy;
use sim::guest::{GuestOutcome, Timer};
use sim::host::{self, Behind};
use sim::model::{CountBase, EMBEDDED, Model};
use vmm::outcome::{End, RunOutcome, TscMap, VcpuOutcome};

use crate::backend::Chosen;
use crate::error::Error;
use crate::experiment::plan::{GuestPlan, Plan};
use crate::experiment::{Arm, ArmKind, ArmRunner, Round};
use crate::host::HostFacts;
use crate::runner::{boot_page, log_entries};

/// Largest model file.
const MAX_MODEL: u64 = 256 << 10;
/// The model where nobody named one.
pub const DEFAULT_MODEL: &str = "development-host";

/// The model that comes along as `name`, or of the .toml file of that path.
///
/// # Errors
/// Exit 2, with the key that is wrong.
pub fn model(name: &str) -> Result<Model, Error> {
    model_text(name).map(|(_, model)| model)
}

/// The same with its text.
///
/// # Errors
/// Exit 2, with the key that is wrong.
pub fn model_text(name: &str) -> Result<(String, Model), Error> {
    let refuse = |why: String| Error::usage("cannot use the simulator's model", why, "docs/simulator.md has the keys");
    let path = Path::new(name);
    if path.extension().is_none_or(|extension| extension != "toml") {
        let model = Model::embedded(name).map_err(|error| refuse(error.to_string()))?;
        let text = EMBEDDED.iter().find(|(known, _)| *known == name).map_or("", |(_, text)| text);
        return Ok((text.to_owned(), model));
    }
    let mut text = String::new();
    std::fs::File::open(path)
        .and_then(|file| file.take(MAX_MODEL + 1).read_to_string(&mut text))
        .map_err(|error| refuse(format!("{name}: {error}")))?;
    if text.len() as u64 > MAX_MODEL {
        return Err(refuse(format!("{name}: larger than {MAX_MODEL} bytes")));
    }
    let model = Model::from_toml(name, &text).map_err(|error| refuse(error.to_string()))?;
    Ok((text, model))
}

/// What a plan is made with: a simulated host has whatever events its model says.
#[must_use]
pub fn chosen(model: &Model, why: &str) -> Chosen {
    let backend = match model.base {
        CountBase::GuestTime => BackendKey::Hardware,
        CountBase::ThreadTime => BackendKey::CpuClock,
        CountBase::Exits => BackendKey::Tracepoint { group: "kvm".to_owned(), name: "kvm_userspace_exit".to_owned() },
    };
    Chosen { backend, why: format!("{why}: {}", model.about) }
}

/// Puts the model's name where the plan names its backend, so that no figure stands beside a real backend's name.
pub fn rename(plan: &mut Plan, name: &str) {
    let backend = format!("sim:{name}");
    for arm in plan.arms.iter_mut().filter(|arm| arm.kind == ArmKind::Strategy) {
        arm.backend.clone_from(&backend);
    }
    plan.parameters.backend.clone_from(&backend);
}

/// The facts of a simulated host: none of this one's.
#[must_use]
pub fn facts(model: &Model) -> HostFacts {
    HostFacts { class: format!("simulated (model {})", model.name), ..HostFacts::default() }
}

/// Simulates arms.
#[derive(Debug)]
pub struct SimRunner {
    model: Model,
    guest: GuestPlan,
    /// Counts per millisecond of the floor, where the arms beside it count no clock.
    paced: Option<u64>,
    seed: u64,
}

impl SimRunner {
    /// For `plan`'s arms.
    ///
    /// # Errors
    /// Exit 2 for what a simulated host does not have.
    pub fn new(model: Model, plan: &Plan) -> Result<Self, Error> {
        if !plan.guest.pin.is_empty() {
            return Err(Error::usage(
                "--pin has no place in a simulation",
                "each vCPU has its own CPU",
                "leave it out",
            ));
        }
        let paced = (model.base == CountBase::Exits).then_some(plan.parameters.period);
        Ok(Self { model, guest: plan.guest.clone(), paced, seed: plan.seed })
    }
}

impl ArmRunner for SimRunner {
    fn available(&mut self, arm: &Arm) -> Result<(), String> {
        match arm.kind {
            ArmKind::Kvm => Err("a simulated host has no KVM of its own".to_owned()),
            ArmKind::Strategy | ArmKind::Floor => Ok(()),
        }
    }

    fn run(&mut self, arm: &Arm, round: Round) -> Result<RunOutcome, Error> {
        let wrong = |why: String| Error::usage(format!("strategy {}", arm.strategy), why, "");
        let behind = match (&arm.definition, arm.kind) {
            (_, ArmKind::Floor | ArmKind::Kvm) => {
                self.paced.map_or(Behind::Floor, |counts_per_ms| Behind::PacedFloor { counts_per_ms })
            }
            (Some(text), _) => Behind::Events(Strategy::from_toml(text).map_err(|error| wrong(error.to_string()))?),
            (None, _) => Behind::Events(Strategy::preset(&arm.strategy).map_err(|error| wrong(error.to_string()))?),
        };
        let mut boot = boot_page(&self.guest, round.samples);
        boot.log_capacity = log_entries(&self.guest, round.samples);
        let plan = host::Plan {
            behind,
            pmu: PmuCaps {
                version: self.guest.pmu_version as u8,
                gp: self.guest.gp_counters as u8,
                fixed: self.guest.fixed_counters as u8,
                ..PmuCaps::default()
            },
            vcpus: self.guest.vcpus,
            cpus: self.guest.vcpus,
            boot,
            timer: Timer::Periodic,
            limit_ns: u64::try_from(self.guest.hard_limit.as_nanos()).unwrap_or(u64::MAX),
            seed: self.seed,
        };
        // Rounds differ as hosts of one experiment do; every arm of a round meets the same random numbers.
        let number = round.index << 1 | u64::from(round.warmup);
        let left = host::run(&self.model, &plan, number);
        let virtual_ns = left.iter().map(|guest| guest.ns).max().unwrap_or(0);
        let vcpus: Vec<_> = left.into_iter().map(|guest| vcpu(guest, self.model.tsc_khz)).collect();
        let end = vcpus.iter().map(|vcpu| vcpu.end.clone()).find(|end| !end.is_complete()).unwrap_or(End::Done);
        Ok(RunOutcome { end, vcpus, wall: Duration::from_nanos(virtual_ns), start: Duration::ZERO })
    }
}

fn vcpu(guest: GuestOutcome, tsc_khz: u64) -> VcpuOutcome {
    VcpuOutcome {
        end: if guest.timed_out { End::TimedOut } else { End::Done },
        report: Some(guest.report),
        log: guest.log,
        // The guest's TSC and the host's are the same here.
        tsc: TscMap { khz: tsc_khz, offset: 0, uncertainty: 0 },
        deliveries: guest.deliveries,
        pmi: guest.side.pmi,
        msr_exits: guest.side.msrs,
        exit_path_ns: guest.side.exit_path_ns,
        host: guest.side.host,
        held_at_tail_tick: guest.held_at_tail_tick,
        phases: guest.side.phases,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::plan::tests::args;

    fn outcomes(line: &[&str]) -> Vec<RunOutcome> {
        let model = model("clx-ap-watchdog-on").unwrap();
        let mut plan = Plan::new(&args(line), &host_pmu::strategy::PRESETS, &chosen(&model, "test"), None).unwrap();
        rename(&mut plan, &model.name);
        let mut runner = SimRunner::new(model, &plan).unwrap();
        let round = Round { index: 0, position: 0, warmup: false, samples: plan.samples };
        let runs = plan.arms.iter().filter(|arm| arm.kind != ArmKind::Kvm);
        runs.map(|arm| runner.run(arm, round).unwrap()).collect()
    }

    #[test]
    fn arms_are_whole_and_take_their_samples() {
        for outcome in outcomes(&["--samples", "200", "--vcpus", "2"]) {
            assert!(outcome.end.is_complete());
            assert_eq!(outcome.vcpus.len(), 2);
            for vcpu in outcome.vcpus {
                let report = vcpu.report.unwrap();
                assert_eq!((report.nmis, report.dropped), (vcpu.pmi.nmis, 0));
                assert!(report.nmis >= 200);
                assert_eq!(vcpu.deliveries.len() as u64, report.nmis);
            }
        }
    }

    #[test]
    fn a_plan_of_a_model_names_no_real_backend() {
        let model = model("icx-2021").unwrap();
        let args = args(&["--backend", "sim:icx-2021"]);
        let mut plan = Plan::new(&args, &host_pmu::strategy::PRESETS, &chosen(&model, "asked for"), None).unwrap();
        rename(&mut plan, "icx-2021");
        assert_eq!(plan.parameters.backend, "sim:icx-2021");
        assert_eq!(plan.parameters.backend_requested, "sim:icx-2021");
        assert!(plan.arms.iter().all(|arm| arm.backend != "hardware"));
        assert_eq!(facts(&model).class, "simulated (model icx-2021)");
    }

    #[test]
    fn bad_models_are_bad_input_in_one_line() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("m.toml");
        std::fs::write(&file, "name = 'x'").unwrap();
        let write = |name: &str, bytes: &[u8]| {
            let path = dir.path().join(name);
            std::fs::write(&path, bytes).unwrap();
            path.into_os_string().into_string().unwrap()
        };
        let (binary, huge) = (write("b.toml", b"name = '\xff'"), write("h.toml", &vec![b'#'; 300_000]));
        for (name, needle) in [
            (binary.as_str(), "UTF-8"),
            (&huge, "larger than 262144"),
            (dir.path().with_extension("toml").to_str().unwrap(), "No such file"),
            ("no-such", "known are development-host"),
            ("/nonexistent/m.toml", "No such file"),
            (file.to_str().unwrap(), "about: missing"),
        ] {
            let error = model(name).unwrap_err();
            assert_eq!(error.exit.code(), 2);
            assert!(error.to_string().contains(needle), "{error}");
        }
    }
}
