//! A headless Chromium, spoken to by the DevTools protocol over its pipe: JSON messages that end with a NUL byte, on
//! descriptors 3 and 4.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use serde_json::{Value, json};

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
    pub(crate) fn start(program: &str, dir: &Path) -> Result<Self, String> {
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
            .map_err(|error| format!("{program}: {error}"))?;
        let (Some(to), Some(from)) = (child.stdin.take(), child.stdout.take()) else {
            return Err("the browser has no pipe".to_owned());
        };
        let messages = listen(from);
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
    pub(crate) fn call(&mut self, method: &str, params: &Value) -> Result<Value, String> {
        self.next += 1;
        let id = self.next;
        let mut message = json!({"id": id, "method": method, "params": params});
        if !self.session.is_empty() {
            message["sessionId"] = self.session.clone().into();
        }
        let sent = self.to.write_all(format!("{message}\0").as_bytes()).and_then(|()| self.to.flush());
        sent.map_err(|error| format!("{method}: {error}"))?;
        loop {
            let message = self.receive(method)?;
            if message["id"] == id {
                return match message.get("error") {
                    Some(error) => Err(format!("{method}: {error}")),
                    None => Ok(message["result"].clone()),
                };
            }
        }
    }

    fn receive(&mut self, waiting_for: &str) -> Result<Value, String> {
        let message = self.messages.recv_timeout(PATIENCE).map_err(|error| match error {
            RecvTimeoutError::Timeout => format!("{waiting_for}: no answer"),
            RecvTimeoutError::Disconnected => format!("{waiting_for}: the browser ended"),
        })?;
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
    pub(crate) fn open(&mut self, file: &Path) -> Result<(), String> {
        let answer = self.call("Page.navigate", &json!({"url": format!("file://{}", file.display())}))?;
        if let Some(error) = answer.get("errorText") {
            return Err(format!("{}: {error}", file.display()));
        }
        while self.receive("Page.loadEventFired")?["method"] != "Page.loadEventFired" {}
        Ok(())
    }

    /// The value of an expression in the page.
    pub(crate) fn evaluate(&mut self, expression: &str) -> Result<Value, String> {
        let answer = self.call("Runtime.evaluate", &json!({"expression": expression, "returnByValue": true}))?;
        match answer.get("exceptionDetails") {
            Some(why) => Err(format!("{expression}: {why}")),
            None => Ok(answer["result"]["value"].clone()),
        }
    }

    /// Shows the page so many CSS pixels wide.
    pub(crate) fn width(&mut self, pixels: u32) -> Result<(), String> {
        let metrics = json!({"width": pixels, "height": 800, "deviceScaleFactor": 1, "mobile": pixels < 600});
        self.call("Emulation.setDeviceMetricsOverride", &metrics).map(drop)
    }

    /// Allows or forbids scripts in pages that are opened from now on.
    pub(crate) fn scripts(&mut self, on: bool) -> Result<(), String> {
        self.call("Emulation.setScriptExecutionDisabled", &json!({"value": !on})).map(drop)
    }

    /// Moves the pointer to a place of the window.
    pub(crate) fn point_at(&mut self, x: f64, y: f64) -> Result<(), String> {
        self.call("Input.dispatchMouseEvent", &json!({"type": "mouseMoved", "x": x, "y": y})).map(drop)
    }

    /// Asks the page for a colour scheme and a medium (`screen`, `print`).
    pub(crate) fn medium(&mut self, medium: &str, scheme: &str) -> Result<(), String> {
        let features = json!([{"name": "prefers-color-scheme", "value": scheme}]);
        self.call("Emulation.setEmulatedMedia", &json!({"media": medium, "features": features})).map(drop)
    }

    /// A picture of the whole page as PNG, base64.
    pub(crate) fn picture(&mut self) -> Result<String, String> {
        let options = json!({"format": "png", "captureBeyondViewport": true});
        let answer = self.call("Page.captureScreenshot", &options)?;
        answer["data"].as_str().map(str::to_owned).ok_or_else(|| "no picture".to_owned())
    }

    /// The page printed, PDF in base64.
    pub(crate) fn print(&mut self) -> Result<String, String> {
        let answer = self.call("Page.printToPDF", &json!({"preferCSSPageSize": true}))?;
        answer["data"].as_str().map(str::to_owned).ok_or_else(|| "no PDF".to_owned())
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
        let mut reader = BufReader::new(from);
        let mut bytes = Vec::new();
        while reader.read_until(0, &mut bytes).is_ok_and(|n| n > 0) {
            bytes.pop();
            let Ok(message) = serde_json::from_slice(&bytes) else { break };
            if send.send(message).is_err() {
                break;
            }
            bytes.clear();
        }
    });
    messages
}
