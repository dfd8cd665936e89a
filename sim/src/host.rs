//! One host with its vCPUs, from the first instruction to the last.

use std::cell::Cell;
use std::rc::Rc;

use arch_pmu::Vpmu;
use arch_pmu::caps::PmuCaps;
use guest::abi::BootPage;
use host_pmu::bank::Bank;
use host_pmu::strategy::Strategy;

use crate::backend::SimBackend;
use crate::clock::Clock;
use crate::floor::SimFloor;
use crate::guest::{Guest, GuestOutcome, Timer};
use crate::model::{CountBase, Model};
use crate::queue::Queue;
use crate::sched::Schedule;
use crate::stream::stream;
use crate::vcpu::{SimHost, Vcpu};

/// Implementation behind the counters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Behind {
    /// A timer without host events.
    Floor,
    /// A timer at a given rate, for comparison with events rarer than cycles.
    PacedFloor {
        /// Counts per millisecond of a running counter.
        counts_per_ms: u64,
    },
    /// Host events under a strategy.
    Events(Strategy),
}

/// A host to simulate.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Implementation behind the counters.
    pub behind: Behind,
    /// PMU of the guests.
    pub pmu: PmuCaps,
    /// vCPUs.
    pub vcpus: u64,
    /// Host CPUs shared by the vCPUs.
    pub cpus: u64,
    /// Boot page of each guest. `log_capacity` bounds the log; 0 keeps histograms only.
    pub boot: BootPage,
    /// Timer of the guests.
    pub timer: Timer,
    /// Hard limit of a guest, virtual ns. A guest that only handles NMIs would never end.
    pub limit_ns: u64,
    /// Seed of the experiment.
    pub seed: u64,
}

/// Simulates host number `number` of an experiment.
#[must_use]
pub fn run(model: &Model, plan: &Plan, number: u64) -> Vec<GuestOutcome> {
    let model = Rc::new(model.clone());
    // Counters in use by others count as their events.
    let others = if model.base == CountBase::GuestTime { model.host.taken } else { 0 };
    let on_host = Rc::new(Cell::new(others));
    match &plan.behind {
        Behind::Floor => run_with(&model, plan, number, |clock| SimFloor::new(clock, model.tsc_khz)),
        Behind::PacedFloor { counts_per_ms } => {
            run_with(&model, plan, number, |clock| SimFloor::new(clock, *counts_per_ms))
        }
        Behind::Events(strategy) => run_with(&model, plan, number, |clock| {
            Bank::new(SimBackend::new(Rc::clone(&model), clock, Rc::clone(&on_host), strategy), strategy.clone())
        }),
    }
}

fn run_with<H: SimHost>(model: &Rc<Model>, plan: &Plan, number: u64, behind: impl Fn(Clock) -> H) -> Vec<GuestOutcome> {
    let (pmu, cpus) = (plan.pmu.bounded(), plan.cpus.clamp(1, plan.vcpus.max(1)));
    let boot = BootPage { gp_counters: u64::from(pmu.gp), fixed_counters: u64::from(pmu.fixed), ..plan.boot };
    let mut queue = Queue::default();
    let mut guests: Vec<Guest<H>> = (0..plan.vcpus)
        .map(|vcpu| {
            let mut stream = stream(plan.seed, number, vcpu);
            let sharing = (plan.vcpus - vcpu % cpus).div_ceil(cpus);
            let schedule =
                Schedule::new(model.host.slice, sharing, vcpu / cpus, model.host.others.clone(), &mut stream);
            let vpmu = Vpmu::new(pmu, behind(Clock::new(schedule, stream)));
            let vcpu = Vcpu::new(Rc::clone(model), vpmu);
            Guest::new(vcpu, &boot, (plan.timer, plan.limit_ns), model.tsc_khz, model.costs.work_unit)
        })
        .collect();
    for (vcpu, guest) in guests.iter_mut().enumerate() {
        queue.push(guest.now(), vcpu);
    }
    while let Some(vcpu) = queue.pop() {
        let guest = &mut guests[vcpu];
        if !guest.step() {
            queue.push(guest.now(), vcpu);
        }
    }
    guests.into_iter().map(Guest::finish).collect()
}
