//! The rows that every format shows.

use crate::fleet::statistics::{Analysis, Change, Components, Kind, LevelRow, OddHost, Spread};
use crate::table::layout::{dash, p, percent, plural};

use super::words::{change, level, over};

/// A table of texts.
pub(super) struct Cells {
    pub(super) caption: String,
    pub(super) head: Vec<&'static str>,
    pub(super) rows: Vec<Vec<String>>,
    /// Columns that name a row.
    pub(super) keys: usize,
    /// Further columns of text.
    pub(super) left: Vec<usize>,
}

/// Names of a figure: arm and metric.
fn figure(arm: &str, metric: &str) -> String {
    match metric {
        "all metrics" => "speed".to_owned(),
        metric => format!("{arm}, {metric}"),
    }
}

/// What, over what, and when.
pub(super) fn summary(analysis: &Analysis) -> Vec<String> {
    let unit = if analysis.by_repetition { "repetition" } else { "day" };
    let mut lines = vec![format!(
        "{}, {} of {}, {}",
        plural(analysis.runs, "run"),
        plural(analysis.boots, "boot"),
        plural(analysis.hosts, "host"),
        plural(analysis.periods.len(), unit)
    )];
    if let [first, .., last] = &analysis.periods[..] {
        lines.push(format!("from {first} to {last}"));
    }
    lines
}

/// The odd hosts.
pub(super) fn odd(analysis: &Analysis) -> Cells {
    let spec = &analysis.spec;
    let row = |host: &OddHost| {
        let first = host.figures.first();
        let others = host.figures.len().saturating_sub(1);
        let more = if others > 0 { format!(" and {}", plural(others, "other figure")) } else { String::new() };
        vec![
            host.host.clone(),
            first.map_or_else(dash, |figure| change(figure.change, Some(figure.interval))),
            host.verdict.clone(),
            first.map_or_else(dash, |first| figure(&first.arm, &first.metric) + &more),
            if host.since.is_empty() { dash() } else { host.since.clone() },
            host.class.clone(),
            host.runs.to_string(),
        ]
    };
    Cells {
        caption: format!(
            "Odd hosts: {} % or more off their class, at most {} % wrong names expected; intervals by each host's boots and runs",
            percent(spec.least_host),
            percent(spec.false_share)
        ),
        head: vec!["host", "off by", "verdict", "figure", "since", "class", "runs"],
        rows: analysis.odd.iter().map(row).collect(),
        keys: 1,
        left: vec![2, 3, 4, 5],
    }
}

/// Name of a change: its facts.
pub(super) fn named(change: &Change) -> String {
    if change.facts.is_empty() { "no recorded fact".to_owned() } else { change.facts.join(" and ") }
}

/// Changes over time: found ones first, a row for each figure.
pub(super) fn changes(analysis: &Analysis) -> Cells {
    let mut all: Vec<&Change> = analysis.changes.iter().collect();
    all.sort_by_key(|change| (!change.is_found(), std::cmp::Reverse(change.hosts)));
    let mut rows = Vec::new();
    for one in all {
        let when = if one.periods[0] == one.periods[1] {
            one.periods[0].clone()
        } else {
            format!("{} to {}", one.periods[0], one.periods[1])
        };
        let head = |what: String, size: String, p: String, hosts: usize, verdict: &str| {
            vec![named(one), what, size, verdict.to_owned(), when.clone(), format!("{hosts} of {}", one.of), p]
        };
        if one.rows.is_empty() {
            rows.push(head(dash(), dash(), dash(), one.hosts, &one.note));
        }
        for row in &one.rows {
            let verdict = match (row.found, row.change > 0.0) {
                (true, true) => "SLOWER",
                (true, false) => "faster",
                (false, _) if one.note.is_empty() => "no change found",
                (false, _) => one.note.as_str(),
            };
            let class = if analysis.classes.len() > 1 { format!(", {}", row.class) } else { String::new() };
            let size = change(row.change, Some(row.interval));
            rows.push(head(figure(&row.arm, &row.metric) + &class, size, p(row.p_adjusted), row.hosts, verdict));
        }
    }
    Cells {
        caption: format!(
            "Changes, each host before and after it over {} periods to either side; found: p below {} and {} % or more",
            analysis.spec.window,
            analysis.spec.alpha,
            percent(analysis.spec.least_change)
        ),
        head: vec!["changed with it", "figure", "change", "verdict", "first run after it", "hosts", "p (adj.)"],
        rows,
        keys: 1,
        left: vec![1, 3, 4],
    }
}

fn spread(spread: Option<&Spread>, interval: bool) -> String {
    let share = |value: f64| format!("{:.1}", value * 100.0);
    spread.map_or_else(dash, |found| {
        let ends = if interval && found.interval.high > found.interval.low {
            format!(" [{}, {}]", share(found.interval.low), share(found.interval.high))
        } else {
            String::new()
        };
        format!("{} %{ends}", share(found.value))
    })
}

fn components(found: &Components) -> [String; 4] {
    [
        spread(found.hosts.as_ref(), true),
        spread(found.boots.as_ref(), true),
        spread(found.runs.as_ref(), true),
        spread(found.rounds.as_ref(), false),
    ]
}

/// Where variance comes from: the speed of each class, then figures. `all`: times of single arms, too.
pub(super) fn variance(analysis: &Analysis, all: bool) -> Cells {
    let several = analysis.classes.len() > 1;
    let mut rows = Vec::new();
    for (class, found) in &analysis.speed {
        let name = if several { format!("speed, {class}") } else { "speed".to_owned() };
        rows.push([&[name][..], &components(found)[..], &[over_what(found)][..]].concat());
    }
    for row in shown(analysis, all) {
        let mut name = figure(&row.arm, &row.metric);
        if row.kind == Kind::Ratio {
            name += ", ratio";
        }
        if several || analysis.settings.len() > 1 {
            name = format!("{name} ({}; {})", row.setting, row.class);
        }
        rows.push([&[name][..], &components(&row.spread)[..], &[over_what(&row.spread)][..]].concat());
    }
    Cells {
        caption: "Where variance comes from: standard deviations with 95 % intervals, changes and periods taken out"
            .to_owned(),
        head: vec!["figure", "hosts", "boots", "runs", "rounds", "over"],
        rows,
        keys: 1,
        left: vec![5],
    }
}

fn over_what(found: &Components) -> String {
    let over = |spread: Option<&Spread>, what: &str| spread.map(|found| plural(found.over, what));
    let rounds = if found.runs.is_some() { None } else { over(found.rounds.as_ref(), "run") };
    let parts = [over(found.hosts.as_ref(), "host"), over(found.boots.as_ref(), "boot"), rounds];
    parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

fn shown(analysis: &Analysis, all: bool) -> impl Iterator<Item = &LevelRow> {
    analysis.levels.iter().filter(move |row| all || row.kind != Kind::Time)
}

/// Levels of each class, and class against class.
pub(super) fn levels(analysis: &Analysis, all: bool) -> Cells {
    let several = analysis.classes.len() > 1;
    let mut rows = Vec::new();
    for row in shown(analysis, all) {
        let mut cells = vec![figure(&row.arm, &row.metric), row.class.clone()];
        cells.push(level(row.kind, row.level, row.interval));
        if several {
            cells.push(row.over_first.map_or_else(dash, |found| over(found, row.over_first_interval)));
        }
        cells.push(row.hosts.to_string());
        cells.push(row.runs.to_string());
        if analysis.settings.len() > 1 {
            cells.push(row.setting.clone());
        }
        rows.push(cells);
    }
    rows.sort_by(|a, b| a[0].cmp(&b[0]));
    let mut head = vec!["figure", "class", "mean over hosts"];
    if several {
        head.push("× first class");
    }
    head.extend(["hosts", "runs"]);
    if analysis.settings.len() > 1 {
        head.push("setting");
    }
    let left = if analysis.settings.len() > 1 { vec![1, head.len() - 1] } else { vec![1] };
    let against = if several { "; class against class by Welch's t over hosts" } else { "" };
    Cells {
        caption: format!("Levels by class before the changes found: means over hosts, 95 % by t over hosts{against}"),
        head,
        rows,
        keys: 1,
        left,
    }
}

/// What must be known to read the rest.
pub(super) fn remarks(analysis: &Analysis) -> Vec<String> {
    let mut lines = Vec::new();
    for clock in &analysis.clocks {
        lines.push(format!(
            "clock of {}: {:+.1} h off the other hosts in {}, or it runs so much later; order is by repetition",
            clock.host,
            clock.seconds / 3600.0,
            plural(clock.repetitions, "repetition")
        ));
    }
    for (why, count) in &analysis.left_out {
        lines.push(format!("left out: {} as not whole: {why}", plural(*count, "figure")));
    }
    lines.extend(analysis.notes.iter().map(|note| format!("note: {note}")));
    lines
}
