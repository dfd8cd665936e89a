use super::{ElementEnd, ElementLine, junit, markdown, page, text};
use crate::statistics::{Analysis, FleetSpec, analyse};
use crate::synthetic::{Change, Fleet, runs};

fn analysis() -> Analysis {
    let change = Some(Change { day: 7, by: 0.03, roll_out: 1, kernel: true });
    let fleet = Fleet { hosts: 40, days: 14, slow_share: 0.05, change, clocks_off: 1, ..Fleet::default() };
    let mut all = runs(&fleet);
    for run in &mut all {
        run.setting = "<b>nmi|latency</b>".into();
    }
    analyse(&all, &FleetSpec::default())
}

fn failed() -> ElementLine {
    ElementLine {
        name: "nmi-latency 3".to_owned(),
        host: "n<1>".to_owned(),
        end: ElementEnd::Failed,
        state: "failed".to_owned(),
        exit_code: Some(4),
        job: "17_3".to_owned(),
        reason: "no /dev/kvm".to_owned(),
    }
}

#[test]
fn a_terminal_has_all_in_its_width() {
    let analysis = analysis();
    let text = text(&analysis, 80);
    for needle in
        ["slow host: all arms alike", "kernel 6.1.0-31-amd64", "SLOWER", "clock of node0000", "40 hosts", "slower: "]
    {
        assert!(text.contains(needle), "{needle} is not in {text}");
    }
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
}

#[test]
fn markdown_has_failed_elements_first_and_escapes() {
    let analysis = analysis();
    let text = markdown(&analysis, &[ElementLine::default(), failed()]);
    let place = |needle: &str| text.find(needle).unwrap_or_else(|| panic!("{needle} is not in {text}"));
    assert!(place("Of 2 elements: 1 failed, 0 without") < place("Odd hosts") && place("Odd hosts") < place("Changes"));
    assert!(text.contains("n&lt;1&gt;") && !text.contains("<b>"), "{text}");
    assert!(text.starts_with("### ❌"));
}

#[test]
fn junit_fails_slow_hosts_slow_changes_and_elements() {
    let analysis = analysis();
    let xml = junit(&analysis, &[failed()]);
    let open = junit(&analysis, &[ElementLine { end: ElementEnd::Open, exit_code: None, ..failed() }]);
    assert_eq!(open.matches("<skipped").count(), 1 + xml.matches("<skipped").count());
    assert_eq!(open.matches("<failure").count() + 1, xml.matches("<failure").count());
    let slow = analysis.odd.iter().filter(|host| host.slower).count();
    // An element, a host each, its class, and the change.
    assert!(slow == 2 && xml.matches("<failure").count() > slow + 2, "{xml}");
}

#[test]
fn the_page_is_whole_without_a_script_or_the_network() {
    let analysis = analysis();
    let html = page(&analysis, &[failed()], "A <fleet>").unwrap();
    assert!(html.contains("<title>A &lt;fleet&gt;</title>") && !html.contains("<b>nmi"));
    assert!(!html.contains("<script") && !html.contains("http://") && !html.contains("https://"));
    let place = |needle: &str| html.find(needle).unwrap_or_else(|| panic!("{needle} is not in the page"));
    assert!(place("id=\"elements\"") < place("id=\"odd\"") && place("id=\"odd\"") < place("id=\"map\""));
    assert_eq!(html.matches("role=\"img\"").count(), 2 + analysis.classes.len());
    let none = page(&analysis, &[], "A").unwrap();
    assert!(!none.contains("id=\"elements\""));
}
