//! When a strategy with `release = { slices = N }` gives an event back, seen from the guest's side (b35e5548b411).
//!
//! Promised: at the first entry of a sched slice a counter's event is gone if and only if, in each of the N slices that
//! ended since, its own enable was off and the guest wrote nothing of it. A read and GLOBAL_CTRL keep and release nothing. In a
//! pool the same holds for every event that the counter left there.

use crate::model::host::{Script, host};
use arch_pmu::Vpmu;
use arch_pmu::caps::PmuCaps;
use host_pmu::bank::Bank;
use host_pmu::side::HostPmu as _;
use host_pmu::strategy::Strategy as Kept;
use proptest::collection::vec;
use proptest::prelude::*;

const COUNTERS: usize = 4;
/// Events of each counter.
const EVENTS: usize = 2;

#[derive(Clone, Debug)]
enum Op {
    Enable(usize, usize),
    Disable(usize),
    WriteCounter(usize),
    ReadCounter(usize),
    GlobalCtrl(u64),
    Entry,
    Slice,
}

fn op() -> impl Strategy<Value = Op> {
    let n = || 0..COUNTERS;
    prop_oneof![
        2 => (n(), 0..EVENTS).prop_map(|(n, event)| Op::Enable(n, event)),
        1 => n().prop_map(Op::Disable),
        1 => n().prop_map(Op::WriteCounter),
        1 => n().prop_map(Op::ReadCounter),
        1 => (0..1u64 << COUNTERS).prop_map(Op::GlobalCtrl),
        2 => Just(Op::Entry),
        3 => Just(Op::Slice),
    ]
}

/// One counter as this promise sees it.
#[derive(Clone, Copy, Default)]
struct Kind {
    /// The event of its selector, if its own enable is on.
    enabled: Option<usize>,
    touched: bool,
    /// Slices without use, of each event that is held.
    held: [Option<u32>; EVENTS],
}

fn kept(slices: u32, [deferred, pool]: [bool; 2]) -> Kept {
    let apply = if deferred { "deferred" } else { "at-once" };
    // Room for every event of every counter.
    let reuse = if pool { "{ pool = 8 }" } else { "'last'" };
    Kept::from_toml(&format!("name = 'lazy'\nreuse = {reuse}\nrelease = {{ slices = {slices} }}\napply = '{apply}'"))
        .expect("a valid strategy")
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn an_event_lives_exactly_as_long_as_its_counter_is_in_use(
        ops in vec(op(), 1..120), slices in 1..4u32, choices in any::<[bool; 2]>(),
    ) {
        let [_, pool] = choices;
        let (strategy, script) = (kept(slices, choices), Script::default());
        let open = script.held();
        let mut vpmu = Vpmu::new(PmuCaps::default(), Bank::new(host(&strategy, script), strategy));
        let mut counters = [Kind::default(); COUNTERS];
        let mut gate = 0xf;
        // A slice that began while nothing was held is nobody's.
        let mut slice = false;
        for op in ops {
            match op {
                Op::Enable(n, event) => {
                    // No two counters count the same.
                    vpmu.wrmsr(0x186 + n as u32, 0x53_0000 | (0x10 * (n + 1) + event) as u64).unwrap();
                    counters[n].enabled = Some(event);
                    counters[n].touched = true;
                }
                Op::Disable(n) => {
                    vpmu.wrmsr(0x186 + n as u32, 0x13_003c).unwrap();
                    counters[n].enabled = None;
                    counters[n].touched = true;
                }
                Op::WriteCounter(n) => {
                    vpmu.wrmsr(0xc1 + n as u32, 0).unwrap();
                    counters[n].touched = true;
                }
                Op::ReadCounter(n) => {
                    vpmu.rdmsr(0xc1 + n as u32).unwrap();
                }
                Op::GlobalCtrl(value) => {
                    vpmu.wrmsr(0x38f, value).unwrap();
                    gate = value;
                }
                Op::Slice => {
                    vpmu.host().backend().host.new_slice();
                    slice = true;
                }
                Op::Entry => {}
            }
            // Every exit is followed by an entry, as in the vCPU's loop.
            let before = counters.iter().any(|c| c.held.iter().any(Option::is_some));
            vpmu.enter();
            for (n, counter) in counters.iter_mut().enumerate() {
                if let Some(event) = counter.enabled.filter(|_| gate >> n & 1 != 0) {
                    if !pool {
                        counter.held = [None; EVENTS];
                    }
                    counter.held[event] = Some(0);
                }
            }
            if std::mem::take(&mut slice) && before {
                for counter in &mut counters {
                    let used = counter.enabled.is_some() || counter.touched;
                    for held in &mut counter.held {
                        *held = held.map(|idle| if used { 0 } else { idle + 1 }).filter(|&idle| idle < slices);
                    }
                    counter.touched = false;
                }
            }
            let expected = counters.iter().flat_map(|c| c.held).flatten().count();
            prop_assert_eq!(vpmu.host().held(), expected as u64);
            prop_assert_eq!(open.get(), expected as u64);
        }
        drop(vpmu);
        prop_assert_eq!(open.get(), 0);
    }
}
