//! `vpmu nmi-latency`, the main job, and `vpmu sim`, the same on a simulated host.

use std::time::Duration;

use clap::{Args, Command};
use host_pmu::backend::BackendKey;

use super::baseline::{Baseline, BaselineOptions};
use super::length::LengthOptions;
use super::linux_guest::{self, GuestKind, LinuxGuestOptions};
use super::measure::{Invocation, Wanted, measure};
use super::options::{ArmsOptions, HostOptions, ResultOptions};
use crate::arms::arm::sim::DEFAULT_MODEL;
use crate::arms::linux::job::{Kind, LinuxJob};
use crate::arms::rounds::plan::Plan;
use crate::arms::rounds::spec::CommonSpec;
use crate::experiment::nmi_latency::spec::NmiLatencySpec;
use crate::setting::backend::{BackendChoice, Chosen};
use crate::setting::parse::number_in;
use crate::setting::workload::Workload;
use results::error::{Error, Exit};

/// Examples of the main job.
pub(super) const EXAMPLES: &str = "\
Examples:
  # recreate, reuse, reuse-lazy and the floor, < 60 s
  vpmu
  # what this host can do, and what disturbs it
  vpmu doctor
  # a counting event, stopped and restarted by task switches
  vpmu nmi-latency --workload counting1
  # host events that take tens of ms to create
  vpmu nmi-latency --workload io --rounds 3 \\
    --backend tracepoint:kvm/kvm_userspace_exit
  # a strategy of your own beside a preset
  vpmu nmi-latency --strategy reuse,mine.toml
  # the NMI handler of a distribution's kernel, with its perf
  vpmu nmi-latency --guest linux \\
    --kernel /boot/vmlinuz-6.1.0-50-amd64
  # a figure for a script
  vpmu --json | jq '.answers[] | {arm, p50_ns, times_floor}'

Exit codes: 0 done, 2 bad usage or input, 3 inconclusive,
4 the host cannot do it, 70 a bug of vpmu.";

/// Examples of `vpmu sim`.
pub(super) const SIM_EXAMPLES: &str = "\
Examples:
  # the default experiment, the same figures anywhere
  vpmu sim
  # a published host, four events of a task
  vpmu sim icx-2021 --workload sampling4
  # a PMU that the guest owns, which only a model has
  vpmu sim spr-2026 --strategy deferred,mediated
  # a model of your own (docs/simulator.md)
  vpmu sim mine.toml --strategy reuse,pool --json

Exit codes: 0 done, 2 bad usage or input, 3 inconclusive,
70 a bug of vpmu.";

/// Events and work of the guest.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Guest")]
pub struct SamplingOptions {
    /// What the guest samples and does: EVENTS[/WORK] or WORK
    ///
    /// EVENTS: sampling10 (ten events multiplexed on 4 general-purpose and 3 fixed counters), sampling4 (four events, restarted
    /// at each tick as by a task switch), counting1 (one counting event, restarted likewise: no NMIs, rotations are timed),
    /// single (one sampling event). WORK: ftest (a branchy loop, ring 3; the default), io (port writes, so VM exits), idle (HLT).
    /// WORK alone means single/WORK.
    #[arg(long, value_name = "EVENTS[/WORK]", default_value = "single")]
    pub workload: Workload,

    /// Events between two overflows [default: 2000000 (1 ms at 2 GHz), 100 with a tracepoint]
    ///
    /// In the backend's own unit: cycles, ns of a clock, occurrences. Event i of a set gets N × (16 + 3 i) / 16, so that
    /// stand-ins, which count every event at one rate, do not overflow all counters at once.
    #[arg(long, value_name = "N", value_parser = number_in(2..=(1 << 47) - 1), conflicts_with = "freq")]
    pub period: Option<u64>,

    /// Let the guest adjust each event's period to this sampling frequency, as perf record -F
    #[arg(long, value_name = "HZ", value_parser = number_in(1..=100_000))]
    pub freq: Option<u64>,
}

/// Options of `vpmu nmi-latency`.
#[derive(Clone, Debug, Args)]
pub struct NmiLatencyArgs {
    /// Arms, guest and rounds.
    #[command(flatten)]
    pub arms: ArmsOptions,
    /// The end of the run.
    #[command(flatten)]
    pub length: LengthOptions,
    /// The guest's events and work.
    #[command(flatten)]
    pub sampling: SamplingOptions,
    /// The kind of guest.
    #[command(flatten)]
    pub linux: LinuxGuestOptions,
    /// The host.
    #[command(flatten)]
    pub host: HostOptions,
    /// Place of the result.
    #[command(flatten)]
    pub result: ResultOptions,
    /// The result as a baseline.
    #[command(flatten)]
    pub baseline: BaselineOptions,
}

/// Options of `vpmu sim`.
#[derive(Clone, Debug, Args)]
pub struct SimArgs {
    /// A model of `vpmu show models`, or a .toml file
    #[arg(value_name = "MODEL", default_value = DEFAULT_MODEL)]
    pub model: String,
    /// Arms, guest and rounds.
    #[command(flatten)]
    pub arms: ArmsOptions,
    /// The end of the run.
    #[command(flatten)]
    pub length: LengthOptions,
    /// The guest's events and work.
    #[command(flatten)]
    pub sampling: SamplingOptions,
    /// Place of the result.
    #[command(flatten)]
    pub result: ResultOptions,
    /// The result as a baseline.
    #[command(flatten)]
    pub baseline: BaselineOptions,
}

/// Returns the specification of these options.
fn spec(
    arms: &ArmsOptions,
    length: &LengthOptions,
    sampling: &SamplingOptions,
    host: Option<&HostOptions>,
) -> NmiLatencySpec {
    with_samples(length.of(arms, arms.spec(host)), sampling)
}

/// Returns the specification with this guest.
pub(super) fn with_samples(common: CommonSpec, sampling: &SamplingOptions) -> NmiLatencySpec {
    NmiLatencySpec { common, workload: sampling.workload, period: sampling.period, freq_hz: sampling.freq }
}

/// Estimates the time that these options take, at the costs of the development host.
pub(super) fn estimate(args: &NmiLatencyArgs) -> Option<Duration> {
    let spec = spec(&args.arms, &args.length, &args.sampling, Some(&args.host));
    // A boot of Linux takes two seconds or twenty.
    if args.linux.guest == GuestKind::Linux {
        return None;
    }
    estimated(&spec.common, |chosen| spec.plan(chosen, None))
}

/// Estimates the time that a plan takes on this host; `None`: unknown, as for a simulation.
pub(super) fn estimated(common: &CommonSpec, plan: impl Fn(&Chosen) -> Result<Plan, Error>) -> Option<Duration> {
    let key = match &common.backend {
        BackendChoice::Key(key) => key.clone(),
        BackendChoice::Auto => BackendKey::CpuClock,
        BackendChoice::Sim(_) => return None,
    };
    let plan = plan(&Chosen::here(key, String::new())).ok()?;
    Some(plan.estimate(plan.arms.len()))
}

pub(super) fn run(args: &NmiLatencyArgs, invocation: Invocation) -> Result<Exit, Error> {
    let mut spec = spec(&args.arms, &args.length, &args.sampling, Some(&args.host));
    spec.common.cpu = args.linux.cpu.cpu();
    let linux = args.linux.job(Kind::Record)?;
    if linux.is_some() {
        fresh_guests(&args.length)?;
        spec.common.rounds_per_guest = Some(1);
    }
    carry_out(&spec, linux.as_ref(), &args.result, args.baseline.baseline(&args.result), invocation)
}

/// Refuses options of living guests: a Linux guest is measured from its boot to its end.
fn fresh_guests(length: &LengthOptions) -> Result<(), Error> {
    match length.guest_rounds {
        None | Some(1) => Ok(()),
        Some(rounds) => Err(Error::usage(
            format!("--guest-rounds {rounds} is not for a Linux guest"),
            "each round boots one",
            "leave it out",
        )),
    }
}

/// Sets other defaults for a Linux guest: it takes seconds to boot, and its perf to start.
pub(super) fn defaults(command: Command) -> Command {
    linux_guest::defaults(
        command,
        &[("rounds", "5"), ("warmup", "0"), ("samples", "1000"), ("time_limit", "3s"), ("workload", "sampling10")],
    )
}

pub(super) fn run_simulated(args: &SimArgs, invocation: Invocation) -> Result<Exit, Error> {
    let mut spec = spec(&args.arms, &args.length, &args.sampling, None);
    spec.common.backend = BackendChoice::Sim(args.model.clone());
    carry_out(&spec, None, &args.result, args.baseline.baseline(&args.result), invocation)
}

fn carry_out(
    spec: &NmiLatencySpec,
    linux: Option<&LinuxJob>,
    result: &ResultOptions,
    baseline: Option<Baseline>,
    invocation: Invocation,
) -> Result<Exit, Error> {
    let wanted = Wanted { backend: &spec.common.backend, linux, result, baseline };
    let plan = |chosen: &Chosen, usable: Option<&[u32]>| {
        let mut plan = spec.plan(chosen, usable)?;
        if let Some(job) = linux {
            job.adapt(&mut plan, spec.workload)?;
        }
        Ok(plan)
    };
    measure(&wanted, &plan, invocation)
}

#[cfg(test)]
mod tests {
    use super::super::usage::parsed;
    use super::*;

    fn nmi(line: &[&str]) -> Result<NmiLatencyArgs, Error> {
        parsed(line)
    }

    #[test]
    fn defaults_of_options_are_those_of_the_specification() {
        let args = nmi(&[]).unwrap();
        assert_eq!(spec(&args.arms, &args.length, &args.sampling, Some(&args.host)), NmiLatencySpec::default());
        let sim: SimArgs = parsed(&[]).unwrap();
        assert_eq!(spec(&sim.arms, &sim.length, &sim.sampling, None), NmiLatencySpec::default());
    }

    #[test]
    fn every_option_reaches_the_specification() {
        let line = "--strategy pool,gate --mux-interval 5ms --vcpus 2 --pmu-version 4 --rounds 3 --warmup 0 --samples 7 \
                    --time-limit 2s --duration 1m --seed 9 --workload sampling4/io --freq 99 --backend none --pin 4,5 \
                    --no-seccomp";
        let args = nmi(&line.split_whitespace().collect::<Vec<_>>()).unwrap();
        let NmiLatencySpec { common, workload, period, freq_hz } =
            spec(&args.arms, &args.length, &args.sampling, Some(&args.host));
        assert_eq!((common.strategies.len(), common.vcpus, common.pmu_version, common.rounds), (2, 2, 4, 3));
        assert_eq!((common.warmup, common.samples, common.seed, common.seccomp), (0, 7, 9, false));
        assert_eq!((common.mux_interval, common.time_limit), (Duration::from_millis(5), Duration::from_secs(2)));
        assert_eq!(common.duration, Some(Duration::from_secs(60)));
        assert_eq!((common.backend.to_string().as_str(), common.pin.to_string()), ("none", "4-5".to_owned()));
        assert_eq!((workload.to_string().as_str(), period, freq_hz), ("sampling4/io", None, Some(99)));
    }

    #[test]
    fn bad_values_say_option_reason_and_range_in_one_line() {
        for (args, needles) in [
            (&["--period", "0"][..], &["--period", "0 is out of range", "2 to"][..]),
            (&["--vcpus", "0"], &["--vcpus", "1 to 64"]),
            (&["--rounds", "x"], &["--rounds", "not a whole number"]),
            (&["--mux-interval", "4"], &["--mux-interval", "unit"]),
            (&["--duration", "0s"], &["--duration", "out of range"]),
            (&["--pin", "3-1"], &["--pin", "backwards"]),
            (&["--backend", "cycles"], &["--backend", "cpu-clock"]),
            (&["--workload", "spin"], &["--workload", "sampling10"]),
            (&["--pmu-version", "3"], &["--pmu-version", "2, 4"]),
            (&["--period", "9", "--freq", "9"], &["--freq", "cannot be used"]),
            (&["--bogus"], &["--bogus"]),
        ] {
            let error = nmi(args).unwrap_err();
            let line = error.to_string();
            assert_eq!(error.exit.code(), 2);
            assert!(!line.contains('\n'), "{line}");
            for needle in needles {
                assert!(line.contains(needle), "{line:?} lacks {needle:?}");
            }
        }
    }
}
