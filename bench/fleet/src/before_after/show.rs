//! A comparison of a fleet as a table, as Markdown and as JUnit.

use std::fmt::Write as _;

use super::model::{FleetComparison, FleetRow};
use crate::show::value;
use results::junit::{self, Case};
use results::shown;
use results::table::fold::{Table, wrapped};
use results::table::layout::{change, dash, p, plural};

const HEADER: [&str; 7] = ["arm", "metric", "BASE", "NEW", "change", "p (adj.)", "verdict"];
/// Most hosts that are named in a line.
const NAMED: usize = 20;

fn cells(row: &FleetRow) -> [String; 7] {
    [
        row.arm.clone(),
        row.metric.clone(),
        value(row.kind, row.base),
        value(row.kind, row.new),
        change(row.change, row.interval),
        row.p_adjusted.or(row.p).map_or_else(dash, p),
        row.verdict.word().to_owned(),
    ]
}

fn named(hosts: &[String]) -> String {
    let more = hosts.len().saturating_sub(NAMED);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    hosts.iter().take(NAMED).cloned().collect::<Vec<_>>().join(", ") + &more
}

impl FleetComparison {
    /// Rows of one setting and class, with their heading.
    fn groups(&self) -> Vec<(String, Vec<&FleetRow>)> {
        let mut groups: Vec<(String, Vec<&FleetRow>)> = Vec::new();
        for row in &self.rows {
            let pairs = if row.by_repetition { "paired by repetition" } else { "each host with itself" };
            let [base, new] = row.runs;
            let hosts = plural(row.hosts, "host");
            let heading = format!(
                "{}, {}: {hosts}, {base} and {new} runs, {pairs}; means over hosts, 95 % intervals",
                row.setting, row.class
            );
            match groups.iter_mut().find(|(own, _)| *own == heading) {
                Some((_, rows)) => rows.push(row),
                None => groups.push((heading, vec![row])),
            }
        }
        groups
    }

    fn remarks(&self) -> Vec<String> {
        let mut lines: Vec<String> = Vec::new();
        // Rows that are open for one reason have one line.
        let mut open: Vec<(String, Vec<String>)> = Vec::new();
        for row in self.rows.iter().filter(|row| !row.why.is_empty()) {
            let (why, name) = (format!("{}: {}", row.verdict.word(), row.why), format!("{}, {}", row.arm, row.metric));
            match open.iter_mut().find(|(known, _)| *known == why) {
                Some((_, names)) => names.push(name),
                None => open.push((why, vec![name])),
            }
        }
        for (why, names) in open {
            let more = if names.len() > 1 { format!(" and {} more", names.len() - 1) } else { String::new() };
            lines.push(format!("{}{more}: {why}", names[0]));
        }
        for (side, hosts) in [("BASE", &self.only_base), ("NEW", &self.only_new)] {
            if !hosts.is_empty() {
                lines.push(format!("only in {side}, left out: {}", named(hosts)));
            }
        }
        lines.extend(self.unlike.iter().map(|line| format!("unlike: {line}")));
        lines.extend(self.notes.iter().map(|line| format!("note: {line}")));
        lines
    }

    /// The comparison as a table of so many columns.
    #[must_use]
    pub fn text(&self, width: usize) -> String {
        let mut out = String::new();
        for (heading, rows) in self.groups() {
            let mut table = Table::new(HEADER).keys(2).left(6);
            for row in rows {
                table.add_row(cells(row));
            }
            let _ = writeln!(out, "{}\n{}", wrapped(&heading, width, "  "), table.text(width));
        }
        for line in self.remarks().iter().chain([&self.verdict]) {
            let _ = writeln!(out, "{}", wrapped(line, width, "  "));
        }
        out
    }

    /// The comparison as Markdown.
    #[must_use]
    pub fn markdown(&self) -> String {
        let mark = match self.exit {
            0 => "✅",
            1 => "❌",
            _ => "⚠️",
        };
        let mut out = format!("### {mark} vpmu fleet: {}\n\n", shown::markdown(&self.verdict));
        for (heading, rows) in self.groups() {
            let _ = writeln!(
                out,
                "{}\n\n| {} |\n|---|---|---:|---:|---:|---:|---|",
                shown::markdown(&heading),
                HEADER.join(" | ")
            );
            for row in rows {
                let _ = writeln!(out, "| {} |", cells(row).map(|text| shown::markdown(&text)).join(" | "));
            }
            out.push('\n');
        }
        for line in self.remarks() {
            let _ = writeln!(out, "- {}", shown::markdown(&line));
        }
        out
    }

    /// The comparison as JUnit: slower rows fail, open ones are skipped with their reason.
    #[must_use]
    pub fn junit(&self) -> String {
        let case = |row: &&FleetRow| {
            let why = if row.why.is_empty() { String::new() } else { format!(": {}", row.why) };
            Case {
                name: format!("{} {}", row.arm, row.metric),
                class: format!("vpmu.fleet.{}", row.arm),
                verdict: row.verdict,
                message: format!("{} {}{why}", row.verdict.word(), change(row.change, row.interval)),
            }
        };
        let suites = self.groups().into_iter().map(|(heading, rows)| (heading, rows.iter().map(case).collect()));
        junit::junit("vpmu fleet compare", &suites.collect::<Vec<_>>())
    }
}
