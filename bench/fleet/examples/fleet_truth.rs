//! Rates at which the statistics of a fleet are right: odd hosts and changes of synthetic fleets with a known truth.
//!
//! `cargo run --release -p fleet --features testing --example fleet_truth [SEEDS | page FILE [HOSTS]]`;
//! docs/validation.md has the table.

use std::collections::BTreeSet;
use std::process::ExitCode;
use std::time::Instant;

use fleet::synthetic::{Change, Fleet, name, runs};
use fleet::{FleetSpec, analyse};

/// Findings over all seeds.
#[derive(Default)]
struct Tally {
    slow: usize,
    right: usize,
    named: usize,
    changes: usize,
    /// Found, with the fact, and within a day.
    found: usize,
    wrong_changes: usize,
    estimates: Vec<f64>,
    longest: f64,
    runs: usize,
}

fn one(fleet: &Fleet, tally: &mut Tally) {
    let all = runs(fleet);
    let begun = Instant::now();
    let analysis = analyse(&all, &FleetSpec::default());
    tally.longest = tally.longest.max(begun.elapsed().as_secs_f64());
    tally.runs = tally.runs.max(all.len());
    let slow: BTreeSet<String> = fleet.slow().into_iter().map(name).collect();
    tally.slow += slow.len();
    tally.named += analysis.odd.len();
    let is_right = |host: &&fleet::OddHost| slow.contains(&host.host) && host.slower;
    tally.right += analysis.odd.iter().filter(is_right).count();
    let found: Vec<_> = analysis.changes.iter().filter(|change| change.is_found()).collect();
    let Some(change) = fleet.change.filter(|change| change.day <= fleet.days) else {
        tally.wrong_changes += found.len();
        return;
    };
    tally.changes += 1;
    let wanted = format!("repetition {} ", change.day - 1);
    let near = [change.day.saturating_sub(2), change.day - 1, change.day].map(|day| format!("repetition {day} "));
    let mut once = false;
    for one in found {
        let facts_fit = one.facts.iter().any(|fact| fact.starts_with("kernel")) == change.kernel;
        let is_near = near.iter().any(|near| one.periods[0].starts_with(near));
        // A change of one ratio by 1 % beside the planted one would be wrong, too.
        if facts_fit && is_near && (change.kernel || one.periods[0].starts_with(&wanted)) && !once {
            once = true;
            tally.found += 1;
            tally.estimates.extend(one.rows.iter().find(|row| row.found).map(|row| row.change));
        } else {
            tally.wrong_changes += 1;
        }
    }
}

/// Writes the page of one fleet, prints its text, and says how long each took.
fn show(path: &str, hosts: usize) -> std::io::Result<()> {
    let share = if hosts < 100 { 1.5 / hosts as f64 } else { 0.01 };
    let fleet = Fleet { hosts, slow_share: share, clocks_off: 1, ..Fleet::default() };
    let all = runs(&fleet);
    let begun = Instant::now();
    let analysis = analyse(&all, &FleetSpec::default());
    println!("{} runs analysed in {:.2} s", all.len(), begun.elapsed().as_secs_f64());
    let begun = Instant::now();
    let page = fleet::page(&analysis, &[], "Synthetic fleet").map_err(std::io::Error::other)?;
    let json = serde_json::to_string(&analysis)?;
    println!("page of {} bytes and JSON of {} in {:.2} s", page.len(), json.len(), begun.elapsed().as_secs_f64());
    println!("{}", fleet::report(&analysis, &[]).text(80));
    std::fs::write(path, page)
}

fn main() -> ExitCode {
    if let [_, page, path, more @ ..] = &std::env::args().collect::<Vec<_>>()[..]
        && page == "page"
    {
        let hosts = more.first().and_then(|hosts| hosts.parse().ok()).unwrap_or(1000);
        return show(path, hosts).map_or(ExitCode::FAILURE, |()| ExitCode::SUCCESS);
    }
    let seeds: u64 = std::env::args().nth(1).and_then(|seeds| seeds.parse().ok()).unwrap_or(20);
    let fleet = Fleet::default();
    let spread = |host: f64, boot: f64, run: f64| Fleet {
        between_hosts: host,
        between_boots: boot,
        between_runs: run,
        ..fleet.clone()
    };
    let change = |day, roll_out, kernel| Some(Change { day, by: 0.03, roll_out, kernel });
    let cases: Vec<(&str, Fleet)> = vec![
        ("hosts 0.5 %, boots 0.5 %, runs 2 %", fleet.clone()),
        ("the same, kernel over ten days", Fleet { change: change(12, 10, true), ..fleet.clone() }),
        ("the same, no fact with the change", Fleet { change: change(17, 1, false), ..fleet.clone() }),
        ("the same, ends on the day of the change", Fleet { days: 17, ..fleet.clone() }),
        ("the same, ends a day later", Fleet { days: 18, ..fleet.clone() }),
        ("the same, nothing odd, no change", Fleet { slow_share: 0.0, change: None, ..fleet.clone() }),
        ("the same, reboots every six days", Fleet { reboot_every: 6.0, ..fleet.clone() }),
        ("the same, 10 % outliers, 20 % missing", Fleet { outliers: 0.1, missing: 0.2, ..fleet.clone() }),
        ("hosts 0.7 %, boots 0.7 %, runs 2 %", spread(0.007, 0.007, 0.02)),
        ("the same, kernel over ten days", Fleet { change: change(12, 10, true), ..spread(0.007, 0.007, 0.02) }),
        ("hosts 1 %, boots 1 %, runs 2 %", spread(0.01, 0.01, 0.02)),
        ("the same, kernel over ten days", Fleet { change: change(12, 10, true), ..spread(0.01, 0.01, 0.02) }),
        ("the same, reboots every three days", Fleet { reboot_every: 3.0, ..spread(0.01, 0.01, 0.02) }),
        ("1 %, 1 %, 2 %; slow hosts 8 % slow", Fleet { slow_by: 0.08, ..spread(0.01, 0.01, 0.02) }),
        ("one arm slow on the slow hosts", Fleet { slow_arm: Some(0), ..fleet.clone() }),
        ("100 hosts, 3 slow", Fleet { hosts: 100, slow_share: 0.03, ..fleet.clone() }),
        ("20 hosts, 1 slow", Fleet { hosts: 20, slow_share: 0.05, classes: 1, ..fleet.clone() }),
        (
            "20 hosts, 1 slow; 1 %, 1 %, 2 %",
            Fleet { hosts: 20, slow_share: 0.05, classes: 1, ..spread(0.01, 0.01, 0.02) },
        ),
        (
            "20 hosts, none odd; 1 %, 1 %, 2 %",
            Fleet { hosts: 20, slow_share: 0.0, classes: 1, ..spread(0.01, 0.01, 0.02) },
        ),
        ("4 hosts, 1 slow", Fleet { hosts: 4, slow_share: 0.25, classes: 1, ..fleet.clone() }),
        (
            "4 hosts, none odd; 1 %, 1 %, 2 %",
            Fleet { hosts: 4, slow_share: 0.0, classes: 1, ..spread(0.01, 0.01, 0.02) },
        ),
        ("1 host", Fleet { hosts: 1, slow_share: 0.0, classes: 1, ..fleet.clone() }),
    ];
    println!(
        "| fleet | slow hosts found | wrong among named | change found and named | its size | other changes | runs | longest |"
    );
    println!("|---|---|---|---|---|---|---|---|");
    for (title, fleet) in cases {
        let mut tally = Tally::default();
        for seed in 1..=seeds {
            one(&Fleet { seed, ..fleet.clone() }, &mut tally);
        }
        let share = |part: usize, of: usize| match of {
            0 => "–".to_owned(),
            _ => format!("{part} of {of} ({:.1} %)", part as f64 * 100.0 / of as f64),
        };
        let size =
            results::stats::median(&tally.estimates).map_or("–".to_owned(), |size| format!("{:+.2} %", size * 100.0));
        println!(
            "| {title} | {} | {} | {} | {size} | {} | {} | {:.2} s |",
            share(tally.right, tally.slow),
            share(tally.named - tally.right, tally.named),
            share(tally.found, tally.changes),
            tally.wrong_changes,
            tally.runs,
            tally.longest,
        );
    }
    ExitCode::SUCCESS
}
