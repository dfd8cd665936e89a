use std::collections::{BTreeMap, BTreeSet};

use super::*;
use crate::fixture;

fn sources(records: Vec<Record>) -> Sources {
    let (published, tool) = (fixture::reproduction(), fixture::tool());
    Sources { records, sweeps: Vec::new(), published, tool }
}

fn shown(records: Vec<Record>, title: &str) -> String {
    html(&sources(records), title).unwrap()
}

#[test]
fn a_page_has_every_arm_its_backend_its_host_and_every_plots_table() {
    let (_dir, record) = fixture::written(&fixture::document(3));
    let text = shown(vec![record.clone()], "mine");
    for arm in &record.arms {
        assert!(text.contains(&format!(">{}</th>", arm.name)), "{}", arm.name);
    }
    assert!(text.contains("not available: the mock has no vPMU of its own"));
    assert!(text.contains("cpu-clock (stand-in)") && text.contains("stand-in events: compare arms only"));
    assert!(text.contains("development host (kvm_pvm, no hardware PMU)"));
    assert!(text.contains("fitted: cost.open-more"));
    // The answer, rounds, percentiles, operations by number and time, Pareto.
    assert_eq!(text.matches("<figure").count(), 5);
    assert_eq!(text.matches("<summary>Table: ").count(), 5);
    assert_eq!(text.matches("role=\"img\"").count(), 6);
    // The answer comes first, and fitted rows are folded.
    let at = |needle: &str| text.find(needle).unwrap_or_else(|| panic!("no {needle}"));
    assert!(at("id=\"answers\"") < at("id=\"overview\"") && at("id=\"overview\"") < at("id=\"results-1\""));
    assert!(at("<summary>Fitted or transferred: 2 figures") < at("fitted: cost.open-more"));
    for landmark in
        ["<header>", "<nav aria-label", "<main id=\"main\">", "<footer>", "<html lang=\"en\">", "class=\"skip\""]
    {
        assert!(text.contains(landmark), "{landmark}");
    }
    // Nothing is loaded, and only the page's own script runs.
    assert_eq!(text.matches("<script").count(), 1);
    for forbidden in ["src=", "url(", "@import", "http://", "https://", "onload"] {
        assert!(!text.contains(forbidden), "{forbidden}");
    }
}

#[test]
fn what_a_document_says_is_text_wherever_it_stands() {
    let (_dir, mut record) = fixture::written(&fixture::document(2));
    let evil = "\"'><script>alert(1)</script><img src=x onerror=alert(2)>";
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
    let text = shown(vec![record, other], evil);
    for markup in ["<script>alert", "<img", "\"'>"] {
        assert!(!text.contains(markup), "{markup}");
    }
    assert_eq!(text.matches("<script").count(), 1);
    assert!(text.contains("&lt;script&gt;"));
}

#[test]
fn a_thousand_results_make_a_page_below_1_5_mb_that_says_what_was_thinned() {
    let (_dir, record) = fixture::written(&fixture::document(2));
    let records = |kinds: u64| -> Vec<Record> {
        (0..1000)
            .map(|n| {
                let mut record = Record { started_unix: record.started_unix + n * 600, ..record.clone() };
                record.parameters.insert("period".to_owned(), (n % kinds).into());
                record
            })
            .collect()
    };
    let series = shown(records(1), "a series");
    assert!(series.len() < 1_500_000 && series.contains("each point is the median of 7 neighbours"));
    let kinds = shown(records(1000), "kinds");
    assert!(kinds.len() < 1_500_000, "{}", kinds.len());
    assert!(kinds.contains("Kinds of results with plots, the newest: 20 of 1000 are shown"));
    assert_eq!(kinds.matches("<section id=\"results-").count(), GROUPS);
    // All of them are in the overview, each with its figures.
    assert_eq!(kinds.matches("recreate 2.00 µs (2.00 × floor)").count(), 1000);
}

/// A fixture's rounds have no true histograms.
fn without_histograms(record: &mut Record) {
    record.arms.iter_mut().flat_map(|arm| arm.metrics.values_mut()).for_each(|all| all.histogram = None);
}

#[test]
fn an_arm_without_nmis_has_dashes_in_tables_and_no_plot() {
    let mut record = fixture::record(6, 5, |_, round| 1000 + round);
    record.arms[0].metrics.retain(|key, _| key == "exit_path_ns");
    record.arms[0].rounds.metrics.retain(|key, _| key == "exit_path_ns");
    without_histograms(&mut record);
    let page = page(&sources(vec![record]), "livelocked").unwrap();
    let rows = &page.sections[0].table.rows;
    assert_eq!(rows[0][..7], ["recreate", "–", "–", "–", "–", "–", "–"]);
    assert_ne!(rows[1][1], "–");
    for figure in page.sections[0].figures.iter().filter(|figure| !figure.title.contains("operations")) {
        assert!(figure.plots.iter().all(|plot| !plot.contains("recreate")), "{}", figure.title);
    }
    assert!(page.overview.rows[0][5].starts_with("recreate: –, "), "{}", page.overview.rows[0][5]);
}

#[test]
fn one_p50_is_in_the_table_the_overview_and_the_plots() {
    // The median of all samples is that of the many: 40 in each of three rounds at 1 µs, 400 in each of two at 9 µs.
    let mut record = fixture::record(5, 5, |_, round| if round < 3 { 1000 } else { 9000 });
    for arm in &mut record.arms {
        arm.metrics.values_mut().for_each(|all| all.p50 = 9000);
    }
    without_histograms(&mut record);
    let page = page(&sources(vec![record]), "one definition").unwrap();
    let section = &page.sections[0];
    assert!(section.table.rows[0][1].starts_with("1.00 µs ["), "{}", section.table.rows[0][1]);
    assert!(page.overview.rows[0][5].starts_with("recreate 1.00 µs ("), "{}", page.overview.rows[0][5]);
    let rounds = section.figures.iter().find(|figure| figure.title.ends_with("over rounds")).unwrap();
    assert!(rounds.table.rows[0][4].starts_with("1.00 µs ["), "{:?}", rounds.table.rows[0]);
}

#[test]
fn the_security_policy_names_the_script() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("page.js");
    std::fs::write(&path, page::SCRIPT).unwrap();
    let output = std::process::Command::new("sha256sum").arg(&path).output().unwrap();
    let hex = String::from_utf8(output.stdout).unwrap();
    let byte = |at: usize| u8::from_str_radix(&hex[at..at + 2], 16).unwrap();
    let bytes: Vec<u8> = (0..64).step_by(2).map(byte).collect();
    let digest = base64::Engine::encode(&base64::engine::general_purpose::STANDARD, bytes);
    assert_eq!(page::DIGEST, digest);
    let text = shown(Vec::new(), "empty");
    assert!(
        text.contains(&format!("script-src &#x27;sha256-{digest}"))
            || text.contains(&format!("script-src 'sha256-{digest}'")),
        "{digest}"
    );
}

#[test]
fn sweeps_alone_make_a_page_too() {
    let text = shown(Vec::new(), "nothing measured");
    assert!(text.contains("id=\"published\"") && !text.contains("id=\"hosts\""));
}

/// Returns the classes of the colours that each name has in the plots of a page.
fn colours(page: &str) -> BTreeMap<&str, BTreeSet<&str>> {
    let mut found: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for group in page.split("<g data-s=\"").skip(1) {
        let (name, rest) = group.split("</g>").next().unwrap().split_once('"').unwrap();
        let classes =
            rest.split("class=\"").skip(1).filter_map(|rest| rest.split('"').next()).flat_map(str::split_whitespace);
        let is_colour = |class: &&str| class.strip_prefix('c').is_some_and(|rest| rest.parse::<u8>().is_ok());
        found.entry(name).or_default().extend(classes.filter(is_colour));
    }
    found
}

#[test]
fn a_strategy_has_one_colour_in_all_plots_and_shares_it_with_none() {
    let names =
        ["recreate", "reuse", "reuse-lazy", "paused-flag", "deferred", "pool", "gate", "virtual", "mine", "their"];
    let (_dir, mut all) = fixture::written(&fixture::of_strategies(10, &names));
    for arm in &mut all.arms {
        arm.own.events_held.time_mean = Some(1.0);
    }
    // Another order of the arms, another size, and a page of some of them alone.
    let mut turned = all.clone();
    turned.arms.reverse();
    turned.parameters.insert("vcpus".to_owned(), 2.into());
    let page = shown(vec![all.clone(), turned], "all");
    let found = colours(&page);
    for name in names {
        assert_eq!(found[name].len(), 1, "{name}: {:?}", found[name]);
    }
    let different: BTreeSet<&str> = names.iter().flat_map(|name| found[name].iter().copied()).collect();
    assert_eq!(different.len(), names.len(), "{found:?}");
    all.arms.retain(|arm| ["virtual", "floor", "mine"].contains(&arm.name.as_str()));
    let page = shown(vec![all], "some");
    let some = colours(&page);
    assert_eq!((&some["virtual"], &some["mine"]), (&found["virtual"], &found["mine"]));
}
