//! Both guests on simulated hosts: under each strategy and model, on CPUs that other tasks take.

use std::cell::Cell;
use std::rc::Rc;

use arch_pmu::Vpmu;
use arch_pmu::amd::AmdCaps;
use arch_pmu::caps::PmuCaps;
use arch_pmu::spec::Vendor;
use guest::abi::{BootPage, EventSpec, FLAG_STAT_SETUP, FLAG_TURNS, WORKLOAD_IO};
use host_pmu::bank::Bank;
use host_pmu::strategy::{PRESETS, Strategy};
use sim::backend::sim_backend;
use sim::clock::Clock;
use sim::clock::Schedule;
use sim::floor::floor;
use sim::mediated::{MEDIATED, SimMediated};
use sim::model::Model;
use sim::side::SimHost;
use sim::stream::{Purpose, Streams};
use sim::vcpu::Vcpu;

use super::common::{FOUR, SINGLE, TEN, boot};
use super::solve::Measured;
use super::{Left, Step, Turns, compare, executed, simulated};

const MODELS: [&str; 4] = ["development-host", "clx-ap-watchdog-on", "icx-2021", "spr-2026"];

/// Guests that sample in every way, take turns and count in set-ups.
fn boots() -> Vec<(BootPage, Turns<'static>)> {
    let sampling = [SINGLE, FOUR, TEN].map(|events| BootPage { log_capacity: 1000, ..boot(events, 200_000, 40, 30) });
    let freq = BootPage { freq_hz: 4000, ..sampling[2] };
    let turns = BootPage { flags: FLAG_TURNS, workload: WORKLOAD_IO, ..sampling[1] };
    let mut stat = BootPage {
        flags: FLAG_STAT_SETUP,
        window_ticks: 3,
        gap_ticks: 1,
        limit_us: 1_000_000,
        sample_target: 2,
        ..sampling[2]
    };
    stat.events.iter_mut().for_each(|event| *event = EventSpec { period: 0, ..*event });
    let plain = sampling.into_iter().chain([freq, stat]).map(|boot| (boot, [].as_slice()));
    plain.chain([(turns, [(10, 0), (5, 3_000_000)].as_slice())]).collect()
}

fn clock(model: &Model) -> Clock {
    let mut streams = Streams::new(7, 0, 0);
    let others = model.host.others.clone().map(|others| (others, streams.of(Purpose::Others).clone()));
    Clock::new(Schedule::new(model.host.slice, 2, 0, others), streams)
}

/// Runs both; returns how many accesses the payload made.
fn check<H: SimHost>(
    pmu: PmuCaps,
    model: &Rc<Model>,
    boot: &BootPage,
    turns: Turns<'_>,
    host: impl Fn() -> H,
) -> usize {
    let (gp, fixed) = pmu.bounded().count();
    let boot = BootPage { gp_counters: gp.into(), fixed_counters: fixed.into(), ..*boot };
    let driver = pmu.into();
    let cpu = || Vcpu::new(Rc::clone(model), Vpmu::new(pmu, host()));
    let speed = (model.tsc_khz, model.costs.work_unit);
    let (their_left, theirs): (Vec<Left>, Vec<Step>) = executed(cpu(), (driver, &boot), turns, speed);
    let (our_left, ours) = simulated(cpu(), (driver, &boot), turns, speed);
    let mut measured = Measured::default();
    compare(&ours, &theirs, true, &mut measured).unwrap();
    if measured.verdict().is_some() {
        return theirs.len();
    }
    assert!(our_left.iter().eq(&their_left), "the simulated guest left {our_left:?}\nthe payload {their_left:?}");
    theirs.len()
}

#[test]
fn the_simulated_guest_is_the_payload_on_every_host() {
    let mut accesses = 0;
    let pmus = [PmuCaps::default(), AmdCaps::default().into(), AmdCaps::GENOA.into()];
    for (name, pmu) in
        MODELS.into_iter().zip(std::iter::repeat(pmus[0])).chain(pmus.map(|pmu| (MODELS[1], pmu)).into_iter().skip(1))
    {
        let model = Rc::new(Model::embedded(name).unwrap());
        for (boot, turns) in boots() {
            accesses += check(pmu, &model, &boot, turns, || floor(clock(&model), model.tsc_khz));
            for preset in PRESETS {
                let strategy = Strategy::preset(preset).unwrap();
                accesses += check(pmu, &model, &boot, turns, || {
                    let others = Rc::new(Cell::new(0));
                    Bank::new(sim_backend(Rc::clone(&model), clock(&model), others, &strategy), strategy.clone())
                });
            }
            if pmu.vendor() == Vendor::Intel {
                for kind in MEDIATED {
                    accesses +=
                        check(pmu, &model, &boot, turns, || SimMediated::new(Rc::clone(&model), clock(&model), kind));
                }
            }
        }
    }
    assert!(accesses > 100_000, "only {accesses}");
}
