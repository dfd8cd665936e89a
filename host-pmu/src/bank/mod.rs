//! The host events of one vCPU, kept by a strategy.
//!
//! The algorithm is KVM's (`reprogram_counter`, arch/x86/kvm/pmu.c since Linux 5.5) with each of its choices taken from a
//! [`Strategy`](crate::strategy::Strategy). An event is not zeroed after a pause: the bank remembers the count that was handed
//! over, which costs no host call.
//!
//! - `counters.rs`: the bank as the PMU sees it; `start.rs`: how a counter gets an event.
//! - `state.rs`: the states of an event and their one transition table; `held.rs`: an event and its counts.
//! - `overflow.rs`: which events overflowed, and the strategy's answer; `stopped.rs`: events that stop themselves.
//! - `budget.rs`: how often all events of a thread may signal; `room.rs`: what that leaves to one.
//! - `gate.rs`: all events behind one gate; `virtual_pause.rs`: events that go on while their counters are off.
//! - `release.rs`: when parked events are given back; `store.rs`: the bank itself.

mod backoff;
mod budget;
mod counters;
#[cfg(test)]
mod fake;
mod gate;
mod held;
mod overflow;
mod release;
mod room;
mod start;
mod state;
mod stats;
mod stopped;
mod store;
#[cfg(test)]
mod tests;
mod virtual_pause;

pub use stats::BankStats;
pub use store::Bank;
