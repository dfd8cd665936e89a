//! `vpmu triage`.

use clap::Args;
use results::document::Record;
use results::error::{Error, Exit};

use super::measure::{Invocation, measure_then};
use super::options::ResultOptions;
use crate::experiment::triage::spec::Spec;
use crate::experiment::triage::{Triage, show};

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
        document.exit = Some(show::exit(document).code());
    };
    measure_then(triage.experiment(), &args.result, invocation, then, &show::report)
        .map(|document| show::exit(&document))
}
