//! The rows that every format shows.

use serde::Serialize;

use crate::statistics::{Analysis, Change, ChangeRow, Components, Kind, LevelRow, OddHost, Spread};
use results::stats::interval::Interval;
use results::table::Table;
use results::table::layout::{change, dash, p, percent, plural, ratio, time};

/// Returns the name of a figure: arm and metric.
fn figure(arm: &str, metric: &str) -> String {
    match metric {
        "all metrics" => "speed".to_owned(),
        metric => format!("{arm}, {metric}"),
    }
}

/// Describes the data: subject, extent and time.
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

/// Names a class by a letter, a setting by a number, so that tables stay narrow; empty where there is one.
pub(super) fn class_of(analysis: &Analysis, name: &str) -> String {
    let place = analysis.classes.iter().position(|class| class.name == name);
    match place {
        Some(place) if analysis.classes.len() > 1 => match u8::try_from(place) {
            Ok(place) if place < 26 => char::from(b'A' + place).to_string(),
            _ => format!("class {}", place + 1),
        },
        _ => String::new(),
    }
}

fn setting_of(analysis: &Analysis, label: &str) -> String {
    let place = analysis.settings.iter().position(|setting| setting.label == label);
    place.filter(|_| analysis.settings.len() > 1).map_or_else(String::new, |place| (place + 1).to_string())
}

/// Classes and settings with the signs that tables have for them.
pub(super) fn legend(analysis: &Analysis) -> Vec<String> {
    let signed = |sign: String, text: String| if sign.is_empty() { text } else { format!("{sign}: {text}") };
    let class = |class: &crate::statistics::Class| {
        let text = format!("{}: {}, {}", class.name, plural(class.hosts, "host"), plural(class.runs, "run"));
        signed(class_of(analysis, &class.name), text)
    };
    let setting = |setting: &crate::statistics::Setting| {
        let text = format!("{}: {}", setting.label, plural(setting.runs, "run"));
        signed(setting_of(analysis, &setting.label), text)
    };
    analysis.classes.iter().map(class).chain(analysis.settings.iter().map(setting)).collect()
}

/// Names a figure with the signs of its class and setting.
fn full(analysis: &Analysis, arm: &str, metric: &str, class: &str, setting: &str) -> String {
    let signs = [class_of(analysis, class), setting_of(analysis, setting)];
    let signs: Vec<String> = signs.into_iter().filter(|sign| !sign.is_empty()).collect();
    let signs = if signs.is_empty() { String::new() } else { format!(" ({})", signs.join(", ")) };
    figure(arm, metric) + &signs
}

/// Returns the odd hosts.
pub(super) fn odd(analysis: &Analysis) -> Table {
    let spec = &analysis.spec;
    let several = analysis.classes.len() > 1;
    let with_since = analysis.odd.iter().any(|host| !host.since.is_empty());
    let row = |host: &OddHost| {
        let first = host.figures.first();
        let mut cells = vec![
            host.host.clone(),
            first.map_or_else(dash, |figure| change(figure.change, Some(figure.interval))),
            host.runs.to_string(),
            host.verdict.clone(),
        ];
        if several {
            cells.push(class_of(analysis, &host.class));
        }
        cells.push(first.map_or_else(dash, |first| full(analysis, &first.arm, &first.metric, "", &first.setting)));
        if with_since {
            cells.push(if host.since.is_empty() { dash() } else { host.since.clone() });
        }
        cells
    };
    let mut head = vec!["host", "off by", "runs", "verdict"];
    if several {
        head.push("class");
    }
    head.push("figure");
    if with_since {
        head.push("since");
    }
    let caption = format!(
        "Odd hosts: {} % or more off their class, at most {} % wrong names expected; intervals by each host's boots and runs",
        percent(spec.least_host),
        percent(spec.false_share)
    );
    let mut table = (3..head.len()).fold(Table::new(head.clone()).caption(caption).cut(), Table::left);
    for row in analysis.odd.iter().map(row) {
        table.add_row(row);
    }
    table
}

/// Names a change by its facts.
pub(super) fn named(change: &Change) -> String {
    if change.facts.is_empty() { "no recorded fact".to_owned() } else { change.facts.join(" and ") }
}

/// Changes, found ones first.
fn in_order(analysis: &Analysis) -> Vec<&Change> {
    let mut all: Vec<&Change> = analysis.changes.iter().collect();
    all.sort_by_key(|change| (!change.is_found(), std::cmp::Reverse(change.hosts)));
    all
}

/// Describes each change, by the number that the table has for it.
pub(super) fn change_lines(analysis: &Analysis) -> Vec<String> {
    let line = |(place, change): (usize, &Change)| {
        let [first, last] = &change.periods;
        let when = if first == last { first.clone() } else { format!("{first} to {last}") };
        let note = if change.note.is_empty() { String::new() } else { format!("; {}", change.note) };
        format!(
            "{}: {}: first run after it {when}, {} of {} hosts{note}",
            place + 1,
            named(change),
            change.hosts,
            change.of
        )
    };
    in_order(analysis).into_iter().enumerate().map(line).collect()
}

/// Changes over time: the speed of each class, and figures that changed otherwise than it.
pub(super) fn changes(analysis: &Analysis) -> Table {
    let mut rows = Vec::new();
    for (place, one) in in_order(analysis).into_iter().enumerate() {
        for row in &one.rows {
            // A shift that all metrics share is listed once.
            let speed = one.rows.iter().find(|speed| speed.kind == Kind::Speed && speed.class == row.class);
            let like_speed = |speed: &ChangeRow| row.interval.low <= speed.change && speed.change <= row.interval.high;
            if row.kind == Kind::AllArms && speed.is_some_and(like_speed) {
                continue;
            }
            let verdict = match (row.found, row.change > 0.0) {
                (true, true) => "SLOWER",
                (true, false) => "faster",
                (false, _) => "no change found",
            };
            rows.push(vec![
                (place + 1).to_string(),
                full(analysis, &row.arm, &row.metric, &row.class, &row.setting),
                change(row.change, Some(row.interval)),
                verdict.to_owned(),
                row.hosts.to_string(),
                p(row.p_adjusted),
            ]);
        }
    }
    let mut table = Table::new(["no.", "figure", "change", "verdict", "hosts", "p (adj.)"])
        .caption(format!(
            "Changes, each host before and after it over {} periods to either side; found: p below {} and {} % or more",
            analysis.spec.window,
            analysis.spec.alpha,
            percent(analysis.spec.least_change)
        ))
        .cut()
        .left(1)
        .left(3);
    for row in rows {
        table.add_row(row);
    }
    table
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

/// Lists the sources of variance: the speed of each class, then figures. `all`: times of single arms, too.
pub(super) fn variance(analysis: &Analysis, all: bool) -> Table {
    let mut rows = Vec::new();
    for (class, found) in &analysis.speed {
        let name = full(analysis, "", "all metrics", class, "");
        rows.push([&[name][..], &components(found)[..], &[over_what(found)][..]].concat());
    }
    for row in shown(analysis, all) {
        let name = full(analysis, &row.arm, &row.metric, &row.class, &row.setting);
        let name = if row.kind == Kind::Ratio { format!("{name}, ratio") } else { name };
        rows.push([&[name][..], &components(&row.spread)[..], &[over_what(&row.spread)][..]].concat());
    }
    let mut table = Table::new(["figure", "hosts", "boots", "runs", "rounds", "over"])
        .caption("Where variance comes from: standard deviations with 95 % intervals, changes and periods taken out")
        .cut()
        .left(5);
    for row in rows {
        table.add_row(row);
    }
    table
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
pub(super) fn levels(analysis: &Analysis, all: bool) -> Table {
    let several = analysis.classes.len() > 1;
    let mut rows = Vec::new();
    for row in shown(analysis, all) {
        let mut cells = vec![full(analysis, &row.arm, &row.metric, &row.class, &row.setting)];
        cells.push(level(row.kind, row.level, row.interval));
        if several {
            cells.push(row.over_first.map_or_else(dash, |found| over(found, row.over_first_interval)));
        }
        cells.extend([row.hosts.to_string(), row.boots.to_string(), row.runs.to_string()]);
        rows.push(cells);
    }
    rows.sort_by(|a, b| a[0].cmp(&b[0]));
    let mut head = vec!["figure", "mean over hosts"];
    if several {
        head.push("× class A");
    }
    head.extend(["hosts", "boots", "runs"]);
    let against = if several { "; class against class by Welch's t over hosts" } else { "" };
    let mut table = Table::new(head)
        .caption(format!("Levels by class before the changes found: means over hosts, 95 % by t over hosts{against}"))
        .cut();
    for row in rows {
        table.add_row(row);
    }
    table
}

/// Lists the remarks that the other tables need.
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

/// Formats a level: a time, or a ratio.
pub(crate) fn value(kind: Kind, level: f64) -> String {
    if kind == Kind::Ratio { format!("× {level:.3}") } else { time(level) }
}

/// Formats a level with its interval.
fn level(kind: Kind, level: f64, interval: Option<Interval>) -> String {
    let Some(Interval { low, high }) = interval else { return value(kind, level) };
    // Half of the interval's width in per cent says as much as its ends.
    let half = ((high / low).sqrt() - 1.0) * 100.0;
    format!("{} ± {half:.*} %", value(kind, level), if half < 0.95 { 2 } else { 1 })
}

/// Formats a ratio with its interval.
fn over(found: f64, interval: Option<Interval>) -> String {
    let interval = interval.map_or_else(String::new, |Interval { low, high }| format!(" [{low:.3}, {high:.3}]"));
    format!("{}{interval}", if interval.is_empty() { ratio(found) } else { format!("{found:.3}") })
}

/// End of an element: as it was to be, or not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ElementEnd {
    /// It did.
    #[default]
    Ok,
    /// It failed.
    Failed,
    /// It has no outcome yet, or an inconclusive one.
    Open,
}

/// One element and how it ended.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ElementLine {
    /// Experiment, variant, repetition.
    pub name: String,
    /// Host; empty where it never had one.
    pub host: String,
    /// The end of the element: done, failed or open.
    pub end: ElementEnd,
    /// State in a word.
    pub state: String,
    /// Exit code; `None` of one that did not end by itself.
    pub exit_code: Option<u8>,
    /// Job of the scheduler; empty without one.
    pub job: String,
    /// Why it failed; empty of one that did not.
    pub reason: String,
}

impl ElementLine {
    /// Returns the cells of a table.
    pub(super) fn cells(&self) -> [String; 6] {
        let exit = self.exit_code.map_or_else(dash, |code| code.to_string());
        [&self.name, &self.host, &self.state, &exit, &self.job, &self.reason].map(Clone::clone)
    }
}

/// Returns the elements that failed, then those without a conclusive outcome.
pub(super) fn problems(elements: &[ElementLine]) -> Table {
    let of = |end: ElementEnd| elements.iter().filter(move |element| element.end == end);
    let (failed, open) = (of(ElementEnd::Failed).count(), of(ElementEnd::Open).count());
    let all = plural(elements.len(), "element");
    let mut table = Table::new(["element", "host", "state", "exit", "job", "reason"])
        .caption(format!("Of {all}: {failed} failed, {open} without a conclusive outcome"))
        .cut()
        .keys(3)
        .left(4)
        .left(5);
    for element in of(ElementEnd::Failed).chain(of(ElementEnd::Open)) {
        table.add_row(element.cells());
    }
    table
}
