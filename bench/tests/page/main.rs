//! The report in a real browser: quiet, no wider than a phone, readable by day, by night and on paper, and deaf to what a
//! document would have it do. Needs Chromium; pictures are kept in $VPMU_PICTURES if that is set.

mod browser;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use base64::Engine as _;
use browser::Browser;
use serde_json::Value;
use trials::Case;

/// The names of a hostile document's arms.
const EVIL: &str = "</th><script>window.hit=1</script><img src=x onerror=window.hit=1>\"'>";

/// Both give a list of what is wrong.
const CONTRAST: &str = include_str!("contrast.js");
const STRUCTURE: &str = include_str!("structure.js");

fn vpmu(dir: &Path, args: &[&str]) -> Result<(), String> {
    let output = Command::new(env!("CARGO_BIN_EXE_vpmu")).args(args).current_dir(dir).output();
    let output = output.map_err(|error| error.to_string())?;
    if output.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&output.stderr).into_owned()) }
}

/// A folder with simulated results: a series, two sizes, another host, set-ups, a hostile document; and the page of it.
fn page(dir: &Path) -> Result<PathBuf, String> {
    let short = ["--samples", "60", "--rounds", "3", "--quiet", "-o", "results"];
    for line in [
        &["sim", "development-host", "--workload", "sampling10"][..],
        &["sim", "development-host", "--workload", "sampling10", "--seed", "2"],
        &["sim", "clx-ap-watchdog-off", "--strategy", "recreate,reuse,reuse-lazy,paused-flag,deferred,pool"],
        &["sim", "icx-2021"],
        &["sim", "icx-2021", "--vcpus", "2"],
        &["guest-stat", "--backend", "sim:clx-ap-watchdog-on", "--events", "4"],
        &["guest-stat", "--backend", "sim:clx-ap-watchdog-on", "--events", "10"],
    ] {
        vpmu(dir, &[line, &short].concat())?;
    }
    hostile(&dir.join("results"))?;
    vpmu(dir, &["report", "results", "--title", "A <b>title</b>"])?;
    Ok(dir.join("report.html"))
}

/// A copy of a result whose texts are markup.
fn hostile(results: &Path) -> Result<(), String> {
    let failed = |error: std::io::Error| error.to_string();
    let entries = std::fs::read_dir(results).map_err(failed)?;
    let mut paths: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    paths.sort();
    let path = paths.iter().find(|path| path.extension().is_some_and(|e| e == "json")).ok_or("no result")?;
    let text = std::fs::read_to_string(path).map_err(failed)?;
    let mut document: Value = serde_json::from_str(&text).map_err(|error| error.to_string())?;
    document["started_unix"] = 1_700_000_000.into();
    document["host"]["class"] = EVIL.into();
    document["host"]["cpu_model"] = EVIL.into();
    document["parameters"]["workload"] = EVIL.into();
    document["tool"]["git_revision"] = EVIL.into();
    document["command_line"] = serde_json::json!([EVIL]);
    document["warnings"] = serde_json::json!([{"code": EVIL, "arm": EVIL, "message": EVIL, "remedy": EVIL}]);
    document["arms"][0]["strategy"] = EVIL.into();
    document["arms"][0]["backend"] = EVIL.into();
    std::fs::write(results.join("evil.json"), document.to_string()).map_err(failed)
}

fn keep(name: &str, base64: &str) -> Result<usize, String> {
    let bytes = base64::engine::general_purpose::STANDARD.decode(base64).map_err(|error| error.to_string())?;
    if let Some(dir) = std::env::var_os("VPMU_PICTURES") {
        std::fs::write(Path::new(&dir).join(name), &bytes).map_err(|error| error.to_string())?;
    }
    Ok(bytes.len())
}

fn none(what: &str, found: &Value) -> Result<(), String> {
    if found.as_array().is_some_and(Vec::is_empty) { Ok(()) } else { Err(format!("{what}: {found:#}")) }
}

/// No complaint, nothing that ran, nothing that was loaded.
fn is_quiet(browser: &mut Browser) -> Result<(), String> {
    if !browser.complaints.is_empty() {
        return Err(browser.complaints.join("\n"));
    }
    let found = browser.evaluate(
        "[window.hit, document.scripts.length, document.images.length, performance.getEntriesByType('resource').length]",
    )?;
    if found == serde_json::json!([null, 0, 0, 0]) { Ok(()) } else { Err(format!("ran or loaded: {found}")) }
}

/// Everything, in one browser: starting one takes longer than what it does here.
fn report(program: &str) -> Result<(), String> {
    let dir = tempfile::tempdir().map_err(|error| error.to_string())?;
    let page = page(dir.path())?;
    let mut browser = Browser::start(program, &dir.path().join("profile"))?;
    browser.width(1280)?;
    browser.open(&page)?;
    is_quiet(&mut browser)?;
    none("structure", &browser.evaluate(STRUCTURE)?)?;
    let figures = browser.evaluate("document.querySelectorAll('figure').length")?;
    if figures.as_u64().is_none_or(|n| n < 15) {
        return Err(format!("only {figures} figures"));
    }

    for scheme in ["light", "dark"] {
        browser.medium("screen", scheme)?;
        none(&format!("contrast, {scheme}"), &browser.evaluate(CONTRAST)?)?;
        for width in [1280, 360] {
            browser.width(width)?;
            let wide = browser.evaluate("document.documentElement.scrollWidth")?;
            if wide.as_u64().is_none_or(|wide| wide > u64::from(width)) {
                return Err(format!("at {width} px the page is {wide} px wide"));
            }
            keep(&format!("{scheme}-{width}.png"), &browser.picture()?)?;
        }
    }
    // The same with every table open, as a reader may have it.
    browser.evaluate("document.querySelectorAll('details').forEach(el => el.open = true)")?;
    let wide = browser.evaluate("document.documentElement.scrollWidth")?;
    if wide != 360 {
        return Err(format!("with its tables open the page is {wide} px wide"));
    }
    browser.width(1280)?;
    keep("open-1280.png", &browser.picture()?)?;
    // Whoever reads in the dark prints on white paper.
    browser.medium("print", "dark")?;
    none("contrast, print", &browser.evaluate(CONTRAST)?)?;
    let paper = browser.evaluate("getComputedStyle(document.body).backgroundColor")?;
    if paper != "rgb(255, 255, 255)" {
        return Err(format!("paper is {paper}"));
    }
    keep("print.pdf", &browser.print()?)?;
    is_quiet(&mut browser)
}

fn main() -> ExitCode {
    let program = browser::find();
    let missing =
        program.is_none().then(|| "no Chromium in $PATH (apt-get install chromium) nor in $CHROMIUM".to_owned());
    let required = std::env::var_os("VPMU_REQUIRE_CHROMIUM").is_some_and(|value| value == "1");
    let program = program.unwrap_or_default();
    trials::run([Case::fallible("the_report_in_a_browser", missing, move || report(&program))], required)
}
