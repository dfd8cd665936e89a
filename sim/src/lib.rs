//! A deterministic host and guest around the vPMU and the strategies of real runs.
//!
//! [`arch_pmu`] and `host_pmu::bank` are used unchanged. Simulated are the layers below (host events and the cost of each
//! operation), the layer above (perf in the guest), and time.
//!
//! - [`model`]: all constants, from a TOML file that names the source of each.
//! - `stream`: random numbers; `clock`: virtual time of a vCPU thread, and its sched slices.
//! - `price`: costs of host operations; `backend`: host events; `floor`: a timer without host events; [`mediated`]: a PMU that the guest owns;
//!   [`side`]: what a vCPU asks of these.
//! - `vcpu`: exits, entries and PMIs; [`guest`]: perf in the guest.
//! - [`host`]: one host with its vCPUs, and their order; [`replay`]: a trace in their place.
//!
//! A seed gives the same bytes on every machine and with any number of threads: after the model is read, all arithmetic is
//! on integers; each vCPU has random streams of its own, one per purpose; and no order depends on threads or hashes.

mod backend;
mod clock;
mod event;
mod floor;
pub mod guest;
pub mod host;
pub mod mediated;
pub mod model;
mod price;
pub mod replay;
pub mod side;
mod stream;
mod vcpu;
