//! `vpmu report`.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use clap::Args;
use fleet::{Labels, Run};
use results::document::Record;
use results::error::{Error, Exit};
use results::read::{Found, ends};
use results::report::{self, html};
use results::table::layout::plural;
use results::write::check_no_input;

use super::by_host::{self, Gathered};
use super::files::{records, write};
use crate::setting::options::OutputOption;
use crate::setting::process;
use crate::terminal::console::{complain, print};

/// Options of `vpmu report`.
#[derive(Clone, Debug, Args)]
pub struct ReportArgs {
    /// Result documents (.json), or folders of them
    #[arg(value_name = "DIR|FILE", default_value = "vpmu-results")]
    pub sources: Vec<PathBuf>,

    /// The page.
    #[command(flatten)]
    pub output: OutputOption,
}

/// Title of a page.
const TITLE: &str = "vPMU lab report";

pub(super) fn run(args: &ReportArgs) -> Result<Exit, Error> {
    let (mut all, mut found) = (Gathered::default(), Found::default());
    if args.sources.iter().any(|source| by_host::is_wanted(source)) {
        for source in &args.sources {
            let Gathered { runs, files, bad } = by_host::gather(source)?;
            all.runs.extend(runs);
            all.files.extend(files);
            all.bad += bad;
        }
    } else {
        found = records(&args.sources, false)?;
        let run = |record: &Record| Run::of(record, &record.path.to_string_lossy(), Labels::default());
        let files = found.records.iter().map(|record| record.path.clone());
        all = Gathered { runs: found.records.iter().map(run).collect(), files: files.collect(), bad: found.unsound };
    }
    let hosts: BTreeSet<&str> = all.runs.iter().map(|run| run.host.as_str()).filter(|host| !host.is_empty()).collect();
    let by_host = found.records.is_empty() || hosts.len() >= fleet::MIN_HOSTS;
    let page = if by_host {
        report::page(&fleet::report(&fleet::analyse(&all.runs)), TITLE, &process::tool())?
    } else {
        html(&found.records, TITLE, &process::tool())?
    };
    let kind = if by_host { ": the levels of hosts, not of arms" } else { "" };
    let output = args.output.output.clone().unwrap_or_else(|| "report.html".into());
    if output == Path::new("-") {
        print(&page)?;
    } else {
        check_no_input(&output, &all.files)?;
        write(&output, page.as_bytes())?;
        let (what, size) = (plural(all.runs.len(), "result"), page.len() as f64 / 1e6);
        complain(&format!("{what} in {} ({size:.1} MB){kind}", output.display()));
    }
    Ok(ends(Exit::Done, all.bad))
}
