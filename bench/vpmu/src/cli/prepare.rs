//! Plans that are ready to run: on this host, or on a model of one.

use host_pmu::backend::BackendKey;
use results::error::{Error, Exit};
use results::host::{HostFacts, HostFs};
use sim::model::Model;
use vmm::kvm::Host;

use crate::arms::arm::real;
use crate::arms::arm::runner::Runner;
use crate::arms::arm::sim::{self as simulated, DEFAULT_MODEL};
use crate::arms::linux::runner as of_linux;
use crate::arms::linux::spec::LinuxGuestOptions;
use crate::arms::rounds::plan::Plan;
use crate::setting::backend::{BackendChoice, Chosen, choose, this_host};
use crate::setting::pin::usable;
use crate::setting::strategy::refuse_modelled;
use crate::terminal::console::complain;

/// Makes the plan for a backend and the CPUs that this process may use, if they are known.
pub(super) type MakePlan<'a> = &'a dyn Fn(&Chosen, Option<&[u32]>) -> Result<Plan, Error>;

/// A plan with its runner, and the facts of the host that it runs on.
type Ready = (Plan, Runner, HostFacts, HostFs);

/// Says whether a plan is simulated where this host cannot measure it, and how much is said of that.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Fallback {
    Never,
    Quietly,
    /// With a notice of what is missing.
    WithNotice,
}

/// The place where a plan runs.
#[derive(Clone, Copy)]
pub(super) struct On<'a> {
    /// The backend on this host.
    pub(super) backend: &'a BackendChoice,
    /// The guest is Linux in place of the payload.
    pub(super) linux: Option<&'a LinuxGuestOptions>,
    /// The simulated host in place of this one.
    pub(super) model: Option<&'a Model>,
    pub(super) fallback: Fallback,
}

/// Reads the model of `--backend sim:MODEL`. Exit 2 for a backend that measures no latencies.
pub(super) fn named_model(backend: &BackendChoice) -> Result<Option<Model>, Error> {
    match backend {
        BackendChoice::Sim(name) => simulated::model(name).map(Some),
        BackendChoice::Key(key @ (BackendKey::Step | BackendKey::None)) => {
            let remedy = format!("use another --backend here, and {key} with `vpmu conformance` and `vpmu run`");
            Err(Error::usage(format!("backend {key} measures no latencies"), "", remedy))
        }
        BackendChoice::Auto | BackendChoice::Key(_) => Ok(None),
    }
}

/// Makes a plan to check what can be checked before anything is measured: also that the guests, on this model or host, can have its
/// strategies. With `auto` the answer does not depend on what the host lacks: no model is asked then.
pub(super) fn tried(model: Option<&Model>, plan: MakePlan<'_>) -> Result<(), Error> {
    // Options that contradict each other are reported before what the host lacks: `none` opens nothing.
    let nothing = || Chosen::here(BackendKey::None, String::new());
    let chosen = model.map_or_else(nothing, |model| simulated::chosen(model, ""));
    let tried = plan(&chosen, usable(&HostFacts::begin(&HostFs::default())).as_deref())?;
    let strategies = &tried.parameters.strategies;
    match model {
        Some(model) => {
            let names = strategies.iter().map(|strategy| strategy.name.as_str());
            simulated::check_strategies(model, tried.guest.machine.cpu.vendor(), names)
        }
        None => refuse_modelled(strategies),
    }
}

/// Prepares a run by the model or on this host. Exit 4 if it cannot run guests, or no host event opens, and there is no fallback.
pub(super) fn ready(on: On<'_>, plan: MakePlan<'_>) -> Result<Ready, Error> {
    let On { backend, linux, model, fallback } = on;
    match (model, linux) {
        (Some(model), Some(_)) => Err(Error::usage(
            format!("model {} does not simulate Linux", model.name),
            "it simulates the payload",
            "leave --guest linux out, or take a backend of this host",
        )),
        (Some(model), None) => simulation(plan, model.clone(), "asked for"),
        (None, _) => here(backend, linux, plan).or_else(|error| match (error.exit, fallback) {
            (Exit::Host, Fallback::Never) if linux.is_none() => {
                Err(Error { remedy: format!("{}; --backend sim:{DEFAULT_MODEL} simulates", error.remedy), ..error })
            }
            (Exit::Host, Fallback::Quietly | Fallback::WithNotice) => fall_back(plan, &error, fallback),
            _ => Err(error),
        }),
    }
}

fn here(backend: &BackendChoice, linux: Option<&LinuxGuestOptions>, plan: MakePlan<'_>) -> Result<Ready, Error> {
    let fs = HostFs::default();
    let host = HostFacts::begin(&fs);
    let mut chosen = choose(backend, &this_host)?;
    // Where the NMI watchdog holds an event, no guest's is the first; a mediated vPMU has the PMU for itself.
    let is_held = host.nmi_watchdog == Some(true) && host.kvm_mediated_pmu != Some(true);
    chosen.shares_first &= !(chosen.backend == BackendKey::Hardware && is_held);
    let mut plan = plan(&chosen, usable(&host).as_deref())?;
    let runner = match linux {
        Some(options) => of_linux::runner(options, &mut plan)?,
        None => real::runner(&plan.guest)?,
    };
    Ok((plan, runner, host, fs))
}

/// Prepares a run on a simulated host, from which nothing of this machine enters the result.
fn simulation(plan: MakePlan<'_>, model: Model, why: &str) -> Result<Ready, Error> {
    let mut plan = plan(&simulated::chosen(&model, why), None)?;
    plan.simulate(&model.name);
    let host = simulated::facts(&model);
    let runner = plan.on_model(model)?;
    Ok((plan, runner, host, HostFs::at("/nonexistent")))
}

/// Simulates on a host that cannot measure.
fn fall_back(plan: MakePlan<'_>, error: &Error, fallback: Fallback) -> Result<Ready, Error> {
    let model = simulated::model(DEFAULT_MODEL)?;
    if fallback == Fallback::WithNotice {
        // Events are tried before KVM; a user who mends one should know of the other.
        let kvm = Host::open().err().map(|kvm| kvm.to_string()).filter(|kvm| *kvm != error.why);
        let missing = kvm.into_iter().chain([error.why.clone()]).collect::<Vec<_>>().join("; ");
        complain(&format!(
            "notice: nothing is measured: this is a simulation (model {}): {missing}; `vpmu doctor` says what helps",
            model.name
        ));
    }
    simulation(plan, model, &format!("this host cannot measure ({})", error.what))
}
