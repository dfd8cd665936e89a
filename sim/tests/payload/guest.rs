//! A guest that executes the payload's own code; ring 3, the timer and the interrupts around it are those of the simulated guest.

use guest::abi::{
    BootPage, DB_DONE, DB_PHASE, DB_TURN_OVER, FLAG_TURNS, LOG_PHASE, LogEntry, MAGIC, PHASES, PORT_DOORBELL, Report,
    VECTOR_TIMER, VERSION, WORKLOAD_IO, Words,
};
use sim::guest::Driver;
use sim::guest::cpu::Cpu;

use super::machine::{BOOT_PAGE, Exit, LOG, LOG_BYTES, Machine, REPORT, USER_PAGE};
use super::scripted::Scripted;

const APIC_BASE: u32 = 0x1b;
const EOI: u32 = 0x80b;
const LVT_TIMER: u32 = 0x832;
const LVTPC: u32 = 0x834;
const TIMER_COUNT: u32 = 0x838;
const PERIODIC: u64 = 1 << 17;
const NMI: u64 = 2;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    User,
    Kernel,
    Rest,
    Done,
}

pub(crate) struct Payload {
    pub(crate) cpu: Scripted,
    machine: Machine,
    at: At,
    boot: BootPage,
    work_unit: u64,
    user_ns: u64,
    periodic: bool,
    interval: u64,
    next_tick: u64,
    late_tick: bool,
    in_nmi: bool,
    /// For each interrupt under way, whether it came in a tick.
    interrupted: Vec<bool>,
    charged: u64,
}

fn store<T: Words>(machine: &mut Machine, at: u64, value: &T) {
    let mut address = at;
    value.for_each_word(&mut |word| {
        machine.store(address, 8, word);
        address += 8;
    });
}

fn load<T: Words>(machine: &Machine, at: u64) -> T {
    let mut address = at;
    T::from_words(&mut || {
        address += 8;
        machine.load(address - 8, 8)
    })
}

impl Payload {
    /// Boots the payload, which takes no simulated time. `boot` is that of the simulated guest.
    pub(crate) fn new(mut cpu: Scripted, (driver, boot): (Driver, &BootPage), tsc_khz: u64, work_unit: u64) -> Self {
        let boot = BootPage {
            self_addr: BOOT_PAGE,
            magic: MAGIC,
            version: VERSION,
            cpus: 1,
            report_addr: REPORT,
            log_addr: LOG,
            log_capacity: boot.log_capacity.min(LOG_BYTES / size_of::<LogEntry>() as u64),
            user_addr: USER_PAGE,
            tsc_hz: tsc_khz * 1000,
            ..*boot
        };
        let mut machine = Machine::new();
        store(&mut machine, BOOT_PAGE, &boot);
        let work_unit = if boot.workload == WORKLOAD_IO { work_unit / 4 } else { work_unit }.max(1);
        let next_tick = cpu.now() + boot.tick_count;
        let mut payload = Self {
            cpu,
            machine,
            at: At::Kernel,
            boot,
            work_unit,
            user_ns: 0,
            periodic: false,
            interval: boot.tick_count,
            next_tick,
            late_tick: false,
            in_nmi: false,
            interrupted: Vec::new(),
            charged: 0,
        };
        payload.start(driver);
        payload
    }

    fn start(&mut self, driver: Driver) {
        loop {
            match self.machine.run() {
                Exit::Cpuid => {
                    let answer = match (self.machine.cpuid_leaf(), driver) {
                        (0, Driver::Intel) => [1, 0x756e_6547, 0, 0],
                        (0, _) => [1, 0x6874_7541, 0, 0],
                        (0x8000_0000, Driver::AmdV2) => [0x8000_0022, 0, 0, 0],
                        _ => [1, 0, 0, 0],
                    };
                    self.machine.answer_cpuid(answer);
                }
                Exit::Rdtsc | Exit::Rdmsr(APIC_BASE) => self.machine.answer(0),
                Exit::Wrmsr(LVT_TIMER, value) => self.periodic = value & PERIODIC != 0,
                Exit::Wrmsr(..) | Exit::Out(PORT_DOORBELL, _) => {}
                Exit::Returned { to_user: true } => {
                    self.at = At::User;
                    break;
                }
                Exit::Halt => break,
                other => panic!("{other:?} as the payload starts"),
            }
        }
        self.charged = self.machine.executed;
        if self.at == At::Kernel {
            self.halt();
        }
    }

    /// Runs to the next rest or to the end.
    pub(crate) fn run(&mut self) {
        loop {
            match self.at {
                At::User => self.run_user(),
                At::Kernel => self.run_kernel(),
                At::Rest | At::Done => return,
            }
        }
    }

    pub(crate) fn is_done(&self) -> bool {
        self.at == At::Done
    }

    pub(crate) fn begin_turn(&mut self, at: u64, samples: u64) {
        self.boot.sample_target = samples;
        self.wake(at);
    }

    pub(crate) fn begin_end(&mut self, at: u64) {
        self.boot.flags &= !FLAG_TURNS;
        self.wake(at);
    }

    fn wake(&mut self, at: u64) {
        assert_eq!(self.at, At::Rest, "a guest that rests");
        self.cpu.rest_until(at);
        store(&mut self.machine, BOOT_PAGE, &self.boot);
        store(&mut self.machine, REPORT, &Report { magic: MAGIC, ..Report::default() });
        self.at = At::Kernel;
        self.interrupt_if_due();
    }

    /// Returns the payload's report, without the exchanges of the TSC at its start.
    pub(crate) fn report(&self) -> Report {
        let report: Report = load(&self.machine, REPORT);
        let none = Report::default();
        Report { syncs: 0, sync_before: none.sync_before, sync_after: none.sync_after, ..report }
    }

    /// The log, without the addresses that were interrupted.
    pub(crate) fn log(&self) -> Vec<LogEntry> {
        let entries = self.report().logged;
        let at = |n: u64| LOG + n * size_of::<LogEntry>() as u64;
        let log: Vec<_> = (0..entries).map(|n| LogEntry { rip: 0, ..load(&self.machine, at(n)) }).collect();
        assert!(log.iter().all(|entry| entry.kind < LOG_PHASE + PHASES as u64), "kinds of entries");
        log
    }

    fn tick_is_due(&mut self) -> bool {
        self.late_tick || self.cpu.now() >= self.next_tick
    }

    fn run_user(&mut self) {
        if !self.late_tick {
            let left = match self.boot.workload {
                WORKLOAD_IO => self.work_unit - self.user_ns % self.work_unit,
                _ => u64::MAX,
            };
            let spent = self.cpu.run_user(self.next_tick, left);
            self.user_ns += spent;
            if spent == left {
                self.cpu.port_write();
            }
        }
        self.machine.store(USER_PAGE, 8, self.user_ns / self.work_unit);
        self.interrupt_if_due();
    }

    fn halt(&mut self) {
        self.charge();
        if self.cpu.in_tick() {
            self.cpu.returns(false);
        }
        self.cpu.halt_until(self.next_tick);
        self.machine.interrupts = true;
        self.interrupt_if_due();
    }

    /// An NMI, if one is pending, or else the tick.
    fn interrupt_if_due(&mut self) {
        if self.in_nmi {
            return;
        }
        if self.cpu.take_nmi().is_some() {
            self.in_nmi = true;
            self.interrupt(NMI);
        } else if (self.at == At::User || self.machine.interrupts) && self.tick_is_due() {
            self.interrupt(VECTOR_TIMER);
            self.late_tick = false;
            if self.periodic {
                let late = self.cpu.now() - self.next_tick.min(self.cpu.now());
                if self.cpu.now() >= self.next_tick {
                    self.next_tick += (late / self.interval + 1) * self.interval;
                }
            } else {
                self.next_tick = u64::MAX;
            }
        }
    }

    fn interrupt(&mut self, vector: u64) {
        self.charge();
        self.interrupted.push(self.cpu.in_tick());
        self.cpu.interrupted(vector == VECTOR_TIMER);
        self.machine.interrupt(vector);
        self.at = At::Kernel;
    }

    fn charge(&mut self) {
        let executed = self.machine.executed - std::mem::replace(&mut self.charged, self.machine.executed);
        self.cpu.execute(executed);
    }

    fn run_kernel(&mut self) {
        let exit = self.machine.run();
        if exit == Exit::Halt {
            self.halt();
            return;
        }
        self.charge();
        match exit {
            Exit::Rdmsr(msr) => {
                let value = self.cpu.rdmsr(msr);
                self.machine.answer(value);
            }
            Exit::Rdtsc => {
                let tsc = self.cpu.rdtsc().1;
                self.machine.answer(tsc);
                self.machine.executed += 1;
                return;
            }
            Exit::Wrmsr(EOI, _) => self.cpu.write_eoi(),
            Exit::Wrmsr(LVTPC, value) => self.cpu.write_lvtpc(value as u32),
            Exit::Wrmsr(TIMER_COUNT, count) => self.write_timer(count),
            Exit::Wrmsr(msr, value) => self.cpu.wrmsr(msr, value),
            Exit::Out(PORT_DOORBELL, code) => {
                self.ring(code);
                if self.at != At::Kernel {
                    return;
                }
            }
            Exit::Returned { to_user } => {
                self.in_nmi = false;
                let to_tick = self.interrupted.pop().expect("an interrupt under way");
                self.cpu.returns(to_tick);
                if to_user {
                    self.at = At::User;
                }
            }
            other => panic!("{other:?} in the payload"),
        }
        self.interrupt_if_due();
    }

    fn write_timer(&mut self, count: u64) {
        self.cpu.write_timer(count);
        let now = self.cpu.now();
        self.late_tick |= now >= self.next_tick;
        (self.interval, self.next_tick) = if count == 0 { (1, u64::MAX) } else { (count, now + count) };
    }

    fn ring(&mut self, code: u32) {
        match code {
            DB_PHASE.. => self.cpu.begin_phase(u64::from(code - DB_PHASE)),
            _ => self.cpu.doorbell(code),
        }
        match code {
            DB_DONE => self.at = At::Done,
            DB_TURN_OVER => self.at = At::Rest,
            _ => assert_ne!(code, guest::abi::DB_FAILED, "a fault in the payload"),
        }
    }
}
