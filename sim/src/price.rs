//! Prices of host operations, for simulated events and for those of a trace.

use host_pmu::backend::model::Op;

use crate::clock::Clock;
use crate::model::{Cost, Costs};
use crate::stream::Purpose;

/// The costs of a host, and the clock of the thread that pays.
#[derive(Debug)]
pub(crate) struct Prices<'a> {
    pub(crate) costs: &'a Costs,
    pub(crate) clock: &'a mut Clock,
}

impl Prices<'_> {
    #[inline]
    fn spend_n(&mut self, cost: &Cost, n: u64, purpose: Purpose) {
        let ns = cost.sample_n(n, self.clock.streams().of(purpose));
        self.clock.host(ns);
    }

    /// Pays for an operation of a thread that holds so many events, on a host that has so many.
    #[expect(clippy::inline_always, reason = "which operation it is, is known where it is called")]
    #[inline(always)]
    pub(crate) fn pay(mut self, op: Op, on_host: u64, held: u64) {
        let costs = self.costs;
        match op {
            Op::Open { .. } => {
                self.clock.spend(if on_host == 0 { &costs.open_first } else { &costs.open_more }, Purpose::Open);
            }
            Op::Release(_) => {
                self.clock.spend(if on_host == 1 { &costs.release_last } else { &costs.release }, Purpose::Release);
            }
            Op::Pause(_) => self.clock.spend(&costs.pause, Purpose::Pause),
            Op::Resume { beside, .. } => {
                self.clock.spend(&costs.resume, Purpose::Resume);
                if let Some(others) = beside {
                    self.spend_n(&costs.resume_other, others as u64, Purpose::ResumeOther);
                }
            }
            Op::Read(_) => self.clock.spend(&costs.read, Purpose::Read),
            Op::OpenGate => self.clock.spend(&costs.resume, Purpose::Resume),
            Op::LetIn => self.clock.spend(&costs.resume_other, Purpose::ResumeOther),
            Op::ShutGate => {
                self.clock.spend(&costs.pause, Purpose::Pause);
                self.spend_n(&costs.group_read, held, Purpose::Read);
            }
            Op::Expiries(expiries) => self.expiries(expiries),
        }
    }

    /// Sets a period; `moves_first`: what ends first is now another.
    #[inline]
    pub(crate) fn period(self, moves_first: bool) {
        self.clock.spend(if moves_first { &self.costs.period_running } else { &self.costs.period }, Purpose::Period);
    }

    /// Lets so many clocks interrupt the thread in its host code, or in ring 0 of the guest.
    #[inline]
    pub(crate) fn expiries(mut self, expiries: u64) {
        if expiries > 0 {
            self.spend_n(&self.costs.expiry, expiries, Purpose::Expiry);
        }
    }

    /// Takes the thread out and in again, with its events.
    pub(crate) fn switch(mut self, held: u64, running: u64) {
        if held > 0 {
            self.clock.spend(&self.costs.switch, Purpose::Switch);
            self.spend_n(&self.costs.switch_held, held, Purpose::Switch);
            self.spend_n(&self.costs.switch_running, running, Purpose::Switch);
        }
    }
}
