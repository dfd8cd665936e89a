//! A turn of a side: a process that may be another build, and may die, hang, or write anything.

use std::collections::BTreeMap;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use results::document::{Arm, Record, Tool};
use results::error::{Error, Exit};
use results::metric::{NMI_HANDLER, ROTATION};
use results::stats::median;

use crate::setting::tool;
use crate::sys;

/// Rounds of a turn.
pub(super) const ROUNDS: usize = 6;
/// Bound on a turn, or the whole run's if that is longer.
const LEAST_LIMIT: Duration = Duration::from_secs(60);

/// One of the two sides.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Side {
    /// BASE or NEW.
    pub name: &'static str,
    /// The build.
    pub binary: PathBuf,
    /// Options of its own.
    pub args: Vec<String>,
}

/// A turn: the document of its run, and whether that ended inconclusive.
#[derive(Clone, Debug)]
pub(super) struct Turn {
    pub(super) record: Record,
    inconclusive: bool,
}

impl Turn {
    /// Returns a parameter; "none" stands for an absent one.
    pub(super) fn parameter(&self, name: &str) -> String {
        self.record.parameter(name).filter(|value| value != "null").unwrap_or_else(|| "none".to_owned())
    }

    /// Returns what every turn of a side has in common.
    pub(super) fn is_of(&self) -> (&Tool, [String; 2]) {
        (&self.record.tool, ["backend", "workload"].map(|name| self.parameter(name)))
    }

    /// Returns the median over rounds of each metric of an arm.
    ///
    /// # Errors
    /// Says why the figures of this turn do not count.
    pub(super) fn medians<'a>(&self, arm: &'a Arm) -> Result<BTreeMap<&'a str, f64>, String> {
        let whole = |arm: &Arm| arm.not_available.is_some() || doubt(arm).is_none();
        if let Some(why) = doubt(arm) {
            return Err(why);
        }
        // A run that was cut short, or whose periods say little, is inconclusive although each arm has its rounds.
        if self.inconclusive && self.record.arms.iter().all(whole) {
            return Err("its run is inconclusive".to_owned());
        }
        let columns = arm.rounds.metrics.iter();
        let medians =
            columns.filter_map(|(key, column)| Some((&**key, median(&column.medians().collect::<Vec<_>>())?)));
        let found: BTreeMap<&'a str, f64> = medians.filter(|(_, ns)| *ns > 0.0).collect();
        let is_judged = [NMI_HANDLER, ROTATION].iter().any(|metric| found.contains_key(metric.key));
        if is_judged { Ok(found) } else { Err("it has no latency".to_owned()) }
    }
}

/// Says why an arm has no figures, or none that are whole.
fn doubt(arm: &Arm) -> Option<String> {
    let of_counts = || arm.own.doubts().next().map(|(count, about)| format!("{count} {about}"));
    arm.incomplete.first().or(arm.not_available.as_ref()).cloned().or_else(of_counts)
}

/// Returns the number of an arm's rounds that are not whole: all of them, if none of its own is to blame.
pub(super) fn bad(arm: &Arm) -> usize {
    let bad = arm.rounds.complete.iter().filter(|complete| !**complete).count();
    if arm.rounds.len() > 1 && bad > 0 { bad } else { ROUNDS }
}

/// Takes a turn of a side: `None` if the user ended it meanwhile.
///
/// # Errors
/// It does not start, fails, takes longer than `limit`, or writes no document.
pub(super) fn take(side: &Side, common: &[String], seed: u64, limit: Duration) -> Result<Option<Turn>, Error> {
    let Side { name, binary, args } = side;
    let what = format!("{name} ({})", binary.display());
    let failed = |exit, why: String| {
        Error::new(exit, what.clone(), why, "run that build's nmi-latency alone, with these options")
    };
    // A bare name is a file of this folder, as it is for every other command: not one of PATH.
    let mut command = Command::new(Path::new(".").join(binary));
    command
        .arg0("vpmu")
        .args(["nmi-latency", "--warmup=1"])
        .args([format!("--rounds={ROUNDS}"), format!("--seed={seed}")]);
    command
        .args(["--json", "--quiet", "--no-save"])
        // A later word of an option takes the place of an earlier one.
        .args(common)
        .args(args);
    let limit = limit.max(LEAST_LIMIT);
    let until = Instant::now() + limit;
    let ran = tool::run(&mut command, || sys::stopped() || Instant::now() >= until).map_err(|error| {
        let remedy = "give the path of a vpmu that can be executed";
        Error::usage(format!("cannot start {what}"), error.to_string(), remedy)
    })?;
    if sys::stopped() {
        return Ok(None);
    }
    if Instant::now() >= until {
        return Err(failed(Exit::Inconclusive, format!("it did not end in {} s", limit.as_secs())));
    }
    match ran.exit() {
        // A whole document that is inconclusive, or of a regression that the side knows of, is a turn.
        Some(exit @ (Exit::Done | Exit::Regression | Exit::Inconclusive)) => {
            let wrong = |why| Error::usage(format!("{what} wrote no result"), why, "give a vpmu with these documents");
            let record = ran.document().map_err(wrong)?;
            Ok(Some(Turn { record, inconclusive: exit == Exit::Inconclusive }))
        }
        exit => Err(failed(exit.unwrap_or(Exit::Inconclusive), ran.why())),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use serde_json::{Value, json};

    use super::*;

    /// Returns a side that is a shell script.
    fn script(body: &str) -> (tempfile::TempDir, Side) {
        let dir = tempfile::tempdir().unwrap();
        let binary = dir.path().join("side");
        std::fs::write(&binary, format!("#!/bin/sh\n{body}\n")).unwrap();
        std::fs::set_permissions(&binary, std::fs::Permissions::from_mode(0o755)).unwrap();
        (dir, Side { name: "NEW", binary, args: Vec::new() })
    }

    fn taken(body: &str) -> Result<Option<Turn>, Error> {
        let (_dir, side) = script(body);
        take(&side, &[], 1, LEAST_LIMIT)
    }

    #[test]
    fn a_document_is_its_medians_unless_something_is_not_whole() {
        let document = serde_json::to_value(trials::fixture::document(6)).unwrap();
        let turn = |code: u8, change: &dyn Fn(&mut Value)| {
            let mut document = document.clone();
            change(&mut document);
            taken(&format!("cat <<'E'\n{document}\nE\nexit {code}")).unwrap().unwrap()
        };
        let of = |turn: &Turn| {
            let found = turn.medians(&turn.record.arms[0]);
            found.map(|medians| medians[NMI_HANDLER.key] > 0.0)
        };
        let sound = turn(0, &|_| ());
        assert_eq!((of(&sound), of(&turn(1, &|_| ()))), (Ok(true), Ok(true)));
        let failed = turn(3, &|document| document["arms"][0]["incomplete"] = json!(["a guest failed"]));
        assert_eq!(of(&failed), Err("a guest failed".to_owned()));
        assert!(failed.medians(&failed.record.arms[1]).is_ok(), "the run's doubt is that arm's");
        assert_eq!(of(&turn(3, &|_| ())), Err("its run is inconclusive".to_owned()), "and each arm has its figures");
        let none = turn(0, &|document| document["arms"][0]["rounds"]["metrics"] = json!({}));
        assert_eq!(of(&none), Err("it has no latency".to_owned()));
        let other = turn(0, &|document| document["parameters"]["backend"] = json!("c"));
        assert!(other.is_of() != sound.is_of() && turn(0, &|_| ()).is_of() == sound.is_of());
    }

    #[test]
    fn a_side_that_is_no_build_dies_or_floods_is_one_clear_error() {
        for (body, exit, needle) in [
            ("echo hello", Exit::Usage, "wrote no result: expected value"),
            ("exit 0", Exit::Usage, "wrote no result"),
            ("yes | head -c 70000000; exit 0", Exit::Usage, "more than 64 MiB"),
            (
                "echo 'vpmu: error: bad value for --pin; mend it' >&2; exit 2",
                Exit::Usage,
                "bad value for --pin; mend it",
            ),
            ("echo 'vpmu: error: no KVM' >&2; exit 4", Exit::Host, "no KVM"),
            ("echo the last words >&2; exit 70", Exit::Internal, "the last words"),
            ("kill -9 $$", Exit::Inconclusive, "signal: 9"),
        ] {
            let error = taken(body).unwrap_err();
            assert!(error.exit == exit && error.to_string().contains(needle), "{error} lacks {needle}");
        }
        let absent = Side { name: "NEW", binary: "/no/such/vpmu".into(), args: Vec::new() };
        let error = take(&absent, &[], 1, LEAST_LIMIT).unwrap_err();
        assert!(error.exit == Exit::Usage && error.to_string().contains("cannot start NEW (/no/such/vpmu)"), "{error}");
    }

    #[test]
    fn an_option_of_its_own_comes_after_the_common_ones() {
        let (_dir, mut side) = script("echo \"vpmu: error: $*\" >&2; exit 2");
        side.args = vec!["--pin".to_owned(), "1".to_owned(), "--strategy=gate".to_owned()];
        let common = ["--pin=0", "--samples=9", "--strategy=reuse"].map(str::to_owned);
        let words = take(&side, &common, 7, LEAST_LIMIT).unwrap_err().to_string();
        assert!(
            words.contains(
                "--seed=7 --json --quiet --no-save --pin=0 --samples=9 --strategy=reuse --pin 1 --strategy=gate"
            ),
            "{words}"
        );
    }
}
