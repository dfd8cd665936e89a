//! perf's rules for hardware events, one by one, under the strategies: what a guest gets on hosts that are not at hand.

use arch_pmu::Vpmu;
use arch_pmu::caps::PmuCaps;
use host_pmu::backend::HostError;
use host_pmu::backend::scheduling::Processor;
use host_pmu::bank::{Bank, BankStats};
use host_pmu::stats::OpKind;
use host_pmu::strategy::Strategy;

use crate::model::Burst;
use crate::model::host::{self, Release, Rules, Script, ScriptedHost};
use crate::model::pair::failures;

const GLOBAL_CTRL: u32 = 0x38f;
/// Selectors of events that only general-purpose counters of a Cascade Lake count: branches, their misses, references, misses.
const EVENTS: [u64; 4] = [0x53_00c4, 0x53_00c5, 0x53_4f2e, 0x53_412e];
/// MEM_LOAD_RETIRED.L1_HIT.
const ANOTHER: u64 = 0x53_01d1;
/// Number of other users' events that leave a Cascade Lake's thread three general-purpose counters: one has the fixed
/// counter of cycles.
const ONE_TOO_MANY: usize = 2;
const KVMS: [&str; 4] = ["reuse", "reuse-lazy", "paused-flag", "deferred"];

/// A guest with the four [`EVENTS`], on a Cascade Lake with hyper-threading.
struct Guest {
    vpmu: Vpmu<Bank<ScriptedHost>>,
    /// Exits for a signal at the entry before.
    kicks: u32,
}

impl Guest {
    fn new(preset: &str, release: Release, others: usize) -> Self {
        let strategy = Strategy::preset(preset).expect("a preset");
        let script = Script::by_rules(Rules { processor: Processor::CascadeLake, release, others });
        let host = host::host(&strategy, script);
        let mut guest = Self { vpmu: Vpmu::new(PmuCaps::default(), Bank::new(host, strategy)), kicks: 0 };
        guest.write(GLOBAL_CTRL, 0);
        for (n, event) in (0..).zip(EVENTS) {
            guest.write(0xc1 + n, 0u64.wrapping_sub(1_000_000));
            guest.write(0x186 + n, event);
        }
        guest.on();
        guest
    }

    fn host(&mut self) -> &mut ScriptedHost {
        self.vpmu.host().backend()
    }

    fn set_others(&mut self, others: usize) {
        host::set_others(self.host(), others);
    }

    fn write(&mut self, msr: u32, value: u64) {
        self.vpmu.wrmsr(msr, value).expect("the guest has it");
        self.enter();
    }

    fn read(&mut self, msr: u32) -> u64 {
        self.vpmu.rdmsr(msr).expect("the guest has it")
    }

    fn on(&mut self) {
        self.write(GLOBAL_CTRL, 0xf);
    }

    fn off(&mut self) {
        self.write(GLOBAL_CTRL, 0);
    }

    fn off_and_on(&mut self) {
        self.off();
        self.on();
    }

    /// Enters the guest, as often as signals make KVM_RUN return at once.
    fn enter(&mut self) {
        self.vpmu.enter();
        self.kicks = 0;
        while host::take_error_signal(self.host()) {
            self.kicks += 1;
            assert!(self.kicks < 10, "signals keep the vCPU out of the guest");
            self.vpmu.kick();
            self.vpmu.enter();
        }
    }

    /// Runs the guest for a moment.
    fn run(&mut self) {
        if host::run(self.host(), Burst::new(7, 8)) {
            self.vpmu.kick();
        }
        self.enter();
    }

    fn stats(&mut self) -> &BankStats {
        self.vpmu.host().stats()
    }

    fn ops(&mut self, kind: OpKind) -> u64 {
        self.stats().ops.count(kind)
    }

    fn counting(&mut self) -> usize {
        host::armed(self.host()).len()
    }
}

#[test]
fn a_lost_pinned_event_is_kept_and_enabled_again_at_the_next_resume() {
    for (preset, release) in KVMS.into_iter().flat_map(|preset| [(preset, Release(6, 1)), (preset, Release(6, 15))]) {
        let mut guest = Guest::new(preset, release, 0);
        guest.run();
        assert_eq!((guest.counting(), failures(guest.stats())), (4, [0; 3]), "{preset}");
        guest.set_others(ONE_TOO_MANY);
        for _ in 0..100 {
            guest.enter();
            guest.run();
            guest.off_and_on();
        }
        assert_eq!((guest.counting(), guest.ops(OpKind::Open)), (3, 4), "{preset}: as KVM's");
        assert!(failures(guest.stats())[2] > 50, "{preset}: each attempt is reported");
        assert_eq!(guest.stats().last_error, Some(HostError::PinnedLost), "{preset}");
        guest.set_others(0);
        guest.off_and_on();
        assert_eq!((guest.counting(), guest.ops(OpKind::Open)), (4, 4), "{preset}: the counter is back");
    }
}

#[test]
fn the_signal_of_a_lost_event_leaves_the_guest_its_time() {
    for preset in ["reuse", "reuse-lazy", "paused-flag", "deferred", "pool", "virtual", "gate"] {
        let mut guest = Guest::new(preset, Release(6, 15), 0);
        guest.set_others(ONE_TOO_MANY);
        let (opens, mut kicks) = (guest.ops(OpKind::Open), 0);
        for _ in 0..1000 {
            guest.enter();
            kicks += guest.kicks;
        }
        assert!(guest.ops(OpKind::Open) - opens <= 4, "{preset}: {} opens", guest.ops(OpKind::Open));
        assert!(kicks < 20, "{preset}: {kicks} kicks in 1000 entries");
        assert_eq!(guest.counting(), 3, "{preset}");
    }
}

#[test]
fn an_event_that_leaves_is_stopped_before_another_is_opened() {
    for preset in ["gate", "virtual"] {
        for release in [Release(6, 1), Release(6, 12), Release(6, 15)] {
            let mut guest = Guest::new(preset, release, 1);
            for turn in 0..8 {
                guest.run();
                guest.off();
                guest.write(0x186 + 3, if turn % 2 == 0 { ANOTHER } else { EVENTS[3] });
                guest.on();
                assert_eq!(
                    (guest.counting(), failures(guest.stats())),
                    (4, [0; 3]),
                    "{preset} on {release:?}, turn {turn}"
                );
            }
        }
    }
}

#[test]
fn a_gate_without_all_its_counters_falls_apart_to_single_events_and_says_so() {
    for release in [Release(6, 1), Release(6, 12), Release(6, 15)] {
        let mut guest = Guest::new("gate", release, 0);
        guest.run();
        guest.set_others(ONE_TOO_MANY);
        let before = guest.read(0xc1);
        for _ in 0..4 {
            guest.off_and_on();
            guest.run();
        }
        assert_eq!(guest.counting(), 3, "{release:?}");
        assert_eq!(guest.stats().last_error, Some(HostError::GateTooLarge), "not the fourth's own loss");
        assert!(guest.read(0xc1) > before, "{release:?}: the others count");
    }
    // A guest with more counters than the host has, from the beginning.
    let mut guest = Guest::new("gate", Release(6, 12), ONE_TOO_MANY);
    assert_eq!(guest.stats().last_error, Some(HostError::GateTooLarge));
    guest.off_and_on();
    assert_eq!(guest.counting(), 3);
}

#[test]
fn without_records_only_what_overflowed_is_aimed_anew() {
    for preset in ["gate", "virtual", "deferred", "reuse"] {
        let mut guest = Guest::new(preset, Release(6, 1), 0);
        guest.off();
        guest.write(0xc1, 0u64.wrapping_sub(2));
        guest.on();
        let (reads, before) = (guest.ops(OpKind::Read), guest.ops(OpKind::Period));
        assert!(host::run(guest.host(), Burst::new(7, 8)), "it signals");
        guest.vpmu.kick();
        assert_eq!(guest.vpmu.counts().overflows, 1, "{preset}");
        let (reads, set) = (guest.ops(OpKind::Read) - reads, guest.ops(OpKind::Period) - before);
        assert!(reads <= 4 && set <= 1, "{preset}: {reads} reads and {set} periods for four counters");
    }
}
