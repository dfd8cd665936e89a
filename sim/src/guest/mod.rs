//! A model of the payload's guest: timer, phases, NMI handler and log (`guest/payload/c/tick.c`, `nmi.c`, `amd.c`).

mod amd;
pub mod cpu;
mod driver;
mod events;
mod nmi;
pub mod paths;
mod stat;
mod state;
mod tick;

pub use events::Driver;
pub use state::{Guest, GuestOutcome, Latency, Timer};
