//! Fits a model to measured arms.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use hdrhistogram::Histogram;
use host_pmu::stats::{OpKind, ns_histogram};
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
/// Rounds of the simulations with which a constant is searched, and its effect found.
const FEW: u64 = 4;
/// Rounds, at most and at least, of the simulation that corrects what was found: its own scatter is a part of the interval.
const MOST: u64 = 40;
const LEAST: u64 = 12;
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
    // Of a spread cost the median is not the mean, and a sum of costs has the sum of their means.
    let either =
        |metric: &Metric| Some(Estimate::of(floor.medians(metric))?.covering(Estimate::of(floor.means(metric))?));
    let needed = |what: &str, found: Option<Estimate>| found.ok_or_else(|| missing(what));
    let vmm = needed("the VMM's time per exit", Estimate::of(floor.medians(&EXIT_PATH)))?;
    draft.fitted_ns("vmm", vmm, "measured: exit_path_ns, floor");
    let loops = [single, many].into_iter().flat_map(|workload| &workload.arms).flat_map(ArmGuests::instructions_ps);
    let instruction = needed("the loop in ring 0", Estimate::of(loops))?;
    draft.fitted_ps("instruction", instruction, "measured: loop in ring 0 without exits");
    let delivery = needed("PMI delivery", either(&PMI_DELIVERY))?;
    let half = delivery.map(|ns| (ns - TO_ENTRY * instruction.value / 1000.0) / 2.0);
    let halves = "half of the floor's delivery latency: only the sum of inject and interrupt is measured";
    draft.ns("inject", whole(half.value), halves);
    draft.ns("interrupt", whole(half.value), halves);
    draft.sum("inject + interrupt", half.map(|ns| 2.0 * ns), "measured: the floor's delivery latency");
    let unit = needed("the guest's work", Estimate::of(floor.units_ns()))?.map(|ns| ns.max(1.0));
    draft.fitted_ns("work-unit", unit, "measured: unit_ns_without, floor");
    if spec.tracepoint {
        draft.fitted_ns("io", unit, "measured: unit_ns_without of the port writes, floor");
        draft.ns("work-unit", 1, "a unit is a port write: see io");
    }
    for (key, source, values) in &spec.beside {
        let cost = needed(key, Estimate::of(values.iter().copied().map(Some)))?;
        draft.fitted_ns(key, cost.map(|ns| ns.max(0.0)), source);
    }
    solve(&mut draft, spec, single, many)?;
    if spec.pmu.is_some_and(|pmu| pmu.outside <= 0.0) {
        solve_rates(&mut draft, single, many)?;
    }
    Ok(draft)
}

fn of<'a>(measured: &'a Measured, strategy: &str) -> Result<&'a ArmGuests, Error> {
    measured.arm(strategy).ok_or_else(|| missing(strategy))
}

fn missing(what: &str) -> Error {
    let why = format!("{what} is missing in the measurement");
    Error::new(Exit::Inconclusive, "cannot make a model", why, "run it again with more --samples")
}

/// Describes a hardware PMU: its counters, and what each event counts.
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
        draft.counts(format!(
            "# An event of guests alone counts outside of any: this PMU knows no guest mode.\nfollow = \"thread-time\"\n\
             default = {{ per-us = {outside:.1}, source = \"measured: cycles while no guest ran\" }}"
        ));
        return Ok(());
    }
    set_rates(draft, &rates(single, many)?);
    Ok(())
}

/// Counts a microsecond of time on a counter of the event that is alone, and of each event by its code.
type Rates = (f64, BTreeMap<u16, f64>);

fn rates(single: &Measured, many: &Measured) -> Result<Rates, Error> {
    let counted = |guests: &ArmGuests| -> BTreeMap<u16, f64> {
        let estimate = |(code, rates)| Some((code, Estimate::of(rates)?.value)).filter(|(_, rate)| *rate > 0.0);
        guests.rates().into_iter().filter_map(estimate).collect()
    };
    let (mut all, alone) = (counted(of(many, "reuse")?), counted(of(single, "reuse")?));
    let default = *alone.values().next().ok_or_else(|| missing("a counted event"))?;
    all.extend(alone);
    Ok((default, all))
}

fn set_rates(draft: &mut Draft, (default, rates): &Rates) {
    let source = "solved: counts by time on a counter, reuse, of which the VMM's part counts nothing";
    let mut lines = format!(
        "# An event of guests alone counted nothing outside of any.\nfollow = \"guest-time\"\n\
         default = {{ per-us = {default:.1}, source = \"{source}, one event\" }}"
    );
    for (code, rate) in rates {
        let _ = write!(lines, "\nevents.0x{code:04x} = {{ per-us = {rate:.1}, source = \"{source}\" }}");
    }
    draft.counts(lines);
}

/// Solves the rates of events that count in guest mode alone: the time on a counter that the guest sees has the VMM's part in it,
/// measured as simulated.
fn solve_rates(draft: &mut Draft, single: &Measured, many: &Measured) -> Result<(), Error> {
    let measured = rates(single, many)?;
    let mut rate = measured.clone();
    // A change of the rate hardly changes the VMM's part.
    for _ in 0..2 {
        let simulate = |measured| check::simulate(draft.model()?, measured, &["reuse"], rounds_of(measured));
        let simulated = rates(&simulate(single)?, &simulate(many)?)?;
        rate.0 *= measured.0 / simulated.0;
        for (code, rate) in &mut rate.1 {
            *rate *= simulated.1.get(code).map_or(1.0, |simulated| measured.1[code] / simulated);
        }
        set_rates(draft, &rate);
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
        let one = "one hit at each return of KVM_RUN";
        draft.counts(format!("follow = \"exits\"\ndefault = {{ per-exit = 1, source = \"{one}\" }}"));
        return Ok(());
    }
    let shortest = host_pmu::backend::perf::shortest_clock_period();
    draft.host(format!(
        "shortest-period = {{ ns = {shortest}, source = \"measured: 200 times getrusage, within 50 us and 2 ms, as the backend does\" }}"
    ));
    others(draft, single)?;
    let per_us = single.tsc_khz / 1000;
    let scaled = "the stand-in is scaled to the TSC";
    draft.counts(format!("follow = \"thread-time\"\ndefault = {{ per-us = {per_us}, source = \"{scaled}\" }}"));
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

/// Returns a guest's costs without the largest: its first event costs what `open-first` says.
fn without_largest(mut costs: Histogram<u64>) -> Histogram<u64> {
    let mut largest = Histogram::new_from(&costs);
    // One of the costs, in a histogram of the same bounds; of none, none is taken.
    largest.saturating_record(costs.max());
    costs.subtract(&largest).unwrap_or_default();
    costs
}

/// Fits the costs of host operations, from the arms that use them.
fn operations(draft: &mut Draft, spec: &CalibrateSpec, single: &Measured, many: &Measured) -> Result<(), Error> {
    let (one_recreated, one_reused) = (of(single, "recreate")?, of(single, "reuse")?);
    let many_reused = of(many, "reuse")?;
    // Of recreate's opens many are the first, and of its releases the last.
    let (opened, arm_of_open) = (many_reused, "ten events, reuse");
    for (key, arm, kind, origin) in [
        ("open-first", one_recreated, OpKind::Open, "one event, recreate"),
        ("release-last", one_recreated, OpKind::Release, "one event, recreate"),
        ("open-more", opened, OpKind::Open, arm_of_open),
        ("release", opened, OpKind::Release, arm_of_open),
        ("pause", one_reused, OpKind::Pause, "one event, reuse"),
        ("resume", one_reused, OpKind::Resume, "one event, reuse"),
        ("period", one_reused, OpKind::Period, "one event, reuse"),
        // Its event runs whenever it gets a period, and no other one would end first.
        ("period-running", of(single, "virtual")?, OpKind::Period, "one event, virtual"),
        ("read", one_recreated, OpKind::Read, "one event, recreate"),
    ] {
        let source = format!("measured: quantiles of {}, {origin}", kind.key());
        let mut costs = arm.costs(kind);
        if key == "open-more" && (spec.tracepoint || spec.dear) {
            costs = costs.into_iter().map(without_largest).collect();
        }
        draft.distribution(key, &costs, &source).ok_or_else(|| missing(key))?;
    }
    group_read(draft, single, many)
}

/// Fits `group-read`: what each further event behind the gate adds to shutting it.
fn group_read(draft: &mut Draft, single: &Measured, many: &Measured) -> Result<(), Error> {
    let shut = |measured: &Measured| {
        let gate = of(measured, "gate")?;
        let pause = Estimate::of(gate.op_medians(OpKind::Pause)).ok_or_else(|| missing("gate's pause"))?;
        Ok::<_, Error>((pause, gate.result.own.events_held.time_mean.unwrap_or(0.0)))
    };
    let ((one, held), (ten, most)) = (shut(single)?, shut(many)?);
    let further = (most - held).max(1.0);
    let bucket = ns_histogram().equivalent_range(whole(ten.value)) as f64;
    let each = ten.map(|ns| ((ns - one.value) / further).max(0.0)).widened(&[one.half() / further, bucket / further]);
    draft.fitted_ns(
        "group-read",
        each,
        "measured: pause of gate with ten events beyond one, by the further events held",
    );
    Ok(())
}

/// Constants that no figure shows alone, from simulations with the others.
fn solve(draft: &mut Draft, spec: &CalibrateSpec, single: &Measured, many: &Measured) -> Result<(), Error> {
    draft.ns("resume-other", 0, "not yet known");
    draft.ns("tick-exit", 0, "not yet known");
    let exit = solve_exit(draft, spec, single)?;
    solve_tick_exit(draft, spec, exit, many)?;
    solve_resume_other(draft, single, many)?;
    if !spec.tracepoint {
        // The guest's work has ticks, too.
        let arms = check::simulate(draft.model()?, single, &["floor"], rounds_of(single))?;
        let estimate = |arm: &ArmGuests| Estimate::of(arm.units_ns()).ok_or_else(|| missing("the guest's work"));
        let (unit, simulated) = (estimate(of(single, "floor")?)?, estimate(of(&arms, "floor")?)?);
        let ticks = simulated.value - unit.value;
        let unit = unit.map(|ns| (ns - ticks).max(1.0)).widened(&[simulated.half(), ticks / 2.0]);
        draft.fitted_ns("work-unit", unit, "solved: unit_ns_without, floor, less its ticks");
    }
    Ok(())
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
fn solve_exit(draft: &mut Draft, spec: &CalibrateSpec, single: &Measured) -> Result<Estimate, Error> {
    let floor = of(single, "floor")?;
    let handler = Estimate::of(floor.medians(&NMI_HANDLER)).ok_or_else(|| missing("the floor's handler"))?.value;
    let loops = Estimate::of(floor.instructions_ps()).ok_or_else(|| missing("the loop in ring 0"))?;
    let instruction = draft.clone();
    // The loops of these guests, which are those of their handlers.
    draft.fitted_ps("instruction", loops, "measured: loops of the floor's guests");
    let floor_takes = |draft: &mut Draft, exit: u64| {
        set_exit(draft, spec, exactly(exit as f64));
        Ok(simulated(draft, single, &NMI_HANDLER, FEW)?.value)
    };
    let exit = nearest(whole(handler / 8.0), 1_000_000_000, handler, |exit| floor_takes(draft, exit))?;
    let nudged = whole(exit as f64 * (1.0 + NUDGE)).max(exit + 100);
    let takes_more = floor_takes(draft, nudged)?;
    let takes = floor_takes(draft, exit)?;
    let per_exit = ((takes_more - takes) / (nudged - exit) as f64).max(1.0);
    let simulated = simulated(draft, single, &NMI_HANDLER, rounds_of(single))?;
    let at = simulated.value;
    draft.fitted_ps("instruction", loops.map(|ps| ps * (1.0 + NUDGE)), "nudged");
    let per_ps = (floor_takes(draft, exit)? - takes) / (loops.value * NUDGE);
    *draft = instruction;
    let vmm = Estimate::of(floor.medians(&EXIT_PATH)).map_or(0.0, |vmm| vmm.value);
    let each = floor.medians(&NMI_HANDLER).into_iter().zip(floor.instructions_ps()).zip(floor.medians(&EXIT_PATH)).map(
        |((handler, loops_of_guest), vmm_of_guest)| {
            let beyond = handler? - at - per_ps * (loops_of_guest? - loops.value);
            Some(exit as f64 + beyond / per_exit - (vmm_of_guest? - vmm))
        },
    );
    // The handler's APIC write, a quarter of an exit, is an estimate, and may be half as much or half more.
    let apic = exit as f64 / 8.0 / per_exit;
    let exit = Estimate::of(each).ok_or_else(|| missing("the floor's handler"))?;
    let exit = exit.widened(&[simulated.half() / per_exit, apic]);
    set_exit(draft, spec, exit);
    Ok(exit)
}

/// Solves `tick-exit`: the time that the floor's rotations take beyond what the handlers of the same guests account for.
fn solve_tick_exit(draft: &mut Draft, spec: &CalibrateSpec, exit: Estimate, many: &Measured) -> Result<(), Error> {
    let floor = of(many, "floor")?;
    let why = "solved: rotations of the floor, ten events, less what the handlers of the same guests account for";
    // A guest's rotations have several lengths, between which a median jumps; their mean is linear in every cost.
    let mean = |arm: &ArmGuests, metric: &Metric| Estimate::of(arm.means(metric));
    let Some(rotation) = mean(floor, &ROTATION) else {
        draft.ns("tick-exit", 0, "no rotations were measured");
        return Ok(());
    };
    let takes = |draft: &Draft| {
        let arms = check::simulate(draft.model()?, many, &["floor"], FEW)?;
        Ok::<_, Error>(mean(of(&arms, "floor")?, &ROTATION).map_or(0.0, |rotation| rotation.value))
    };
    let tick = nearest(1000, 1_000_000, rotation.value, |tick| {
        draft.ns("tick-exit", tick, why);
        takes(draft)
    })?;
    let nudged = whole(tick as f64 * (1.0 + NUDGE)).max(tick + 100);
    draft.ns("tick-exit", nudged, why);
    let takes_more = takes(draft)?;
    draft.ns("tick-exit", tick, why);
    let few = takes(draft)?;
    let per_tick_exit = ((takes_more - few) / (nudged - tick) as f64).max(1.0);
    // What is not known of `exit` is not known of `tick-exit`.
    set_exit(draft, spec, exit.map(|ns| ns * (1.0 + NUDGE)));
    let by_exit = (takes(draft)? - few) / (exit.value * NUDGE).max(1.0) * exit.half();
    set_exit(draft, spec, exit);
    let arms = check::simulate(draft.model()?, many, &["floor"], rounds_of(many))?;
    let of_model = of(&arms, "floor")?;
    let needed = |found: Option<Estimate>| found.ok_or_else(|| missing("rotations"));
    let at_half = needed(mean(of_model, &ROTATION))?.half();
    let solved = |of_guests: fn(&ArmGuests, &Metric) -> Vec<Option<f64>>| {
        let middle = |arm: &ArmGuests, metric: &Metric| Some(Estimate::of(of_guests(arm, metric))?.value);
        let (at, handler) = (middle(of_model, &ROTATION)?, middle(floor, &NMI_HANDLER)?);
        // A guest with slow handlers has slow exits in its ticks, too.
        let share = at / middle(of_model, &NMI_HANDLER)?.max(1.0);
        Estimate::of(of_guests(floor, &ROTATION).into_iter().zip(of_guests(floor, &NMI_HANDLER)).map(
            |(rotation, own)| {
                let beyond = rotation? - at - share * (own? - handler);
                Some((tick as f64 + beyond / per_tick_exit).max(0.0))
            },
        ))
    };
    // Where the host's costs are spread and the model's are not, the two differ to opposite sides.
    let (by_means, by_medians) = (needed(solved(ArmGuests::means))?, needed(solved(ArmGuests::medians))?);
    let tick = by_means.covering(by_medians).widened(&[at_half / per_tick_exit, by_exit / per_tick_exit]);
    if tick.half() <= tick.value / 2.0 {
        draft.fitted_ns("tick-exit", tick, why);
        return Ok(());
    }
    // On a busy host the means have the time of other tasks; the model gets what the medians say.
    let why = "not identified: the floor's rotations are too spread; by their medians";
    let rotation = needed(Estimate::of(floor.medians(&ROTATION)))?.value;
    let tick = nearest(1000, 1_000_000, rotation, |tick| {
        draft.ns("tick-exit", tick, why);
        Ok(simulated(draft, many, &ROTATION, FEW)?.value)
    })?;
    draft.ns("tick-exit", tick, why);
    Ok(())
}

/// Solves `resume-other`: the time that resumes among many events take beyond those of a single one.
fn solve_resume_other(draft: &mut Draft, single: &Measured, many: &Measured) -> Result<(), Error> {
    let (one, ten) = (of(single, "reuse")?, of(many, "reuse")?);
    let needed = |costs: Vec<Option<f64>>| Estimate::of(costs).ok_or_else(|| missing("resume"));
    let medians = |arm: &ArmGuests| needed(arm.op_medians(OpKind::Resume));
    let means = |arm: &ArmGuests| needed(arm.op_means(OpKind::Resume));
    let source = "solved: resumes of reuse with ten events take as long simulated as measured";
    let arms = |draft: &mut Draft, other: u64, rounds: u64| {
        draft.ns("resume-other", other, source);
        check::simulate(draft.model()?, many, &["reuse"], rounds)
    };
    let resumes =
        |draft: &mut Draft, other: u64| Ok::<_, Error>(medians(of(&arms(draft, other, FEW)?, "reuse")?)?.value);
    let other = nearest(1000, 10_000_000, medians(ten)?.value, |other| resumes(draft, other))?;
    let nudged = whole(other as f64 * (1.0 + NUDGE)).max(other + 100);
    let takes_more = resumes(draft, nudged)? - resumes(draft, other)?;
    let per_other = (takes_more / (nudged - other) as f64).max(0.1);
    let arms = arms(draft, other, rounds_of(many))?;
    // The histogram does not tell the values of a bucket apart.
    let bucket = ns_histogram().equivalent_range(whole(medians(ten)?.value)) as f64;
    let solved = |ten: Estimate, at: Estimate, one: Estimate| {
        let beyond = ten.map(|ns| other as f64 + (ns - at.value) / per_other);
        beyond.widened(&[at.half() / per_other, one.half() / per_other, bucket / per_other])
    };
    let of_model = of(&arms, "reuse")?;
    let by_means = solved(means(ten)?, means(of_model)?, means(one)?);
    let found = solved(medians(ten)?, medians(of_model)?, medians(one)?).covering(by_means);
    draft.fitted_ns("resume-other", found, source);
    Ok(())
}

/// Simulates the floor of `measured`, and returns the median over guests of a metric's medians.
fn simulated(draft: &Draft, measured: &Measured, metric: &Metric, rounds: u64) -> Result<Estimate, Error> {
    let arms = check::simulate(draft.model()?, measured, &["floor"], rounds)?;
    let found = arms.arm("floor").and_then(|arm| Estimate::of(arm.medians(metric)));
    Ok(found.unwrap_or(exactly(0.0)))
}

/// Returns the rounds of a simulation that is as certain as what was measured.
fn rounds_of(measured: &Measured) -> u64 {
    measured.arms.first().map_or(LEAST, |arm| arm.result.rounds.len() as u64).clamp(LEAST, MOST)
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
