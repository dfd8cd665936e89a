//! Prices of host operations, for simulated events and for those of a trace.

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
    fn spend(&mut self, cost: &Cost, purpose: Purpose) {
        self.clock.spend(cost, purpose);
    }

    #[inline]
    fn spend_n(&mut self, cost: &Cost, n: u64, purpose: Purpose) {
        let ns = cost.sample_n(n, self.clock.streams().of(purpose));
        self.clock.host(ns);
    }

    /// Opens an event; `first`: of the host.
    #[inline]
    pub(crate) fn open(mut self, first: bool) {
        self.spend(if first { &self.costs.open_first } else { &self.costs.open_more }, Purpose::Open);
    }

    /// Releases an event; `last`: of the host.
    #[inline]
    pub(crate) fn release(mut self, last: bool) {
        self.spend(if last { &self.costs.release_last } else { &self.costs.release }, Purpose::Release);
    }

    /// Pauses an event.
    #[inline]
    pub(crate) fn pause(mut self) {
        self.spend(&self.costs.pause, Purpose::Pause);
    }

    /// Resumes an event beside others that run; `None`: behind a gate that is shut.
    #[inline]
    pub(crate) fn resume(mut self, beside: Option<u64>) {
        self.spend(&self.costs.resume, Purpose::Resume);
        if let Some(others) = beside {
            self.spend_n(&self.costs.resume_other, others, Purpose::ResumeOther);
        }
    }

    /// Opens the gate.
    #[inline]
    pub(crate) fn open_gate(mut self) {
        self.spend(&self.costs.resume, Purpose::Resume);
    }

    /// Starts an event behind the gate that was opened.
    #[inline]
    pub(crate) fn let_in(mut self) {
        self.spend(&self.costs.resume_other, Purpose::ResumeOther);
    }

    /// Shuts the gate, and reads so many events.
    #[inline]
    pub(crate) fn shut_gate(mut self, members: u64) {
        self.spend(&self.costs.pause, Purpose::Pause);
        self.spend_n(&self.costs.group_read, members, Purpose::Read);
    }

    /// Sets a period; `moves_first`: what ends first is now another.
    #[inline]
    pub(crate) fn period(mut self, moves_first: bool) {
        self.spend(if moves_first { &self.costs.period_running } else { &self.costs.period }, Purpose::Period);
    }

    /// Reads an event.
    #[inline]
    pub(crate) fn read(mut self) {
        self.spend(&self.costs.read, Purpose::Read);
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
            self.spend(&self.costs.switch, Purpose::Switch);
            self.spend_n(&self.costs.switch_held, held, Purpose::Switch);
            self.spend_n(&self.costs.switch_running, running, Purpose::Switch);
        }
    }
}
