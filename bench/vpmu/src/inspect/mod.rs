//! Views into a guest or at this host: running an image, recordings, traces, the doctor.

pub mod doctor;
pub mod record;
pub mod run;
pub mod sampled;
pub mod trace;
