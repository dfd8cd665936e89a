//! `vpmu triage`.

use clap::Args;
use results::document::Record;
use results::error::{Error, Exit};

use super::measure::measure_then;
use super::options::ResultOptions;
use crate::experiment::triage::{Spec, Triage, exit, report};

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

pub(super) fn run(args: &TriageArgs, command_line: &[String]) -> Result<Exit, Error> {
    let triage = Triage::prepare(args.spec.clone())?;
    let then = &mut |document: &mut Record| {
        triage.sample(document);
        document.exit = Some(exit(document).code());
    };
    measure_then(triage.experiment(), &args.result, command_line, then, &report).map(|document| exit(&document))
}
