//! The payload beside the simulator's model of it.

use std::collections::BTreeMap;
use std::sync::Arc;

use host_pmu::trace::{Kind, Tracing};
use vmm::machine::{CounterSource, Cpu};

use crate::guests::{SINGLE, plan, run};

/// Times of 200 that make a handler usual: nothing rare falls into it.
const USUAL: u32 = 20;

/// Returns how often the accesses from one PMI to the next were seen.
fn handlers_of(tracing: &Tracing) -> BTreeMap<Vec<(Kind, u32)>, u32> {
    let rows: Vec<_> = std::iter::from_fn(|| tracing.pop()).collect();
    let mut seen = BTreeMap::<_, u32>::new();
    for part in rows.split(|row| row.kind == Kind::Pmi).skip(1) {
        let accesses = part.iter().filter(|row| row.kind.is_access()).map(|row| (row.kind, row.register));
        *seen.entry(accesses.collect::<Vec<_>>()).or_default() += 1;
    }
    seen
}

/// For Intel's driver and both of AMD's: the same registers in the same order.
pub(crate) fn handlers() {
    for (cpu, accesses) in [(Cpu::default(), 7), (Cpu::Milan, 2), (Cpu::Genoa, 6)] {
        let mut plan = plan(CounterSource::Floor, SINGLE, 200);
        (plan.machine.cpu, plan.machine.pmu) = (cpu, cpu.pmu());
        let real = Tracing::new(1);
        plan.machine.trace = Some(Arc::clone(&real));
        run(&plan);
        let simulated = Tracing::new(1);
        let boot = guest::abi::BootPage { sample_target: 200, ..plan.boot };
        let plan = sim::host::Plan {
            behind: sim::host::CounterSource::Floor { counts_per_ms: None },
            pmu: plan.machine.pmu,
            vcpus: 1,
            cpus: 1,
            boot,
            timer: sim::guest::Timer::Periodic,
            limit_ns: u64::MAX,
            seed: 1,
            trace: Some(Arc::clone(&simulated)),
        };
        sim::host::run(&sim::model::Model::embedded("development-host").expect("a model"), &plan, 0);
        let [real, simulated] = [&real, &simulated].map(|tracing| handlers_of(tracing));
        for (one, other) in [(&real, &simulated), (&simulated, &real)] {
            let mut usual = one.iter().filter(|(_, times)| **times >= USUAL).map(|(handler, _)| handler);
            assert!(usual.clone().any(|handler| handler.len() == accesses), "{cpu:?}: {one:?}");
            assert!(usual.all(|handler| other.contains_key(handler)), "{cpu:?}: {one:?}, {other:?}");
        }
    }
}
