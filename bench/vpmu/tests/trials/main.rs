//! The binary with prerequisites: guests of KVM, host events, root, stock perf, Chromium, Slurm, host B. Each module lists its
//! trials, whose names begin with the module's.

mod ab;
#[path = "../binary/mod.rs"]
mod binary;
mod conformance;
mod counted;
mod fleet;
mod guests;
mod host_b;
#[path = "../imported/mod.rs"]
mod imported;
mod measure;
mod ordinary_user;
mod page;
mod prerequisites;
mod record;
mod slurm;
mod stat_guest;
mod stat_setup;
mod triage;

use std::process::ExitCode;

use trials::Case;

/// A module of trials by its name.
type Module = (&'static str, fn() -> Vec<Case>);

fn main() -> ExitCode {
    let modules: [Module; 13] = [
        ("ab", ab::cases),
        ("conformance", conformance::cases),
        ("fleet", fleet::cases),
        ("guests", guests::cases),
        ("measure", measure::cases),
        ("ordinary_user", ordinary_user::cases),
        ("page", page::cases),
        ("record", record::cases),
        ("stat_guest", stat_guest::cases),
        ("stat_setup", stat_setup::cases),
        ("triage", triage::cases),
        ("slurm", slurm::cases),
        ("host_b", host_b::cases),
    ];
    trials::run(modules.into_iter().flat_map(|(name, cases)| cases().into_iter().map(|case| case.of(name))))
}
