//! `vpmu conformance`.

use arch_pmu::spec::Vendor;
use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser as _};
use host_pmu::backend::BackendKey;
use host_pmu::strategy::PRESETS;
use results::error::{Error, Exit};
use vmm::machine::Cpu;

use crate::experiment::conformance::{self, Checked, Runs, Target};
use crate::setting::backend::{BackendChoice, Chosen, choose, open_kvm, this_host};
use crate::setting::options::{JsonOption, QuietOption};
use crate::setting::parse::processor;
use crate::setting::process::VERSION;
use crate::setting::strategy::{StrategyChoice, ready};
use crate::sys;
use crate::terminal::console::{self, complain, print, print_json};

/// Options of `vpmu conformance`.
#[derive(Clone, Debug, Args)]
pub struct ConformanceArgs {
    /// Strategies to check: preset names or .toml files [default: every preset]
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        default_values = PRESETS,
        hide_default_value = true
    )]
    pub strategy: Vec<StrategyChoice>,

    /// Event source behind the guest's counters
    #[arg(long, value_name = "KEY", default_value = "auto", help = backends())]
    pub backend: BackendChoice,

    /// Check KVM's own vPMU in place of the userspace one
    ///
    /// It is that of the host's vendor, and has neither strategies nor a backend.
    #[arg(long, value_name = "PMU", value_parser = ["kvm"], conflicts_with_all = ["strategy", "backend", "cpu", "pmu_version"])]
    pub on: Option<String>,

    /// Processors of the guest
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "clx", value_parser = processor())]
    pub cpu: Vec<Cpu>,

    /// Architectural PMU versions of a guest with an Intel processor
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "2,4",
          value_parser = PossibleValuesParser::new(["2", "4"]).try_map(|version| version.parse::<u8>()))]
    pub pmu_version: Vec<u8>,

    /// JSON in place of the table.
    #[command(flatten)]
    pub json: JsonOption,

    /// Nothing on stderr but errors.
    #[command(flatten)]
    pub quiet: QuietOption,
}

/// Returns the help of `--backend`.
fn backends() -> String {
    format!("Event source behind the guest's counters: auto, {}", BackendKey::PLAIN.join(", "))
}

/// A backend's name, the guests, and what stands behind their counters.
type Checks = (String, Vec<Checked>, Vec<Target>);

/// Returns the checks of the userspace vPMU.
fn on_vpmu(args: &ConformanceArgs) -> Result<Checks, Error> {
    let mut strategies = ready(&args.strategy)?;
    if let Some(cpu) = args.cpu.iter().find(|cpu| cpu.vendor() == Vendor::Amd && args.pmu_version != [2, 4]) {
        let remedy = "leave it out, or check Intel's processors apart";
        return Err(Error::usage(format!("--pmu-version is not for --cpu {}", cpu.name()), "it is Intel's", remedy));
    }
    let mut versions = args.pmu_version.clone();
    versions.sort_unstable();
    versions.dedup();
    let mut guests = Vec::new();
    for &cpu in &args.cpu {
        // An AMD's PMU has one version.
        let of_cpu = if cpu.vendor() == Vendor::Amd { &versions[..1] } else { &versions[..] };
        guests.extend(of_cpu.iter().map(|&version| Checked { cpu, version }));
    }
    if let BackendChoice::Key(BackendKey::Tracepoint { .. }) = args.backend {
        return Err(Error::usage(
            format!("backend {} does not serve conformance", args.backend),
            "the cases expect counters that follow time or instructions, not occurrences of a tracepoint",
            "use --backend auto, or step for exact counts",
        ));
    }
    let Chosen { backend, why, .. } = choose(&args.backend, &this_host)?;
    let notice = |text: &str| {
        if !args.quiet.quiet {
            complain(text);
        }
    };
    notice(&format!("backend {backend}: {why}"));
    if backend == BackendKey::None {
        notice("backend none has no host events: all strategies are the same, one runs");
        strategies.truncate(1);
    }
    if backend == BackendKey::Step {
        notice("every guest instruction that counts is single-stepped: this takes seconds to minutes per run");
    }
    let target = |strategy| Target::vpmu(strategy, &backend, conformance::counts_time);
    Ok((backend.to_string(), guests, strategies.into_iter().map(target).collect()))
}

pub(super) fn run(args: &ConformanceArgs) -> Result<Exit, Error> {
    let (backend, guests, targets) = if args.on.is_some() {
        let target = Target::kvm();
        (target.name.clone(), vec![conformance::of_kvm()?], vec![target])
    } else {
        on_vpmu(args)?
    };
    console::catch_interrupts()?;
    let host = open_kvm()?;
    let tap = |text: &str| if args.json.json { Ok(()) } else { print(text) };
    tap(&format!("TAP version 14\n1..{}\n", guests.len() * targets.len()))?;
    let mut found = Runs { version: VERSION, backend, runs: Vec::new() };
    for (guest, target) in guests.iter().flat_map(|guest| targets.iter().map(move |target| (*guest, target))) {
        let run = conformance::run(&host, guest, target, sys::interrupted())?;
        // A guest that was stopped has cases that did not run, which are no failures.
        if sys::stopped() {
            tap("Bail out! interrupted\n")?;
            return Err(Error::new(Exit::Inconclusive, "interrupted", "", ""));
        }
        tap(&run.tap(found.runs.len() + 1)?)?;
        found.runs.push(run);
    }
    tap(&conformance::summary(&found.runs))?;
    if args.json.json {
        print_json(&found)?;
    }
    Ok(if found.runs.iter().all(|run| run.ok) { Exit::Done } else { Exit::Regression })
}
