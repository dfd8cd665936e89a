//! A model of the payload's guest: timer, phases, NMI handler and log (`guest/payload/c/tick.c`, `nmi.c`, `amd.c`).

mod amd;
mod driver;
mod events;
mod nmi;
mod stat;
mod state;
mod tick;

pub(crate) use state::Guest;
pub use state::{GuestOutcome, Latency, Timer};
