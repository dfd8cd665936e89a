//! A turn of a side: a process that may be another build, and may die, hang, or write anything.

use std::collections::BTreeMap;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use results::child::{Gathered, Keep, POLL, Supervised};
use results::compare::PMIS;
use results::document::Tool;
use results::error::{Error, Exit, one_line};
use results::metric::{NMI_HANDLER, ROTATION};
use results::stats::median_of;
use serde::Deserialize;
use serde_json::{Map, Value};

/// Rounds of a turn.
pub(super) const ROUNDS: usize = 6;
/// Bound on a turn, or the whole run's if that is longer.
const LEAST_LIMIT: Duration = Duration::from_secs(60);
/// Longest document that is read, in bytes.
const MAX_DOCUMENT: usize = 16 << 20;
/// Part of a side's stderr that is kept, in bytes.
const MAX_STDERR: usize = 64 << 10;
/// Time to wait for the last output of a side that has ended.
const DRAIN_TIME: Duration = Duration::from_millis(500);
/// Longest text that is taken from a document, in characters.
const MAX_TEXT: usize = 2000;

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

/// The document of a turn: what any build writes, as far as it is read here. What an arm or a document lacks is absent, not an error.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Turn {
    /// The build.
    pub(super) tool: Tool,
    /// The parameters of its run.
    pub(super) parameters: Map<String, Value>,
    host: Value,
    arms: Vec<Value>,
    #[serde(default)]
    answers: Vec<Value>,
    #[serde(skip)]
    inconclusive: bool,
}

/// An arm of a turn.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct TurnArm {
    /// Its name.
    pub(super) name: String,
    /// Reason why it cannot run here.
    pub(super) not_available: Option<String>,
    /// Median over the rounds of their p50s, by metric, ns; the reason if the figures are not whole.
    pub(super) medians: Result<BTreeMap<String, f64>, String>,
    /// Host operations by kind and together, and exits, for [`PMIS`] PMIs.
    pub(super) counts: BTreeMap<String, u64>,
    /// Rounds that are not whole, as far as the document tells them from others: of medians none are.
    pub(super) bad: usize,
}

impl Turn {
    /// Returns the class of the host.
    pub(super) fn host(&self) -> String {
        text(&self.host["class"])
    }

    /// Returns whether the backend stands in for hardware events.
    pub(super) fn stands_in(&self) -> bool {
        self.arms.iter().any(|arm| arm["stand_in"] == true)
    }

    /// Returns a parameter as text.
    pub(super) fn parameter(&self, name: &str) -> String {
        let given = self.parameters.get(name).filter(|value| !value.is_null());
        given.map_or_else(|| "none".to_owned(), text)
    }

    /// Returns what differs from the first turn of its side, of what makes figures comparable.
    pub(super) fn changed(&self, first: &Self) -> Option<String> {
        if self.tool != first.tool {
            return Some("its build changed".to_owned());
        }
        let changed = ["backend", "workload"].into_iter().find(|name| self.parameter(name) != first.parameter(name))?;
        Some(format!("its {changed} was {}, now it is {}", first.parameter(changed), self.parameter(changed)))
    }

    /// Returns whether its guests were simulated.
    pub(super) fn is_simulated(&self) -> bool {
        self.parameter("backend").starts_with("sim:")
    }

    /// Returns the arms in order.
    pub(super) fn arms(&self) -> Vec<TurnArm> {
        let arm = |arm: &Value| {
            let name = text(&arm["strategy"]);
            let is_part =
                self.answers.iter().any(|answer| answer["arm"] == arm["strategy"] && answer["whole"] == false);
            let complete: Vec<bool> = values(&arm["rounds"]["complete"]).filter_map(Value::as_bool).collect();
            let bad = complete.iter().filter(|complete| !**complete).count();
            let not_available = arm["not_available"].as_str().map(plain);
            let why = values(&arm["incomplete"]).next().map(text).or_else(|| not_available.clone());
            TurnArm {
                medians: match why {
                    Some(why) => Err(why),
                    None if is_part => Err("figures that are not whole".to_owned()),
                    None => latencies(&arm["rounds"]),
                },
                counts: counts(arm),
                bad: if complete.len() > 1 && bad > 0 { bad } else { ROUNDS },
                name,
                not_available,
            }
        };
        let mut arms: Vec<TurnArm> = self.arms.iter().map(arm).collect();
        // A run that was cut short, or whose periods say little, is inconclusive although each arm has its rounds.
        if self.inconclusive && arms.iter().all(|arm| arm.not_available.is_some() || arm.medians.is_ok()) {
            for arm in &mut arms {
                arm.medians = Err("its run is inconclusive".to_owned());
            }
        }
        arms
    }
}

/// Returns the medians; the reason, if there is none of what is judged.
fn latencies(rounds: &Value) -> Result<BTreeMap<String, f64>, String> {
    let median = |column: &Value| {
        let ns = values(&column["p50"]).filter_map(Value::as_f64);
        median_of(&mut ns.filter(|ns| ns.is_finite() && *ns > 0.0).collect::<Vec<_>>())
    };
    let found: BTreeMap<String, f64> =
        members(&rounds["metrics"]).filter_map(|(key, column)| Some((plain(key), median(column)?))).collect();
    let is_judged = [NMI_HANDLER, ROTATION].iter().any(|metric| found.contains_key(metric.key));
    if is_judged { Ok(found) } else { Err("it has no latency".to_owned()) }
}

fn counts(arm: &Value) -> BTreeMap<String, u64> {
    let number = |value: &Value| value.as_u64().unwrap_or(0) as f64;
    let (nmis, operations) = (number(&arm["nmis"]), &arm["host_ops"]);
    if nmis == 0.0 || members(operations).next().is_none() {
        return BTreeMap::new();
    }
    #[expect(clippy::cast_sign_loss, reason = "no count is negative")]
    let of_pmis = |count: f64| (count * PMIS / nmis).round() as u64;
    let kinds = members(operations).map(|(kind, operation)| (plain(kind), number(&operation["count"])));
    let all = members(operations).map(|(_, operation)| number(&operation["count"])).sum();
    let exits = members(&arm["msr_exits"]).map(|(_, one)| number(&one["reads"]) + number(&one["writes"])).sum();
    let together = [("operations".to_owned(), all), ("exits".to_owned(), exits)];
    kinds.chain(together).map(|(name, count)| (name, of_pmis(count))).collect()
}

/// Returns the values of an array; none of anything else.
fn values(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

/// Returns the members of an object; none of anything else.
fn members(value: &Value) -> impl Iterator<Item = (&String, &Value)> {
    value.as_object().into_iter().flatten()
}

/// Returns a string as one bounded line, and what is none as JSON.
fn text(value: &Value) -> String {
    value.as_str().map_or_else(|| plain(&value.to_string()), plain)
}

/// Returns text of another build as one bounded line.
fn plain(text: &str) -> String {
    one_line(&text.chars().take(MAX_TEXT).collect::<String>())
}

/// Takes a turn of a side: `None` if `stopped` held meanwhile.
///
/// # Errors
/// It does not start, fails, takes longer than `limit`, or writes no document.
pub(super) fn take(
    side: &Side,
    common: &[String],
    seed: u64,
    limit: Duration,
    stopped: &dyn Fn() -> bool,
) -> Result<Option<Turn>, Error> {
    let Side { name, binary, args } = side;
    let what = format!("{name} ({})", binary.display());
    let failed = |exit, why: String| {
        Error::new(exit, what.clone(), why, "run that build's nmi-latency alone, with these options")
    };
    // A bare name is a file of this folder, as it is for every other command: not one of PATH.
    let mut command = Command::new(std::path::Path::new(".").join(binary));
    command
        .arg0("vpmu")
        .args(["nmi-latency", "--warmup=1"])
        .args([format!("--rounds={ROUNDS}"), format!("--seed={seed}")]);
    command
        .args(["--json", "--quiet", "--no-save"])
        // A later word of an option takes the place of an earlier one.
        .args(common)
        .args(args);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = Supervised::start(&mut command).map_err(|error| {
        let remedy = "give the path of a vpmu that can be executed";
        Error::usage(format!("cannot start {what}"), error.to_string(), remedy)
    })?;
    let (Some(output), Some(errors)) = (child.process.stdout.take(), child.process.stderr.take()) else {
        return Err(failed(Exit::Inconclusive, "it has no pipes".to_owned()));
    };
    let output = Gathered::start(output, Keep::First(MAX_DOCUMENT));
    let errors = Gathered::start(errors, Keep::Last(MAX_STDERR));
    let limit = limit.max(LEAST_LIMIT);
    let until = Instant::now() + limit;
    let ended = child.wait(POLL, || stopped() || Instant::now() >= until);
    let Some(status) = ended.map_err(|error| failed(Exit::Inconclusive, error.to_string()))? else {
        let late = failed(Exit::Inconclusive, format!("it did not end in {} s", limit.as_secs()));
        return if stopped() { Ok(None) } else { Err(late) };
    };
    // A whole document that is inconclusive, or of a regression that the side knows of, is a turn.
    if let Some(0 | 1 | 3) = status.code() {
        return match read(&output.text(DRAIN_TIME)) {
            Ok(turn) => Ok(Some(Turn { inconclusive: status.code() == Some(3), ..turn })),
            Err(_) if stopped() => Ok(None),
            Err(why) => Err(Error::usage(format!("{what} wrote no result"), why, "give a vpmu that has nmi-latency")),
        };
    }
    let (exit, why) = reason(status, &errors.text(DRAIN_TIME).0);
    Err(failed(exit, why))
}

fn read((text, cut): &(String, bool)) -> Result<Turn, String> {
    if *cut {
        return Err(format!("it wrote more than {} MiB, or did not end", MAX_DOCUMENT >> 20));
    }
    let mut turn: Turn = serde_json::from_str(text).map_err(|error| {
        let begin = plain(&text.chars().take(80).collect::<String>());
        format!("'{begin}' ({error})")
    })?;
    let Tool { name, version, git_revision, profile } = &mut turn.tool;
    for text in [name, version, git_revision, profile] {
        *text = plain(text);
    }
    if turn.arms.is_empty() { Err("it has no arms".to_owned()) } else { Ok(turn) }
}

/// Returns the exit and the reason of a process that failed: in its own words if it has some.
fn reason(status: ExitStatus, errors: &str) -> (Exit, String) {
    let lines: Vec<String> = errors.lines().map(plain).filter(|line| !line.is_empty()).collect();
    let code = status.code().and_then(|code| u8::try_from(code).ok());
    let exit = code.map_or(Exit::Inconclusive, Exit::from_code);
    let own = lines.iter().find_map(|line| line.strip_prefix("vpmu: error: ").map(str::to_owned));
    let last = || lines.last().map_or_else(String::new, |line| format!(" ('{line}')"));
    (exit, own.unwrap_or_else(|| format!("it ended with {status}{}", last())))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

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
        take(&side, &[], 1, LEAST_LIMIT, &|| false)
    }

    const WRITTEN: &str = r#"{"schema":"vpmu-result/9","tool":{"name":"vpmu","version":"0","git_revision":"r","profile":"debug"},
      "parameters":{"workload":"w","backend":"b","pin":"1","samples":9,"more":1},"host":{"class":"h"},"arms":[
      {"strategy":"reuse","incomplete":[],"rounds":{"metrics":{"rotation_ns":{"p50":[5,null,7,-1,6]},"y_ns":{"p50":[]}}}},
      {"strategy":"gate","incomplete":["a guest\u001b failed"],"rounds":{"complete":[true,false,true],"metrics":{"nmi_handler_ns":{"p50":[4]}}}},
      {"strategy":"pool","rounds":{"metrics":{"nmi_handler_ns":{"p50":[4]}}}},
      {"strategy":"kvm","not_available":"not here"}],"answers":[{"arm":"pool","whole":false}]}"#;

    #[test]
    fn a_document_of_any_build_is_its_medians() {
        for code in [0, 1, 3] {
            let turn = taken(&format!("cat <<'E'\n{WRITTEN}\nE\nexit {code}")).unwrap().unwrap();
            let arms = turn.arms();
            assert_eq!(arms[0].medians, Ok([("rotation_ns".to_owned(), 6.0)].into()));
            assert_eq!(arms[1].medians, Err("a guest failed".to_owned()));
            assert_eq!(arms[2].medians, Err("figures that are not whole".to_owned()));
            assert_eq!((arms[3].not_available.as_deref(), turn.host().as_str()), (Some("not here"), "h"));
            assert_eq!((arms[0].bad, arms[1].bad), (ROUNDS, 1));
            let other = WRITTEN.replace(r#""backend":"b""#, r#""backend":"c""#).replace("rotation_ns", "x_ns");
            let other: Turn = read(&(other, false)).unwrap();
            assert_eq!(other.changed(&turn).as_deref(), Some("its backend was b, now it is c"));
            assert_eq!(
                (other.arms()[0].medians.clone(), turn.changed(&turn)),
                (Err("it has no latency".to_owned()), None)
            );
        }
        // Each arm has its figures, and the run has no answer.
        let sound = WRITTEN.replace("\"a guest\\u001b failed\"", "").replace("false}]", "true}]");
        let turn = taken(&format!("cat <<'E'\n{sound}\nE\nexit 3")).unwrap().unwrap();
        assert_eq!(turn.arms()[0].medians, Err("its run is inconclusive".to_owned()));
    }

    #[test]
    fn a_side_that_is_no_build_dies_or_floods_is_one_clear_error() {
        for (body, exit, needle) in [
            ("echo hello", Exit::Usage, "wrote no result: 'hello'"),
            ("exit 0", Exit::Usage, "wrote no result"),
            ("yes | head -c 20000000; exit 0", Exit::Usage, "more than 16 MiB"),
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
        let error = take(&absent, &[], 1, LEAST_LIMIT, &|| false).unwrap_err();
        assert!(error.exit == Exit::Usage && error.to_string().contains("cannot start NEW (/no/such/vpmu)"), "{error}");
    }

    #[test]
    fn an_option_of_its_own_comes_after_the_common_ones_and_ctrl_c_ends_the_wait() {
        let (_dir, mut side) = script("echo \"vpmu: error: $*\" >&2; exit 2");
        side.args = vec!["--pin".to_owned(), "1".to_owned(), "--strategy=gate".to_owned()];
        let common = ["--pin=0", "--samples=9", "--strategy=reuse"].map(str::to_owned);
        let words = take(&side, &common, 7, LEAST_LIMIT, &|| false).unwrap_err().to_string();
        assert!(
            words.contains(
                "--seed=7 --json --quiet --no-save --pin=0 --samples=9 --strategy=reuse --pin 1 --strategy=gate"
            ),
            "{words}"
        );
        let (_dir, side) = script("exec sleep 100");
        assert!(take(&side, &[], 1, LEAST_LIMIT, &|| true).unwrap().is_none());
    }
}
