//! Time that the vPMU adds to an MSR exit: one guest access and one entry, nanoseconds, no KVM in between.
//!
//! `cargo bench -p vmm`. The path through KVM_RUN is measured in every run (`exit_path_ns` of a result document).

use std::hint::black_box;
use std::time::Instant;

use arch_pmu::Vpmu;
use arch_pmu::caps::PmuCaps;
use arch_pmu::host::HostCounters;
use host_pmu::backend::BackendKey;
use host_pmu::backend::perf::PerfBackend;
use host_pmu::bank::Bank;
use host_pmu::floor::Floor;
use host_pmu::stats::ns_histogram;
use host_pmu::strategy::Strategy;

const TSC_KHZ: u64 = 2_000_000;
/// Accesses timed together, so that the clock's own cost does not matter.
const BATCH: u32 = 64;
const BATCHES: u32 = 20_000;

fn sampling<H: HostCounters>(host: H) -> Vpmu<H> {
    let mut pmu = Vpmu::new(PmuCaps::default(), host);
    for n in 0..4 {
        // At 0 a counter has 2^48 before it: nothing overflows meanwhile.
        pmu.wrmsr(0xc1 + n, 0).expect("a counter of the guest");
        pmu.wrmsr(0x186 + n, 0x53_00c0).expect("a selector of the guest");
    }
    pmu.enter();
    pmu
}

fn time<H: HostCounters>(what: &str, pmu: &mut Vpmu<H>, mut access: impl FnMut(&mut Vpmu<H>)) {
    let mut ns = ns_histogram();
    for _ in 0..BATCHES {
        let begin = Instant::now();
        for _ in 0..BATCH {
            access(pmu);
            pmu.enter();
            black_box(pmu.take_pmi());
        }
        ns.saturating_record(begin.elapsed().as_nanos() as u64 / u64::from(BATCH));
    }
    println!("{what:<44} p50 {:>5} ns  p99 {:>5} ns", ns.value_at_quantile(0.5), ns.value_at_quantile(0.99));
}

fn access<H: HostCounters>(what: &str, host: H) {
    let mut pmu = sampling(host);
    time(&format!("{what}: RDMSR GLOBAL_STATUS"), &mut pmu, |pmu| {
        black_box(pmu.rdmsr(black_box(0x38e))).ok();
    });
    time(&format!("{what}: WRMSR OVF_CTRL"), &mut pmu, |pmu| {
        pmu.wrmsr(black_box(0x390), 1).ok();
    });
    pmu.wrmsr(0x38f, 0).ok();
    time(&format!("{what}: WRMSR PMC0, paused"), &mut pmu, |pmu| {
        pmu.wrmsr(black_box(0xc1), 0).ok();
    });
    time(&format!("{what}: WRMSR GLOBAL_CTRL, 4 counters on or off"), &mut pmu, |pmu| {
        let on = pmu.rdmsr(0x38f).unwrap_or(0);
        pmu.wrmsr(black_box(0x38f), on ^ 0xf).ok();
    });
}

fn main() {
    access("none", Floor::new(TSC_KHZ).expect("a POSIX timer"));
    let strategy = Strategy::preset("reuse-lazy").expect("a preset");
    match PerfBackend::new(&BackendKey::CpuClock, TSC_KHZ) {
        Ok(backend) => access("reuse-lazy, cpu-clock", Bank::new(backend, strategy).reserved()),
        Err(error) => println!("SKIP: {error}"),
    }
}
