//! A host side for tests: its counts are put there by the test.

use crate::host::{AfterOverflow, HostCounters, Reprogram};
use crate::spec::{CounterId, CounterSet, MAX_COUNTERS, Spec};

#[derive(Debug, Default)]
pub(crate) struct Fake {
    pub(crate) deferred: bool,
    /// Counts waiting to be handed over.
    pub(crate) pending: [u64; MAX_COUNTERS],
    pub(crate) period: [Option<u64>; MAX_COUNTERS],
    pub(crate) specs: [Option<Spec>; MAX_COUNTERS],
    pub(crate) starts: u32,
    pub(crate) touched: Vec<CounterId>,
}

impl HostCounters for Fake {
    fn changed(&mut self, _counter: CounterId) -> Reprogram {
        if self.deferred { Reprogram::AtEntry } else { Reprogram::Now }
    }
    fn overflowed(&mut self, _counter: CounterId, _near: bool) -> AfterOverflow {
        AfterOverflow::Reprogram
    }
    fn take(&mut self, counter: CounterId) -> u64 {
        std::mem::take(&mut self.pending[counter.index()])
    }
    fn pause(&mut self, counter: CounterId) -> u64 {
        self.period[counter.index()] = None;
        self.take(counter)
    }
    fn start(&mut self, counter: CounterId, spec: Spec, period: u64) {
        self.starts += 1;
        self.specs[counter.index()] = Some(spec);
        self.period[counter.index()] = Some(period);
    }
    fn set_period(&mut self, counter: CounterId, period: u64) {
        self.period[counter.index()] = Some(period);
    }
    fn touch(&mut self, counter: CounterId) {
        self.touched.push(counter);
    }
    fn on_entry(&mut self, _enabled: CounterSet) {}
}
