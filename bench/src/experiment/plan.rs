//! From the command line to a checked plan.

use std::collections::BTreeSet;
use std::io::Read;
use std::path::Path;
use std::time::Duration;

use guest::abi::EventSpec;

use super::{Arm, ArmKind};
use crate::backend::Chosen;
use crate::cli::NmiLatencyArgs;
use crate::cli::parse::StrategyArg;
use crate::error::Error;
use crate::result::{EventParameter, Parameters, StrategyParameter};
use crate::workload::Workload;
use host_pmu::backend::BackendKey;
use host_pmu::strategy::Strategy;

/// Guest time without counters before the measured phase.
const BASELINE: Duration = Duration::from_millis(40);
/// Ticks of the tail: the first ends the last slice the guest sampled in, the others show what lazy release left.
const TAIL_TICKS: u64 = 4;
/// Largest strategy file.
const MAX_DEFINITION: u64 = 64 << 10;
/// Most samples of a round over all vCPUs: each is a log entry of 48 bytes in guest memory.
const MAX_LOG: u64 = 20_000_000;
/// Counters of a Cascade Lake with hyper-threading (CPUID leaf 0AH).
const GP_COUNTERS: u64 = 4;
/// Fixed counters, likewise.
const FIXED_COUNTERS: u64 = 3;

/// What the guest is told and given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GuestPlan {
    /// Event set and guest work.
    pub workload: Workload,
    /// `BootPage::events`.
    pub events: Vec<EventSpec>,
    /// `BootPage::flags`.
    pub flags: u64,
    /// `BootPage::freq_hz`; 0 = fixed period.
    pub freq_hz: u64,
    /// The guest's tick.
    pub mux_interval: Duration,
    /// `BootPage::baseline_ticks`.
    pub baseline_ticks: u64,
    /// `BootPage::tail_ticks`.
    pub tail_ticks: u64,
    /// `BootPage::max_ticks`: the guest itself ends the measured phase after `--time-limit`.
    pub max_ticks: u64,
    /// `BootPage::window_ticks`, `gap_ticks` and `limit_us`; 0 where the guest sets nothing up.
    pub window_ticks: u64,
    /// See `window_ticks`.
    pub gap_ticks: u64,
    /// See `window_ticks`.
    pub limit_us: u64,
    /// When the VMM ends a guest that did not end by itself.
    pub hard_limit: Duration,
    /// Virtual CPUs.
    pub vcpus: u64,
    /// Host CPU of each vCPU, or empty.
    pub pin: Vec<u32>,
    /// PMU version: 2 or 4.
    pub pmu_version: u64,
    /// General-purpose counters.
    pub gp_counters: u64,
    /// Fixed counters.
    pub fixed_counters: u64,
    /// Whether vCPU threads run under a seccomp filter.
    pub seccomp: bool,
}

/// A checked plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The experiment's name.
    pub experiment: &'static str,
    /// Strategies in the order given, then the floor, then `kvm`.
    pub arms: Vec<Arm>,
    /// The backend of the strategies' arms; never `auto`.
    pub backend: BackendKey,
    /// The guest.
    pub guest: GuestPlan,
    /// Rounds that count.
    pub rounds: u64,
    /// Samples per run and vCPU.
    pub samples: u64,
    /// Samples of a warm-up run and vCPU.
    pub warmup_samples: u64,
    /// Seed of the order of arms.
    pub seed: u64,
    /// The same for the result document.
    pub parameters: Parameters,
}

impl Plan {
    /// Checks what the parser of single options could not. `presets` are the known strategy names, `online`
    /// the host's CPUs, if known.
    ///
    /// # Errors
    /// Exit 2 for what does not fit together.
    pub fn new(
        args: &NmiLatencyArgs,
        presets: &[&str],
        chosen: &Chosen,
        online: Option<&[u32]>,
    ) -> Result<Self, Error> {
        let strategies = strategies(&args.strategy, presets)?;
        let pin = pin(args, online)?;
        if args.samples.saturating_mul(args.vcpus) > MAX_LOG {
            return Err(Error::usage(
                format!("{} samples on {} vCPUs do not fit the guest's log", args.samples, args.vcpus),
                "",
                "take fewer --samples and more --rounds",
            ));
        }
        if args.time_limit < args.mux_interval * 2 {
            return Err(Error::usage(
                format!("--time-limit {:?} is shorter than two ticks", args.time_limit),
                format!("--mux-interval is {:?}", args.mux_interval),
                "raise the one or lower the other",
            ));
        }
        let backend = chosen.backend.clone();
        let period = args.period.unwrap_or_else(|| crate::backend::default_period(&backend));
        let events = args.workload.events.events(period);
        let ticks = |time: Duration| {
            let ticks = time.as_nanos() / args.mux_interval.as_nanos().max(1);
            u64::try_from(ticks).unwrap_or(u64::MAX).max(1)
        };
        let pmu_version = if args.pmu_version == "4" { 4 } else { 2 };
        let guest = GuestPlan {
            workload: args.workload,
            events: events.iter().map(|event| event.spec).collect(),
            flags: args.workload.events.flags(),
            freq_hz: args.freq.unwrap_or(0),
            mux_interval: args.mux_interval,
            baseline_ticks: ticks(BASELINE),
            tail_ticks: TAIL_TICKS,
            max_ticks: ticks(args.time_limit),
            window_ticks: 0,
            gap_ticks: 0,
            limit_us: 0,
            // Ticks merge while a handler takes longer than one, so the guest's own end may come late.
            hard_limit: args.time_limit * 2 + args.mux_interval * 16 + Duration::from_secs(5),
            vcpus: args.vcpus,
            pin,
            pmu_version,
            seccomp: !args.no_seccomp,
            gp_counters: GP_COUNTERS,
            fixed_counters: FIXED_COUNTERS,
        };
        let warmup_samples = args.samples.div_ceil(4).min(500);
        let nanos = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let parameters = Parameters {
            strategies: strategies.clone(),
            backend_requested: args.backend.to_string(),
            backend: backend.to_string(),
            backend_why: chosen.why.clone(),
            workload: args.workload.to_string(),
            events: events
                .iter()
                .map(|event| EventParameter {
                    name: event.name.to_owned(),
                    selector: format!("{:#x}", event.spec.selector),
                    fixed_counter: event.spec.fixed.checked_sub(1),
                    period: event.spec.period,
                })
                .collect(),
            period,
            freq_hz: args.freq,
            mux_interval_ns: nanos(args.mux_interval),
            vcpus: args.vcpus,
            pin: args.pin.as_ref().map(ToString::to_string),
            rounds: args.rounds,
            samples: args.samples,
            warmup_samples,
            time_limit_ns: nanos(args.time_limit),
            pmu_version,
            gp_counters: GP_COUNTERS,
            fixed_counters: FIXED_COUNTERS,
            baseline_ticks: guest.baseline_ticks,
            tail_ticks: guest.tail_ticks,
            set_up: None,
        };
        Ok(Self {
            experiment: "nmi-latency",
            arms: arms(strategies, &backend),
            backend,
            guest,
            rounds: args.rounds,
            samples: args.samples,
            warmup_samples,
            seed: args.seed,
            parameters,
        })
    }
}

fn arms(strategies: Vec<StrategyParameter>, backend: &BackendKey) -> Vec<Arm> {
    let mut arms: Vec<Arm> = strategies
        .into_iter()
        .map(|strategy| Arm {
            strategy: strategy.name,
            backend: backend.to_string(),
            kind: ArmKind::Strategy,
            definition: strategy.definition,
        })
        .collect();
    for (name, backend, kind) in [("floor", "none", ArmKind::Floor), ("kvm", "kvm", ArmKind::Kvm)] {
        arms.push(Arm { strategy: name.to_owned(), backend: backend.to_owned(), kind, definition: None });
    }
    arms
}

fn pin(args: &NmiLatencyArgs, online: Option<&[u32]>) -> Result<Vec<u32>, Error> {
    let Some(list) = &args.pin else {
        return Ok(Vec::new());
    };
    if (list.0.len() as u64) < args.vcpus {
        return Err(Error::usage(
            format!("--pin {list} has {} CPUs for {} vCPUs", list.0.len(), args.vcpus),
            "each vCPU needs its own",
            "name more CPUs, or take fewer --vcpus",
        ));
    }
    if let Some(online) = online
        && let Some(cpu) = list.0.iter().find(|cpu| !online.contains(cpu))
    {
        let online = crate::cli::parse::CpuList(online.to_vec());
        return Err(Error::usage(format!("--pin {list}: CPU {cpu} is not online"), "", format!("take from {online}")));
    }
    Ok(list.0.clone())
}

/// Names become file-format tags and table cells.
fn is_name(name: &str) -> bool {
    (1..=40).contains(&name.len()) && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.+".contains(&b))
}

/// The one strategy of a command that compares none.
///
/// # Errors
/// Exit 2 for a name or file that is none.
pub fn strategy(arg: &StrategyArg, presets: &[&str]) -> Result<StrategyParameter, Error> {
    let mut found = strategies(std::slice::from_ref(arg), presets)?;
    found.pop().ok_or_else(|| Error::usage("no strategy", "", ""))
}

pub(crate) fn strategies(list: &[StrategyArg], presets: &[&str]) -> Result<Vec<StrategyParameter>, Error> {
    let mut seen = BTreeSet::from(["floor".to_owned(), "kvm".to_owned()]);
    let mut found = Vec::new();
    for arg in list {
        let strategy = match arg {
            StrategyArg::Preset(name) if name == "floor" || name == "kvm" => {
                return Err(Error::usage(
                    format!("{name} is not a strategy"),
                    "that arm comes along by itself",
                    format!("leave it out; strategies are {}, or a .toml file", presets.join(", ")),
                ));
            }
            StrategyArg::Preset(name) => {
                if !presets.contains(&name.as_str()) {
                    return Err(Error::usage(
                        format!("unknown strategy '{name}'"),
                        "",
                        format!("known are {}, or a file ending in .toml", presets.join(", ")),
                    ));
                }
                StrategyParameter { name: name.clone(), definition: None }
            }
            StrategyArg::File(path) => definition(path)?,
        };
        if !seen.insert(strategy.name.clone()) {
            return Err(Error::usage(
                format!("two arms are called '{}'", strategy.name),
                "",
                "leave one out, or give the file's strategy another `name`",
            ));
        }
        found.push(strategy);
    }
    Ok(found)
}

/// Reads a definition: its text, named by its `name` key or else by its file.
fn definition(path: &Path) -> Result<StrategyParameter, Error> {
    let refuse = |why: String| {
        Error::usage(
            format!("cannot use strategy file {}", path.display()),
            why,
            "see the guide for the keys of a strategy",
        )
    };
    let mut text = String::new();
    std::fs::File::open(path)
        .and_then(|file| file.take(MAX_DEFINITION + 1).read_to_string(&mut text))
        .map_err(|error| refuse(error.to_string()))?;
    if text.len() as u64 > MAX_DEFINITION {
        return Err(refuse(format!("it is larger than {MAX_DEFINITION} bytes")));
    }
    let table: toml::Table = text.parse().map_err(|error: toml::de::Error| {
        let line = error.span().map_or(1, |span| 1 + text[..span.start].matches('\n').count());
        refuse(format!("line {line}: {}", error.message()))
    })?;
    let name = match table.get("name") {
        Some(toml::Value::String(name)) => name.clone(),
        Some(_) => return Err(refuse("`name` is not a string".to_owned())),
        None => path.file_stem().unwrap_or_default().to_string_lossy().into_owned(),
    };
    let mut whole = table;
    whole.insert("name".to_owned(), toml::Value::String(name.clone()));
    let text = toml::to_string(&whole).map_err(|error| refuse(error.to_string()))?;
    if !is_name(&name) {
        return Err(refuse(format!("its name '{name}' is not 1 to 40 letters, digits, '-', '_', '.' or '+'")));
    }
    Strategy::from_toml(&text).map_err(|error| refuse(error.to_string()))?;
    Ok(StrategyParameter { name, definition: Some(text) })
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::cli::{Command, Request, parse};

    pub(crate) fn args(line: &[&str]) -> NmiLatencyArgs {
        match parse(std::iter::once("vpmu").chain(line.iter().copied())).unwrap() {
            Request::Run(Command::NmiLatency(args)) => *args,
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn plan(line: &[&str]) -> Result<Plan, Error> {
        let chosen = Chosen { backend: BackendKey::CpuClock, why: "test".into() };
        Plan::new(&args(line), &host_pmu::strategy::PRESETS, &chosen, Some(&[0, 1, 2, 3]))
    }

    #[test]
    fn defaults_give_three_strategies_the_floor_and_kvm() {
        let plan = plan(&[]).unwrap();
        let names: Vec<&str> = plan.arms.iter().map(|arm| arm.strategy.as_str()).collect();
        assert_eq!(names, ["recreate", "reuse", "reuse-lazy", "floor", "kvm"]);
        assert_eq!(plan.guest.baseline_ticks, 10);
        assert_eq!(plan.guest.max_ticks, 275);
        assert!(plan.guest.hard_limit > args(&[]).time_limit);
        assert_eq!(plan.parameters.backend, "cpu-clock");
    }

    #[test]
    fn what_does_not_fit_together_is_refused_with_a_remedy() {
        for (line, needle) in [
            (&["--strategy", "reues"][..], "known are recreate, reuse"),
            (&["--strategy", "reuse,reuse"], "two arms"),
            (&["--strategy", "floor"], "not a strategy"),
            (&["--strategy", "/nonexistent.toml"], "No such file"),
            (&["--vcpus", "2", "--pin", "0"], "1 CPUs for 2 vCPUs"),
            (&["--pin", "9"], "CPU 9 is not online"),
            (&["--samples", "1000000", "--vcpus", "64"], "do not fit"),
            (&["--time-limit", "5ms"], "two ticks"),
        ] {
            let error = plan(line).unwrap_err();
            assert_eq!(error.exit.code(), 2);
            assert!(error.to_string().contains(needle), "{error}");
        }
    }

    #[test]
    fn a_strategy_file_is_named_by_itself_and_kept_in_the_parameters() {
        let dir = tempfile::tempdir().unwrap();
        let file = |name: &str, text: &str| {
            let path = dir.path().join(name);
            std::fs::write(&path, text).unwrap();
            path.into_os_string().into_string().unwrap()
        };
        let named = file("a.toml", "name = 'mine'\nreuse = 'last'\nrelease = 'never'\napply = 'at-once'");
        let by_file = file("other.toml", "reuse = 'none'\nrelease = 'eager'\napply = 'at-once'");
        let plan_of = |list: &str| plan(&["--strategy", list]);
        let plan = plan_of(&format!("{named},{by_file}")).unwrap();
        assert_eq!(plan.arms[0].strategy, "mine");
        assert_eq!(plan.arms[1].strategy, "other");
        assert!(plan.parameters.strategies[0].definition.as_ref().unwrap().contains("last"));
        for (name, text, needle) in [
            ("b.toml", "name = \n", "line 1"),
            ("c.toml", "name = \"a b\"\n", "letters"),
            ("d.toml", "name = 3\n", "not a string"),
            ("e.toml", &"#".repeat(70_000), "larger"),
            ("f.toml", "name = 'floor'\nreuse = 'none'\nrelease = 'eager'\napply = 'at-once'", "two arms"),
            ("g.toml", "reuse = 'none'", "release"),
            ("h.toml", "reuse = 'last'\nrelease = 'eager'\napply = 'at-once'", "nothing is parked"),
        ] {
            let error = plan_of(&file(name, text)).unwrap_err().to_string();
            assert!(error.contains(needle), "{error}");
        }
    }

    #[test]
    fn a_tracepoint_has_its_own_default_period() {
        let chosen = Chosen { backend: "tracepoint:kvm/kvm_exit".parse().unwrap(), why: String::new() };
        let of = |line: &[&str]| Plan::new(&args(line), &host_pmu::strategy::PRESETS, &chosen, None).unwrap();
        assert_eq!(of(&["--workload", "io"]).guest.events[0].period, 100);
        assert_eq!(of(&["--workload", "io", "--period", "32"]).guest.events[0].period, 32);
    }
}
