//! One thread for all CPUs: event by event, or CPU by CPU.

use crate::affinity::Guard;
use crate::crew::Crew;
use crate::job::Job;
use crate::method::Order;
use crate::outcome::{Outcome, outcomes};
use crate::phase::{Phase, Recorder};
use crate::unit::{Report, Shared, Unit};

/// The calling thread, with the events of every CPU.
#[derive(Debug)]
pub(crate) struct Alone<'a> {
    job: &'a Job<'a>,
    shared: &'a Shared<'a>,
    units: Vec<Unit>,
}

impl<'a> Alone<'a> {
    pub(crate) fn new(job: &'a Job<'a>, shared: &'a Shared<'a>) -> Self {
        Self { job, shared, units: job.cpus.iter().map(|&cpu| Unit::new(cpu, shared)).collect() }
    }

    /// Opens one event on every CPU before the next event.
    fn event_major(&mut self, phase: Phase, rec: &mut Recorder) {
        let leaders = self.units.iter().map(Unit::leaders).max().unwrap_or(0);
        match phase {
            Phase::Open => {
                for (pack, group) in self.shared.packs.iter().enumerate() {
                    for position in 0..group.members.len() {
                        for unit in &mut self.units {
                            unit.open_one(self.shared, pack, position, rec);
                        }
                    }
                }
            }
            Phase::Enable | Phase::Read | Phase::Disable => {
                for led in 0..leaders {
                    for unit in &mut self.units {
                        match phase {
                            Phase::Enable => unit.enable(led, rec),
                            Phase::Read => unit.read(led, rec),
                            _ => unit.disable(led, rec),
                        }
                    }
                }
            }
            Phase::Close => {
                for event in (0..self.job.list.events.len()).rev() {
                    for unit in &mut self.units {
                        unit.close_event(event, rec);
                    }
                }
            }
            Phase::Map | Phase::Unmap | Phase::LastClose => {
                for unit in &mut self.units {
                    unit.phase(self.shared, phase, rec);
                }
            }
        }
    }
}

impl Crew for Alone<'_> {
    fn phase(&mut self, phase: Phase) -> Recorder {
        let mut rec = Recorder::new(self.job.list.events.len() * self.units.len());
        let Order::CpuMajor(moving) = self.job.method.order else {
            self.event_major(phase, &mut rec);
            return rec;
        };
        let mut guard = moving.has(phase).then(Guard::new);
        for unit in &mut self.units {
            if let Some(guard) = &mut guard {
                guard.move_to(unit.cpu);
            }
            unit.phase(self.shared, phase, &mut rec);
        }
        if let Some(guard) = guard {
            rec.other(guard.back());
        }
        rec
    }

    fn break_up(&mut self) -> Recorder {
        let mut rec = Recorder::new(0);
        let moving = matches!(self.job.method.order, Order::CpuMajor(moving) if moving.has(Phase::Open));
        let mut guard = moving.then(Guard::new);
        for pass in [Unit::close_broken, Unit::reopen_broken] {
            for unit in &mut self.units {
                if let Some(guard) = &mut guard {
                    guard.move_to(unit.cpu);
                }
                pass(unit, self.shared, &mut rec);
            }
        }
        if let Some(guard) = guard {
            rec.other(guard.back());
        }
        rec
    }

    fn outcomes(&mut self) -> (Vec<Outcome>, usize) {
        let reports: Vec<_> = self.units.iter().map(Report::of).collect();
        outcomes(self.job, &reports)
    }
}
