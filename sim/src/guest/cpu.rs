//! The interface through which a guest uses its CPU.

use super::paths::Path;
use crate::side::VcpuSide;

/// A CPU with a PMU, a local APIC and a host, from the guest's side. The guest executes the instructions before an access, and that
/// of the access, before it accesses anything; those before RDTSC, before it reads the TSC.
pub trait Cpu {
    /// Returns the ns since the start of the simulation.
    fn now(&mut self) -> u64;
    /// Returns whether whoever traces the guest has had enough.
    fn is_stopped(&self) -> bool {
        false
    }
    /// Returns the ns since the start of the simulation, right after an access: no instruction was executed since.
    fn now_at_exit(&mut self) -> u64;
    /// Executes RDTSC, with the ns since the start of the simulation.
    fn rdtsc(&mut self) -> (u64, u64);
    /// Executes `n` instructions in ring 0.
    fn execute(&mut self, n: u64);
    /// Notes that the guest goes this way so many times. Its instructions are executed later, by [`execute`](Self::execute).
    fn goes(&mut self, _path: Path, _times: u64) {}
    /// Executes RDMSR of a PMU register.
    fn rdmsr(&mut self, msr: u32) -> u64;
    /// Executes WRMSR of a PMU register.
    fn wrmsr(&mut self, msr: u32, value: u64);
    /// Executes a write to LVTPC.
    fn write_lvtpc(&mut self, value: u32);
    /// Executes a write to the local APIC's EOI.
    fn write_eoi(&mut self);
    /// Executes a write to the local APIC's timer.
    fn write_timer(&mut self, count: u64);
    /// Rings a doorbell.
    fn doorbell(&mut self, code: u32);
    /// Rings a doorbell at the begin of a phase.
    fn begin_phase(&mut self, phase: u64);
    /// Executes a port write in ring 3.
    fn port_write(&mut self);
    /// Enters an interrupt or NMI handler; `tick` if it is the tick's.
    fn interrupted(&mut self, tick: bool);
    /// Returns from a handler; `to_tick` if into the tick.
    fn returns(&mut self, to_tick: bool);
    /// Returns whether the guest is in its tick.
    fn in_tick(&self) -> bool;
    /// Returns whether an NMI is pending.
    fn has_nmi(&self) -> bool;
    /// Takes the pending NMI; returns when its overflow was noticed.
    fn take_nmi(&mut self) -> Option<u64>;
    /// Runs ring 3 until `until`, for at most `most` ns, or until an NMI is pending; returns the ns spent in ring 3.
    fn run_user(&mut self, until: u64, most: u64) -> u64;
    /// Halts until `until`.
    fn halt_until(&mut self, until: u64);
    /// Waits outside of the guest until `at`, with its counters off.
    fn rest_until(&mut self, at: u64);
    /// Returns the number of events held now.
    fn held(&mut self) -> u64;
    /// Takes the account since the vCPU's start, or since its last rest.
    fn take_side(&mut self) -> VcpuSide;
}
