//! Fits a model to measured arms.

use host_pmu::backend::perf::shortest_clock_period;
use host_pmu::stats::OpKind;
use results::error::{Error, Exit};
use results::metric::{EXIT_PATH, NMI_HANDLER, PMI_DELIVERY, ROTATION};
use sim::model::{Draft, Model, whole};

use super::measure::{CalibrateSpec, Measured, Pmu, median, missing};

/// Steps of the fit: what is searched is nearly linear in the constants.
const STEPS: usize = 5;
/// Rounds of a simulation of the last step at most, and at least, as in the steps before: each guest rotates from another place.
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
    let [single, many] = measured else { return Err(missing("a workload")) };
    let mut draft = Draft::new(&spec.name, about, tsc_khz(single));
    describe_host(&mut draft, spec, single, many)?;
    operations(&mut draft, spec, single, many)?;
    let floor = single.arm("floor")?;
    let needed = |what: &str, found: Option<f64>| found.ok_or_else(|| missing(what));
    draft.ns("vmm", needed("the VMM's time per exit", floor.p50(&EXIT_PATH))?, "measured: exit_path_ns, floor");
    let guests = [single, many].into_iter().flat_map(|workload| &workload.arms).flat_map(|arm| &arm.guests);
    let instruction = needed("the loop in ring 0", median(guests.map(|guest| guest.instruction_ps)))?;
    draft.set("cost.instruction", "ps", whole(instruction), "measured: loop in ring 0 without exits");
    let delivery = needed("PMI delivery", floor.p50(&PMI_DELIVERY))?;
    let halves = "half of the floor's delivery latency: only the sum of inject and interrupt is measured";
    for half in ["inject", "interrupt"] {
        draft.ns(half, (delivery - TO_ENTRY * instruction / 1000.0) / 2.0, halves);
    }
    if spec.tracepoint {
        let unit = needed("the guest's work", floor.unit_ns())?.max(1.0);
        draft.ns("io", unit, "measured: unit_ns_without of the port writes, floor");
        draft.ns("work-unit", 1.0, "a unit is a port write: see io");
    }
    for (key, source, values) in &spec.beside {
        draft.ns(key, needed(key, median(values.iter().copied().map(Some)))?, source);
    }
    solve(&mut draft, spec, single, many)?;
    if spec.pmu.is_some_and(|pmu| pmu.outside <= 0.0) {
        solve_rates(&mut draft, spec, single, many)?;
    }
    Ok(draft)
}

/// Returns the model that a draft is.
///
/// # Errors
/// Exit 3 if the measurement does not make a valid model.
pub fn model(draft: &Draft) -> Result<Model, Error> {
    let what = "the measurement does not make a valid model";
    draft.model().map_err(|error| Error::new(Exit::Inconclusive, what, error.to_string(), "run it again"))
}

fn tsc_khz(measured: &Measured) -> u64 {
    measured.arms.iter().flat_map(|arm| &arm.guests).map(|guest| guest.tsc_khz).max().unwrap_or(0)
}

fn describe_host(draft: &mut Draft, spec: &CalibrateSpec, single: &Measured, many: &Measured) -> Result<(), Error> {
    let slice = "base slice of Linux's EEVDF, rounded; vCPUs of a calibration share no CPU";
    draft.set("host.slice", "ns", 3_000_000, slice);
    let reuse = &single.arm("reuse")?.result;
    let every = reuse.own.workload_ns.checked_div(reuse.own.counts.sched_ins).filter(|every| *every > 0);
    if let Some(every) = every.filter(|_| !spec.tracepoint) {
        draft.set("host.others.every", "ns", every.cast_signed(), "measured: time by sched-ins, reuse");
        draft.set("host.others.length", "ns", 20_000, "estimate: a kernel thread's turn");
    }
    let Some(Pmu { processor, counters, taken, outside }) = spec.pmu else {
        draft.set("host.counters", "value", 64, "stand-ins use no counter of the PMU");
        draft.set("host.taken", "value", 0, "stand-ins");
        if spec.tracepoint {
            draft.put("counts.follow", "exits");
            draft.set("counts.default", "per-exit", 1, "one hit at each return of KVM_RUN");
            return Ok(());
        }
        let source = "measured: 200 times getrusage, within 50 us and 2 ms, as the backend does";
        draft.set("host.shortest-period", "ns", shortest_clock_period().cast_signed(), source);
        draft.put("counts.follow", "thread-time");
        let per_us = (tsc_khz(single) / 1000).cast_signed();
        draft.set("counts.default", "per-us", per_us, "the stand-in is scaled to the TSC");
        return Ok(());
    };
    let watchdog = "the NMI watchdog's";
    if let Some(processor) = processor {
        draft.set("host.processor", "name", processor.name(), "CPUID: family, model and counters");
        draft.set("host.pinned", "events", vec![0x3c; taken as usize], watchdog);
    } else {
        let source = "CPUID: the PMU's counters; which event counts on which is not known here: all count on each";
        draft.set("host.counters", "value", i64::from(counters), source);
        draft.set("host.taken", "value", i64::from(taken), watchdog);
    }
    let source = "a counter overflows at any count; the kernel's least period is a few";
    draft.set("host.shortest-period", "ns", 1, source);
    if outside > 0.0 {
        // A clock behind all events goes on in the VMM. While nothing stops it, it has its own rate.
        draft.put("counts.follow", "thread-time");
        let source = "measured: cycles while no guest ran, by an event of guests alone: this PMU knows no guest mode";
        draft.set("counts.default", "per-us", tenths(outside), source);
        return Ok(());
    }
    set_rates(draft, &rates(single, many)?);
    Ok(())
}

fn tenths(rate: f64) -> f64 {
    (rate * 10.0).round() / 10.0
}

/// Counts a microsecond of time on a counter of the event that is alone, and of each event by its code.
type Rates = (f64, Vec<(u16, f64)>);

fn rates(single: &Measured, many: &Measured) -> Result<Rates, Error> {
    let (mut all, alone) = (many.arm("reuse")?.rates(), single.arm("reuse")?.rates());
    let default = *alone.values().next().ok_or_else(|| missing("a counted event"))?;
    all.extend(alone);
    Ok((default, all.into_iter().collect()))
}

fn set_rates(draft: &mut Draft, (default, rates): &Rates) {
    let source = "solved: counts by time on a counter, reuse, of which the VMM's part counts nothing, as an event of guests alone outside \
                  of any";
    draft.put("counts.follow", "guest-time");
    draft.set("counts.default", "per-us", tenths(*default), source);
    for (code, rate) in rates {
        draft.set(&format!("counts.events.0x{code:04x}"), "per-us", tenths(*rate), source);
    }
}

/// Solves the rates of events that count in guest mode alone: the time on a counter that the guest sees has the VMM's part in it,
/// measured as simulated.
fn solve_rates(draft: &mut Draft, spec: &CalibrateSpec, single: &Measured, many: &Measured) -> Result<(), Error> {
    let measured = rates(single, many)?;
    let mut rate = measured.clone();
    // A change of the rate hardly changes the VMM's part.
    for _ in 0..2 {
        let simulate = |of: &Measured| of.simulate(model(draft)?, spec, &["reuse"], rounds_of(of));
        let simulated = rates(&simulate(single)?, &simulate(many)?)?;
        rate.0 *= measured.0 / simulated.0;
        for ((code, rate), (_, measured)) in rate.1.iter_mut().zip(&measured.1) {
            let found = simulated.1.iter().find(|(other, _)| other == code);
            *rate *= found.map_or(1.0, |(_, simulated)| measured / simulated);
        }
        set_rates(draft, &rate);
    }
    Ok(())
}

/// Fits the costs of host operations, from the arms that use them.
fn operations(draft: &mut Draft, spec: &CalibrateSpec, single: &Measured, many: &Measured) -> Result<(), Error> {
    for (key, measured, strategy, kind) in [
        // Of recreate's opens many are the first, and of its releases the last.
        ("open-first", single, "recreate", OpKind::Open),
        ("release-last", single, "recreate", OpKind::Release),
        ("open-more", many, "reuse", OpKind::Open),
        ("release", many, "reuse", OpKind::Release),
        ("pause", single, "reuse", OpKind::Pause),
        ("resume", single, "reuse", OpKind::Resume),
        ("period", single, "reuse", OpKind::Period),
        // Its event runs whenever it gets a period, and no other one would end first.
        ("period-running", single, "virtual", OpKind::Period),
        ("read", single, "recreate", OpKind::Read),
    ] {
        let source = format!("measured: quantiles of {}, {}, {strategy}", kind.key(), measured.workload.0);
        let mut costs: Vec<_> = measured.arm(strategy)?.guests.iter().map(|guest| guest.ops.histogram(kind)).collect();
        if key == "open-more" && spec.is_dear() {
            // A guest's first event costs what `open-first` says: the largest is left out.
            for costs in &mut costs {
                let mut largest = costs.clone();
                largest.clear();
                largest.saturating_record(costs.max());
                costs.subtract(&largest).unwrap_or_default();
            }
        }
        draft.distribution(key, &costs, &source).ok_or_else(|| missing(key))?;
    }
    // What each further event behind the gate adds to shutting it.
    let shut = |measured: &Measured| {
        let gate = measured.arm("gate")?;
        let pause = gate.op_p50(OpKind::Pause).ok_or_else(|| missing("gate's pause"))?;
        Ok::<_, Error>((pause, gate.result.own.events_held.time_mean.unwrap_or(0.0)))
    };
    let ((one, held), (ten, most)) = (shut(single)?, shut(many)?);
    let source = "measured: pause of gate with ten events beyond one, by the further events held";
    draft.ns("group-read", (ten - one) / (most - held).max(1.0), source);
    Ok(())
}

/// Constants that no figure shows alone, and what each is solved from.
const SOLVED: [(&str, &str); 4] = [
    ("exit", "solved: handler of the floor, one event"),
    ("tick-exit", "solved: rotations of the floor, ten events"),
    ("resume-other", "solved: resumes of reuse with ten events"),
    ("work-unit", "solved: unit_ns_without, floor, less its ticks"),
];

/// The figures that the constants are solved from.
fn observed(single: &Measured, many: &Measured) -> Result<[Option<f64>; 4], Error> {
    let floor = single.arm("floor")?;
    // A guest's rotations have several lengths, between which a median jumps; their mean is linear in every cost.
    let rotation = many.arm("floor")?.of(&ROTATION, |found| found.mean);
    Ok([floor.p50(&NMI_HANDLER), rotation, many.arm("reuse")?.op_p50(OpKind::Resume), floor.unit_ns()])
}

fn set_solved(draft: &mut Draft, spec: &CalibrateSpec, constants: &[f64]) {
    for ((key, source), ns) in SOLVED.iter().zip(constants) {
        if !(spec.tracepoint && *key == "work-unit") {
            draft.ns(key, *ns, source);
        }
    }
    draft.ns("apic", constants[0] / 4.0, "estimate: an exit that the kernel handles");
    draft.ns("signal", constants[0], "estimate: an exit and a signal's delivery");
    if !spec.tracepoint {
        draft.ns("io", constants[0], "as exit");
    }
}

/// Solves them together: the constants with which the simulation has the measured figures, each by its own figure.
fn solve(draft: &mut Draft, spec: &CalibrateSpec, single: &Measured, many: &Measured) -> Result<(), Error> {
    let mut measured = observed(single, many)?;
    let [Some(handler), rotation, Some(_), Some(unit)] = measured else {
        return Err(missing("the floor's handler or resumes"));
    };
    // Without rotations ticks are not seen, and of a tracepoint's port writes no unit of work.
    measured[3] = measured[3].filter(|_| !spec.tracepoint);
    let mut constants = [handler / 8.0, rotation.map_or(0.0, |_| 1000.0), 1000.0, unit];
    let mut off = |constants: &[f64; 4], rounds: u64| {
        set_solved(draft, spec, constants);
        let model = model(draft)?;
        let single = single.simulate(model.clone(), spec, &["floor"], rounds)?;
        let many = many.simulate(model, spec, &["floor", "reuse"], rounds)?;
        let found = observed(&single, &many)?;
        Ok::<_, Error>([0, 1, 2, 3].map(|at| measured[at].map_or(0.0, |ns| ns - found[at].unwrap_or(0.0))))
    };
    // The effect of a nanosecond of each constant on its own figure. A figure depends on the constants before its own, too, which is why
    // there are as many steps as constants, and one.
    let mut effects = [0.0; 4];
    for step in 1..=STEPS {
        let is_last = step == STEPS;
        let (before, here) = (constants, off(&constants, if is_last { rounds_of(single) } else { LEAST })?);
        for at in (0..4).filter(|&at| measured[at].is_some()) {
            if !is_last {
                let mut nudged = before;
                nudged[at] += (before[at] * NUDGE).max(100.0);
                effects[at] = (here[at] - off(&nudged, LEAST)?[at]) / (nudged[at] - before[at]);
            }
            if effects[at] != 0.0 {
                constants[at] = (before[at] + here[at] / effects[at]).clamp(0.0, 1e9);
            }
        }
    }
    set_solved(draft, spec, &constants);
    Ok(())
}

/// Returns the rounds of a simulation that is compared with this.
fn rounds_of(measured: &Measured) -> u64 {
    let rounds = measured.arms.iter().map(|arm| arm.result.rounds.len() as u64);
    rounds.max().unwrap_or(LEAST).clamp(LEAST, MOST)
}
