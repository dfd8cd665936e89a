//! A vPMU with a host event behind its counter, as a VMM embeds it: this thread's loop stands in for the guest.

use std::error::Error;
use std::time::{Duration, Instant};

use arch_pmu::Vpmu;
use arch_pmu::caps::PmuCaps;
use arch_pmu::intel::{IA32_PERF_GLOBAL_CTRL, IA32_PERF_GLOBAL_OVF_CTRL, IA32_PERFEVTSEL0, IA32_PMC0, PerfEvtSel};
use host_pmu::backend::BackendKey;
use host_pmu::kick;
use host_pmu::open::{Work, open};
use host_pmu::side::HostPmu;
use host_pmu::strategy::Strategy;

/// A TSC of 2 GHz, and a PMI each 5 ms of the thread's time.
const TSC_KHZ: u64 = 2_000_000;
const PERIOD: u32 = 10_000_000;

struct Loop;

impl Work for Loop {
    type Out = Result<(), Box<dyn Error>>;

    fn run<H: HostPmu>(self, host: H) -> Self::Out {
        let mut vpmu = Vpmu::new(PmuCaps::default(), host);
        let cycles = PerfEvtSel::new().with_event(0x3c).with_usr(true).with_os(true).with_int(true).with_en(true);
        let fault = |_| "#GP";
        vpmu.wrmsr(IA32_PMC0, PERIOD.wrapping_neg().into()).map_err(fault)?;
        vpmu.wrmsr(IA32_PERFEVTSEL0, cycles.into_bits()).map_err(fault)?;
        vpmu.wrmsr(IA32_PERF_GLOBAL_CTRL, 1).map_err(fault)?;
        let (mut pmis, began) = (0, Instant::now());
        while pmis < 10 && began.elapsed() < Duration::from_secs(30) {
            vpmu.enter();
            if vpmu.take_pmi() {
                pmis += 1;
                // The guest's handler re-arms and acknowledges.
                vpmu.wrmsr(IA32_PMC0, PERIOD.wrapping_neg().into()).map_err(fault)?;
                vpmu.wrmsr(IA32_PERF_GLOBAL_OVF_CTRL, 1).map_err(fault)?;
            }
            // The guest runs until the host signals, or exits for another reason.
            for step in 0..10_000 {
                std::hint::black_box(step);
            }
            if kick::wait(Duration::ZERO)? {
                vpmu.kick();
            }
        }
        println!("{pmis} PMIs in {:?}", began.elapsed());
        if pmis == 10 { Ok(()) } else { Err("the events of this host do not overflow".into()) }
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    kick::block()?;
    open(&BackendKey::CpuClock, &Strategy::preset("reuse")?, TSC_KHZ, Loop)?
}
