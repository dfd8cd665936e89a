//! `vpmu conformance`.

use host_pmu::backend::BackendKey;

use super::internal;
use crate::backend::{Chosen, choose};
use crate::cli::ConformanceArgs;
use crate::conformance::{self, Checks, tap};
use crate::console::{complain, print};
use crate::error::{Error, Exit};
use crate::probe::ThisHost;
use crate::strategy::ready;
use crate::sys;

pub(super) fn run(args: &ConformanceArgs) -> Result<Exit, Error> {
    let mut strategies = ready(&args.strategy)?;
    let mut versions: Vec<u8> = args.pmu_version.iter().map(|&version| version as u8).collect();
    versions.sort_unstable();
    versions.dedup();
    let Chosen { backend, why } = choose(&args.backend, &ThisHost)?;
    complain(&format!("backend {backend}: {why}"));
    if backend == BackendKey::None {
        complain("backend none has no host events: every strategy is the same, one is run");
        strategies.truncate(1);
    }
    if backend == BackendKey::Step {
        complain("every guest instruction that counts is single-stepped: this takes seconds to minutes per run");
    }
    sys::catch_interrupts().map_err(|error| internal("cannot catch SIGINT", error))?;
    if !args.json {
        print(&tap::head(versions.len() * strategies.len()))?;
    }
    let checks = Checks { versions, strategies, backend, seccomp: !args.no_seccomp };
    let mut number = 0;
    let runs = conformance::run(&checks, sys::interrupted(), |run| {
        number += 1;
        if args.json { Ok(()) } else { print(&run.tap(number)) }
    })?;
    if args.json {
        let json =
            tap::json(&checks.backend.to_string(), &runs).map_err(|error| internal("cannot show the result", error))?;
        print(&(json + "\n"))?;
    }
    Ok(if runs.iter().all(tap::Run::is_ok) { Exit::Done } else { Exit::Regression })
}
