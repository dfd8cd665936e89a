//! `vpmu report` and `vpmu export`.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use clap::Args;
use fleet::{Labels, Run};
use results::document::Record;
use results::error::{Error, Exit};
use results::export::{ALL, Format, export};
use results::read::{Found, ends};
use results::report::{self, html};
use results::table::layout::plural;
use results::write::check_no_input;

use super::by_host::{self, Gathered};
use super::files::{records, write};
use crate::setting::options::OutputOption;
use crate::setting::parse::one_of;
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

/// Options of `vpmu export`.
#[derive(Clone, Debug, Args)]
pub struct ExportArgs {
    /// Result documents (.json), or folders of them
    #[arg(value_name = "FILE|DIR", required = true)]
    pub sources: Vec<PathBuf>,

    /// The format
    #[arg(short, long, value_name = "FORMAT", value_parser = one_of(&ALL, |format| format.name, |format| format.about))]
    pub format: Format,

    /// The file in place of stdout, whole or not at all.
    #[command(flatten)]
    pub output: OutputOption,
}

pub(super) fn run_export(args: &ExportArgs) -> Result<Exit, Error> {
    let Found { records, unsound, .. } = records(&args.sources, false)?;
    let text = export(args.format, &records)?;
    match args.output.output.as_deref().filter(|file| *file != Path::new("-")) {
        Some(file) => {
            check_no_input(file, records.iter().map(|record| &record.path))?;
            write(file, text.as_bytes())?;
        }
        None => print(&text)?,
    }
    Ok(ends(Exit::Done, unsound))
}
