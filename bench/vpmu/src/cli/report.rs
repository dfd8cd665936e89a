//! `vpmu report`.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use clap::Args;
use fleet::{Labels, Run};
use results::document::Record;
use results::error::{Error, Exit};
use results::read::{Found, ends};
use results::report::{self, Sources, html};
use results::table::layout::plural;
use results::write::check_no_input;

use super::by_host::{self, Gathered};
use super::files::{records, write};
use crate::experiment::reproduce::{self, run::Simulated};
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
/// The notice that the page is one by host, which it is from five host names on.
const BY_HOST: &str = " has the levels of hosts; give results of fewer hosts for a page of arms";

pub(super) fn run(args: &ReportArgs) -> Result<Exit, Error> {
    if args.sources.iter().any(|source| by_host::is_wanted(source)) {
        let mut all = Gathered::default();
        for source in &args.sources {
            let Gathered { runs, files, bad } = by_host::gather(source)?;
            all.runs.extend(runs);
            all.files.extend(files);
            all.bad += bad;
        }
        put(args, (&of_hosts(&all.runs)?, BY_HOST), &all.files, all.runs.len())?;
        return Ok(all.exit(Exit::Done));
    }
    let Found { records, unsound, .. } = records(&args.sources)?;
    let (inputs, count) = (records.iter().map(|record| record.path.clone()).collect::<Vec<_>>(), records.len());
    let hosts: BTreeSet<&str> = records.iter().filter_map(|record| record.host.name.as_deref()).collect();
    let page = if hosts.len() >= fleet::MIN_HOSTS {
        let run = |record: &Record| Run::of(record, &record.path.to_string_lossy(), Labels::default());
        (of_hosts(&records.iter().map(run).collect::<Vec<_>>())?, BY_HOST)
    } else {
        let published = reproduce::show::report(&Simulated::stored()?.beside()?, false);
        (html(&Sources { records, published, tool: process::tool() }, TITLE)?, "")
    };
    put(args, (&page.0, page.1), &inputs, count)?;
    Ok(ends(Exit::Done, unsound))
}

/// Makes a page of the levels of hosts.
fn of_hosts(runs: &[Run]) -> Result<String, Error> {
    report::page(&fleet::report(&fleet::analyse(runs)), TITLE, &process::tool())
}

/// Prints a page, or writes it, to none of its inputs, and says what is in it.
fn put(args: &ReportArgs, (page, kind): (&str, &str), inputs: &[PathBuf], results: usize) -> Result<(), Error> {
    let output = args.output.or("report.html");
    if output == Path::new("-") {
        if !kind.is_empty() {
            complain(&format!("the page{kind}"));
        }
        return print(page);
    }
    check_no_input(&output, inputs)?;
    write(&output, page.as_bytes())?;
    let (what, size) = (plural(results, "result"), page.len() as f64 / 1e6);
    complain(&format!("{what} in {} ({size:.1} MB){kind}", output.display()));
    Ok(())
}
