//! Events that stop by themselves at an overflow: what may be lost, and that nothing else is.
//!
//! Promised: nothing is counted that did not happen; at most what the guest counts in the one entry that delivers a PMI is
//! lost; at every other entry a counter that counts has an event that runs. A guest whose handler turns the counter off
//! first of all, as Linux does, costs two host calls per PMI.

use arch_pmu::Vpmu;
use arch_pmu::caps::PmuCaps;
use host_pmu::bank::Bank;
use host_pmu::side::HostPmu as _;
use host_pmu::stats::OpKind;
use host_pmu::strategy::Strategy as Kept;
use proptest::collection::vec;
use proptest::prelude::*;

use crate::model::Burst;
use crate::model::host::ScriptedHost;

const COUNTER: u32 = 0xc1;
const SELECTOR: u32 = 0x186;
const GLOBAL_CTRL: u32 = 0x38f;
const OVF_CTRL: u32 = 0x390;
const INSTRUCTIONS: u64 = 0xc0;
/// EN, INT, OS and USR.
const ENABLED: u64 = 1 << 22 | 1 << 20 | 3 << 16;
const WIDTH: u32 = 48;

/// Answer of the guest to a PMI.
#[derive(Clone, Copy, Debug)]
enum Handler {
    /// Turns the counters off, reads, acknowledges, re-arms, turns them on.
    AsLinux,
    /// Acknowledges and re-arms a counter that goes on.
    Running,
    /// Nothing.
    None,
}

struct Guest {
    vpmu: Vpmu<Bank<ScriptedHost>>,
    host: ScriptedHost,
    period: u64,
    /// Value of the counter when it was last written or read.
    last: u64,
    observed: u64,
    truly: u64,
    may_be_lost: u64,
    pmis: u64,
}

impl Guest {
    fn new(strategy: Kept, period: u64) -> Self {
        let host = ScriptedHost::one_shot(&strategy);
        let vpmu = Vpmu::new(PmuCaps::default(), Bank::new(host.clone(), strategy));
        let mut guest = Self { vpmu, host, period, last: 0, observed: 0, truly: 0, may_be_lost: 0, pmis: 0 };
        guest.rearm();
        guest.write(SELECTOR, ENABLED | INSTRUCTIONS);
        guest.write(GLOBAL_CTRL, 1);
        guest
    }

    fn write(&mut self, msr: u32, value: u64) {
        self.vpmu.wrmsr(msr, value).expect("a register that exists");
    }

    fn look(&mut self) {
        let now = self.vpmu.rdmsr(COUNTER).expect("a counter that exists");
        self.observed += now.wrapping_sub(self.last) & ((1 << WIDTH) - 1);
        self.last = now;
    }

    fn rearm(&mut self) {
        let value = 0u64.wrapping_sub(self.period) & ((1 << WIDTH) - 1);
        self.write(COUNTER, 0u64.wrapping_sub(self.period));
        self.last = value;
    }

    /// Runs one entry with `burst`; returns whether it delivered a PMI.
    fn run(&mut self, burst: Burst, counting: bool) -> Result<bool, TestCaseError> {
        self.vpmu.enter();
        let pmi = self.vpmu.take_pmi();
        let n = burst.count(INSTRUCTIONS, true, true);
        if counting {
            self.truly += n;
            if !pmi {
                prop_assert_eq!(self.host.armed().len(), 1, "a counter that counts has no event that runs");
            }
        } else {
            prop_assert!(self.host.armed().is_empty(), "a counter that is off is counted");
        }
        let signalled = self.host.run(burst);
        if signalled {
            self.vpmu.kick();
        }
        // The scripted guest runs on to the end of the burst that signals, where a real one is interrupted.
        if counting && (pmi || signalled) {
            self.may_be_lost += n;
        }
        self.pmis += u64::from(pmi);
        Ok(pmi)
    }

    fn handle(&mut self, handler: Handler, burst: Burst) -> Result<(), TestCaseError> {
        match handler {
            Handler::AsLinux => {
                self.write(GLOBAL_CTRL, 0);
                self.run(burst, false)?;
                self.look();
                self.write(OVF_CTRL, 1);
                self.rearm();
                self.write(GLOBAL_CTRL, 1);
            }
            Handler::Running => {
                self.write(OVF_CTRL, 1);
                self.look();
                self.rearm();
            }
            Handler::None => {}
        }
        Ok(())
    }
}

fn burst() -> impl Strategy<Value = Burst> {
    (any::<u64>(), 0..12u32).prop_map(|(seed, bits)| Burst::new(seed, bits))
}

fn handler() -> impl Strategy<Value = Handler> {
    prop_oneof![4 => Just(Handler::AsLinux), 1 => Just(Handler::Running), 1 => Just(Handler::None)]
}

fn strategies() -> impl Strategy<Value = Kept> {
    prop::sample::select(vec!["deferred", "pool", "at-once", "gated"]).prop_map(|name| {
        let deferred = Kept::preset("deferred").expect("a preset");
        match name {
            "at-once" => Kept { apply: host_pmu::strategy::Apply::AtOnce, ..deferred },
            "gated" => Kept { gate: true, skip_period: true, ..deferred },
            preset => Kept::preset(preset).expect("a preset"),
        }
    })
}

proptest! {
    #[test]
    fn only_what_a_pmis_entry_counts_may_be_lost(
        strategy in strategies(), period in 1..3000u64, steps in vec((burst(), handler()), 1..120),
    ) {
        let mut guest = Guest::new(strategy, period);
        for (burst, handler) in steps {
            if guest.run(burst, true)? {
                guest.handle(handler, burst)?;
            }
        }
        guest.vpmu.enter();
        guest.write(GLOBAL_CTRL, 0);
        guest.vpmu.enter();
        guest.look();
        prop_assert!(guest.observed <= guest.truly, "{} counted, {} happened", guest.observed, guest.truly);
        let least = guest.truly - guest.may_be_lost;
        prop_assert!(guest.observed >= least, "{} counted, at least {least} happened outside PMIs", guest.observed);
    }
}

#[test]
fn a_handler_like_linuxs_costs_two_host_calls_per_pmi() {
    let mut guest = Guest::new(Kept::preset("deferred").expect("a preset"), 1 << 14);
    for seed in 0..20_000 {
        let burst = Burst::new(seed, 8);
        if guest.run(burst, true).expect("counts") {
            guest.handle(Handler::AsLinux, burst).expect("counts");
        }
    }
    let ops = &guest.vpmu.host().stats().ops;
    let calls: u64 = OpKind::ALL.into_iter().map(|kind| ops.count(kind)).sum();
    assert!(guest.pmis > 50, "{} PMIs", guest.pmis);
    assert_eq!((ops.count(OpKind::Open), calls), (1, 1 + 2 * guest.pmis), "{} PMIs", guest.pmis);
    assert_eq!(guest.vpmu.host().held(), 1);
}

#[test]
fn a_pmi_without_a_handler_restarts_its_counter_within_one_entry() {
    let mut guest = Guest::new(Kept::preset("deferred").expect("a preset"), 1 << 10);
    let mut entries = guest.vpmu.host().stats().counts.entries;
    let (mut restarts, mut held) = (0, 0);
    for seed in 0..200 {
        guest.vpmu.enter();
        entries += 1;
        held += guest.vpmu.host().held();
        if guest.vpmu.take_pmi() {
            let stopped = guest.host.armed().is_empty();
            guest.vpmu.pmi_not_handled();
            guest.rearm();
            restarts += u32::from(stopped && guest.host.armed().len() == 1);
        }
        if guest.host.run(Burst::new(seed, 8)) {
            guest.vpmu.kick();
        }
    }
    assert!(restarts > 5, "{restarts} restarts");
    assert_eq!((guest.vpmu.host().stats().counts.entries, held), (entries, 200), "one event held at each entry");
}
