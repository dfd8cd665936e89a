//! `vpmu doctor`: abilities of this host, noise sources on it, the backend of `auto`.

mod checks;
pub mod diagnose;
pub mod diagnosis;
pub mod show;
