//! A scripted host for the bank's tests.

use std::cell::RefCell;
use std::rc::Rc;

use arch_pmu::intel::PerfEvtSel;
use arch_pmu::spec::{CounterId, Spec};

use super::Bank;
use crate::backend::{Backend, HostError, Overflow};
use crate::strategy::Strategy;

/// A host without clocks or descriptors: it logs each call and counts as scripted.
#[derive(Debug, Default)]
pub(super) struct Script {
    pub(super) log: Vec<String>,
    pub(super) counts: Vec<u64>,
    pub(super) open: Vec<usize>,
    pub(super) now: u64,
    pub(super) sched_in: bool,
    pub(super) slept: bool,
    pub(super) refuse_open: bool,
    /// An event that is refused, among others that are not.
    pub(super) refuse: Option<Spec>,
    pub(super) refuse_period: bool,
    pub(super) lost: bool,
    pub(super) gated: bool,
    /// Its events go on while their counters are off; whether their counts can be looked at without a call.
    pub(super) goes_on: bool,
    pub(super) peeks: bool,
    pub(super) one_pace: bool,
    /// Its shortest period, if it has one.
    pub(super) shortest: u64,
    /// The period of each event, while it is enabled.
    pub(super) periods: Vec<u64>,
    pub(super) enabled: Vec<bool>,
    /// Overflow records, if there are any: its events then stop themselves.
    pub(super) records: Option<Vec<(u64, u64)>>,
    pub(super) records_lost: bool,
    /// Time of those records.
    pub(super) overflowed_at: Option<u64>,
    /// Events that stopped themselves, by their records, and were not resumed since.
    pub(super) spent: Vec<u64>,
    /// Records of events that go on; some are lost unless they are complete.
    pub(super) complete: bool,
    pub(super) unreliable: Vec<(u64, u64)>,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Host(pub(super) Rc<RefCell<Script>>);

pub(super) const REFUSED: HostError = HostError::Os { call: "scripted", errno: 22, remedy: "" };

impl Backend for Host {
    type Event = usize;

    fn open(&mut self, spec: Spec, period: u64) -> Result<usize, HostError> {
        let mut s = self.0.borrow_mut();
        if s.refuse_open || s.refuse == Some(spec) {
            return Err(REFUSED);
        }
        let id = s.counts.len();
        s.counts.push(0);
        s.periods.push(period);
        s.enabled.push(true);
        s.open.push(id);
        s.log.push(format!("open {id} {:#x} {period}", spec.raw_config().unwrap_or(0)));
        Ok(id)
    }

    fn release(&mut self, event: usize) {
        let mut s = self.0.borrow_mut();
        assert!(s.open.contains(&event), "released twice");
        s.open.retain(|&id| id != event);
        s.enabled[event] = false;
        s.log.push(format!("release {event}"));
    }

    fn pause(&mut self, event: &mut usize) -> Result<u64, HostError> {
        let mut s = self.0.borrow_mut();
        s.log.push(format!("pause {event}"));
        s.enabled[*event] = false;
        if s.lost { Err(HostError::PinnedLost) } else { Ok(s.counts[*event]) }
    }

    fn resume(&mut self, event: &mut usize, spent: bool) -> Result<(), HostError> {
        let mut s = self.0.borrow_mut();
        let id = *event as u64;
        // IOC_REFRESH of an event that has its limit makes it two; IOC_ENABLE of one without leaves it without.
        assert_eq!(spent, s.spent.contains(&id), "event {id} is resumed as one that stopped itself, or did not");
        s.spent.retain(|&other| other != id);
        s.log.push(format!("resume {event}"));
        s.enabled[*event] = true;
        Ok(())
    }

    fn set_period(&mut self, event: &mut usize, period: u64) -> Result<(), HostError> {
        let mut s = self.0.borrow_mut();
        s.log.push(format!("period {event} {period}"));
        if s.refuse_period {
            return Err(REFUSED);
        }
        s.periods[*event] = period;
        Ok(())
    }

    fn read(&mut self, event: &mut usize) -> Result<u64, HostError> {
        let mut s = self.0.borrow_mut();
        s.log.push(format!("read {event}"));
        if s.lost { Err(HostError::PinnedLost) } else { Ok(s.counts[*event]) }
    }

    fn is_lost(&self, _event: &usize) -> bool {
        self.0.borrow().lost && !self.has_gate()
    }

    fn is_gate_lost(&self) -> bool {
        self.0.borrow().lost && self.has_gate()
    }

    fn id(&self, event: &usize) -> u64 {
        *event as u64
    }

    fn overflowed(&mut self, visit: &mut dyn FnMut(Overflow)) -> bool {
        let mut s = self.0.borrow_mut();
        s.unreliable.drain(..).for_each(|(id, count)| visit(Overflow { id, count, at: None }));
        let Script { records, spent, complete, overflowed_at: at, .. } = &mut *s;
        let Some(records) = records else { return *complete };
        for (id, count) in records.drain(..) {
            spent.push(id);
            visit(Overflow { id, count, at: *at });
        }
        !std::mem::take(&mut s.records_lost)
    }

    fn stops_at_overflow(&self) -> bool {
        self.0.borrow().records.is_some()
    }

    fn pauses_virtually(&self) -> bool {
        self.0.borrow().goes_on
    }

    fn peek(&mut self, event: &usize) -> Option<u64> {
        let s = self.0.borrow();
        (s.peeks && !s.lost).then(|| s.counts[*event])
    }

    fn counts_at_one_pace(&self) -> bool {
        self.0.borrow().one_pace
    }

    fn shortest_period(&self) -> u64 {
        self.0.borrow().shortest.max(1)
    }

    fn has_gate(&self) -> bool {
        self.0.borrow().gated
    }

    fn open_gate(&mut self) -> Result<(), HostError> {
        self.0.borrow_mut().log.push("open gate".to_owned());
        Ok(())
    }

    fn shut_gate(&mut self, visit: &mut dyn FnMut(u64, u64)) -> Result<(), HostError> {
        let mut s = self.0.borrow_mut();
        s.log.push("shut gate".to_owned());
        for &id in &s.open {
            visit(id as u64, s.counts[id]);
        }
        Ok(())
    }

    fn may_have_switched(&self) -> bool {
        self.0.borrow().sched_in
    }

    fn sched_in(&mut self) -> bool {
        std::mem::take(&mut self.0.borrow_mut().sched_in)
    }

    fn slept(&mut self) -> bool {
        std::mem::take(&mut self.0.borrow_mut().slept)
    }

    fn now_ns(&self) -> u64 {
        let mut s = self.0.borrow_mut();
        s.now += 1;
        s.now
    }
}

impl Host {
    pub(super) fn log(&self) -> Vec<String> {
        std::mem::take(&mut self.0.borrow_mut().log)
    }

    pub(super) fn slice(&self) {
        self.0.borrow_mut().sched_in = true;
    }
}

pub(super) fn bank(preset: &str) -> (Bank<Host>, Host) {
    let host = Host::default();
    (Bank::new(host.clone(), Strategy::preset(preset).unwrap()), host)
}

pub(super) fn pmc(n: usize) -> CounterId {
    CounterId::gp(n).unwrap()
}

pub(super) const A: Spec = PerfEvtSel::from_bits(0x53_003c).spec();
pub(super) const B: Spec = PerfEvtSel::from_bits(0x53_00c5).spec();
