//! `vpmu calibrate`.

use host_pmu::backend::BackendKey;
use host_pmu::strategy::PRESETS;

use super::internal;
use crate::arm::real::RealRunner;
use crate::backend::{BackendChoice, choose};
use crate::cli::calibrate::CalibrateArgs;
use crate::console::print;
use crate::error::{Error, Exit};
use crate::experiment::calibrate::check;
use crate::experiment::calibrate::fit::fit;
use crate::experiment::calibrate::measure::{Measured, run as measure};
use crate::experiment::calibrate::spec::{CalibrateSpec, spec, workloads};
use crate::host::{HostFacts, HostFs};
use crate::probe::ThisHost;
use crate::progress::{Bar, Progress, Silent};
use crate::sys;
use results::write::{check_file, replace};

/// What a model is made from.
const NEEDED: [&str; 2] = ["recreate", "reuse"];

pub(super) fn run(args: &CalibrateArgs) -> Result<Exit, Error> {
    check_file(&args.output)?;
    if let BackendChoice::Sim(model) = &args.backend {
        return Err(Error::usage(
            format!("sim:{model} has a model already"),
            "a calibration measures real guests",
            "take --backend cpu-clock",
        ));
    }
    let chosen = choose(&args.backend, &ThisHost)?;
    let tracepoint = matches!(chosen.backend, BackendKey::Tracepoint { .. });
    refuse_what_has_no_model(&chosen.backend)?;
    let others = PRESETS.into_iter().filter(|name| args.check && !NEEDED.contains(name)).map(str::to_owned).collect();
    let samples = args.samples.unwrap_or(if tracepoint { 20 } else { 200 });
    let calibration =
        CalibrateSpec { backend: chosen.backend.to_string(), tracepoint, others, rounds: args.rounds, samples };
    sys::catch_interrupts().map_err(|error| internal("cannot catch SIGINT", error))?;

    let fs = HostFs::default();
    let (mut bar, mut silent) = (Bar::new(), Silent);
    let progress: &mut dyn Progress = if args.quiet { &mut silent } else { &mut bar };
    let mut measured: Vec<Measured> = Vec::new();
    for (workload, strategies) in workloads(&calibration) {
        let spec = spec(&calibration, workload, &strategies)?;
        let host = HostFacts::read(&fs);
        let plan = spec.plan(&chosen, host.online().as_deref())?;
        let mut runner = RealRunner::new(&plan.guest, &plan.backend, plan.parameters.period)?;
        measured.push(measure(workload, spec, &plan, &mut runner, (host, &fs), progress)?);
    }
    let class = &measured[0].finished.document.host.class;
    let about = format!("{class}, events by {}: measured by vpmu calibrate", calibration.backend);
    let draft = fit(&calibration, &args.name, &about, &measured)?;
    let model = draft.model()?;
    let wrong = |error: std::io::Error| {
        Error::usage(format!("cannot write {}", args.output.display()), error.to_string(), "give -o another file")
    };
    replace(&args.output, draft.toml().as_bytes()).map_err(wrong)?;
    if args.check {
        let lines = check::compare(&model, &measured)?;
        if args.json {
            let json = serde_json::to_string_pretty(&lines);
            print(&(json.map_err(|error| internal("cannot show the comparison", error))? + "\n"))?;
        } else {
            print(&check::text(&lines))?;
        }
    }
    if !args.json {
        print(&format!("saved: {}; use it: vpmu sim {}\n", args.output.display(), args.output.display()))?;
    }
    Ok(Exit::Done)
}

/// A model's events follow time or exits.
fn refuse_what_has_no_model(backend: &BackendKey) -> Result<(), Error> {
    match backend {
        BackendKey::CpuClock | BackendKey::TaskClock => Ok(()),
        BackendKey::Tracepoint { group, name } if group == "kvm" && name == "kvm_userspace_exit" => Ok(()),
        other => Err(Error::usage(
            format!("{other} cannot be calibrated"),
            "a model's events follow the thread's time or its exits to userspace",
            "take cpu-clock, task-clock or tracepoint:kvm/kvm_userspace_exit",
        )),
    }
}
