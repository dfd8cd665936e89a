//! `vpmu fleet report`.

use std::path::Path;

use fleet::campaign::folder::Folder;
use fleet::{Findings, MIN_HOSTS, Variant};
use results::compare;
use results::error::{Error, Exit};
use results::read::ends;
use results::table::Report as Shown;

use super::super::by_host::of_campaign;
use super::super::files::write;
use super::status::standing;
use super::submit::lock;
use crate::setting::process;
use crate::terminal::console::{self, Form, complain};

/// Runs `vpmu fleet report`.
pub(super) fn report(dir: &Path, form: Form) -> Result<Exit, Error> {
    let (folder, campaign, standing) = standing(dir, Folder::own)?;
    let _lock = lock(&folder, "report")?;
    let gathered = of_campaign(&folder, &campaign)?;
    let (analysis, variants) = (fleet::analyse(&gathered.runs), fleet::variants(&campaign, &gathered.runs));
    let found = Findings { standing, analysis, variants };
    let verdict = ends(found.exit(), gathered.bad);
    let unjudged = format!("nothing failed, no speed judged: that takes {MIN_HOSTS} hosts of a class, or variants");
    let word = match verdict {
        Exit::Done if found.analysis.exit() == Exit::Inconclusive && found.variants.is_empty() => &unjudged,
        Exit::Done => "nothing failed, nothing slower",
        Exit::Regression => "something failed or is slower",
        _ => "inconclusive",
    };
    let mut shown = Shown { title: campaign.name.clone(), ..fleet::progress(&found.standing) };
    if !gathered.runs.is_empty() {
        let hosts = fleet::report(&found.analysis);
        // Too few hosts for one to stand apart are no end of a campaign.
        let verdict = hosts.verdict.filter(|(exit, _)| *exit != Exit::Inconclusive);
        append(&mut shown, "Hosts", Shown { verdict, ..hosts });
    }
    for Variant { base, new, comparison, error } in &found.variants {
        let title = format!("{new} against {base}, on the same hosts");
        if let Some(comparison) = comparison {
            append(&mut shown, &title, compare::report(comparison, false));
        }
        shown.notes(error.iter().map(|error| format!("{title}: {error}")));
    }
    shown.verdict = Some((verdict, word.to_owned()));
    let page = results::report::page(&shown, &format!("{}: {word}", campaign.name), &process::tool())?;
    for (name, text) in [("report.html", page), ("summary.md", shown.markdown()), ("junit.xml", shown.junit()?)] {
        write(&folder.path.join(name), text.as_bytes())?;
    }
    console::show(form, &shown, &found)?;
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

#[cfg(test)]
mod tests {
    use fleet::campaign::standing::{Line, Standing, State};

    use super::*;

    fn standing(states: &[State]) -> Standing {
        let elements = states.iter().map(|&state| Line { state, ..Line::default() }).collect();
        let counts = states.iter().map(|&state| (state, 1)).collect();
        Standing { elements, counts, ..Standing::default() }
    }

    #[test]
    fn failed_elements_come_before_open_verdicts() {
        let of = |states: &[State], variants: usize| {
            let variants = vec![Variant::default(); variants];
            Findings { standing: standing(states), analysis: fleet::analyse(&[]), variants }.exit()
        };
        assert_eq!(of(&[State::Ok], 0), Exit::Done);
        assert_eq!(of(&[State::Ok], 1), Exit::Inconclusive);
        assert_eq!(of(&[State::Ok, State::Failed], 1), Exit::Regression);
        assert_eq!(of(&[State::Ok, State::Lost], 0), Exit::Inconclusive);
    }
}
