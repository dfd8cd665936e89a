//! `vpmu ab`.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use results::compare;
use results::document::{Record, Status};
use results::error::{Error, Exit};
use results::host::{HostFacts, HostFs};
use results::table::Report;

use super::end::for_bisect;
use super::files::{write_junit, write_to};
use super::usage::is_workload;
use crate::engine::plain::Save;
use crate::experiment::ab::{self, AbSpec, Side};
use crate::setting::options::{
    DurationOption, FormOptions, GateOptions, LimitOptions, OutputOption, QuietOption, SeedOption,
};
use crate::setting::parse::number_in;
use crate::terminal::console::{self, complain, print};
use crate::terminal::progress::{self, Progress};

/// Options of `vpmu ab`.
#[derive(Clone, Debug, Args)]
pub struct AbArgs {
    /// The build that is the reference [default: this one]
    #[arg(value_name = "BASE")]
    pub base: Option<PathBuf>,

    /// The build to judge [default: BASE]
    #[arg(value_name = "NEW")]
    pub new: Option<PathBuf>,

    /// Options of nmi-latency for both sides: of the arms, the guest and the host
    ///
    /// --strategy, --workload, --period, --samples, --vcpus, --backend, --pin and others. Rounds, duration, warm-up and seed
    /// are the comparison's. One that a side has of its own is that side's.
    #[arg(last = true, value_name = "OPTIONS", allow_hyphen_values = true)]
    pub both: Vec<String>,

    /// Extra nmi-latency options for BASE only, as one quoted string
    #[arg(long, value_name = "OPTIONS", allow_hyphen_values = true, help_heading = "Comparison")]
    pub base_args: Option<String>,

    /// Extra nmi-latency options for NEW only, as --base-args
    #[arg(long, value_name = "OPTIONS", allow_hyphen_values = true, help_heading = "Comparison")]
    pub new_args: Option<String>,

    /// Limits beyond which a difference is called a change.
    #[command(flatten, next_help_heading = "Comparison")]
    pub limits: LimitOptions,

    /// The bound on the run, a minute by default.
    #[command(flatten)]
    pub duration: DurationOption,

    /// The run ends after so many pairs, each a process of six rounds a side; times are judged from 5 on
    #[arg(long, value_name = "N", value_parser = number_in(1..=1_000_000), help_heading = "Rounds")]
    pub pairs: Option<u64>,

    /// The seed.
    #[command(flatten)]
    pub seed: SeedOption,

    /// The file of the document.
    #[command(flatten, next_help_heading = "Result")]
    pub output: OutputOption,

    /// How the result is passed on.
    #[command(flatten)]
    pub gate: GateOptions,

    /// Form of the result.
    #[command(flatten)]
    pub form: FormOptions,

    /// Less on stderr.
    #[command(flatten)]
    pub quiet: QuietOption,
}

/// Options of a turn that `ab` gives itself, or that have no place in one.
const OWN: &str = "--duration --json --junit --markdown --no-save --output --quick --quiet --rounds \
                   --save-baseline --seed --until-ci --verbose --warmup -o -q";

/// Checks options, none of which a side can have for itself.
fn own(option: &str, words: Option<Vec<String>>) -> Result<Vec<String>, Error> {
    let words = words.ok_or_else(|| Error::usage(format!("{option}: a quote is not closed"), "", "close it"))?;
    let mut given = words.iter().filter_map(|word| word.split('=').next());
    match given.find(|word| OWN.split(' ').any(|own| own == *word)) {
        Some(word) => {
            let remedy = "leave it out; --pairs are the rounds of ab, whose own options come before --";
            Err(Error::usage(format!("{option} cannot have {word}"), "every turn of both sides is alike", remedy))
        }
        None => Ok(words),
    }
}

fn spec(args: &AbArgs) -> Result<AbSpec, Error> {
    let split = |text: &Option<String>| shlex::split(text.as_deref().unwrap_or_default());
    let mut common = own("--", Some(args.both.clone()))?;
    let [mut base_args, mut new_args] =
        [own("--base-args", split(&args.base_args))?, own("--new-args", split(&args.new_args))?];
    let this = || std::env::current_exe().map_err(|error| Error::internal("this program has no path", error));
    // A bare name is a file of this folder, as it is for every other command: not one of PATH.
    let file = |path: &PathBuf| Path::new(if path.parent() == Some("".as_ref()) { "." } else { "" }).join(path);
    let base = args.base.as_ref().map(file).map_or_else(this, Ok)?;
    let new = args.new.as_ref().map_or_else(|| base.clone(), file);
    if args.new.is_none() && base_args == new_args {
        return Err(Error::usage(
            format!("{} alone is nothing to compare", base.display()),
            "both sides would be the same",
            "give BASE and NEW, or --base-args and --new-args; the same build twice is an A/A run",
        ));
    }
    // A run has one workload: that of both is the one of a side without its own.
    let has = |words: &[String]| words.iter().any(|word| is_workload(word));
    let at = common.iter().position(|word| is_workload(word));
    if let Some(at) = at.filter(|_| has(&base_args) || has(&new_args)) {
        let words = if common[at].contains('=') { 1 } else { 2 };
        let words: Vec<String> = common.drain(at..common.len().min(at + words)).collect();
        for side in [&mut base_args, &mut new_args].into_iter().filter(|side| !has(side)) {
            side.splice(..0, words.iter().cloned());
        }
    }
    // BASE fails for all commits of a bisection, NEW for one alone.
    let [of_all, of_one] = [Exit::StopsBisection, Exit::CannotTell].map(|exit| args.gate.bisect.then_some(exit));
    Ok(AbSpec {
        sides: [
            Side { name: "BASE", binary: base, args: base_args, failure: of_all },
            Side { name: "NEW", binary: new, args: new_args, failure: of_one },
        ],
        common,
        duration: args.duration.duration.unwrap_or(Duration::from_secs(60)),
        pairs: args.pairs,
        seed: args.seed.seed,
        rules: args.limits.limits(),
    })
}

pub(super) fn run(args: &AbArgs, command_line: &[String]) -> Result<Exit, Error> {
    let spec = spec(args)?;
    let output = args.output.output.as_deref().map(results::write::check_file).transpose()?;
    console::catch_interrupts()?;
    let fs = HostFs::default();
    let mut progress = progress::shown(!args.quiet.quiet);
    let host = (HostFacts::begin(&fs), &fs);
    let write = |document: &Record| match &output {
        Some(target) => write_to(target, document.to_json()?.as_bytes()),
        None => Ok(()),
    };
    // What is on a full disk at the end is said then.
    let mut save = |document: &Record| {
        let _ = write(document);
        Ok(())
    };
    let grows: (&mut dyn Progress, Save<'_>) = (progress.as_mut(), &mut save);
    let (mut document, found, error) = ab::run(&spec, host, command_line, grows)?;
    let report = Report { title: "vpmu ab".to_owned(), ..compare::report(&found, args.gate.all_metrics) };
    let exit = found.exit();
    // An error hides no regression.
    let (hidden, ended) = if exit == Exit::Regression { (error, None) } else { (None, error) };
    let _ = hidden.inspect(|error| complain(&format!("warning: {error}")));
    let code = |end: Result<Exit, Error>| for_bisect(args.gate.bisect, end.unwrap_or_else(|error| error.exit)).code();
    document.exit = Some(code(ended.clone().map_or(Ok(exit), Err)));
    let saved = write(&document);
    // What was cut short, or is not saved, is no open case of a JUnit report, but an error.
    let cut = (document.status != Status::Complete && exit == Exit::Inconclusive).then(|| found.verdict.clone());
    let why = ended.as_ref().or(saved.as_ref().err()).map(Error::to_string).or(cut).map(|why| (Exit::CannotTell, why));
    let cases = Report { verdict: why.or_else(|| report.verdict.clone()), ..report.clone() }.junit();
    let reported = cases.and_then(|cases| write_junit(args.gate.junit.as_deref(), &cases));
    let ended = ended.map_or(saved, Err).and(reported).map(|()| exit);
    document.exit = Some(code(ended.clone()));
    if args.form.json.json {
        print(&document.to_json()?)?;
    } else {
        console::show(args.form.form(), &report, &document)?;
        if let (Some(target), Ok(_), false) = (&output, &ended, args.form.markdown) {
            print(&format!("saved: {}\n", target.path().display()))?;
        }
    }
    // The error is printed here and not returned, because `ended` would write it over the JUnit report, which has the comparison.
    ended.or_else(|error| {
        complain(&format!("error: {error}"));
        Ok(error.exit)
    })
}

#[cfg(test)]
mod tests {
    use results::verdict::Limits;

    use super::*;
    use crate::setting::parse::{options, refused};

    fn found(line: &[&str]) -> Result<AbSpec, Error> {
        options(line).map_err(|error| refused(&error)).and_then(|args| spec(&args))
    }

    #[test]
    fn options_of_both_and_of_one_side_are_kept_apart() {
        let spec = found(&["a", "b", "--new-args", "--strategy 'my own.toml'", "--", "--pin=1"]).unwrap();
        assert_eq!(spec.sides.each_ref().map(|side| side.binary.to_str()), [Some("./a"), Some("./b")]);
        assert_eq!(spec.common, ["--pin=1"]);
        assert_eq!(spec.sides.each_ref().map(|side| side.args.join("|")), ["", "--strategy|my own.toml"]);
        assert_eq!(spec.rules, Limits::default());
        let two = found(&["a", "b", "--new-args=--workload=io", "--", "--workload", "single", "--pin=1"]).unwrap();
        assert_eq!(
            (&*two.common, two.sides.each_ref().map(|side| side.args.join("|"))),
            (&["--pin=1".to_owned()][..], ["--workload|single".to_owned(), "--workload=io".to_owned()])
        );
        let one = found(&["--base-args", "--samples 30", "--new-args", "--samples 40"]).unwrap();
        assert_eq!(one.sides[0].binary, one.sides[1].binary);
    }

    #[test]
    fn sides_that_cannot_differ_are_refused() {
        for (line, needle) in [
            (&[][..], "nothing to compare"),
            (&["a"], "both sides would be the same"),
            (&["a", "--base-args", "-x", "--new-args", "-x"], "both sides would be the same"),
            (&["a", "b", "--base-args", "'"], "not closed"),
            (&["a", "b", "--threshold", "x"], "3% or 0.03"),
            (&["a", "b", "--base-args", "--rounds 3"], "--base-args cannot have --rounds"),
            (&["a", "b", "--new-args", "--samples 9 --quick"], "--new-args cannot have --quick"),
            (&["a", "b", "--new-args", "--duration=9s"], "--pairs are the rounds of ab"),
            (&["a", "b", "--", "--seed", "2"], "-- cannot have --seed"),
        ] {
            let error = found(line).unwrap_err();
            assert!(error.exit == Exit::Usage && error.to_string().contains(needle), "{error}");
        }
        assert!(found(&["a", "a"]).is_ok(), "an A/A run");
    }
}
