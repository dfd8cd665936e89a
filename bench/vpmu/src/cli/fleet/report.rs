//! `vpmu fleet report`.

use std::path::Path;

use fleet::campaign::folder::{Campaign, Folder};
use fleet::campaign::standing::Standing;
use fleet::{Analysis, MIN_HOSTS, Run};
use results::compare::{self, Comparison};
use results::error::{Error, Exit};
use results::read::ends;
use results::table::Report as Shown;
use results::verdict::Limits;
use serde_json::json;

use super::super::by_host::of_campaign;
use super::super::files::write;
use super::status::standing;
use super::submit::lock;
use crate::setting::process;
use crate::terminal::console::{self, Form, complain};

/// One variant against the first: the names of both, and why they cannot be compared.
type Variant<'a> = (&'a str, &'a str, Result<Comparison, Error>);

/// Schema of the report's JSON.
const SCHEMA: &str = "vpmu-fleet-report/6";

/// Runs `vpmu fleet report`.
pub(super) fn report(dir: &Path, form: Form) -> Result<Exit, Error> {
    let (folder, campaign, standing) = standing(dir, Folder::own)?;
    let _lock = lock(&folder, "report")?;
    let gathered = of_campaign(&folder, &campaign)?;
    let analysis = fleet::analyse(&gathered.runs);
    let variants = if gathered.runs.is_empty() { Vec::new() } else { variants(&campaign, &gathered.runs) };
    let verdict = ends(exit(&standing, &analysis, &variants), gathered.bad);
    let unjudged = format!("nothing failed, no speed judged: that takes {MIN_HOSTS} hosts of a class, or variants");
    let word = match verdict {
        Exit::Done if analysis.exit() == Exit::Inconclusive && variants.is_empty() => &unjudged,
        Exit::Done => "nothing failed, nothing slower",
        Exit::Regression => "something failed or is slower",
        _ => "inconclusive",
    };
    let mut shown = Shown { title: campaign.name.clone(), ..fleet::progress(&standing) };
    if !gathered.runs.is_empty() {
        let hosts = fleet::report(&analysis);
        // Too few hosts for one to stand apart are no end of a campaign.
        let verdict = hosts.verdict.filter(|(exit, _)| *exit != Exit::Inconclusive);
        append(&mut shown, "Hosts", Shown { verdict, ..hosts });
    }
    for (base, new, comparison) in &variants {
        let title = format!("{new} against {base}, on the same hosts");
        match comparison {
            Ok(comparison) => append(&mut shown, &title, compare::report(comparison, false)),
            Err(error) => shown.note(format!("{title}: {error}")),
        }
    }
    shown.verdict = Some((verdict, word.to_owned()));
    let page = results::report::page(&shown, &format!("{}: {word}", campaign.name), &process::tool())?;
    for (name, text) in [("report.html", page), ("summary.md", shown.markdown()), ("junit.xml", shown.junit()?)] {
        write(&folder.path.join(name), text.as_bytes())?;
    }
    let variant = |(base, new, found): &Variant<'_>| {
        let error = found.as_ref().err().map(ToString::to_string);
        json!({ "base": base, "new": new, "comparison": found.as_ref().ok(), "error": error })
    };
    let variants: Vec<_> = variants.iter().map(variant).collect();
    let document = json!({ "schema": SCHEMA, "standing": standing, "analysis": analysis, "answer": variants });
    console::show(form, &shown, &document)?;
    complain(&format!("report.html, summary.md, junit.xml in {}", folder.path.display()));
    Ok(verdict)
}

/// Puts another result behind, with its verdict.
fn append(shown: &mut Shown, title: &str, other: Shown) {
    shown.heading(title);
    shown.parts.extend(other.parts);
    shown.notes(other.verdict.map(|(_, verdict)| verdict));
    shown.suites.extend(other.suites);
}

/// Compares each further variant with the first. Variants share the plan's experiment: their options may differ.
fn variants<'a>(campaign: &'a Campaign, runs: &[Run]) -> Vec<Variant<'a>> {
    let of_experiment = |run: &Run| {
        let name = &campaign.element(run.labels.element?)?.experiment;
        Some(Run { key: format!("{name}\n{}\n{}", run.backend, run.stand_in), setting: name.clone(), ..run.clone() })
    };
    let runs: Vec<Run> = runs.iter().filter_map(of_experiment).collect();
    let mut names: Vec<&str> = Vec::new();
    // The first repetition has the variants in the plan's order.
    for element in campaign.elements.iter().filter(|element| element.part.is_none() && element.repetition == 0) {
        if !names.contains(&element.variant.as_str()) {
            names.push(&element.variant);
        }
    }
    let Some((&base, others)) = names.split_first() else { return Vec::new() };
    let compare = |&new: &&'a str| {
        let of = |name: &str| -> Vec<Run> {
            runs.iter().filter(|run| run.labels.variant.as_deref() == Some(name)).cloned().collect()
        };
        (base, new, fleet::compare((base, &of(base)), (new, &of(new)), &Limits::default()))
    };
    others.iter().map(compare).collect()
}

/// Returns 1 if an element failed or something is slower, 3 if an outcome is missing or a variant inconclusive, else 0. A
/// fleet of too few hosts for one to stand apart is no failure of the campaign.
fn exit(standing: &Standing, analysis: &Analysis, variants: &[Variant<'_>]) -> Exit {
    let mut verdicts = vec![standing.exit()];
    verdicts.extend(Some(analysis.exit()).filter(|&exit| exit == Exit::Regression));
    verdicts.extend(variants.iter().map(|(.., found)| found.as_ref().map_or(Exit::Inconclusive, Comparison::exit)));
    let worst = [Exit::Regression, Exit::Inconclusive].into_iter().find(|exit| verdicts.contains(exit));
    worst.unwrap_or(Exit::Done)
}

#[cfg(test)]
mod tests {
    use fleet::campaign::standing::{Line, State};

    use super::*;

    fn standing(states: &[State]) -> Standing {
        let elements = states.iter().map(|&state| Line { state, ..Line::default() }).collect();
        let counts = states.iter().map(|&state| (state, 1)).collect();
        Standing { elements, counts, ..Standing::default() }
    }

    #[test]
    fn failed_elements_come_before_open_verdicts() {
        let analysis = fleet::analyse(&[]);
        let of = |states: &[State], variants: &[Variant<'_>]| exit(&standing(states), &analysis, variants);
        let open = || ("a", "b", Err(Error::usage("no figures", "", "")));
        assert_eq!(of(&[State::Ok], &[]), Exit::Done);
        assert_eq!(of(&[State::Ok], &[open()]), Exit::Inconclusive);
        assert_eq!(of(&[State::Ok, State::Failed], &[open()]), Exit::Regression);
        assert_eq!(of(&[State::Ok, State::Lost], &[]), Exit::Inconclusive);
    }
}
