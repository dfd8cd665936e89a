//! A deterministic host and guest around the real vPMU and the real strategies.
//!
//! [`arch_pmu`] and `host_pmu::bank` are used as they are. Simulated are what lies below them (host events and what each
//! operation on them costs), above them (perf in the guest), and time itself.
//!
//! - [`model`]: every constant, from a TOML file that names its source.
//! - [`clock`]: virtual time of a vCPU thread; [`sched`]: when it has its host CPU; [`queue`]: who is next.
//! - [`backend`]: host events; [`floor`]: none.
//! - [`vcpu`]: exits, entries and PMIs; [`guest`]: perf in the guest.
//! - [`host`]: one host with its vCPUs; [`run`]: many of them on all cores.
//!
//! One seed gives the same bytes on any machine and with any number of threads: integer arithmetic only once a model is
//! read, a random stream per vCPU, and no order that depends on a thread or a hash.

pub mod backend;
pub mod clock;
pub mod floor;
pub mod guest;
pub mod host;
pub mod model;
pub mod queue;
pub mod run;
pub mod sched;
pub mod stream;
pub mod vcpu;
