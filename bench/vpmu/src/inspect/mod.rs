//! Views into a guest or at this host: running an image, recordings, traces, the doctor.

pub mod doctor;
mod drain;
pub mod guest;
pub mod record;
pub mod run;
pub mod trace;
