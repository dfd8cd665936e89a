//! Published figures that other commands of this tool measure: recipes have their words.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use results::child::{Gathered, Keep, POLL, Supervised};
use results::document::{Record, Status};
use results::error::{Error, Exit};
use results::metric::ELAPSED;
use results::published::{Number, Reproduction, Row};
use results::read::of_text;
use results::verdict::Judged;
use rustix::process::Signal;
use triage::child::this_program;

use super::here::{Asked, conclude};
use super::recipe::{FIGURES, RECIPES, Recipe, Statistic, rows};
use super::recording::{self, COMPRESSED, TRANSFERRED, Way};
use super::set_up;
use crate::sys;
use crate::terminal::progress::Progress;

/// Longest document that is read, in bytes.
const MAX_DOCUMENT: usize = 64 << 20;
/// Most bytes of a command's words on stderr.
const MAX_WORDS: usize = 64 << 10;
/// Time in which a command ends after Ctrl-C, and for its last output.
const PATIENCE: Duration = Duration::from_secs(20);

/// Measures a figure, or those whose ids begin so, by their commands. What was measured before an error or Ctrl-C is in the result.
///
/// # Errors
/// Errors of the first command.
pub fn measure(figure: &str, asked: &Asked, progress: &mut dyn Progress) -> Result<Reproduction, Error> {
    let all = if figure == recording::NAME { compression() } else { of_recipes(figure) };
    let mut documents: BTreeMap<&str, Record> = BTreeMap::new();
    let (mut notes, mut missing) = (Vec::new(), Vec::new());
    for words in all.iter().filter_map(|(_, recipe)| recipe.run.as_deref()) {
        if documents.contains_key(words) || interrupted() {
            continue;
        }
        progress.expect(words);
        let found = match words.split(' ').next() {
            Some("record") => recording::measure(asked, progress),
            Some("stat-setup") => {
                let duration = asked.duration.unwrap_or(Duration::from_secs(60));
                let options = format!("--events {} --duration {}ns", set_up::events(), duration.as_nanos());
                carry_out(&format!("{words} {options}"), &[], asked)
            }
            _ => carry_out(words, &[], asked),
        };
        match found {
            Ok((document, doubt)) => {
                missing.extend(doubt.map(|why| format!("a part of `{words}`, because {why}")));
                documents.insert(words, document);
            }
            Err(error) if documents.is_empty() => return Err(error),
            Err(error) => missing.push(format!("`{words}`, because {error}")),
        }
    }
    if interrupted() {
        missing.push("the rest, because of the interrupt".to_owned());
    }
    let mut rows = Vec::new();
    for (mut row, recipe) in all.iter().cloned() {
        let Some(document) = recipe.run.as_deref().and_then(|words| documents.get(words)) else { continue };
        row.measured = recipe.of(document, row.number);
        let predicted = set_up::predicted(document, row.number);
        row.predicted = predicted.into_iter().collect();
        if let Some(measured) = &row.measured {
            row.against_published =
                row.published.map(|_| Judged::not_comparable(recipe.differs.as_deref().unwrap_or_default()));
            row.against_predicted =
                predicted.map(|predicted| Judged::of(measured.value, measured.interval, &[predicted]));
        } else if recipe.arms.iter().all(|name| document.arm(name).is_none()) {
            // Stock perf, where there is none.
            continue;
        } else {
            missing.push(format!("{} {}", row.figure, row.number.key()));
        }
        rows.push(row);
    }
    for document in documents.values() {
        for arm in &document.arms {
            notes.extend(arm.notes.iter().chain(&arm.incomplete).map(|note| format!("{}: {note}", arm.name)));
        }
        notes.extend(["guest", "perf"].iter().filter_map(|key| Some(format!("{key}: {}", document.parameter(key)?))));
        notes.extend(document.warnings.iter().map(|warning| warning.message.clone()));
    }
    let host = documents.into_values().next().map(|document| document.host).unwrap_or_default();
    notes.insert(0, format!("{}; Linux {}", host.class, host.kernel.as_deref().unwrap_or("of unknown release")));
    Ok(conclude(asked.seed, rows, host, (notes, missing)))
}

/// Returns the numbers that recipes have a command for.
fn of_recipes(figure: &str) -> Vec<(Row, Recipe)> {
    let recipe = |row: &Row| RECIPES.get(&row.figure).filter(|recipe| recipe.run.is_some()).cloned();
    rows(figure).into_iter().filter_map(|row| recipe(&row).map(|recipe| (row, recipe))).collect()
}

/// Returns the published table of compression, by level and way to write: time over that without compression, and bytes before it over
/// bytes after it; for this tool's recorder and for stock perf.
fn compression() -> Vec<(Row, Recipe)> {
    let mut all = Vec::new();
    let figure = FIGURES.iter().find(|figure| figure.id == recording::NAME);
    let Some((usual, figure)) = RECIPES.get(recording::NAME).zip(figure) else { return all };
    let levels = figure.rows.iter().filter_map(|row| row.clone().try_into::<(u32, f64, f64, f64, f64)>().ok());
    for ((level, serial, bytes, aio, aio_bytes), by) in levels.flat_map(|row| ["vpmu", "perf"].map(|by| (row, by))) {
        for (writes, time, bytes) in [("serial", serial, bytes), ("aio", aio, aio_bytes)] {
            let name = |level| Way { by, level, aio: writes == "aio" }.name();
            let (with, without) = (name(level), name(0));
            let mut add = |what, (number, published), arms: [&String; 2], metrics: &[&str], statistic| {
                let figure = format!("{}.{by}.{level}-{writes}.{what}", recording::NAME);
                let (unit, published) = ("ratio".to_owned(), Some(published));
                let metrics = metrics.iter().map(|&key| key.to_owned()).collect();
                all.push((
                    Row { figure, number, unit, published, ..Row::default() },
                    Recipe { arms: arms.map(String::clone), metrics, statistic, ..usual.clone() },
                ));
            };
            add("time", (Number::Ratio, time), [&with, &without], &[ELAPSED.key], Statistic::P50);
            let of_bytes = [TRANSFERRED, COMPRESSED];
            add("bytes", (Number::After, bytes), [&without, &with], &of_bytes, Statistic::Quotient);
        }
    }
    all
}

/// Returns whether the user has ended it.
pub(super) fn interrupted() -> bool {
    sys::interrupted().load(Ordering::Relaxed)
}

/// Carries a command of this tool out, in a process of its own; returns its document, and what keeps that from being whole.
///
/// # Errors
/// It does not start, or leaves no document.
pub(super) fn carry_out(words: &str, more: &[String], asked: &Asked) -> Result<(Record, Option<String>), Error> {
    let short: String = words.chars().take(100).collect();
    let failed = |exit, why: String| Error::new(exit, format!("cannot carry out `vpmu {short}`"), why, "");
    let host = |error: std::io::Error| failed(Exit::Host, error.to_string());
    let mut command = Command::new(this_program().map_err(host)?);
    command.args(words.split_whitespace()).args(more).args(["--json", "--quiet"]);
    command.arg(format!("--seed={}", asked.seed));
    command.args(asked.rounds.map(|rounds| format!("--rounds={rounds}")));
    match &asked.output {
        Some(folder) => command.arg("--output").arg(folder),
        None => command.arg("--no-save"),
    };
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = Supervised::start(&mut command).map_err(host)?;
    let output = child.process.stdout.take().map(|pipe| Gathered::start(pipe, Keep::First(MAX_DOCUMENT)));
    let errors = child.process.stderr.take().map(|pipe| Gathered::start(pipe, Keep::Last(MAX_WORDS)));
    let mut status = child.wait(POLL, interrupted).map_err(host)?;
    if status.is_none() {
        child.signal(Signal::INT);
        let until = Instant::now() + PATIENCE;
        status = child.wait(POLL, || Instant::now() >= until).map_err(host)?;
    }
    let code = status.and_then(|status| status.code());
    let text = output.map(|output| output.text(PATIENCE).0).unwrap_or_default();
    if !matches!(code, Some(0 | 1 | 3)) || text.is_empty() {
        let exit = [Exit::Usage, Exit::Host].into_iter().find(|exit| code == Some(exit.code().into()));
        let said = errors.map(|errors| errors.text(PATIENCE).0).unwrap_or_default();
        let why = said.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("it leaves no document");
        let why = why.trim_start_matches("vpmu: error: ").to_owned();
        return Err(failed(exit.unwrap_or(Exit::Inconclusive), why));
    }
    let document: Record = of_text(Path::new(&short), &text)?;
    let why = (document.status != Status::Complete).then(|| "it ended early".to_owned());
    // That says whether its events were counted, and counted right.
    let doubt = (words.starts_with("stat-setup") && code != Some(0)).then(|| "it is inconclusive".to_owned());
    Ok((document, why.or(doubt)))
}
