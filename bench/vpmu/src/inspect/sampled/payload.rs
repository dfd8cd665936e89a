//! The payload as a guest that is sampled.

use std::sync::Arc;

use results::error::{Error, Exit};
use results::host::{self, HostFs};
use vmm::kvm::Host;
use vmm::machine::CounterSource;
use vmm::outcome::RunOutcome;
use vmm::sample::{Moment, Sampling};

use super::guest::PayloadSpec;
use crate::arms::arm::{launch, limits};
use crate::arms::rounds::pin::usable_cpus;
use crate::arms::rounds::plan::Plan;
use crate::setting::abilities::ThisHost;
use crate::setting::backend::{BackendChoice, choose};
use crate::setting::strategy::resolve_one;
use crate::sys;
use crate::terminal::console::complain;

/// A payload that may begin.
#[derive(Debug)]
pub struct ReadyPayload {
    host: Host,
    plan: Plan,
    behind: CounterSource,
    /// Its vCPUs.
    pub vcpus: u64,
}

impl ReadyPayload {
    /// Looks for all that it needs; `chains`: its samples are to have call chains.
    ///
    /// # Errors
    /// A missing prerequisite.
    pub fn new(payload: &PayloadSpec, chains: bool) -> Result<Self, Error> {
        if chains {
            complain(
                "warning: the payload is built without frame pointers: its chains end after one function, or are wrong",
            );
        }
        let common = &payload.experiment.common;
        if let BackendChoice::Sim(_) = common.backend {
            return Err(Error::usage("cannot sample a simulated guest", "it runs no code", "give another --backend"));
        }
        let chosen = choose(&common.backend, &ThisHost)?;
        let fs_of_host = HostFs::default();
        let usable = usable_cpus(&host::HostFacts::read(&fs_of_host), fs_of_host.text("proc/self/status").as_deref());
        let plan = payload.experiment.plan(&chosen, usable.as_deref())?;
        let behind = if chosen.backend == host_pmu::backend::BackendKey::None {
            CounterSource::Floor
        } else {
            CounterSource::Events { backend: chosen.backend.clone(), strategy: resolve_one(&payload.strategy)? }
        };
        let host = Host::open().map_err(|error| Error::host("cannot start a guest", error.to_string(), ""))?;
        limits::ensure(common.vcpus)?;
        sys::catch_interrupts().map_err(|error| Error::host("cannot catch SIGINT", error.to_string(), ""))?;
        Ok(Self { host, plan, behind, vcpus: common.vcpus })
    }

    /// Runs it, and says on stderr what it did unless `quiet`.
    ///
    /// # Errors
    /// It could not begin.
    pub fn run(self, sampling: Arc<Sampling>, quiet: bool) -> Result<Ran, Error> {
        let first = Moment::now();
        let outcome = launch::recorded(&self.host, &self.plan.guest, self.behind, self.plan.samples, sampling)?;
        let last = Moment::now();
        let nmis: u64 = outcome.vcpus.iter().map(|vcpu| vcpu.account.counts.nmis_injected).sum();
        if !quiet {
            complain(&format!(
                "the payload ended ({}) after {:.1} s and {nmis} NMIs",
                outcome.end,
                outcome.wall.as_secs_f64()
            ));
        }
        let exit = if outcome.end.is_complete() { Exit::Done } else { Exit::Inconclusive };
        Ok(Ran { exit, outcome, first, last })
    }
}

/// A payload that ran.
#[derive(Debug)]
pub struct Ran {
    /// The exit code that it stands for.
    pub exit: Exit,
    /// Outcome of its run.
    pub outcome: RunOutcome,
    /// Before it began.
    pub first: Moment,
    /// When it had ended.
    pub last: Moment,
}
