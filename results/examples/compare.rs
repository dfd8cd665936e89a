//! Reads one or two result files, prints the headline metric of each arm, and compares the files.
//!
//! `cargo run -p results --example compare A.json [B.json]`; with one file, it is compared with itself.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use results::compare::{self, CompareSpec};
use results::document::Record;
use results::error::{Error, Exit};
use results::table::layout::time;
use results::{metric, read};

fn show(record: &Record) {
    println!("{}: {} on {}", record.path.display(), record.experiment, record.host.class);
    for arm in &record.arms {
        match arm.headline() {
            Some((key, summary)) => {
                println!("  {:<12} p50 {:>9}  {}", arm.name, time(summary.median()), metric::name(key));
            }
            None => println!("  {:<12} {}", arm.name, arm.not_available.as_deref().unwrap_or("no figures")),
        }
    }
}

fn run(base: &Path, new: &Path) -> Result<Exit, Error> {
    let (base, new) = (read::record(base)?, read::record(new)?);
    show(&base);
    show(&new);
    let found = compare::compare(("base", &[base]), ("new", &[new]), &CompareSpec::default())?;
    println!("{}", compare::text(&found));
    Ok(found.exit())
}

fn main() -> ExitCode {
    let files: Vec<PathBuf> = std::env::args_os().skip(1).map(PathBuf::from).collect();
    let (base, new) = match files.as_slice() {
        [one] => (one, one),
        [base, new] => (base, new),
        _ => {
            eprintln!("usage: compare A.json [B.json]");
            return Exit::Usage.into();
        }
    };
    run(base, new)
        .unwrap_or_else(|error| {
            eprintln!("error: {error}");
            error.exit
        })
        .into()
}
