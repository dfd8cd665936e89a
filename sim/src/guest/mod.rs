//! A model of the payload's guest: timer, phases, NMI handler and log (`guest/payload/c/tick.c`, `nmi.c`).

pub mod cpu;
mod driver;
mod event;
mod events;
pub mod latency;
mod nmi;
pub mod paths;
mod stat;
mod state;
mod tick;
mod turns;

pub use state::{Guest, GuestOutcome, Timer};
