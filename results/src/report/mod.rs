//! `vpmu report`: one self-contained HTML page of results.
//!
//! The answer comes first: each kind's arms against the floor with intervals. Its tables and sentences are those of a terminal, and its
//! plots are drawn from tables. The page loads nothing: plots are SVG within it, and its content security policy allows no script.
//! Everything in it that comes from a document is escaped, by the template engine or by the plotting module. Data that do not fit are
//! thinned or left out by the constants here, and the page says so.

mod figure;
mod group;
mod page;

pub use page::page;

use figure::{Figure, date};
use group::groups;
use page::{Section, render};

use crate::advice::advise;
use crate::document::{ArmKind, Document, Record, Status, Tool};
use crate::error::Error;
use crate::plot;
use crate::table::layout::plural;
use crate::table::{self, Part};

/// Most kinds of results, the newest.
const GROUPS: usize = 20;
/// Plots by a parameter.
const BY_PARAMETER: usize = 24;

/// Renders the page.
///
/// # Errors
/// Exit 2 for a document that is damaged.
pub fn html(records: &[Record], title: &str, tool: &Tool) -> Result<String, Error> {
    let mut groups = groups(records);
    let mut sections = Vec::new();
    // What one command measured by several workloads has one answer.
    let together = group::of_one_command(records);
    groups.sort_by_key(|group| {
        let is_its = |one: &&Record| group.iter().any(|record| std::ptr::eq(*one, *record));
        together.iter().position(is_its).unwrap_or(usize::MAX)
    });
    let documents: Vec<Document> = together.iter().filter_map(|record| record.as_guests()).collect();
    if let [first, ..] = &documents[..] {
        let (host, mut parts) = (first.host.class.clone(), table::report(&documents, false).parts);
        // An answer of all of them has its doubt beside it.
        let advice = advise(&together, Vec::new(), true).ok().filter(|advice| advice.results.len() == together.len());
        let doubt = advice.filter(|advice| !advice.is_sure).and_then(|mut advice| advice.said.pop());
        parts.splice(1..1, doubt.map(Part::Note));
        sections.push(Section { host, parts, ..Section::new("answer", "Answer", "Answer") });
    }
    for (index, group) in groups.iter().take(GROUPS).enumerate() {
        sections.push(kind(index, group, groups.len() == 1)?);
    }
    let figures = figure::by_parameter(records, BY_PARAMETER);
    if !figures.is_empty() {
        sections.push(Section { figures, ..Section::new("parameters", "By parameter", "By parameter") });
    }
    render(title, &summary(records, groups.len()), tool, &sections)
}

/// Returns what the page is of, and what has no place on it.
fn summary(records: &[Record], groups: usize) -> String {
    let times = || records.iter().map(|record| record.started_unix).filter(|unix| *unix > 0);
    let span = times().min().zip(times().max()).map(|(first, last)| format!(", {} to {} UTC", date(first), date(last)));
    let of = format!("{}{}.", plural(records.len(), "result"), span.unwrap_or_default());
    match groups.saturating_sub(GROUPS) {
        0 => of,
        more => format!("{of} Of {groups} kinds the newest {GROUPS} are here; {more} more need a page of their own."),
    }
}

/// Returns the result of a kind as a terminal shows it, the plot of its answer first, what is beyond the answer folded.
fn kind(index: usize, group: &[&Record], only: bool) -> Result<Section, Error> {
    let shown = group::shown(group);
    let mut badges = Vec::new();
    if shown.is_simulated() {
        badges.push("simulated".to_owned());
    } else if shown.arms.iter().any(|arm| arm.stand_in) {
        badges.push("stand-in events: compare arms only".to_owned());
    }
    if shown.status != Status::Complete {
        badges.push(shown.status.words().to_owned());
    }
    let latest = group[group.len() - 1];
    if group.len() > 1 {
        let which = if std::ptr::eq(shown, latest) { "the newest" } else { "one" };
        badges.push(format!("{which} of {}", plural(group.len(), "result")));
    }
    let mut parts = table::of_record(shown).parts;
    let headings = parts.iter().enumerate().filter(|(_, part)| matches!(part, Part::Heading(_)));
    let places: Vec<usize> = headings.map(|(place, _)| place).take(2).collect();
    let mut rest = parts.split_off(places.get(1).copied().unwrap_or(parts.len()));
    let answer = answer(shown, &parts, false);
    if answer.is_some() {
        // The plot has the heading.
        parts.remove(places[0]);
    }
    rest.extend(about(shown, latest).into_iter().map(|(name, value)| Part::Note(format!("{name}: {value}"))));
    let figures = [figure::rounds(shown), figure::percentiles(shown)?, figure::over_time(group)];
    let figures: Vec<Figure> = figures.into_iter().flatten().collect();
    let titles = figures.iter().map(|figure| figure.title.as_str()).collect::<Vec<_>>().join("; ");
    let plots = Section { open: only, figures, ..Section::new("", &format!("Plots: {titles}"), "") };
    let all = Section { parts: rest, ..Section::new("", "All figures, and how it was measured", "") };
    Ok(Section {
        host: shown.host.class.clone(),
        badges,
        caveats: table::warnings(&shown.warnings).collect(),
        figures: answer.into_iter().collect(),
        parts,
        folds: [all, plots].into_iter().filter(|fold| !(fold.figures.is_empty() && fold.parts.is_empty())).collect(),
        ..Section::new(&format!("results-{}", index + 1), &group::title(shown), if index == 0 { "Results" } else { "" })
    })
}

/// Draws the ratios to the floor, or to the first arm, of the first table of a result, below its heading if it is `titled`.
fn answer(record: &Record, parts: &[Part], titled: bool) -> Option<Figure> {
    let base = record.base()?;
    let title =
        parts.iter().find_map(|part| if let Part::Heading(title) = part { Some(title.clone()) } else { None })?;
    let table = parts.iter().find_map(|part| if let Part::Table(table) = part { Some(table) } else { None })?;
    let label = format!("{title}, against {}, {}", base.name, record.host.class);
    let value = format!("× {}, 95 % interval", base.name);
    let shown = if titled { &*title } else { "" };
    let plot = plot::rows((&label, shown), &value, table, 2, &base.name)?;
    Some(Figure { title, note: String::new(), plot, table: None })
}

/// Draws the plot of a result's answer as a file of its own, readable on light and dark paper; `None` if the record has no floor, or
/// nothing beside it.
///
/// # Errors
/// Exit 70: the template is wrong.
pub fn picture(record: &Record) -> Result<Option<String>, Error> {
    let floor = record.base().filter(|base| base.kind == ArmKind::Floor);
    let figure = floor.and_then(|_| answer(record, &table::of_record(record).parts, true));
    figure.map(|figure| plot::standalone(&figure.plot)).transpose()
}

/// Returns where a result is from.
fn about(shown: &Record, latest: &Record) -> Vec<(&'static str, String)> {
    let named = |record: &Record| match record.started_unix {
        0 => record.path.display().to_string(),
        unix => format!("{} UTC, {}", date(unix), record.path.display()),
    };
    let mut about = vec![
        ("shown", named(shown)),
        ("revision", format!("{} ({})", shown.tool.git_revision, shown.tool.profile)),
        ("command", shown.command_line.join(" ")),
    ];
    let host = &shown.host;
    let facts =
        [("CPU", &host.cpu_model), ("microcode", &host.microcode), ("kernel", &host.kernel), ("KVM", &host.kvm)];
    about.extend(facts.into_iter().filter_map(|(name, value)| Some((name, value.clone()?))));
    if !std::ptr::eq(shown, latest) {
        about.push(("newest", format!("{}: not complete, or quick", named(latest))));
    }
    about
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;

    fn shown(records: &[Record], title: &str) -> String {
        html(records, title, &fixture::document(1).tool).unwrap()
    }

    #[test]
    fn what_a_document_says_is_text_wherever_it_stands() {
        let mut record = fixture::changed(fixture::document(2));
        let evil = "\"'><script>alert(1)</script><img src=x onerror=alert(2)>\u{1b}[2J\u{202e}";
        record.host.class = evil.to_owned();
        record.host.cpu_model = Some(evil.to_owned());
        record.experiment = evil.to_owned();
        record.tool.git_revision = evil.to_owned();
        record.command_line = vec![evil.to_owned()];
        record.parameters.insert("workload".to_owned(), evil.into());
        record.parameters.insert("backend".to_owned(), evil.into());
        for arm in &mut record.arms {
            arm.name = format!("{}{evil}", arm.name);
            arm.backend = evil.to_owned();
            arm.not_available = arm.not_available.as_ref().map(|_| evil.to_owned());
            arm.incomplete = vec![evil.to_owned()];
        }
        for warning in &mut record.warnings {
            warning.message = evil.to_owned();
            warning.remedy = Some(evil.to_owned());
        }
        let mut other = record.clone();
        other.parameters.insert("vcpus".to_owned(), 2.into());
        let text = shown(&[record, other], evil);
        for markup in ["<script>alert", "<img", "\"'>"] {
            assert!(!text.contains(markup), "{markup}");
        }
        assert!(!text.chars().any(|c| crate::shown::steers(c) && c != '\n'));
        assert!(!text.contains("<script"));
        assert!(text.contains("&lt;script&gt;"));
    }

    #[test]
    fn a_thousand_results_make_a_page_below_1_5_mb_that_says_what_was_thinned() {
        let record = fixture::changed(fixture::document(2));
        let records = |kinds: u64| -> Vec<Record> {
            (0..1000)
                .map(|n| {
                    let mut record = Record { started_unix: record.started_unix + n * 600, ..record.clone() };
                    record.parameters.insert("period".to_owned(), (n % kinds).into());
                    record
                })
                .collect()
        };
        let series = shown(&records(1), "a series");
        assert!(series.len() < 1_500_000 && series.contains("The newest 100 of 1000 results."));
        // 100 results of four arms have 400 rows.
        assert!(series.contains("340 more rows are in the documents"));
        assert!(series.contains("<strong class=\"badge\">the newest of 1000 results</strong>"));
        let kinds = shown(&records(1000), "kinds");
        assert!(kinds.len() < 1_500_000 && kinds.contains("980 more need a page of their own"), "{}", kinds.len());
        assert_eq!(kinds.matches("<section id=\"results-").count(), GROUPS);
    }
}
