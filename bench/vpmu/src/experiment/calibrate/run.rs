//! A calibration of this host, from its guests to the draft of its model.

use std::hint::black_box;
use std::time::Instant;

use host_pmu::backend::scheduling::Processor;
use host_pmu::backend::{BackendKey, HostError};
use results::document::ArmKind;
use results::document::warnings::model_off;
use results::error::Error;
use results::host::noise::load;
use results::host::{HostFacts, HostFs};
use results::metric::NMI_HANDLER;
use results::table::layout::plural;
use sim::model::{Draft, Model};
use vmm::kvm::Host;

use super::beside::{clock_expiry_ns, counts_outside_guests, switch_ns};
use super::fit::{fit, model};
use super::measure::{ArmGuests, CalibrateSpec, Measured, Outside, Pmu, run as measure};
use crate::arms::arm::real;
use crate::setting::backend::{Chosen, guest_cpu};
use crate::setting::pin::usable;
use crate::sys;
use crate::terminal::console::complain;
use crate::terminal::progress::Progress;

/// Measurements of a cost outside of guests.
const BESIDE: usize = 40;

/// Measures this host's costs, and makes the draft of its model. Returns it with the range of simulated over measured latency, in percent.
///
/// # Errors
/// Exit 3 if the guests did not end as they should, exit 4 if this host cannot run them.
pub fn run(
    mut calibration: CalibrateSpec,
    chosen: &Chosen,
    progress: &mut dyn Progress,
) -> Result<(Draft, [u64; 2]), Error> {
    let tracepoint = matches!(chosen.backend, BackendKey::Tracepoint { .. });
    let host = HostFacts::read(&HostFs::default());
    let pmu = if chosen.backend == BackendKey::Hardware { Some(pmu(&host)?) } else { None };
    calibration.beside = beside(&chosen.backend).map_err(|error| {
        let what = "cannot measure what events cost outside of guests";
        Error::host(what, error.to_string(), "`vpmu doctor` says what this host allows")
    })?;
    calibration.cpu = guest_cpu(&chosen.backend, &host);
    (calibration.tracepoint, calibration.pmu) = (tracepoint, pmu);
    let mut jobs = Vec::new();
    for workload in calibration.workloads() {
        let plan = calibration.plan(workload, chosen, usable(&host).as_deref())?;
        jobs.push((workload, real::runner(&plan.guest)?, plan));
    }
    let measured = measure(&jobs, calibration.rounds(), sys::interrupted(), progress)?;
    let after = HostFacts::read(&HostFs::default());
    let about = format!("{}, events by {}: measured by vpmu calibrate", host.class, chosen.backend);
    let mut draft = fit(&calibration, &about, &measured)?;
    let percent = percent(&model(&draft)?, &calibration, &measured)?;
    let mut source = "simulated by measured handler latency of the runs that it is made from".to_owned();
    let busy = load(&host, after).map(|load| format!("this host was busy: load {load}"));
    let not_whole = measured.iter().flat_map(|workload| &workload.arms).flat_map(|arm| {
        let arm = &arm.result;
        let left_out =
            arm.left_out.first().map(|why| format!("{} left out: {why}", plural(arm.left_out.len(), "turn")));
        arm.own.doubts().chain(left_out).map(|what| format!("{}: {what}", arm.name)).collect::<Vec<_>>()
    });
    for doubt in busy.into_iter().chain(not_whole).chain(model_off(percent)) {
        complain(&format!("warning: {doubt}"));
        source = format!("{source}; {doubt}");
    }
    draft.set("checked", "percent", percent.map(u64::cast_signed).to_vec(), &source);
    Ok((draft, percent))
}

/// Returns the least and the greatest percent of the measured handler latencies that the model takes, but for what it was fitted to.
fn percent(model: &Model, spec: &CalibrateSpec, measured: &[Measured]) -> Result<[u64; 2], Error> {
    let mut shares = Vec::new();
    for measured in measured {
        let names: Vec<&str> = measured.arms.iter().map(|arm| arm.result.name.as_str()).collect();
        let rounds = measured.arms.first().map_or(1, |arm| arm.result.rounds.len() as u64);
        let simulated = measured.simulate(model.clone(), spec, &names, rounds)?;
        let is_fitted =
            |arm: &ArmGuests| arm.result.kind == ArmKind::Floor && measured.workload.0.starts_with("single");
        let share = |real: &ArmGuests| {
            let simulated = simulated.arm(&real.result.name).ok()?.p50(&NMI_HANDLER)?;
            Some(100.0 * simulated / real.p50(&NMI_HANDLER)?.max(1.0))
        };
        shares.extend(measured.arms.iter().filter(|arm| !is_fitted(arm)).filter_map(share));
    }
    Ok(range(&shares))
}

/// Returns the ends of these shares and of 100 %, in whole percent.
#[expect(clippy::cast_sign_loss, reason = "latencies are not negative")]
fn range(shares: &[f64]) -> [u64; 2] {
    let range =
        [shares.iter().copied().fold(100.0, f64::min).floor(), shares.iter().copied().fold(100.0, f64::max).ceil()];
    range.map(|percent| percent.clamp(1.0, 1e6) as u64)
}

/// Measures costs outside of guests: of switches of a thread with events, and of clocks their expiries and the look at a count.
fn beside(backend: &BackendKey) -> Result<Vec<Outside>, HostError> {
    let [first, held, running] = switch_ns(backend, BESIDE)?;
    let mut found = vec![
        ("switch", "measured: two threads in turns on one CPU, with a paused event on one", first),
        ("switch-held", "measured: as switch, for each paused event", held),
        ("switch-running", "measured: as switch, for each event that counts, less what it costs paused", running),
    ];
    if *backend == BackendKey::CpuClock {
        let why = "measured: thread time of the same work with a cpu-clock event and without, by its expiries";
        found.push(("expiry", why, clock_expiry_ns(BESIDE)?));
        found.push(("peek", "measured: a look at the monotonic clock", (0..BESIDE).map(|_| peek_ns()).collect()));
    }
    Ok(found)
}

/// Measures a look at a clock.
fn peek_ns() -> f64 {
    const LOOKS: u32 = 1000;
    let begin = Instant::now();
    for _ in 0..LOOKS {
        black_box(Instant::now());
    }
    begin.elapsed().as_nanos() as f64 / f64::from(LOOKS)
}

/// Returns the host's PMU as a model has it.
fn pmu(host: &HostFacts) -> Result<Pmu, Error> {
    let cannot = |why: String| Error::host("hardware cannot be calibrated", why, "take --backend cpu-clock");
    let kvm = Host::open().map_err(|error| cannot(error.to_string()))?;
    let counters =
        kvm.counters().ok_or_else(|| cannot("CPUID does not say how many counters its PMU has".to_owned()))?;
    let outside = counts_outside_guests().map_err(|error| cannot(error.to_string()))?;
    let known = kvm.vendor().zip(host.cpu_signature);
    let processor =
        known.and_then(|(vendor, [family, model, _])| Processor::of_signature(vendor, family, model, counters));
    Ok(Pmu { processor, counters, taken: u32::from(host.nmi_watchdog == Some(true)), outside })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_model_says_how_far_it_is_from_the_runs_that_it_was_made_from() {
        assert_eq!(range(&[87.3, 100.6]), [87, 101]);
        assert_eq!(range(&[110.0]), [100, 110]);
        assert_eq!(range(&[]), [100, 100]);
    }
}
