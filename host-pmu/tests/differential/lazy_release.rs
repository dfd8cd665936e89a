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
        ops in vec((0..12u8, 0..COUNTERS, 0..EVENTS, 0..1u64 << COUNTERS), 1..120), slices in 1..4u32, choices in any::<[bool; 2]>(),
    ) {
        let [_, pool] = choices;
        let (strategy, script) = (kept(slices, choices), Script::default());
        let open = std::rc::Rc::clone(&script.held);
        let mut vpmu = Vpmu::new(PmuCaps::default(), Bank::new(host(&strategy, script), strategy));
        let mut counters = [Kind::default(); COUNTERS];
        let mut gate = 0xf;
        // A slice that began while nothing was held is nobody's.
        let mut slice = false;
        for (kind, n, event, global) in ops {
            match kind {
                // No two counters count the same.
                0 | 1 => {
                    vpmu.wrmsr(0x186 + n as u32, 0x53_0000 | (0x10 * (n + 1) + event) as u64).unwrap();
                    (counters[n].enabled, counters[n].touched) = (Some(event), true);
                }
                2 => {
                    vpmu.wrmsr(0x186 + n as u32, 0x13_003c).unwrap();
                    (counters[n].enabled, counters[n].touched) = (None, true);
                }
                3 => {
                    vpmu.wrmsr(0xc1 + n as u32, 0).unwrap();
                    counters[n].touched = true;
                }
                4 => _ = vpmu.rdmsr(0xc1 + n as u32).unwrap(),
                5 => {
                    vpmu.wrmsr(0x38f, global).unwrap();
                    gate = global;
                }
                6..9 => {
                    vpmu.host().backend().host.sched_in = true;
                    slice = true;
                }
                _ => {}
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
