//! Fits a model to measured arms.

use host_pmu::stats::OpKind;

use super::check;
use super::draft::Draft;
use super::measure::Measured;
use super::spec::CalibrateSpec;
use crate::fold::arm::ArmFold;
use results::error::{Error, Exit};
use results::metric::{EXIT_PATH, NMI_HANDLER, PMI_DELIVERY, ROTATION};

/// Alternating corrections of exit and instruction.
const PASSES: usize = 4;
/// Maximum number of steps of a correction.
const STEPS: usize = 20;
/// Relative error at which a correction ends.
const CLOSE: f64 = 0.002;
/// Maximum duration of an instruction in ring 0, ps.
const SLOWEST: u64 = 2_000_000;

/// Model of the measured host. `measured` has one event first, then more events than counters.
///
/// # Errors
/// Exit 3 if a needed figure is missing.
pub fn fit(spec: &CalibrateSpec, name: &str, about: &str, measured: &[Measured]) -> Result<Draft, Error> {
    let [single, many, ..] = measured else { return Err(missing("a workload")) };
    let mut draft = Draft::new(name, about, single.tsc_khz);
    describe_host(&mut draft, spec, single)?;
    operations(&mut draft, spec, single, many)?;
    let floor = single.arm("floor").ok_or_else(|| missing("the floor"))?.result();
    let exit_path = floor.metric(&EXIT_PATH).ok_or_else(|| missing("the VMM's time per exit"))?;
    draft.ns("vmm", exit_path.p50, "measured: p50 of exit_path_ns, floor");
    let delivery = floor.metric(&PMI_DELIVERY).ok_or_else(|| missing("PMI delivery"))?.p50;
    let halves =
        "half of the measured delivery latency of the floor: only the sum of inject and interrupt is measurable";
    draft.ns("inject", delivery / 2, halves);
    draft.ns("interrupt", delivery - delivery / 2, halves);
    let unit = floor.own.workload.map_or(0.0, |workload| workload.unit_ns_without);
    draft.ns("work-unit", whole(unit).max(1), "measured: unit_ns_without, floor");
    if spec.tracepoint {
        draft.ns("io", whole(unit).max(1), "measured: unit_ns_without of the port writes, floor");
        draft.ns("work-unit", 1, "a unit is a port write: see io");
    }
    solve(&mut draft, spec, single, many)?;
    Ok(draft)
}

fn missing(what: &str) -> Error {
    let why = format!("{what} is missing in the measurement");
    Error::new(Exit::Inconclusive, "cannot make a model", why, "run it again with more --samples")
}

fn describe_host(draft: &mut Draft, spec: &CalibrateSpec, single: &Measured) -> Result<(), Error> {
    draft.host("counters = { value = 64, source = \"stand-ins use no counter of the PMU\" }".to_owned());
    draft.host("taken = { value = 0, source = \"stand-ins\" }".to_owned());
    draft.host("slice = { ns = 3000000, source = \"base slice of Linux's EEVDF, rounded; vCPUs of a calibration share no CPU\" }".to_owned());
    if spec.tracepoint {
        draft.counts("follow = \"exits\"");
        draft.counts("default = { per-exit = 1, source = \"one hit at each return of KVM_RUN\" }");
        return Ok(());
    }
    let shortest = host_pmu::backend::perf::shortest_clock_period();
    draft.host(format!(
        "shortest-period = {{ ns = {shortest}, source = \"measured: 200 times getrusage, within 50 us and 2 ms, as the backend does\" }}"
    ));
    let reuse = single.arm("reuse-lazy").or_else(|| single.arm("reuse")).ok_or_else(|| missing("reuse"))?.result();
    if let Some(every) = reuse.own.workload_ns.checked_div(reuse.own.sched_ins).filter(|every| *every > 0) {
        draft.host(format!(
            "others.every = {{ ns = {every}, source = \"measured: time by sched-ins, {}\" }}",
            reuse.name
        ));
        draft.host("others.length = { ns = 20000, source = \"estimate: a kernel thread's turn\" }".to_owned());
    }
    draft.counts("follow = \"thread-time\"");
    let per_us = single.tsc_khz / 1000;
    draft.counts(&format!("default = {{ per-us = {per_us}, source = \"the stand-in is scaled to the TSC\" }}"));
    Ok(())
}

/// Costs of host operations, from the arms that use them.
fn operations(draft: &mut Draft, spec: &CalibrateSpec, single: &Measured, many: &Measured) -> Result<(), Error> {
    fn of<'a>(measured: &'a Measured, strategy: &str) -> Result<&'a ArmFold, Error> {
        measured.arm(strategy).ok_or_else(|| missing(strategy))
    }
    let (one_recreated, one_reused) = (of(single, "recreate")?, of(single, "reuse")?);
    let many_reused = of(many, "reuse")?;
    // Creating seven tracepoint events per tick takes longer than a tick; arm reuse has the opens of a rotation.
    let (opened, arm_of_open) = if spec.tracepoint {
        (many_reused, "ten events, reuse")
    } else {
        (of(many, "recreate")?, "ten events, recreate")
    };
    for (key, arm, kind, origin) in [
        ("open-first", one_recreated, OpKind::Open, "one event, recreate"),
        ("release-last", one_recreated, OpKind::Release, "one event, recreate"),
        ("open-more", opened, OpKind::Open, arm_of_open),
        ("release", opened, OpKind::Release, arm_of_open),
        ("pause", one_reused, OpKind::Pause, "one event, reuse"),
        ("resume", one_reused, OpKind::Resume, "one event, reuse"),
        ("period", one_reused, OpKind::Period, "one event, reuse"),
        ("read", one_recreated, OpKind::Read, "one event, recreate"),
    ] {
        let source = format!("measured: quantiles of {}, {origin}", kind.key());
        draft.distribution(key, &arm.ops().histogram(kind), &source).ok_or_else(|| missing(key))?;
    }
    let p50 = |arm: &ArmFold, kind| arm.ops().histogram(kind).value_at_quantile(0.5);
    // GLOBAL_CTRL resumes one after the other: the first runs alone, the last beside all others, the median beside half.
    let resume = p50(one_reused, OpKind::Resume);
    let beside = p50(many_reused, OpKind::Resume).saturating_sub(resume);
    let each = 2 * beside / many_reused.result().own.events_held.max.max(2);
    draft.ns("resume-other", each, "measured: p50 of resume, ten events less one, by half of the events that run");
    Ok(())
}

/// Exit, instruction and tick-exit, so that the simulated floor is the measured one.
fn solve(draft: &mut Draft, spec: &CalibrateSpec, single: &Measured, many: &Measured) -> Result<(), Error> {
    let handler = |measured: &Measured| -> Result<f64, Error> {
        let floor = measured.arm("floor").ok_or_else(|| missing("the floor"))?.result();
        Ok(floor.metric(&NMI_HANDLER).ok_or_else(|| missing("the floor's handler"))?.p50 as f64)
    };
    let (one, ten) = (handler(single)?, handler(many)?);
    let source = "solved: the simulated floor's handler takes as long as the measured one";
    let mut exit = whole(one / 8.0);
    let mut instruction = 100_000;
    let set = |draft: &mut Draft, exit: u64, instruction: u64| {
        draft.ns("exit", exit, &format!("{source}, one event"));
        draft.ps("instruction", instruction, &format!("{source}, ten events"));
        draft.ns("apic", exit / 4, "estimate: an exit that the kernel handles");
        draft.ns("signal", exit, "estimate: an exit and a signal's delivery");
        if !spec.tracepoint {
            draft.ns("io", exit, "as exit");
        }
    };
    for _ in 0..PASSES {
        exit = nearest(exit, 1_000_000_000, one, |exit| {
            set(draft, exit, instruction);
            simulated_floor(draft, single)
        })?;
        instruction = nearest(instruction, SLOWEST, ten, |instruction| {
            set(draft, exit, instruction);
            simulated_floor(draft, many)
        })?;
    }
    set(draft, exit, instruction);
    let rotation =
        |measured: &Measured| measured.arm("floor").and_then(|arm| arm.result().metric(&ROTATION).map(|r| r.p50));
    if let Some(target) = rotation(many) {
        let why = "solved: the simulated floor's rotations take as long as the measured ones, ten events";
        let tick = nearest(1000, 1_000_000, target as f64, |tick| {
            draft.ns("tick-exit", tick, why);
            let model = draft.model()?;
            let arms = check::simulate(model, many, &[])?;
            Ok(arms.document.arms[0].metric(&ROTATION).map_or(0.0, |rotation| rotation.p50 as f64))
        })?;
        draft.ns("tick-exit", tick, why);
    }
    Ok(())
}

fn simulated_floor(draft: &Draft, measured: &Measured) -> Result<f64, Error> {
    let finished = check::simulate(draft.model()?, measured, &[])?;
    Ok(finished.document.arms[0].metric(&NMI_HANDLER).map_or(0.0, |handler| handler.p50 as f64))
}

/// Truncates to an integer; 0 for negative figures.
#[expect(clippy::cast_sign_loss, reason = "made positive first")]
fn whole(figure: f64) -> u64 {
    figure.max(0.0) as u64
}

/// Finds the constant in 0 to `most` for which the increasing function `of` is nearest to `target`, by bisection from `guess`.
fn nearest(guess: u64, most: u64, target: f64, mut of: impl FnMut(u64) -> Result<f64, Error>) -> Result<u64, Error> {
    let (mut low, mut high) = (0, most);
    let mut at = guess.min(most);
    let (mut best, mut best_off) = (at, f64::INFINITY);
    let mut low_value = None;
    for _ in 0..STEPS {
        let found = of(at)?;
        let off = (found / target - 1.0).abs();
        if off < best_off {
            (best, best_off) = (at, off);
        }
        if off < CLOSE || low == high {
            break;
        }
        if found < target {
            (low, low_value) = (at, Some(found));
            at = if high == most { (at.max(1) * 2).min(most) } else { low.midpoint(high) };
        } else {
            high = at;
            // Interpolate; the value at the lower bound is 0 if unknown.
            let base = low_value.unwrap_or(0.0);
            let share = if found > base { (target - base) / (found - base) } else { 0.5 };
            at = low + whole((high - low) as f64 * share.clamp(0.02, 0.98));
        }
    }
    Ok(best)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_constant_is_found_within_bounds() {
        let line = |a: f64, b: f64| move |x: u64| Ok(a + b * x as f64);
        let close = |found: u64, truly: f64| assert!((found as f64 / truly - 1.0).abs() < 0.02, "{found}, not {truly}");
        close(nearest(100, 1 << 30, 75_000.0, line(5_000.0, 7.0)).unwrap(), 10_000.0);
        close(nearest(90_000, 1 << 30, 75_000.0, line(5_000.0, 7.0)).unwrap(), 10_000.0);
        assert_eq!(nearest(100, 1000, 1.0, line(5_000.0, 7.0)).unwrap(), 0, "not below 0");
        assert_eq!(nearest(100, 1000, 1e9, line(0.0, 1.0)).unwrap(), 1000, "not above the bound");
    }
}
