//! A PMU that the guest owns: KVM's mediated vPMU (Linux 7.0), as a model.
//!
//! Accesses to the counters do not exit and have a register's cost. In exchange each exit saves the guest's PMU
//! registers and each entry loads them, at `cost.pmu-switch`. The counters count guest mode alone, as hardware does,
//! and no host event stands behind them. An overflow ends guest mode by an interrupt, which the host hands on as a PMI.
//!
//! No real guest of ours can have this: the host's kernel must give the PMU away.

use std::rc::Rc;

use arch_pmu::host::{AfterOverflow, HostCounters, Reprogram};
use arch_pmu::intel::{IA32_FIXED_CTR_CTRL, IA32_PERFEVTSEL0};
use arch_pmu::spec::{CounterId, CounterSet, MAX_COUNTERS, Spec};
use counts::Counts;
use host_pmu::side::HostPmu;
use host_pmu::stats::HostSide;

use crate::clock::Clock;
use crate::event::{Base, code};
use crate::model::{Model, Rate};
use crate::side::SimHost;
use crate::stream::Purpose;

/// Event selectors an Intel PMU may have.
const SELECTORS: u32 = 8;

/// A mediated PMU of some kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mediated {
    /// Its name in place of a strategy's.
    pub name: &'static str,
    /// One line about it.
    pub about: &'static str,
    /// True if event selectors and FIXED_CTR_CTRL exit, so that an event filter can be enforced.
    pub filtered: bool,
}

/// Every kind.
pub const MEDIATED: [Mediated; 2] = [
    Mediated {
        name: "mediated",
        about: "model only: the guest owns the PMU, and exits and entries switch it; no event filter",
        filtered: false,
    },
    Mediated {
        name: "mediated-filter",
        about: "model only: as mediated, and accesses to event selectors exit, for an event filter",
        filtered: true,
    },
];

impl Mediated {
    /// Returns the kind of this name.
    pub fn named(name: &str) -> Option<Self> {
        MEDIATED.into_iter().find(|kind| kind.name == name)
    }
}

/// A counter since its start; times are those of its base, ns.
#[derive(Clone, Copy, Debug)]
struct Counting {
    base: Base,
    rate: Rate,
    since: u64,
    taken: u64,
    /// Its time at the next overflow, since its start; `u64::MAX` after one that was not yet handled.
    due: u64,
}

/// The counters of a vCPU whose guest owns them.
#[derive(Debug)]
pub struct SimMediated {
    model: Rc<Model>,
    clock: Clock,
    filtered: bool,
    counters: [Option<Counting>; MAX_COUNTERS],
    running: CounterSet,
    entries: u64,
}

impl SimMediated {
    /// Creates the counters of one vCPU thread.
    pub const fn new(model: Rc<Model>, clock: Clock, kind: Mediated) -> Self {
        let (counters, running) = ([None; MAX_COUNTERS], CounterSet::EMPTY);
        Self { model, clock, filtered: kind.filtered, counters, running, entries: 0 }
    }

    fn switch(&mut self) {
        if let Some(costs) = &self.model.costs.mediated {
            self.clock.spend(&costs.pmu_switch, Purpose::PmuSwitch);
        }
    }

    fn counting(&self) -> impl Iterator<Item = (usize, Counting)> {
        self.running.into_iter().filter_map(|id| Some((id.index(), self.counters[id.index()]?)))
    }
}

impl HostCounters for SimMediated {
    fn changed(&mut self, _counter: CounterId) -> Reprogram {
        Reprogram::Now
    }

    /// Returns [`AfterOverflow::Aim`]: hardware counts on from 0.
    fn overflowed(&mut self, _counter: CounterId, _near: bool) -> AfterOverflow {
        AfterOverflow::Aim
    }

    fn take(&mut self, counter: CounterId) -> u64 {
        let times = self.clock.times();
        let Some(one) = self.counters[counter.index()].as_mut() else { return 0 };
        let total = one.rate.counts(one.base.of(times) - one.since);
        total - std::mem::replace(&mut one.taken, total)
    }

    fn pause(&mut self, counter: CounterId) -> u64 {
        let gathered = self.take(counter);
        self.counters[counter.index()] = None;
        self.running.remove(counter);
        gathered
    }

    fn start(&mut self, counter: CounterId, spec: Spec, period: u64) {
        let base = Base::guest(spec.user(), spec.kernel());
        let rate = self.model.rate(code(spec));
        let since = base.of(self.clock.times());
        self.counters[counter.index()] = Some(Counting { base, rate, since, taken: 0, due: rate.ns_for(period) });
        self.running.insert(counter);
    }

    fn set_period(&mut self, counter: CounterId, period: u64) {
        if let Some(one) = self.counters[counter.index()].as_mut() {
            one.due = one.rate.ns_for(one.taken.saturating_add(period));
        }
    }

    fn keeps_nothing_for(&self) -> CounterSet {
        self.running.complement()
    }

    fn on_entry(&mut self, _enabled: CounterSet) {
        self.returns();
    }
}

impl HostPmu for SimMediated {
    fn held(&self) -> u64 {
        0
    }

    fn account(&mut self, counts: &mut Counts) -> HostSide {
        counts.entries += self.entries;
        HostSide::default()
    }

    fn restart_account(&mut self) {
        self.entries = 0;
    }
}

impl SimHost for SimMediated {
    fn clock(&mut self) -> &mut Clock {
        &mut self.clock
    }

    fn user_ns_to_signal(&mut self) -> u64 {
        let times = self.clock.times();
        let left = self.counting().filter(|(_, counter)| counter.base.in_user_mode());
        left.map(|(_, one)| one.due.saturating_sub(one.base.of(times) - one.since)).min().unwrap_or(u64::MAX)
    }

    fn take_signals(&mut self) -> u64 {
        let times = self.clock.times();
        let mut taken = 0;
        for id in self.running {
            if let Some(one) = self.counters[id.index()].as_mut()
                && one.base.of(times) - one.since >= one.due
            {
                one.due = u64::MAX;
                taken += 1;
            }
        }
        taken
    }

    fn intercepts(&self, msr: u32) -> bool {
        let selects = (IA32_PERFEVTSEL0..IA32_PERFEVTSEL0 + SELECTORS).contains(&msr) || msr == IA32_FIXED_CTR_CTRL;
        self.filtered && selects
    }

    fn access_register(&mut self) {
        if let Some(costs) = &self.model.costs.mediated {
            let ns = self.clock.sample(&costs.register, Purpose::Register);
            self.clock.kernel(ns * 1000);
        }
    }

    fn overflow_due(&self) -> bool {
        let times = self.clock.times();
        self.counting().any(|(_, one)| one.base.of(times) - one.since >= one.due)
    }

    /// Saves the guest's registers.
    fn leaves(&mut self) {
        self.switch();
    }

    /// Loads the guest's registers.
    fn returns(&mut self) {
        self.entries += 1;
        self.switch();
    }
}
