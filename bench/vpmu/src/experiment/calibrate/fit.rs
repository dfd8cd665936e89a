//! Fits a model to measured arms.

use hdrhistogram::Histogram;
use host_pmu::stats::OpKind;
use results::error::{Error, Exit};
use results::metric::{EXIT_PATH, Metric, NMI_HANDLER, PMI_DELIVERY, ROTATION};

use super::check;
use super::draft::{Draft, watchdog};
use super::measure::{ArmGuests, Estimate, Measured};
use super::spec::{CalibrateSpec, Pmu};

/// Maximum number of steps of a correction.
const STEPS: usize = 20;
/// Relative error at which a correction ends.
const CLOSE: f64 = 0.002;
/// Rounds of the simulations that constants are solved with.
const ROUNDS: u64 = 2;
/// Change of a constant by which its effect on the simulation is found.
const NUDGE: f64 = 0.2;
/// Instructions between the delivery of an NMI and the handler's first TSC.
const TO_ENTRY: f64 = 2.0;

/// Fits the model of the measured host. `measured` has one event first, then more events than counters.
///
/// # Errors
/// Exit 3 if a needed figure is missing.
pub fn fit(spec: &CalibrateSpec, about: &str, measured: &[Measured]) -> Result<Draft, Error> {
    let [single, many, ..] = measured else { return Err(missing("a workload")) };
    let mut draft = Draft::new(&spec.name, about, single.tsc_khz);
    draft.of_rounds(of(single, "floor")?.result.rounds.len() as u64);
    describe_host(&mut draft, spec, single, many)?;
    operations(&mut draft, spec, single, many)?;
    let floor = of(single, "floor")?;
    let needed = |what: &str, found: Option<Estimate>| found.ok_or_else(|| missing(what));
    let vmm = needed("the VMM's time per exit", Estimate::of(floor.medians(&EXIT_PATH)))?;
    draft.fitted_ns("vmm", vmm, "measured: exit_path_ns, floor");
    let loops = [single, many].into_iter().flat_map(|workload| &workload.arms).flat_map(ArmGuests::instructions_ps);
    let instruction = needed("the loop in ring 0", Estimate::of(loops))?;
    draft.fitted_ps("instruction", instruction, "measured: loop in ring 0 without exits");
    let delivery = needed("PMI delivery", Estimate::of(floor.medians(&PMI_DELIVERY)))?;
    let half = delivery.map(|ns| (ns - TO_ENTRY * instruction.value / 1000.0) / 2.0);
    let halves = "half of the floor's delivery latency: only the sum of inject and interrupt is measurable";
    draft.fitted_ns("inject", half, halves);
    draft.fitted_ns("interrupt", half, halves);
    let unit = needed("the guest's work", Estimate::of(floor.units_ns()))?.map(|ns| ns.max(1.0));
    draft.fitted_ns("work-unit", unit, "measured: unit_ns_without, floor");
    if spec.tracepoint {
        draft.fitted_ns("io", unit, "measured: unit_ns_without of the port writes, floor");
        draft.ns("work-unit", 1, "a unit is a port write: see io");
    }
    if let Some(expiry) = Estimate::of(spec.expiries.iter().copied().map(Some)) {
        let source = "measured: thread time of the same work with a cpu-clock event and without, by its expiries";
        draft.fitted_ns("expiry", expiry.map(|ns| ns.max(0.0)), source);
    }
    solve(&mut draft, spec, single, many)?;
    Ok(draft)
}

fn of<'a>(measured: &'a Measured, strategy: &str) -> Result<&'a ArmGuests, Error> {
    measured.arm(strategy).ok_or_else(|| missing(strategy))
}

fn missing(what: &str) -> Error {
    let why = format!("{what} is missing in the measurement");
    Error::new(Exit::Inconclusive, "cannot make a model", why, "run it again with more --samples")
}

/// Describes a hardware PMU: its counters, and what each event counts a microsecond while it has one.
fn describe_pmu(draft: &mut Draft, pmu: Pmu, single: &Measured, many: &Measured) -> Result<(), Error> {
    let Pmu { processor, counters, taken, outside } = pmu;
    if let Some(processor) = processor {
        let name = processor.name();
        draft.host(format!("processor = {{ name = \"{name}\", source = \"CPUID: family, model and counters\" }}"));
    } else {
        draft.host(
            "# Which events count on which counters of this processor is not known here: all count on each.".to_owned(),
        );
        draft.host(format!("counters = {{ value = {counters}, source = \"CPUID: the PMU's counters\" }}"));
    }
    draft.host(watchdog(processor.is_some(), taken));
    draft.host(
        "shortest-period = { ns = 1, source = \"a counter overflows at any count; the kernel's least period is a few\" }"
            .to_owned(),
    );
    if outside > 0.0 {
        // A clock behind all events goes on in the VMM. While nothing stops it, it has its own rate.
        draft.counts(&format!(
            "# An event of guests alone counts outside of any: this PMU knows no guest mode.\nfollow = \"thread-time\"\n\
             default = {{ per-us = {outside:.1}, source = \"measured: cycles while no guest ran\" }}"
        ));
        return Ok(());
    }
    draft.counts("# An event of guests alone counted nothing outside of any.\nfollow = \"guest-time\"");
    let mut rates = of(many, "reuse")?.rates();
    let alone = of(single, "reuse")?.rates();
    let default = alone.values().next().and_then(|rates| Estimate::of(rates.iter().copied()));
    let default = default.ok_or_else(|| missing("a counted event"))?.value;
    let source = "measured: counts by time on a counter, reuse; the VMM's part of that time counts nothing";
    draft.counts(&format!("default = {{ per-us = {default:.1}, source = \"{source}, one event\" }}"));
    rates.extend(alone);
    for (code, rates) in rates {
        if let Some(rate) = Estimate::of(rates).filter(|rate| rate.value > 0.0) {
            draft.counts(&format!("events.0x{code:04x} = {{ per-us = {:.1}, source = \"{source}\" }}", rate.value));
        }
    }
    Ok(())
}

fn describe_host(draft: &mut Draft, spec: &CalibrateSpec, single: &Measured, many: &Measured) -> Result<(), Error> {
    draft.host("slice = { ns = 3000000, source = \"base slice of Linux's EEVDF, rounded; vCPUs of a calibration share no CPU\" }".to_owned());
    if let Some(pmu) = spec.pmu {
        others(draft, single)?;
        return describe_pmu(draft, pmu, single, many);
    }
    draft.host("counters = { value = 64, source = \"stand-ins use no counter of the PMU\" }".to_owned());
    draft.host("taken = { value = 0, source = \"stand-ins\" }".to_owned());
    if spec.tracepoint {
        draft.counts("follow = \"exits\"");
        draft.counts("default = { per-exit = 1, source = \"one hit at each return of KVM_RUN\" }");
        return Ok(());
    }
    let shortest = host_pmu::backend::perf::shortest_clock_period();
    draft.host(format!(
        "shortest-period = {{ ns = {shortest}, source = \"measured: 200 times getrusage, within 50 us and 2 ms, as the backend does\" }}"
    ));
    others(draft, single)?;
    draft.counts("follow = \"thread-time\"");
    let per_us = single.tsc_khz / 1000;
    draft.counts(&format!("default = {{ per-us = {per_us}, source = \"the stand-in is scaled to the TSC\" }}"));
    Ok(())
}

/// Writes the other tasks of the vCPU's CPU.
fn others(draft: &mut Draft, single: &Measured) -> Result<(), Error> {
    let reuse = single.arm("reuse-lazy").or_else(|| single.arm("reuse")).ok_or_else(|| missing("reuse"))?;
    let reuse = &reuse.result;
    if let Some(every) = reuse.own.workload_ns.checked_div(reuse.own.counts.sched_ins).filter(|every| *every > 0) {
        draft.host(format!(
            "others.every = {{ ns = {every}, source = \"measured: time by sched-ins, {}\" }}",
            reuse.name
        ));
        draft.host("others.length = { ns = 20000, source = \"estimate: a kernel thread's turn\" }".to_owned());
    }
    Ok(())
}

/// Returns costs without the largest one of each guest: its first event costs what `open-first` says.
fn without_largest(all: &Histogram<u64>, guests: usize) -> Histogram<u64> {
    let (mut left, mut kept) = (guests as u64, Histogram::new_from(all));
    let costs: Vec<_> = all.iter_recorded().map(|at| (at.value_iterated_to(), at.count_at_value())).collect();
    for (ns, count) in costs.into_iter().rev() {
        let gone = count.min(left);
        left -= gone;
        // A cost of `all`, which has the same bounds.
        let _ = kept.record_n(ns, count - gone);
    }
    kept
}

/// Fits the costs of host operations, from the arms that use them.
fn operations(draft: &mut Draft, spec: &CalibrateSpec, single: &Measured, many: &Measured) -> Result<(), Error> {
    let (one_recreated, one_reused) = (of(single, "recreate")?, of(single, "reuse")?);
    let many_reused = of(many, "reuse")?;
    // Creating seven tracepoint events per tick takes longer than a tick; arm reuse has the opens of a rotation.
    let (opened, arm_of_open) = if spec.tracepoint || spec.dear {
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
        let median = Estimate::of(arm.op_medians(kind));
        let mut costs = arm.ops().histogram(kind);
        if key == "open-more" && (spec.tracepoint || spec.dear) {
            costs = without_largest(&costs, arm.result.rounds.len());
        }
        draft.distribution(key, &costs, median, &source).ok_or_else(|| missing(key))?;
    }
    Ok(())
}

/// Constants that no figure shows alone, from simulations with the others.
fn solve(draft: &mut Draft, spec: &CalibrateSpec, single: &Measured, many: &Measured) -> Result<(), Error> {
    draft.ns("resume-other", 0, "not yet known");
    draft.ns("tick-exit", 0, "not yet known");
    solve_exit(draft, spec, single)?;
    solve_tick_exit(draft, many)?;
    solve_resume_other(draft, single, many)
}

fn set_exit(draft: &mut Draft, spec: &CalibrateSpec, exit: Estimate) {
    let whole = whole(exit.value);
    draft.fitted_ns(
        "exit",
        exit,
        "solved: handler of the floor, one event, less the instructions, VMM and APIC of the same guest",
    );
    draft.ns("apic", whole / 4, "estimate: an exit that the kernel handles");
    draft.ns("signal", whole, "estimate: an exit and a signal's delivery");
    if !spec.tracepoint {
        draft.ns("io", whole, "as exit");
    }
}

fn exactly(value: f64) -> Estimate {
    Estimate { value, interval: [value; 2] }
}

/// Solves `exit`: the time that the floor's handler takes beyond its instructions. Each guest has its own value, since
/// its loop, its VMM and its handler met the same mode of the host.
fn solve_exit(draft: &mut Draft, spec: &CalibrateSpec, single: &Measured) -> Result<(), Error> {
    let floor = of(single, "floor")?;
    let handler = Estimate::of(floor.medians(&NMI_HANDLER)).ok_or_else(|| missing("the floor's handler"))?.value;
    let loops = Estimate::of(floor.instructions_ps()).ok_or_else(|| missing("the loop in ring 0"))?;
    let instruction = draft.clone();
    // The loops of these guests, which are those of their handlers.
    draft.fitted_ps("instruction", loops, "measured: loops of the floor's guests");
    let floor_takes = |draft: &mut Draft, exit: u64| {
        set_exit(draft, spec, exactly(exit as f64));
        simulated(draft, single, "floor", &NMI_HANDLER)
    };
    let exit = nearest(whole(handler / 8.0), 1_000_000_000, handler, |exit| floor_takes(draft, exit))?;
    let at = floor_takes(draft, exit)?;
    let nudged = whole(exit as f64 * (1.0 + NUDGE)).max(exit + 100);
    let per_exit = (floor_takes(draft, nudged)? - at) / (nudged - exit) as f64;
    draft.fitted_ps("instruction", loops.map(|ps| ps * (1.0 + NUDGE)), "nudged");
    let per_ps = (floor_takes(draft, exit)? - at) / (loops.value * NUDGE);
    *draft = instruction;
    let vmm = Estimate::of(floor.medians(&EXIT_PATH)).map_or(0.0, |vmm| vmm.value);
    let each = floor.medians(&NMI_HANDLER).into_iter().zip(floor.instructions_ps()).zip(floor.medians(&EXIT_PATH)).map(
        |((handler, loops_of_guest), vmm_of_guest)| {
            let beyond = handler? - at - per_ps * (loops_of_guest? - loops.value);
            Some(exit as f64 + beyond / per_exit.max(1.0) - (vmm_of_guest? - vmm))
        },
    );
    let exit = Estimate::of(each).ok_or_else(|| missing("the floor's handler"))?;
    set_exit(draft, spec, exit);
    Ok(())
}

/// Solves `tick-exit`: the time that the floor's rotations take beyond what the handlers of the same guests account for.
fn solve_tick_exit(draft: &mut Draft, many: &Measured) -> Result<(), Error> {
    let floor = of(many, "floor")?;
    let why = "solved: rotations of the floor, ten events, less what the handlers of the same guests account for";
    let Some(rotation) = Estimate::of(floor.medians(&ROTATION)) else {
        draft.ns("tick-exit", 0, "no rotations were measured");
        return Ok(());
    };
    let tick = nearest(1000, 1_000_000, rotation.value, |tick| {
        draft.ns("tick-exit", tick, why);
        simulated(draft, many, "floor", &ROTATION)
    })?;
    let nudged = whole(tick as f64 * (1.0 + NUDGE)).max(tick + 100);
    draft.ns("tick-exit", tick, why);
    let at = simulated(draft, many, "floor", &ROTATION)?;
    let handlers_at = simulated(draft, many, "floor", &NMI_HANDLER)?;
    draft.ns("tick-exit", nudged, why);
    let per_exit = (simulated(draft, many, "floor", &ROTATION)? - at) / (nudged - tick) as f64;
    // A guest with slow handlers has slow exits in its ticks, too.
    let share = at / handlers_at.max(1.0);
    let handler = Estimate::of(floor.medians(&NMI_HANDLER)).map_or(handlers_at, |handler| handler.value);
    let each = floor.medians(&ROTATION).into_iter().zip(floor.medians(&NMI_HANDLER)).map(|(rotation, own)| {
        let beyond = rotation? - at - share * (own? - handler);
        Some((tick as f64 + beyond / per_exit.max(1.0)).max(0.0))
    });
    let tick = Estimate::of(each).ok_or_else(|| missing("rotations"))?;
    draft.fitted_ns("tick-exit", tick, why);
    Ok(())
}

/// Solves `resume-other`: the time that resumes among many events take beyond those of a single one.
fn solve_resume_other(draft: &mut Draft, single: &Measured, many: &Measured) -> Result<(), Error> {
    let (one, ten) = (of(single, "reuse")?, of(many, "reuse")?);
    let medians = |arm: &ArmGuests| Estimate::of(arm.op_medians(OpKind::Resume)).ok_or_else(|| missing("resume"));
    let (one, ten) = (medians(one)?, medians(ten)?);
    let source = "solved: resumes of reuse with ten events take as long simulated as measured";
    let other = nearest(1000, 10_000_000, ten.value, |other| {
        draft.ns("resume-other", other, source);
        let arms = check::simulate(draft.model()?, many, &["reuse"], ROUNDS)?;
        Ok(arms.arm("reuse").and_then(|arm| medians(arm).ok()).map_or(0.0, |resume| resume.value))
    })?;
    let beyond = (ten.value - one.value).max(1.0);
    let interval = ten.interval.map(|bound| other as f64 * (bound - one.value).max(0.0) / beyond);
    draft.fitted_ns("resume-other", Estimate { value: other as f64, interval }, source);
    Ok(())
}

/// Simulates an arm of `measured`, and returns the median over guests of a metric's medians.
fn simulated(draft: &Draft, measured: &Measured, arm: &str, metric: &Metric) -> Result<f64, Error> {
    let arms = check::simulate(draft.model()?, measured, &[arm], ROUNDS)?;
    let found = arms.arm(arm).and_then(|arm| Estimate::of(arm.medians(metric)));
    Ok(found.map_or(0.0, |found| found.value))
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

    #[test]
    fn the_interval_has_the_order_statistics_of_the_sign_test() {
        let up_to = |n: u32| Estimate::of((1..=n).map(|value| Some(f64::from(value)))).unwrap();
        // Tables of the sign test: 95 % for the median of 10, 20 and 40 values.
        assert_eq!(up_to(10), Estimate { value: 5.5, interval: [2.0, 9.0] });
        assert_eq!(up_to(20), Estimate { value: 10.5, interval: [6.0, 15.0] });
        assert_eq!(up_to(40), Estimate { value: 20.5, interval: [14.0, 27.0] });
        assert_eq!(up_to(3), Estimate { value: 2.0, interval: [1.0, 3.0] });
        assert_eq!(Estimate::of([None, Some(f64::NAN)]), None);
        assert_eq!(up_to(3).map(|x| 2.0 * x), Estimate { value: 4.0, interval: [2.0, 6.0] });
    }
}
