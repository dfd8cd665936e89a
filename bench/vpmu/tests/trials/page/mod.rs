//! The report in a real browser: quiet, no wider than a phone, readable by day, by night and on paper, and deaf to what a
//! document would have it do. Needs Chromium.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use trials::Case;

use crate::binary::{run, text};
use crate::prerequisites::is_required;

/// The names of a hostile document's arms.
const EVIL: &str = "</th><script>window.hit=1</script><img src=x onerror=window.hit=1>\"'>";

/// Both give a list of what is wrong.
const CONTRAST: &str = include_str!("contrast.js");
const STRUCTURE: &str = include_str!("structure.js");

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
    document["arms"][0]["strategy"] = EVIL.into();
    document["arms"][0]["backend"] = EVIL.into();
    Ok(std::fs::write(results.join("evil.json"), document.to_string())?)
}

fn none(what: &str, found: &Value) -> Result<()> {
    ensure!(found.as_array().is_some_and(Vec::is_empty), "{what}: {found:#}");
    Ok(())
}

/// No complaint, nothing that a document brought along ran, nothing was loaded but the page.
fn is_quiet(browser: &mut Browser) -> Result<()> {
    ensure!(browser.complaints.is_empty(), "{}", browser.complaints.join("\n"));
    let found = browser.evaluate(
        "[window.hit, document.scripts.length, document.images.length, performance.getEntriesByType('resource').length]",
    )?;
    ensure!(found == json!([null, 0, 0, 0]), "ran or loaded: {found}");
    let is_own = |url: &String| (url.starts_with("file://") || url.starts_with("data:")) && !url.contains("onerror");
    ensure!(browser.requests.iter().all(is_own), "asked for one of {:?}", browser.requests);
    Ok(())
}

/// The answer is the first thing of the page: its plot and its sentences are in the first window, before any table.
fn answers_first(browser: &mut Browser) -> Result<()> {
    let found = browser.evaluate(
        "(() => { const first = document.querySelector('main section'); \
           const svg = first.querySelector('figure svg'); \
           const table = document.querySelector('main table'); \
           return [first.id, first.querySelectorAll('.sentences li').length > 0, svg.getBoundingClientRect().top < innerHeight, \
             !!(svg.compareDocumentPosition(table) & Node.DOCUMENT_POSITION_FOLLOWING)]; })()",
    )?;
    ensure!(found == json!(["results-1", true, true, true]), "the answer is not first: {found}");
    Ok(())
}

/// Sizes of the texts of plots as shown, and whether any plot is wider than its place.
const LEGIBLE: &str = "[...document.querySelectorAll('.plot > svg')].flatMap(svg => { \
    const scale = svg.getBoundingClientRect().width / svg.viewBox.baseVal.width; \
    const small = [...svg.querySelectorAll('text')].filter(text => parseFloat(getComputedStyle(text).fontSize) * scale < 10.5); \
    const wide = svg.getBoundingClientRect().right > innerWidth; \
    return small.length || wide ? [svg.getAttribute('aria-label')] : []; }).slice(0, 5)";

/// Tables that are wider than their place.
const CUT: &str = "[...document.querySelectorAll('.scroll')].filter(el => el.scrollWidth > el.clientWidth + 1)\
    .map(el => [el.getAttribute('aria-label').slice(0, 60), el.scrollWidth])";

/// On a phone each row of a table is as high as its texts, and no cell is beyond the edge.
const ROWS: &str = "[...document.querySelectorAll('table.stack tr')].filter(row => row.offsetHeight > 0).flatMap(row => { \
    const cells = [...row.children].filter(cell => cell.offsetHeight > 0); \
    const texts = cells.reduce((sum, cell) => sum + cell.offsetHeight, 0); \
    const wide = cells.some(cell => cell.getBoundingClientRect().right > innerWidth); \
    return row.offsetHeight > texts + 16 || wide ? [row.textContent] : []; }).slice(0, 3)";

/// Everything, in one browser: starting one takes longer than what it does here.
fn report(program: &str) -> Result<()> {
    let dir = tempfile::tempdir()?;
    let page = page(dir.path())?;
    let mut browser = Browser::start(program, &dir.path().join("profile"))?;
    browser.width(1280)?;
    browser.open(&page)?;
    is_quiet(&mut browser)?;
    answers_first(&mut browser)?;
    none("structure", &browser.evaluate(STRUCTURE)?)?;
    // Plots of single results are folded, too.
    browser.evaluate("document.querySelectorAll('details:has(.figures)').forEach(el => el.open = true)")?;
    for scheme in ["light", "dark"] {
        browser.medium("screen", scheme)?;
        none(&format!("contrast, {scheme}"), &browser.evaluate(CONTRAST)?)?;
        for width in [1280, 375, 360] {
            browser.width(width)?;
            let wide = browser.evaluate("document.documentElement.scrollWidth")?;
            ensure!(wide.as_u64() <= Some(width.into()) && wide.is_u64(), "at {width} px the page is {wide} px wide");
            none(&format!("texts at {width} px"), &browser.evaluate(LEGIBLE)?)?;
            if width < 640 {
                none(&format!("rows at {width} px"), &browser.evaluate(ROWS)?)?;
            }
        }
    }
    // Every table is opened, as a reader may have it.
    browser.evaluate("document.querySelectorAll('details').forEach(el => el.open = true)")?;
    let wide = browser.evaluate("document.documentElement.scrollWidth")?;
    ensure!(wide == 360, "with its tables open the page is {wide} px wide");
    browser.width(1280)?;
    none("columns cut at 1280 px", &browser.evaluate(CUT)?)?;
    // Whoever reads in the dark prints on white paper.
    browser.medium("print", "dark")?;
    none("contrast, print", &browser.evaluate(CONTRAST)?)?;
    let paper = browser.evaluate("getComputedStyle(document.body).backgroundColor")?;
    ensure!(paper == "rgb(255, 255, 255)", "paper is {paper}");
    is_quiet(&mut browser)?;

    let titles = browser.evaluate("document.querySelectorAll('.plot [data-s] > title').length")?;
    ensure!(titles.as_u64() >= Some(50), "only {titles} tooltips");
    is_quiet(&mut browser)
}

pub(crate) fn cases() -> Vec<Case> {
    let program = find();
    let missing =
        program.is_none().then(|| "no Chromium in $PATH (apt-get install chromium) nor in $CHROMIUM".to_owned());
    let required = is_required("VPMU_REQUIRE_CHROMIUM");
    let program = program.unwrap_or_default();
    vec![Case::fallible("the_report_in_a_browser", missing, move || report(&program)).expected(required)]
}

// A headless Chromium, spoken to by the DevTools protocol over its pipe: JSON messages that end with a NUL byte, on
// descriptors 3 and 4.

/// A hang must not hold up the tests; nothing is asserted about time.
const PATIENCE: Duration = Duration::from_secs(120);

/// The browser of $CHROMIUM, or of the usual names in $PATH.
pub(crate) fn find() -> Option<String> {
    let given = std::env::var("CHROMIUM").ok();
    let names = ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable"].map(str::to_owned);
    given.into_iter().chain(names).find(|name| {
        let version = Command::new(name).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
        version.is_ok_and(|status| status.success())
    })
}

/// A browser with one page open.
pub(crate) struct Browser {
    child: Child,
    to: ChildStdin,
    messages: Receiver<Value>,
    session: String,
    next: u64,
    /// Complaints of the page: console messages, log entries, exceptions.
    pub(crate) complaints: Vec<String>,
    /// Addresses that the page asked for, its own included.
    pub(crate) requests: Vec<String>,
}

impl Browser {
    /// Starts it with a fresh profile in `dir`.
    pub(crate) fn start(program: &str, dir: &Path) -> Result<Self> {
        // The shell moves its standard streams to where the browser looks for its pipe.
        let mut child = Command::new("sh")
            .args(["-c", "exec \"$@\" 3<&0 4>&1 0</dev/null 1>&2", "sh", program])
            .args(["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--remote-debugging-pipe"])
            .args([
                "--no-first-run",
                "--disable-extensions",
                "--disable-background-networking",
                "--disable-dev-shm-usage",
            ])
            .arg(format!("--user-data-dir={}", dir.display()))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .with_context(|| program.to_owned())?;
        let to = child.stdin.take().context("no pipe")?;
        let messages = listen(child.stdout.take().context("no pipe")?);
        let mut browser =
            Self { child, to, messages, session: String::new(), next: 0, complaints: Vec::new(), requests: Vec::new() };
        let target = browser.call("Target.createTarget", &json!({"url": "about:blank"}))?;
        let attached =
            browser.call("Target.attachToTarget", &json!({"targetId": target["targetId"], "flatten": true}))?;
        attached["sessionId"].as_str().unwrap_or_default().clone_into(&mut browser.session);
        for domain in ["Page", "Runtime", "Log", "Network"] {
            browser.call(&format!("{domain}.enable"), &json!({}))?;
        }
        Ok(browser)
    }

    /// Calls a method and gives its result; events that come meanwhile are looked at for complaints.
    pub(crate) fn call(&mut self, method: &str, params: &Value) -> Result<Value> {
        self.next += 1;
        let id = self.next;
        let mut message = json!({"id": id, "method": method, "params": params});
        if !self.session.is_empty() {
            message["sessionId"] = self.session.clone().into();
        }
        self.to.write_all(format!("{message}\0").as_bytes()).and_then(|()| self.to.flush())?;
        loop {
            let message = self.receive(method)?;
            if message["id"] == id {
                ensure!(message["error"].is_null(), "{method}: {}", message["error"]);
                return Ok(message["result"].clone());
            }
        }
    }

    fn receive(&mut self, waiting_for: &str) -> Result<Value> {
        let message = self.messages.recv_timeout(PATIENCE).with_context(|| format!("{waiting_for}: no answer"))?;
        if let Some("Runtime.consoleAPICalled" | "Runtime.exceptionThrown" | "Log.entryAdded") =
            message["method"].as_str()
        {
            self.complaints.push(message["params"].to_string());
        }
        if message["method"] == "Network.requestWillBeSent" {
            self.requests.push(message["params"]["request"]["url"].as_str().unwrap_or_default().to_owned());
        }
        Ok(message)
    }

    /// Opens a file and waits until it is loaded.
    pub(crate) fn open(&mut self, file: &Path) -> Result<()> {
        let answer = self.call("Page.navigate", &json!({"url": format!("file://{}", file.display())}))?;
        ensure!(answer["errorText"].is_null(), "{}: {}", file.display(), answer["errorText"]);
        while self.receive("Page.loadEventFired")?["method"] != "Page.loadEventFired" {}
        Ok(())
    }

    /// The value of an expression in the page.
    pub(crate) fn evaluate(&mut self, expression: &str) -> Result<Value> {
        let answer = self.call("Runtime.evaluate", &json!({"expression": expression, "returnByValue": true}))?;
        ensure!(answer["exceptionDetails"].is_null(), "{expression}: {}", answer["exceptionDetails"]);
        Ok(answer["result"]["value"].clone())
    }

    /// Shows the page so many CSS pixels wide.
    pub(crate) fn width(&mut self, pixels: u32) -> Result<()> {
        let metrics = json!({"width": pixels, "height": 800, "deviceScaleFactor": 1, "mobile": pixels < 600});
        self.call("Emulation.setDeviceMetricsOverride", &metrics).map(drop)
    }

    /// Asks the page for a colour scheme and a medium (`screen`, `print`).
    pub(crate) fn medium(&mut self, medium: &str, scheme: &str) -> Result<()> {
        let features = json!([{"name": "prefers-color-scheme", "value": scheme}]);
        self.call("Emulation.setEmulatedMedia", &json!({"media": medium, "features": features})).map(drop)
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // Asked to end, it ends its helpers, too.
        let _ = self.to.write_all(b"{\"id\": 0, \"method\": \"Browser.close\"}\0").and_then(|()| self.to.flush());
        for _ in 0..100 {
            if matches!(self.child.try_wait(), Ok(Some(_))) {
                return;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Reads messages until the pipe closes.
fn listen(from: ChildStdout) -> Receiver<Value> {
    let (send, messages) = channel();
    std::thread::spawn(move || {
        for bytes in BufReader::new(from).split(0).map_while(std::io::Result::ok) {
            let Ok(message) = serde_json::from_slice(&bytes) else { break };
            if send.send(message).is_err() {
                break;
            }
        }
    });
    messages
}
