//! The host events of one vCPU, kept by a strategy.
//!
//! The algorithm is KVM's (`reprogram_counter`, arch/x86/kvm/pmu.c since Linux 5.5) with each of its choices taken from a [`Strategy`].
//! An event is not zeroed after a pause: the bank remembers the count that was handed over, which costs no host call.
//!
//! The functions that obey the keys of a strategy's TOML, of [`Bank`] unless named otherwise:
//!
//! | key | obeyed by | in |
//! |---|---|---|
//! | [`reuse`] | `start_counter` takes the counter's own event or a parked one; `stop` and `park` fill the pool | `start.rs`, `counters.rs` |
//! | [`release`] | `pause` for `eager`; else `on_entry`, by `release_after_slices`, `release_after_time`, `release_after_halt` | `counters.rs`, `release.rs` |
//! | [`apply`] | [`HostCounters::changed`] | `counters.rs` |
//! | [`skip-paused`] | `pause` | `counters.rs` |
//! | [`skip-period`] | `resume`; `resume_virtually` for virtual pauses | `start.rs`, `virtual_pause.rs` |
//! | [`overflow`] | `after_overflow`; for `stop`, `Stopped::due` decides when the event is started again | `overflow.rs`, `stopped.rs` |
//! | [`pause`] | `pause_virtually`, `resume_virtually`, `finish_virtual_pauses` | `virtual_pause.rs` |
//! | [`gate`] | `pause_behind_gate`, `finish_at_gate`; the backend opens the leader | `gate.rs` |
//! | [`hold-max`] | `start_counter` lets the counter wait; `open_all_wanted` makes room and opens | `start.rs` |
//! | [`mark`] | `marks`, asked at each touch; `release_after_slices` looks at the result | `release.rs` |
//!
//! The other files: `state.rs` has the states of an event and their one transition table, `held.rs` an event and its counts, `budget.rs`
//! and `room.rs` bound how often the events of a thread may signal, `backoff.rs` spaces retries, `store.rs` has the bank itself.
//!
//! [`Strategy`]: crate::strategy::Strategy
//! [`HostCounters::changed`]: arch_pmu::host::HostCounters::changed
//! [`reuse`]: crate::strategy::Strategy::reuse
//! [`release`]: crate::strategy::Strategy::release
//! [`apply`]: crate::strategy::Strategy::apply
//! [`skip-paused`]: crate::strategy::Strategy::skip_paused
//! [`skip-period`]: crate::strategy::Strategy::skip_period
//! [`overflow`]: crate::strategy::Strategy::overflow
//! [`pause`]: crate::strategy::Strategy::pause
//! [`gate`]: crate::strategy::Strategy::gate
//! [`hold-max`]: crate::strategy::Strategy::hold_max
//! [`mark`]: crate::strategy::Strategy::mark

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
