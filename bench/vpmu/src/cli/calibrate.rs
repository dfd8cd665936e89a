//! `vpmu calibrate`.

use std::path::PathBuf;
use std::time::Duration;

use arch_pmu::spec::Vendor;
use clap::Args;
use host_pmu::backend::BackendKey;
use host_pmu::backend::scheduling::Processor;
use host_pmu::open::{clock_expiry_ns, counts_outside_guests};
use host_pmu::strategy::PRESETS;
use results::error::{Error, Exit};
use results::host::{HostFacts, HostFs};
use results::table::layout::columns;
use results::write::check_file;
use vmm::kvm::Host;

use super::files::write_to;
use super::measure::usable;
use crate::experiment::calibrate::check;
use crate::experiment::calibrate::fit::fit;
use crate::experiment::calibrate::measure::{Job, run as measure};
use crate::experiment::calibrate::spec::{CalibrateSpec, Pmu, plan, spec, workloads};
use crate::setting::backend::{BackendChoice, Chosen, EventProbe, ThisHost, choose};
use crate::setting::parse::number_in;
use crate::sys;
use crate::terminal::console::{self, Form, complain, internal, print};
use crate::terminal::progress;

pub(super) const EXAMPLES: &str = "\
Examples:
  # measure this host's costs, write a model of it
  vpmu calibrate -o here.toml
  # and simulate with it
  vpmu sim here.toml --strategy deferred,gate
  # every strategy, measured beside simulated
  vpmu calibrate --check -o here.toml
  # where creates are expensive
  vpmu calibrate --check -o expensive.toml \\
    --backend tracepoint:kvm/kvm_userspace_exit

Exit codes: 0 done, 2 bad usage or a file that cannot be
written, 3 interrupted or a run that did not end as it should,
4 this host cannot run guests, 70 a bug of vpmu.";

/// Options of `vpmu calibrate`.
#[derive(Clone, Debug, Args)]
pub struct CalibrateArgs {
    /// Event source behind the guest's counters: auto (cpu-clock), hardware,
    /// cpu-clock, task-clock or tracepoint:kvm/kvm_userspace_exit
    #[arg(long, value_name = "KEY", default_value = "auto")]
    pub backend: BackendChoice,

    /// The model's name
    #[arg(long, value_name = "NAME", default_value = "calibrated")]
    pub name: String,

    /// The model's file
    #[arg(short = 'o', long = "output", value_name = "FILE", default_value = "calibrated.toml")]
    pub output: PathBuf,

    /// Also run every strategy, and show measured beside simulated handler latencies and host operations
    ///
    /// The strategies run in the same rounds as what the model is made from; the model is made from recreate, reuse and the floor
    /// alone. 2 to 4 minutes.
    #[arg(long)]
    pub check: bool,

    /// Rounds: in each, a guest of every arm of every workload, in random order [default: 40, 6 with a tracepoint]
    #[arg(long, value_name = "N", value_parser = number_in(2..=1000))]
    pub rounds: Option<u64>,

    /// NMIs per guest [default: 50, 20 with a tracepoint]
    #[arg(long, value_name = "N", value_parser = number_in(10..=100_000))]
    pub samples: Option<u64>,

    /// Print the comparison of --check as JSON
    #[arg(long, requires = "check")]
    pub json: bool,

    /// No progress bar
    #[arg(short, long)]
    pub quiet: bool,
}

/// Measurements of an expiry's cost.
const EXPIRIES: usize = 40;
/// Time in which a hardware event of guests alone shall count nothing.
const OUTSIDE: Duration = Duration::from_millis(2);
/// Strategies that a model is made from.
const NEEDED: [&str; 2] = ["recreate", "reuse"];

pub(super) fn run(args: &CalibrateArgs) -> Result<Exit, Error> {
    let output = check_file(&args.output)?;
    if let BackendChoice::Sim(model) = &args.backend {
        return Err(Error::usage(
            format!("sim:{model} has a model already"),
            "a calibration measures real guests",
            "take --backend cpu-clock",
        ));
    }
    let chosen = backend(&args.backend, &ThisHost)?;
    let tracepoint = matches!(chosen.backend, BackendKey::Tracepoint { .. });
    let others = PRESETS.into_iter().filter(|name| args.check && !NEEDED.contains(name)).map(str::to_owned).collect();
    let samples = args.samples.unwrap_or(if tracepoint { 20 } else { 50 });
    let rounds = args.rounds.unwrap_or(if tracepoint { 6 } else { 40 });
    let host = HostFacts::read(&HostFs::default());
    let pmu = if chosen.backend == BackendKey::Hardware { Some(pmu(&host)?) } else { None };
    let expiries = if tracepoint || pmu.is_some() { Vec::new() } else { expiries()? };
    let backend = chosen.backend.to_string();
    let calibration = CalibrateSpec { backend, tracepoint, pmu, expiries, others, rounds, samples };
    sys::catch_interrupts().map_err(|error| internal("cannot catch SIGINT", error))?;

    let mut progress = progress::shown(!args.quiet);
    let mut jobs = Vec::new();
    for (workload, strategies) in workloads(&calibration) {
        let spec = spec(&calibration, workload, &strategies)?;
        let plan = plan(&spec, &chosen, usable(&host).as_deref())?;
        let runner = Box::new(plan.on_this_host()?);
        jobs.push(Job { workload, spec, plan, runner });
    }
    let measured = measure(&mut jobs, calibration.rounds, sys::interrupted(), progress.as_mut())?;
    let owns = || measured.iter().flat_map(|workload| &workload.arms).map(|arm| &arm.result.own);
    let (failed, pinned) = owns()
        .fold((0, 0), |(failed, pinned), own| (failed + own.counts.failed_opens, pinned + own.counts.pinned_errors));
    if failed + pinned > 0 {
        let why = owns().find_map(|own| own.last_error.clone()).unwrap_or_default();
        complain(&format!(
            "warning: {failed} host events did not open and {pinned} had no counter ({why}): the times of these calls are among the model's"
        ));
    }
    let class = &host.class;
    let about = format!("{class}, events by {}: measured by vpmu calibrate", calibration.backend);
    let draft = fit(&calibration, &args.name, &about, &measured)?;
    let model = draft.model()?;
    write_to(&output, draft.toml().as_bytes())?;
    if !args.json {
        print(&(draft.fitted(columns()) + "\n"))?;
    }
    if args.check {
        let lines = check::compare(&model, &measured)?;
        console::show(Form::of(args.json, false), &check::report(&lines), &lines)?;
    }
    if !args.json {
        print(&format!("saved: {}; use it: vpmu sim {}\n", args.output.display(), args.output.display()))?;
    }
    Ok(Exit::Done)
}

/// Measures the time that an expiry of a clock takes here.
fn expiries() -> Result<Vec<f64>, Error> {
    clock_expiry_ns(EXPIRIES).map_err(|error| {
        let what = "cannot measure what an expiry of a clock costs";
        Error::new(Exit::Host, what, error.to_string(), "`vpmu doctor` says what this host allows")
    })
}

/// Returns the host's PMU as a model has it.
fn pmu(host: &HostFacts) -> Result<Pmu, Error> {
    let cannot = |why: String| Error::host("hardware cannot be calibrated", why, "take --backend cpu-clock");
    let kvm = Host::open().map_err(|error| cannot(error.to_string()))?;
    let counters =
        kvm.counters().ok_or_else(|| cannot("CPUID does not say how many counters its PMU has".to_owned()))?;
    let outside = counts_outside_guests(OUTSIDE).map_err(|error| cannot(error.to_string()))?;
    let vendor = match host.cpu_vendor.as_deref() {
        Some("GenuineIntel") => Some(Vendor::Intel),
        Some("AuthenticAMD") => Some(Vendor::Amd),
        _ => None,
    };
    let processor = vendor
        .zip(host.cpu_signature)
        .and_then(|(vendor, [family, model, _])| Processor::of_signature(vendor, family, model, counters));
    Ok(Pmu { processor, counters, taken: u32::from(host.nmi_watchdog == Some(true)), outside })
}

/// Returns the backend to calibrate. `auto` is cpu-clock, which any host has: models of two hosts compare.
fn backend(asked: &BackendChoice, probe: &dyn EventProbe) -> Result<Chosen, Error> {
    let clock = BackendChoice::Key(BackendKey::CpuClock);
    let asked = if *asked == BackendChoice::Auto { &clock } else { asked };
    if let BackendChoice::Key(key) = asked {
        refuse_what_has_no_model(key)?;
    }
    choose(asked, probe)
}

/// Refuses a backend that no model has: its events follow a guest's time, the thread's, or exits.
fn refuse_what_has_no_model(backend: &BackendKey) -> Result<(), Error> {
    match backend {
        BackendKey::Hardware | BackendKey::CpuClock | BackendKey::TaskClock => Ok(()),
        BackendKey::Tracepoint { group, name } if group == "kvm" && name == "kvm_userspace_exit" => Ok(()),
        other => Err(Error::usage(
            format!("{other} cannot be calibrated"),
            "a model's events follow the guest's time, the thread's or its exits to userspace",
            "take hardware, cpu-clock, task-clock or tracepoint:kvm/kvm_userspace_exit",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::setting::backend::fake::Opens;

    #[test]
    fn auto_is_cpu_clock_where_hardware_events_open_too() {
        let host = Opens(&["hardware", "cpu-clock"]);
        assert_eq!(backend(&BackendChoice::Auto, &host).unwrap().backend, BackendKey::CpuClock);
        let hardware = BackendChoice::Key(BackendKey::Hardware);
        assert_eq!(backend(&hardware, &host).unwrap().backend, BackendKey::Hardware);
        assert_eq!(backend(&hardware, &Opens(&["cpu-clock"])).unwrap_err().exit, Exit::Host);
        let paced = "cpu-clock:20MHz".parse().unwrap();
        assert_eq!(backend(&BackendChoice::Key(paced), &host).unwrap_err().exit, Exit::Usage);
        assert_eq!(backend(&BackendChoice::Auto, &Opens(&["hardware"])).unwrap_err().exit, Exit::Host);
    }
}
