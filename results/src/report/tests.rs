use super::*;
use crate::fixture;

fn shown(records: Vec<Record>, title: &str) -> String {
    let (published, tool) = (fixture::reproduction(), fixture::tool());
    html(&Sources { records, sweeps: Vec::new(), published, tool }, title).unwrap()
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
    // Percentiles, rounds, operations, Pareto, published.
    assert_eq!(text.matches("<figure>").count(), 5);
    assert_eq!(text.matches("<summary>Table: ").count(), 5);
    assert_eq!(text.matches("role=\"img\"").count(), 5);
    for landmark in
        ["<header>", "<nav aria-label", "<main id=\"main\">", "<footer>", "<html lang=\"en\">", "class=\"skip\""]
    {
        assert!(text.contains(landmark), "{landmark}");
    }
    // Nothing is loaded and nothing runs.
    for forbidden in ["<script", "src=", "url(", "@import", "http://", "https://", "onload"] {
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
    for markup in ["<script", "<img", "\"'>"] {
        assert!(!text.contains(markup), "{markup}");
    }
    assert!(text.contains("&lt;script&gt;"));
}

#[test]
fn a_thousand_results_make_a_page_below_5_mb_that_says_what_was_thinned() {
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
    assert!(series.len() < 5_000_000 && series.contains("each point is the median of 7 neighbours"));
    let kinds = shown(records(1000), "kinds");
    assert!(kinds.len() < 5_000_000, "{}", kinds.len());
    assert!(kinds.contains("Kinds of results with plots, the newest: 20 of 1000 are shown"));
    assert_eq!(kinds.matches("<section id=\"results-").count(), GROUPS);
    // All of them are in the overview, each with its figures.
    assert_eq!(kinds.matches("recreate 2.00 µs (2.00 × floor)").count(), 1000);
}

#[test]
fn sweeps_alone_make_a_page_too() {
    let text = shown(Vec::new(), "nothing measured");
    assert!(text.contains("id=\"published\"") && !text.contains("id=\"hosts\""));
}
