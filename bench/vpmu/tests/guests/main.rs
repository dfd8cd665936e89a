//! Guests on this host's KVM: hostile ones, with which `vpmu run` ends in time and in bounds and reports; and ones of known
//! length, whose instructions backend `step` counts exactly or not at all.

mod asm;
#[path = "../counted/mod.rs"]
mod counted;
mod hostile;
mod stepped;

use std::io::Read as _;
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use host_pmu::backend::BackendKey;
use trials::Case;
use vpmu::setting::backend::EventProbe as _;
use vpmu::setting::backend::ThisHost;

use counted::Counted;
use hostile::{Ending, Hostile};

/// The limit given to the VMM for a guest that runs into it, and for one that ends by itself, on a busy host, too.
const TIME_LIMIT: &str = "1500ms";
const TIME_ENOUGH: &str = "50s";
/// The reasons of backend `step` for counting no further.
const REFUSALS: [&str; 3] =
    ["backend step cannot count", "single-stepping used up its", "backend step counts one vCPU"];
/// A VMM that still runs after this hangs.
const HANG: Duration = Duration::from_secs(60);
/// Most memory of the VMM, guest memory included: these guests touch a few pages of it.
const MOST_KIB: u64 = 96 << 10;

fn main() -> ExitCode {
    let kvm = vmm::kvm::Host::open().map(drop).map_err(|error| error.to_string());
    let perf = ThisHost.try_open(&BackendKey::CpuClock).map_err(|refused| refused.why);
    let mut cases = Vec::new();
    for guest in hostile::all() {
        for (backend, also) in [("none", Ok(())), ("cpu-clock", perf.clone()), ("step", Ok(()))] {
            let missing = kvm.clone().and(also).err();
            let name = format!("{}::{backend}", guest.name);
            let guest = guest.clone();
            let run = move || survives(&guest, backend).map_err(|error| format!("{error:#}"));
            cases.push(Case::fallible(name, missing, run));
        }
    }
    for image in stepped::ALL {
        let run = move || image.check().map_err(|error| format!("{error:#}"));
        cases.push(Case::fallible(image.name.to_owned(), kvm.clone().err(), run));
    }
    for image in counted::ALL {
        let run = move || is_counted(image).map_err(|error| format!("{error:#}"));
        cases.push(Case::fallible(image.name.to_owned(), kvm.clone().err(), run));
    }
    trials::run(cases, kvm.is_ok())
}

/// A process that does not outlive its owner.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn is_counted(image: Counted) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("counted");
    std::fs::write(&path, image.build()?)?;
    let vpmu = env!("CARGO_BIN_EXE_vpmu");
    let output = Command::new(vpmu).arg("run").arg(&path).args(Counted::options()).stdin(Stdio::null()).output()?;
    let (text, report) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    image.check(output.status.code(), &text, &report, true)
}

fn survives(guest: &Hostile, backend: &str) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let image = folder.path().join("guest.bin");
    std::fs::write(&image, &guest.image)?;
    let limit = if guest.ending == Ending::TimeLimit { TIME_LIMIT } else { TIME_ENOUGH };
    let mut child = Running(
        Command::new(env!("CARGO_BIN_EXE_vpmu"))
            .arg("run")
            .arg(&image)
            .args(["--backend", backend, "--time-limit", limit, "--memory", "16M"])
            .args(guest.arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .context("cannot start vpmu")?,
    );
    let started = Instant::now();
    let mut peak_kib = 0;
    let status = loop {
        if let Some(status) = child.0.try_wait()? {
            break status;
        }
        peak_kib = peak_kib.max(high_water_kib(child.0.id()));
        if started.elapsed() > HANG {
            bail!("still runs after {} s", HANG.as_secs());
        }
        std::thread::sleep(Duration::from_millis(10));
    };
    let mut report = String::new();
    child.0.stderr.take().context("no stderr")?.read_to_string(&mut report)?;
    let code = status.code().with_context(|| format!("vpmu died ({status}): {report}"))?;
    let (expected, says) = match guest.ending {
        Ending::Itself => (0, &["status 1 (code 0)"][..]),
        Ending::TimeLimit => (3, &["the time limit passed"][..]),
        Ending::Fault => (3, &["triple-faulted", "KVM internal error"][..]),
    };
    if backend == "step" && REFUSALS.iter().any(|why| report.contains(why)) {
        ensure!((2..=4).contains(&code), "exit code {code} with a refusal: {report}");
        ensure!(peak_kib <= MOST_KIB, "took {peak_kib} KiB of memory");
        return Ok(());
    }
    ensure!(code == expected, "exit code {code}, not {expected}: {report}");
    ensure!(says.iter().any(|says| report.contains(says)), "the report lacks {says:?}: {report}");
    ensure!(report.contains(guest.says) && report.contains("PMU: "), "the report lacks {:?}: {report}", guest.says);
    ensure!(peak_kib <= MOST_KIB, "took {peak_kib} KiB of memory");
    Ok(())
}

/// Most memory a process had so far (VmHWM); 0 when it is gone.
fn high_water_kib(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}
