//! A CPU that records what its guest asks of it.

use std::collections::BTreeMap;
use std::mem;

use sim::guest::cpu::Cpu;
use sim::guest::paths::Path;
use sim::side::VcpuSide;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asked {
    Rdmsr(u32, u64),
    Wrmsr(u32, u64),
    Lvtpc(u32),
    Eoi,
    Timer(u64),
    Doorbell(u32),
    Phase(u64),
    Port,
    Tsc(u64),
    Interrupted { tick: bool },
    Returns { to_tick: bool },
    User { until: u64, ns: u64 },
    Halt(u64),
    Rest(u64),
}

/// Ways gone, and how often.
pub(crate) type Ways = BTreeMap<Path, u64>;

/// One request, and the instructions executed since the one before.
#[derive(Clone, Debug)]
pub(crate) struct Step {
    pub(crate) asked: Asked,
    pub(crate) instructions: u64,
    pub(crate) ways: Ways,
}

pub(crate) struct Traced<C> {
    cpu: C,
    instructions: u64,
    ways: Ways,
    pub(crate) steps: Vec<Step>,
}

impl<C: Cpu> Traced<C> {
    pub(crate) fn new(cpu: C) -> Self {
        Self { cpu, instructions: 0, ways: Ways::new(), steps: Vec::new() }
    }

    fn add(&mut self, asked: Asked) {
        let (instructions, ways) = (mem::take(&mut self.instructions), mem::take(&mut self.ways));
        self.steps.push(Step { asked, instructions, ways });
    }
}

impl<C: Cpu> Cpu for Traced<C> {
    fn now(&mut self) -> u64 {
        self.cpu.now()
    }

    fn now_at_exit(&mut self) -> u64 {
        self.cpu.now_at_exit()
    }

    fn rdtsc(&mut self) -> (u64, u64) {
        let read = self.cpu.rdtsc();
        self.add(Asked::Tsc(read.1));
        read
    }

    fn execute(&mut self, n: u64) {
        self.instructions += n;
        self.cpu.execute(n);
    }

    fn goes(&mut self, path: Path, times: u64) {
        *self.ways.entry(path).or_default() += times;
    }

    fn rdmsr(&mut self, msr: u32) -> u64 {
        let value = self.cpu.rdmsr(msr);
        self.add(Asked::Rdmsr(msr, value));
        value
    }

    fn wrmsr(&mut self, msr: u32, value: u64) {
        self.cpu.wrmsr(msr, value);
        self.add(Asked::Wrmsr(msr, value));
    }

    fn write_lvtpc(&mut self, value: u32) {
        self.cpu.write_lvtpc(value);
        self.add(Asked::Lvtpc(value));
    }

    fn write_eoi(&mut self) {
        self.cpu.write_eoi();
        self.add(Asked::Eoi);
    }

    fn write_timer(&mut self, count: u64) {
        self.cpu.write_timer(count);
        self.add(Asked::Timer(count));
    }

    fn doorbell(&mut self, code: u32) {
        self.cpu.doorbell(code);
        self.add(Asked::Doorbell(code));
    }

    fn begin_phase(&mut self, phase: u64) {
        self.cpu.begin_phase(phase);
        self.add(Asked::Phase(phase));
    }

    fn port_write(&mut self) {
        self.cpu.port_write();
        self.add(Asked::Port);
    }

    fn interrupted(&mut self, tick: bool) {
        self.cpu.interrupted(tick);
        self.add(Asked::Interrupted { tick });
    }

    fn returns(&mut self, to_tick: bool) {
        self.cpu.returns(to_tick);
        self.add(Asked::Returns { to_tick });
    }

    fn in_tick(&self) -> bool {
        self.cpu.in_tick()
    }

    fn has_nmi(&self) -> bool {
        self.cpu.has_nmi()
    }

    fn take_nmi(&mut self) -> Option<u64> {
        self.cpu.take_nmi()
    }

    fn run_user(&mut self, until: u64, most: u64) -> u64 {
        let ns = self.cpu.run_user(until, most);
        if ns > 0 {
            self.add(Asked::User { until, ns });
        }
        ns
    }

    fn halt_until(&mut self, until: u64) {
        self.cpu.halt_until(until);
        self.add(Asked::Halt(until));
    }

    fn rest_until(&mut self, at: u64) {
        self.cpu.rest_until(at);
        self.add(Asked::Rest(at));
    }

    fn held(&mut self) -> u64 {
        self.cpu.held()
    }

    fn take_side(&mut self) -> VcpuSide {
        self.cpu.take_side()
    }
}
