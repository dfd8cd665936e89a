//! `vpmu fleet collect` and `vpmu fleet report`.

use std::fmt::Write as _;
use std::path::Path;

use fleet::{Analysis, FleetComparison, Run};
use results::compare::Rules;
use results::error::{Error, Exit};
use results::shown;
use results::table::Report as Shown;
use results::table::layout::{columns, plural};
use serde::Serialize;

use super::super::by_host::{Gathered, of_campaign};
use super::super::files::write;
use super::args::{DirArgs, ReportArgs};
use super::status::{self, standing};
use super::submit::lock;
use crate::campaign::merge;
use crate::setting::process;
use crate::terminal::console::{complain, print, print_json};
use fleet::campaign::folder::{Campaign, Folder};
use fleet::campaign::standing::Standing;

/// A campaign whose sweeps are put together and whose index is up to date.
pub(super) struct Collected {
    folder: Folder,
    campaign: Campaign,
    standing: Standing,
    /// `None` as long as no element has left a document.
    gathered: Option<Gathered>,
}

/// Everything that `report` says.
#[derive(Serialize)]
struct Report<'a> {
    schema: &'static str,
    standing: &'a Standing,
    analysis: &'a Analysis,
    variants: Vec<Variants<'a>>,
}

/// One variant against the first.
#[derive(Serialize)]
struct Variants<'a> {
    base: &'a str,
    new: &'a str,
    comparison: Option<FleetComparison>,
    /// The reason why there is none.
    error: Option<String>,
}

/// Schema of the report's JSON.
const SCHEMA: &str = "vpmu-fleet-report/2";

/// Runs `vpmu fleet collect`.
pub(super) fn collect(args: &DirArgs) -> Result<Exit, Error> {
    let collected = collected(&args.dir)?;
    complain(status::shown(&collected.standing, false).lines().next().unwrap_or_default());
    if let Some(gathered) = &collected.gathered {
        complain(&format!("{} in the index", plural(gathered.runs.len(), "document")));
    }
    let exit = collected.standing.exit();
    Ok(collected.gathered.map_or(exit, |gathered| gathered.exit(exit)))
}

fn collected(dir: &Path) -> Result<Collected, Error> {
    let (folder, campaign, standing) = standing(dir, Folder::own)?;
    let _lock = lock(&folder, "collector")?;
    let mut bad = 0;
    // One thing that cannot be used hides no other.
    let sweeps = merge::sweeps(&folder, &campaign, &standing).unwrap_or_else(|error| {
        complain(&format!("error: {error}"));
        bad += 1;
        Vec::new()
    });
    for sweep in sweeps {
        match sweep.folder {
            Some(to) => {
                complain(&format!("sweep {}: {} in {}", sweep.name, plural(sweep.points, "point"), to.display()));
            }
            None => complain(&format!("sweep {}: {} still missing", sweep.name, plural(sweep.missing, "part"))),
        }
    }
    let has_documents = standing.elements.iter().zip(&campaign.elements).any(|(line, element)| {
        element.part.is_none() && line.done.as_ref().is_some_and(|done| !done.documents.is_empty())
    });
    let gathered = match has_documents.then(|| of_campaign(&folder, &campaign)) {
        Some(Ok(gathered)) => Some(Gathered { bad: gathered.bad + bad, ..gathered }),
        Some(Err(error)) => {
            complain(&format!("error: {error}"));
            Some(Gathered { runs: Vec::new(), bad: bad + 1 })
        }
        None => (bad > 0).then(|| Gathered { runs: Vec::new(), bad }),
    };
    Ok(Collected { folder, campaign, standing, gathered })
}

/// Runs `vpmu fleet report`.
pub(super) fn report(args: &ReportArgs) -> Result<Exit, Error> {
    let Collected { folder, campaign, standing, gathered } = collected(&args.dir)?;
    // Without a document, of no runs: page and JUnit have the elements.
    let runs = gathered.as_ref().map_or(&[][..], |gathered| &gathered.runs);
    let analysis = fleet::analyse(runs);
    let variants = gathered.as_ref().map_or_else(Vec::new, |gathered| variants(&campaign, gathered));

    let verdict = exit(&standing, &analysis, &variants);
    let verdict = gathered.as_ref().map_or(verdict, |gathered| gathered.exit(verdict));
    let word = match verdict {
        Exit::Done if analysis.exit() == Exit::Inconclusive && variants.is_empty() => {
            "✅ nothing failed, no speed judged"
        }
        Exit::Done => "✅ nothing failed, nothing slower",
        Exit::Regression => "❌ something failed or is slower",
        _ => "⚠️ undecided",
    };
    let shown = fleet::report(&analysis, &standing.elements);
    let mut markdown = format!("## {}: {word}\n\n{}", shown::markdown(&campaign.name), shown.markdown());
    let mut text = status::shown(&standing, false);
    if !runs.is_empty() {
        let _ = write!(text, "\n{}", fleet::report(&analysis, &[]).text(columns()));
    }
    // Few fonts of browsers have the marks that Markdown's readers show.
    let plain = word.trim_start_matches(|mark: char| !mark.is_ascii());
    let page = results::report::page(&shown, &format!("{}: {}", campaign.name, plain.trim_start()), &process::tool())?;
    write(&folder.path.join("report.html"), page.as_bytes())?;
    write(&folder.path.join("junit.xml"), shown.junit().as_bytes())?;
    for Variants { base, new, comparison, error } in &variants {
        let why = || shown::markdown(error.as_deref().unwrap_or_default()) + "\n";
        let of = |show: &dyn Fn(Shown) -> String| comparison.as_ref().map_or_else(why, |found| show(found.report()));
        let [base, new] = [base, new].map(|name| shown::line(name));
        if let Some(comparison) = comparison {
            let junit = comparison.report().junit();
            write(&folder.path.join(format!("junit-{new}.xml")), junit.as_bytes())?;
        }
        let [base_shown, new_shown] = [&base, &new].map(|name| shown::markdown(name));
        let _ = write!(markdown, "\n## {new_shown} against {base_shown}\n\n{}", of(&|report| report.markdown()));
        let _ = write!(text, "\n{new} against {base}, on the same hosts\n{}", of(&|report| report.text(columns())));
    }
    write(&folder.path.join("summary.md"), markdown.as_bytes())?;

    if args.json {
        print_json(&Report { schema: SCHEMA, standing: &standing, analysis: &analysis, variants })?;
    } else if args.markdown {
        print(&markdown)?;
    } else {
        print(&text)?;
    }
    complain(&format!("report.html, summary.md, junit.xml in {}", folder.path.display()));
    Ok(verdict)
}

/// Compares each further variant with the first. Variants share the plan's experiment: their options may differ.
fn variants<'a>(campaign: &'a Campaign, gathered: &Gathered) -> Vec<Variants<'a>> {
    let of_experiment = |run: &Run| {
        let number = run.labels.element.and_then(|number| usize::try_from(number).ok());
        let name = number.and_then(|number| campaign.elements.get(number)).map(|element| element.experiment.as_str());
        name.map_or_else(
            || run.clone(),
            |name| Run {
                key: format!("{name}\n{}\n{}", run.backend, run.stand_in),
                setting: name.into(),
                ..run.clone()
            },
        )
    };
    let runs: Vec<Run> = gathered.runs.iter().map(of_experiment).collect();
    let mut names: Vec<&str> = Vec::new();
    for element in campaign.elements.iter().filter(|element| element.part.is_none()) {
        if element.repetition == 0 && !names.contains(&element.variant.as_str()) {
            names.push(&element.variant);
        }
    }
    let Some((&base, others)) = names.split_first() else { return Vec::new() };
    let compare = |&new: &&'a str| {
        let of = |name: &str| -> Vec<Run> {
            runs.iter().filter(|run| run.labels.variant.as_deref() == Some(name)).cloned().collect()
        };
        match fleet::compare(&of(base), &of(new), &Rules::default()) {
            Ok(comparison) => Variants { base, new, comparison: Some(comparison), error: None },
            Err(error) => Variants { base, new, comparison: None, error: Some(error.to_string()) },
        }
    };
    others.iter().map(compare).collect()
}

/// Returns 1 if an element failed or something is slower, 3 if an outcome is missing or a variant undecided, else 0. A
/// fleet of too few hosts for one to stand apart is no failure of the campaign.
fn exit(standing: &Standing, analysis: &Analysis, variants: &[Variants<'_>]) -> Exit {
    let slower = Some(analysis.exit()).filter(|&exit| exit == Exit::Regression);
    let verdicts = [Some(standing.exit()), slower].into_iter().flatten();
    let verdicts: Vec<Exit> = verdicts
        .chain(variants.iter().map(|one| one.comparison.as_ref().map_or(Exit::Inconclusive, FleetComparison::exit)))
        .collect();
    let has = |exit: Exit| verdicts.contains(&exit);
    if has(Exit::Regression) {
        Exit::Regression
    } else if verdicts.iter().all(|&exit| exit == Exit::Done) {
        Exit::Done
    } else {
        Exit::Inconclusive
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use fleet::campaign::standing::{Line, State};

    use super::*;

    fn standing(states: &[State]) -> Standing {
        let line = |(number, &state): (usize, &State)| Line {
            number: number as u64,
            name: format!("e{number}"),
            state,
            host: None,
            job: None,
            exit: None,
            attempts: 1,
            reason: None,
            missing: Vec::new(),
            done: None,
        };
        let mut counts = BTreeMap::new();
        for state in states {
            *counts.entry(*state).or_insert(0) += 1;
        }
        let elements = states.iter().enumerate().map(line).collect();
        Standing { campaign: "x".to_owned(), counts, unanswered: None, elements }
    }

    #[test]
    fn failed_elements_come_before_open_verdicts() {
        let analysis = fleet::analyse(&[]);
        let of = |states: &[State], variants: &[Variants<'_>]| exit(&standing(states), &analysis, variants);
        let open = || Variants { base: "a", new: "b", comparison: None, error: Some("no figures".to_owned()) };
        assert_eq!(of(&[State::Ok], &[]), Exit::Done);
        assert_eq!(of(&[State::Ok], &[open()]), Exit::Inconclusive);
        assert_eq!(of(&[State::Ok, State::Failed], &[open()]), Exit::Regression);
        assert_eq!(of(&[State::Ok, State::Lost], &[]), Exit::Inconclusive);
    }
}
