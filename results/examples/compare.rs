//! Reads one or two result files, prints the headline metric of each arm, and compares the files.
//!
//! `cargo run -p results --example compare A.json [B.json]`; with one file, its first two arms are compared.

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

fn run(base: &Path, new: Option<&Path>) -> Result<Exit, Error> {
    let (record, spec) = (read::record(base)?, CompareSpec::default());
    show(&record);
    let found = match new {
        Some(new) => {
            let new = read::record(new)?;
            show(&new);
            compare::compare(("base", &[record]), ("new", &[new]), &spec)?
        }
        None => {
            let arms: Vec<String> = record.arms.iter().take(2).map(|arm| arm.name.clone()).collect();
            compare::arms("base", &record, &arms, &spec)?
        }
    };
    println!("{}", compare::report(&found).text(80));
    Ok(found.exit())
}

fn main() -> ExitCode {
    let files: Vec<PathBuf> = std::env::args_os().skip(1).map(PathBuf::from).collect();
    let (base, new) = match files.as_slice() {
        [one] => (one, None),
        [base, new] => (base, Some(new.as_path())),
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
