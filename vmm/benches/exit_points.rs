//! Points of time between KVM_RUN's return and the next KVM_RUN, in a real guest that samples one event.
//!
//! `cargo bench -p vmm --features exit-points --bench exit_points [-- STRATEGY...]`: by each strategy, and `floor`, the
//! ticks (TSC) from point to point of the exits of MSRs. A point costs some ticks itself; what that is stands above the
//! table.

use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use arch_pmu::caps::PmuCaps;
use guest::abi::{BootPage, EventSpec, MAX_EVENTS};
use host_pmu::backend::BackendKey;
use host_pmu::strategy::Strategy;
use vmm::kvm::{Host, points};
use vmm::machine::payload::{self, PayloadPlan};
use vmm::machine::{CounterSource, Cpu, Plan};

/// PMIs of a run; each is seven exits.
const SAMPLES: u64 = 3000;
/// cpu-cycles in USR and OS, with INT, each 2 000 000.
const EVENT: EventSpec = EventSpec { selector: 0x13_003c, fixed: 0, period: 2_000_000 };

fn plan(behind: CounterSource) -> PayloadPlan {
    let mut events = [EventSpec::default(); MAX_EVENTS];
    events[0] = EVENT;
    PayloadPlan {
        machine: Plan {
            behind,
            cpu: Cpu::default(),
            pmu: PmuCaps::default(),
            vcpus: 1,
            pin: Vec::new(),
            time_limit: Duration::from_secs(120),
            seccomp: true,
            register_cost_ns: None,
            sampling: None,
            trace: None,
        },
        log_entries: 2 * SAMPLES + 4096,
        boot: BootPage {
            tick_count: 4_000_000,
            baseline_ticks: 2,
            max_ticks: 25_000,
            tail_ticks: 2,
            sample_target: SAMPLES,
            event_count: 1,
            events,
            ..BootPage::default()
        },
        steps: Arc::default(),
    }
}

fn behind(strategy: &str) -> Option<CounterSource> {
    if strategy == "floor" {
        return Some(CounterSource::Floor);
    }
    let strategy = Strategy::preset(strategy).ok()?;
    Some(CounterSource::Events { backend: BackendKey::CpuClock, strategy })
}

/// Ticks between two points with nothing in between: the median.
fn cost_of_a_point() -> u64 {
    let mut costs: Vec<u64> = (0..10_001)
        .map(|_| {
            let begin = points::now();
            black_box(points::now()) - black_box(begin)
        })
        .collect();
    costs.sort_unstable();
    costs[costs.len() / 2]
}

fn main() {
    let host = match Host::open() {
        Ok(host) => host,
        Err(error) => return println!("SKIP: {error}"),
    };
    let mut strategies: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with('-')).collect();
    if strategies.is_empty() {
        strategies = ["floor", "gate", "reuse-lazy"].map(str::to_owned).into();
    }
    println!("a point itself: {} ticks", cost_of_a_point());
    for strategy in strategies {
        let Some(behind) = behind(&strategy) else {
            return println!("no preset {strategy}");
        };
        match payload::run(&host, guest::PMU_PAYLOAD, &plan(behind), &AtomicBool::new(false)) {
            Err(error) => println!("SKIP: {strategy}: {error}"),
            Ok(outcome) => {
                let path = outcome.vcpus.first().map(|vcpu| vcpu.account.exit_path_ns.value_at_quantile(0.5));
                println!("\n{strategy}: {:?}, exit path p50 {} ns (points included)", outcome.end, path.unwrap_or(0));
                println!("{:<40} {:>8} {:>8} {:>8}", "until", "p10", "p50", "p90");
                for (point, count, ticks) in points::take(&[10, 50, 90]).unwrap_or_default() {
                    println!("{:<40} {:>8} {:>8} {:>8}   of {count}", point.about(), ticks[0], ticks[1], ticks[2]);
                }
            }
        }
    }
}
