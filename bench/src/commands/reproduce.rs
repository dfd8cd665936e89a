//! `vpmu reproduce`.

use super::internal;
use crate::cli::ReproduceArgs;
use crate::console::print;
use crate::error::{Error, Exit};
use crate::experiment::reproduce::{run, show};
use crate::load;

pub(super) fn run(args: &ReproduceArgs) -> Result<Exit, Error> {
    let documents = args.measured.iter().map(|file| load::document(file)).collect::<Result<Vec<_>, _>>()?;
    let found = run::reproduce(args.seed, &documents)?;
    if args.json {
        let json = serde_json::to_string_pretty(&found).map_err(|error| internal("cannot show the figures", error))?;
        print(&(json + "\n"))?;
    } else {
        print(&show::markdown(&found))?;
    }
    Ok(Exit::Done)
}
