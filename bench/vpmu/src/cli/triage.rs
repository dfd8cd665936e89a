//! `vpmu triage`.

use clap::Args;
use results::document::Record;
use results::error::{Error, Exit};

use super::measure::{Invocation, Shown, measure_then};
use super::options::ResultOptions;
use crate::experiment::triage::{Spec, Triage, exit, report};

pub(super) const EXAMPLES: &str = "\
Examples:
  # two threads in rand(): what rose, where they wait, the fix
  vpmu triage rand --threads 2
  # fewer rounds, no file
  vpmu triage setup --rounds 5 --no-save

Exit codes: 0 done, 2 bad usage or input, 3 inconclusive:
interrupted, no sample, too few rounds for an interval, or no
difference that is sure, 4 the host cannot do it, 70 a bug of
vpmu.";

/// Options of `vpmu triage`.
#[derive(Clone, Debug, Args)]
pub struct TriageArgs {
    /// The workload, and its turns.
    #[command(flatten)]
    pub spec: Spec,

    /// Place of the result.
    #[command(flatten)]
    pub result: ResultOptions,
}

pub(super) fn run(args: &TriageArgs, invocation: &Invocation) -> Result<Exit, Error> {
    let triage = Triage::prepare(args.spec.clone())?;
    let then = &mut |document: &mut Record| {
        triage.sample(document);
        document.exit = Some(exit(document).code());
    };
    measure_then(triage.experiment(), &Shown::of(&args.result), invocation, then, &report)
        .map(|document| exit(&document))
}
