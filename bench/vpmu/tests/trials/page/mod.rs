//! The report in a real browser: quiet, no wider than a phone, readable by day, by night and on paper, and deaf to what a
//! document would have it do. Needs Chromium.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use trials::Case;

use crate::binary::{run, text};
use crate::prerequisites::is_required;

/// The names of a hostile document's arms.
const EVIL: &str = "</th><script>window.hit=1</script><img src=x onerror=window.hit=1>\"'>";

/// The page that shows the report and says what is wrong with it.
const CHECK: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/trials/page/check.html");

fn vpmu(dir: &Path, args: &[&str]) -> Result<()> {
    let output = run(dir, args);
    ensure!(output.status.success(), "{}", text(&output.stderr));
    Ok(())
}

/// A folder with simulated results: a series, two sizes, another host, set-ups, a hostile document; and the page of it.
fn page(dir: &Path) -> Result<PathBuf> {
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
    vpmu(dir, &["report", "results"])?;
    Ok(dir.join("report.html"))
}

/// A copy of a result whose texts are markup.
fn hostile(results: &Path) -> Result<()> {
    let mut paths: Vec<PathBuf> = std::fs::read_dir(results)?.flatten().map(|entry| entry.path()).collect();
    paths.sort();
    let path = paths.iter().find(|path| path.extension().is_some_and(|e| e == "json")).context("no result")?;
    let mut document: Value = serde_json::from_slice(&std::fs::read(path)?)?;
    document["started_unix"] = 1_700_000_000.into();
    document["host"]["class"] = EVIL.into();
    document["host"]["cpu_model"] = EVIL.into();
    document["parameters"]["workload"] = EVIL.into();
    document["tool"]["git_revision"] = EVIL.into();
    document["command_line"] = json!([EVIL]);
    document["warnings"] = json!([{"code": EVIL, "arm": EVIL, "message": EVIL, "remedy": EVIL}]);
    document["arms"][0]["arm"] = EVIL.into();
    document["arms"][0]["backend"] = EVIL.into();
    Ok(std::fs::write(results.join("evil.json"), document.to_string())?)
}

/// Everything, in one browser: starting one takes longer than what it does here. It has no complaint either.
fn report(program: &str) -> Result<()> {
    let dir = tempfile::tempdir()?;
    let page = page(dir.path())?;
    let options = "--headless --no-sandbox --disable-gpu --hide-scrollbars --no-first-run --disable-extensions \
                   --disable-background-networking --disable-dev-shm-usage --allow-file-access-from-files \
                   --enable-logging=stderr --dump-dom";
    // A hang must not hold up the tests; nothing is asserted about time.
    let mut browser = Command::new("timeout");
    browser.args(["120", program]).args(options.split_whitespace());
    browser.arg(format!("--user-data-dir={}", dir.path().join("profile").display()));
    let output = browser.arg(format!("file://{CHECK}#file://{}", page.display())).output()?;
    let (found, said) = (text(&output.stdout), text(&output.stderr));
    ensure!(output.status.success() && found.contains("<pre>all is well</pre>"), "{found}{said}");
    let complaints: Vec<&str> = said.lines().filter(|line| line.contains("CONSOLE")).collect();
    ensure!(complaints.is_empty(), "{}", complaints.join("\n"));
    Ok(())
}

pub(crate) fn cases() -> Vec<Case> {
    let program = find();
    let missing =
        program.is_none().then(|| "no Chromium in $PATH (apt-get install chromium) nor in $CHROMIUM".to_owned());
    let required = is_required("VPMU_REQUIRE_CHROMIUM");
    let program = program.unwrap_or_default();
    vec![Case::fallible("the_report_in_a_browser", missing, move || report(&program)).expected(required)]
}

/// The browser of $CHROMIUM, or of the usual names in $PATH.
fn find() -> Option<String> {
    let given = std::env::var("CHROMIUM").ok();
    let names = ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable"].map(str::to_owned);
    given.into_iter().chain(names).find(|name| {
        let version = Command::new(name).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
        version.is_ok_and(|status| status.success())
    })
}
