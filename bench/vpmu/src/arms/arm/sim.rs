//! Arms on a simulated host: the same vPMU, strategies and result document as on KVM, without KVM.

use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use arch_pmu::spec::Vendor;
use fleet::hash::sha256;
use guest::abi::{BootPage, FLAG_TURNS};
use host_pmu::backend::BackendKey;
use sim::guest::GuestOutcome;
use sim::host::{self, CounterSource};
use sim::mediated::Mediated;
use sim::model::{CountBase, EMBEDDED, Model};
use vmm::outcome::{Account, End, PayloadLeft, RunOutcome, TscMap, VcpuOutcome};

use super::real::log_entries;
use super::runner::{Arm, ArmGuests, Runner, TurnOutcome, nothing};
use crate::engine::Turn;
use crate::setting::backend::Chosen;
use crate::setting::parse::{is_toml, suggestion};
use results::document::{ArmKind, BELOW_KVM};
use results::error::Error;
use results::host::HostFacts;
use results::open;

/// Largest model file.
const MAX_MODEL: u64 = 256 << 10;
/// The default model.
pub const DEFAULT_MODEL: &str = "development-host";

/// Checks the name of an embedded model, and leaves a file to where it is.
///
/// # Errors
/// Exit 2 for a name that is none.
pub fn check_name(name: &str) -> Result<(), Error> {
    if is_toml(name) { Ok(()) } else { model(name).map(drop) }
}

/// Reads the embedded model `name`, or the one in the .toml file of that path.
///
/// # Errors
/// Exit 2, with the key that is wrong.
pub fn model(name: &str) -> Result<Model, Error> {
    let refuse = |why: String| Error::usage("cannot use the simulator's model", why, "docs/simulator.md has the keys");
    if is_toml(name) {
        let text = open::named_text(Path::new(name), MAX_MODEL).map_err(|error| refuse(format!("{name}: {error}")))?;
        return Model::from_toml(name, &text).map_err(|error| refuse(error.to_string()));
    }
    let known = EMBEDDED.map(|(known, _)| known);
    if known.contains(&name) {
        return Model::embedded(name).map_err(|error| refuse(error.to_string()));
    }
    Err(Error::usage(format!("no model '{name}'"), "", suggestion(name, &known, ", and files ending in .toml")))
}

/// Checks that the model's host can have each of these strategies.
///
/// # Errors
/// Exit 2 for a mediated PMU on a host that has none to give away.
pub fn check_strategies<'a>(
    model: &Model,
    guests: Vendor,
    mut names: impl Iterator<Item = &'a str> + Clone,
) -> Result<(), Error> {
    let cannot = |name: &str, why: &str, remedy: &str| {
        Err(Error::usage(format!("model {} cannot have arm {name}", model.name), why, remedy))
    };
    if let Some(name) = names.clone().find(|name| name.starts_with(BELOW_KVM)) {
        return cannot(name, "a simulated host has no KVM of its own", "leave out one of the two");
    }
    let Some(kind) = names.find_map(Mediated::named) else { return Ok(()) };
    let why = match (model.base, &model.costs.mediated) {
        (CountBase::Exits, _) => "its events count exits, and no counter of a PMU does",
        (_, None) => "it has neither cost.pmu-switch nor cost.register",
        (_, Some(_)) if guests == Vendor::Amd => "a simulated guest owns an Intel's PMU alone",
        (_, Some(_)) => return Ok(()),
    };
    cannot(kind.name, why, "take model spr-2026 and --cpu clx")
}

/// Returns the backend that a plan for a simulated host is made with: the events of its model.
pub fn chosen(model: &Model, why: &str) -> Chosen {
    let backend = match model.base {
        CountBase::GuestTime => BackendKey::Hardware,
        CountBase::ThreadTime => BackendKey::CpuClock,
        CountBase::Exits => BackendKey::Tracepoint { group: "kvm".to_owned(), name: "kvm_userspace_exit".to_owned() },
    };
    // Each simulated arm has a host to itself.
    Chosen { backend, why: format!("{why}: {}", model.about), shares_first: false, simulated: true }
}

/// Returns the facts of a simulated host; none are this host's.
pub fn facts(model: &Model) -> HostFacts {
    let [costs, others] = model.constants().map(|text| sha256(text.as_bytes()));
    let constants = format!("{costs:.16}-{others:.16}");
    let class = format!("simulated (model {})", model.name);
    HostFacts { class, model: Some(constants), model_percent: model.checked, ..HostFacts::default() }
}

/// Returns a runner on hosts of a model, with the plan of the floor's.
pub fn runner(model: Model, floor: host::Plan) -> Runner {
    let (model, floor) = (Rc::new(model), Rc::new(floor));
    Box::new(move |arm| match arm.kind {
        ArmKind::Kvm => Err("a simulated host has no KVM of its own".to_owned()),
        ArmKind::Strategy | ArmKind::Floor => {
            Ok(Box::new(SimGuests { model: Rc::clone(&model), floor: Rc::clone(&floor), arm, live: None }))
        }
    })
}

/// Plans a host with an arm's guest, as the floor's but for what stands behind its counters.
///
/// # Errors
/// Exit 2 for a strategy that cannot be read.
pub fn planned(floor: &host::Plan, arm: &Arm, samples: u64) -> Result<host::Plan, Error> {
    let behind = match (arm.kind, Mediated::named(&arm.strategy)) {
        (ArmKind::Floor | ArmKind::Kvm, _) => floor.behind.clone(),
        (ArmKind::Strategy, Some(kind)) => CounterSource::Mediated(kind),
        (ArmKind::Strategy, None) => CounterSource::Events(arm.strategy()?),
    };
    let log_capacity = log_entries(&floor.boot, samples);
    let boot = BootPage { sample_target: samples, log_capacity, ..floor.boot };
    Ok(host::Plan { behind, boot, ..floor.clone() })
}

/// The guests of an arm on simulated hosts.
struct SimGuests<'a> {
    model: Rc<Model>,
    /// The plan of the floor's hosts.
    floor: Rc<host::Plan>,
    arm: &'a Arm,
    live: Option<Box<dyn host::Live>>,
}

impl ArmGuests for SimGuests<'_> {
    fn open(&mut self, number: u64, samples: u64) -> Result<Option<RunOutcome>, Error> {
        let (model, floor) = (&*self.model, &*self.floor);
        let mut plan = planned(floor, self.arm, samples)?;
        plan.boot.flags |= FLAG_TURNS;
        // The guests of one number meet the same random numbers.
        let (host, opening) = host::start(model, &plan, number << 1);
        let opening = outcome(opening, model.tsc_khz);
        self.live = opening.end.is_complete().then_some(host);
        Ok(self.live.is_some().then_some(opening))
    }

    fn turn(&mut self, turn: Turn, samples: u64) -> Result<TurnOutcome, Error> {
        let (model, floor) = (&*self.model, &*self.floor);
        let left = match (&mut self.live, turn.session) {
            (Some(host), _) => host.turn(samples),
            // Rounds differ as hosts of one experiment do; every arm of a round meets the same random numbers.
            (None, None) => {
                let number = turn.index << 1 | u64::from(turn.warmup);
                host::run(model, &planned(floor, self.arm, samples)?, number)
            }
            (None, Some(_)) => return Ok(nothing(End::TimedOut).into()),
        };
        let run = outcome(left, model.tsc_khz);
        self.live = self.live.take().filter(|_| run.end.is_complete());
        Ok(run.into())
    }

    fn close(&mut self) -> Result<Option<RunOutcome>, Error> {
        Ok(self.live.take().map(|mut host| outcome(host.finish(), self.model.tsc_khz)))
    }
}

fn outcome(left: Vec<GuestOutcome>, tsc_khz: u64) -> RunOutcome {
    let virtual_ns = left.iter().map(|guest| guest.ns).max().unwrap_or(0);
    let vcpus: Vec<_> = left.into_iter().map(|guest| vcpu(guest, tsc_khz)).collect();
    let end = vcpus.iter().map(|vcpu| vcpu.end.clone()).find(|end| !end.is_complete()).unwrap_or(End::Done);
    RunOutcome { end, vcpus, wall: Duration::from_nanos(virtual_ns), start: Duration::ZERO }
}

fn vcpu(guest: GuestOutcome, tsc_khz: u64) -> VcpuOutcome {
    VcpuOutcome {
        end: if guest.timed_out { End::TimedOut } else { End::Done },
        left: PayloadLeft {
            booted: None,
            report: Some(guest.report),
            log: guest.log,
            // The guest's TSC and the host's are the same here.
            tsc: TscMap { khz: tsc_khz, offset: 0, uncertainty: 0 },
            held_at_tail_tick: guest.held_at_tail_tick,
        },
        account: Account {
            counts: guest.side.counts,
            host: guest.side.host,
            msr_exits: guest.side.msrs,
            deliveries: guest.deliveries,
            exit_path_ns: guest.side.exit_path_ns.histogram(),
            phases: guest.side.phases,
            turned_on: 0,
        },
        steps: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn models_of_the_same_costs_are_told_from_an_edited_one() {
        let text = EMBEDDED[1].1;
        let of = |text: &str| facts(&Model::from_toml("m", text).unwrap()).model.unwrap();
        let costs = |constants: &str| constants.split('-').next().unwrap().to_owned();
        let mut edited = Model::from_toml("m", text).unwrap();
        edited.scale("open", 2.0).unwrap();
        let edited = facts(&edited).model.unwrap();
        assert_eq!(of(text), of(&format!("# A comment.\n{text}")));
        assert!(edited != of(text) && costs(&edited) != costs(&of(text)));
        let embedded = |name: &str| facts(&model(name).unwrap()).model.unwrap();
        let [clx, icx] = ["clx-ap-watchdog-on", "icx-2021"].map(embedded);
        assert!(clx != icx && costs(&clx) == costs(&icx), "{clx} {icx}");
    }
}
