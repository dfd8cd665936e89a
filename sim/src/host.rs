//! One host with its vCPUs, from the first instruction to the last.

use std::cell::Cell;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;

use arch_pmu::Vpmu;
use arch_pmu::caps::PmuCaps;
use guest::abi::BootPage;
use host_pmu::bank::Bank;
use host_pmu::strategy::Strategy;
use host_pmu::trace::{Tracer, Tracing};
use rayon::prelude::*;

use super::clock::Schedule;
use crate::backend::sim_backend;
use crate::clock::Clock;
use crate::floor::floor;
use crate::guest::{Guest, GuestOutcome, Timer};
use crate::mediated::{Mediated, SimMediated};
use crate::model::Model;
use crate::side::SimHost;
use crate::stream::{Purpose, Stream, Streams, draw};
use crate::vcpu::Vcpu;

/// Implementation behind the counters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CounterSource {
    /// A timer without host events.
    Floor {
        /// Counts per millisecond of a running counter, for comparison with events rarer than cycles; `None`: the TSC's rate.
        counts_per_ms: Option<u64>,
    },
    /// Host events under a strategy.
    Events(Strategy),
    /// A PMU that the guest owns. Switching it costs nothing in a model without its costs.
    Mediated(Mediated),
}

/// A host to simulate.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Implementation behind the counters.
    pub behind: CounterSource,
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
    /// The trace of the guests' PMUs, if they are traced.
    pub trace: Option<Arc<Tracing>>,
}

impl Plan {
    /// Returns whether the work of one vCPU may change the costs of another: the first event of a host and the last
    /// have costs of their own, where no other user has one. Otherwise vCPUs have nothing in common, and the order in
    /// which they are simulated has no effect.
    pub fn is_coupled(&self, model: &Model) -> bool {
        self.vcpus > 1 && matches!(self.behind, CounterSource::Events(_)) && others(model) == 0
    }
}

/// Returns the number of host events of other users.
pub(crate) fn others(model: &Model) -> u64 {
    if model.needs_counters() { model.host.pmu.others().len() as u64 } else { 0 }
}

/// Simulates host number `number` of an experiment, on rayon's threads where its vCPUs have nothing in common.
pub fn run(model: &Model, plan: &Plan, number: u64) -> Vec<GuestOutcome> {
    if plan.is_coupled(model) {
        open(model, plan, number, 0..plan.vcpus).outcomes()
    } else {
        (0..plan.vcpus)
            .into_par_iter()
            .flat_map_iter(|vcpu| open(model, plan, number, vcpu..vcpu + 1).outcomes())
            .collect()
    }
}

/// Starts the guests of host number `number` of an experiment, which take turns (`plan.boot` has FLAG_TURNS). They are
/// at their first rest; the outcomes have their baselines.
pub fn start(model: &Model, plan: &Plan, number: u64) -> (Box<dyn Live>, Vec<GuestOutcome>) {
    let mut host = open(model, plan, number, 0..plan.vcpus);
    let opening = host.outcomes();
    (host, opening)
}

/// A simulated host whose guests live on.
pub trait Live {
    /// Lets each guest take `samples`, or as many as its time limit allows. A guest that timed out takes no further turns.
    fn turn(&mut self, samples: u64) -> Vec<GuestOutcome>;

    /// Ends the guests, and takes their outcomes since their last turns.
    fn finish(&mut self) -> Vec<GuestOutcome>;

    /// Runs the guests to their rest or their end, and takes their outcomes.
    fn outcomes(&mut self) -> Vec<GuestOutcome>;
}

fn open(model: &Model, plan: &Plan, number: u64, vcpus: Range<u64>) -> Box<dyn Live> {
    let model = Rc::new(model.clone());
    let on_host = Rc::new(Cell::new(others(&model)));
    let place = (number, vcpus);
    match &plan.behind {
        CounterSource::Floor { counts_per_ms } => {
            open_with(&model, plan, place, |clock| floor(clock, counts_per_ms.unwrap_or(model.tsc_khz)))
        }
        CounterSource::Mediated(kind) => {
            open_with(&model, plan, place, |clock| SimMediated::new(Rc::clone(&model), clock, *kind))
        }
        CounterSource::Events(strategy) => open_with(&model, plan, place, |clock| {
            Bank::new(sim_backend(Rc::clone(&model), clock, Rc::clone(&on_host), strategy), strategy.clone())
        }),
    }
}

/// Frequency of a clock of ns, kHz.
const NS_KHZ: u64 = 1_000_000;

fn open_with<H: SimHost + 'static>(
    model: &Rc<Model>,
    plan: &Plan,
    (number, vcpus): (u64, Range<u64>),
    behind: impl Fn(Clock) -> H,
) -> Box<dyn Live> {
    let (pmu, cpus) = (plan.pmu.bounded(), plan.cpus.clamp(1, plan.vcpus.max(1)));
    let (gp, fixed) = pmu.count();
    let boot = BootPage { gp_counters: gp.into(), fixed_counters: fixed.into(), ..plan.boot };
    let first = vcpus.start;
    let guests = vcpus
        .map(|vcpu| {
            let mut streams = Streams::new(plan.seed, number, vcpu);
            let others = model.host.others.clone().map(|others| (others, streams.of(Purpose::Others).clone()));
            let sharing = (plan.vcpus - vcpu % cpus).div_ceil(cpus);
            let schedule = Schedule::new(model.host.slice, sharing, vcpu / cpus, others);
            let places = streams.of(Purpose::Rotation).clone();
            let vpmu = Vpmu::new(pmu, behind(Clock::new(schedule, streams)));
            let tracer = plan.trace.as_ref().map(|trace| Tracer::new(trace, vcpu as u16, NS_KHZ, true));
            let vcpu = Vcpu::new(Rc::clone(model), vpmu).traced(tracer);
            Guest::new(
                vcpu,
                (pmu.into(), &boot, places),
                (plan.timer, plan.limit_ns),
                model.tsc_khz,
                model.costs.work_unit,
            )
        })
        .collect();
    let rests = Streams::new(plan.seed, number, first).of(Purpose::Rest).clone();
    Box::new(Guests { vcpus: guests, coupled: plan.is_coupled(model), rests, tick: plan.boot.tick_count.max(1) })
}

/// The guests of a host.
struct Guests<H> {
    vcpus: Vec<Guest<H>>,
    coupled: bool,
    rests: Stream,
    /// Tick of the guests, ns.
    tick: u64,
}

impl<H: SimHost> Guests<H> {
    /// Runs all of them to their rest or their end.
    fn run(&mut self) {
        if !self.coupled {
            // Guests that run one after the other stay in the cache.
            self.vcpus.iter_mut().for_each(|guest| while !guest.step() {});
            return;
        }
        // Guests that are coupled run in the order of virtual time, then of their numbers.
        let guests = self.vcpus.iter_mut().enumerate();
        let mut queue: BinaryHeap<_> = guests.map(|(vcpu, guest)| Reverse((guest.now(), vcpu))).collect();
        while let Some(Reverse((_, vcpu))) = queue.pop() {
            let guest = &mut self.vcpus[vcpu];
            if !guest.step() {
                queue.push(Reverse((guest.now(), vcpu)));
            }
        }
    }

    /// Returns when the last of them came to rest.
    fn rested_at(&mut self) -> u64 {
        self.vcpus.iter_mut().map(Guest::now).max().unwrap_or(0)
    }
}

impl<H: SimHost> Live for Guests<H> {
    fn turn(&mut self, samples: u64) -> Vec<GuestOutcome> {
        // Other guests have their turns meanwhile, and the guests' ticks go on: a turn begins anywhere between two of them.
        let at = self.rested_at() + draw(&mut self.rests, self.tick);
        self.vcpus.iter_mut().filter(|guest| guest.rests()).for_each(|guest| guest.begin_turn(at, samples));
        self.outcomes()
    }

    fn finish(&mut self) -> Vec<GuestOutcome> {
        let at = self.rested_at();
        self.vcpus.iter_mut().filter(|guest| guest.rests()).for_each(|guest| guest.begin_end(at));
        self.outcomes()
    }

    fn outcomes(&mut self) -> Vec<GuestOutcome> {
        self.run();
        self.vcpus.iter_mut().map(Guest::take_outcome).collect()
    }
}
