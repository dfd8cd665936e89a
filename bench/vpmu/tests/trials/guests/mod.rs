//! Guests on this host's KVM: hostile ones, with which `vpmu run` ends in time and in bounds and reports; and ones of known
//! length, whose instructions backend `step` counts exactly or not at all.

mod hostile;
mod protocols;

use std::io::Read as _;
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use trials::Case;

use crate::binary::{run, text, vpmu};
use crate::counted::{self, Counted, assemble};
use crate::prerequisites::{Running, events, kvm};
use hostile::{Ending, Hostile};

/// The limit given to the VMM for a guest that runs into it, and for one that ends by itself, on a busy host, too.
const TIME_LIMIT: &str = "1500ms";
const TIME_ENOUGH: &str = "50s";
/// A VMM that still runs after this hangs.
const HANG: Duration = Duration::from_secs(60);
/// Most memory of the VMM, guest memory included: these guests touch a few pages of it.
const MOST_KIB: u64 = 96 << 10;

pub(crate) fn cases() -> Vec<Case> {
    let (kvm, perf) = (kvm(), events());
    let mut cases = Vec::new();
    for guest in hostile::ALL {
        for (backend, missing) in [("none", kvm.clone().err()), ("cpu-clock", kvm.clone().and(perf.clone()).err())] {
            let name = format!("{}::{backend}", guest.name);
            cases.push(Case::fallible(name, missing, move || survives(guest, backend)));
        }
    }
    for image in STEPPED {
        cases.push(Case::fallible(image.name, kvm.clone().err(), move || image.check()));
    }
    for image in protocols::ALL {
        cases.push(Case::fallible(format!("boot::{}", image.name), kvm.clone().err(), move || image.check()));
    }
    for image in counted::ALL {
        cases.push(Case::fallible(image.name, kvm.clone().err(), move || is_counted(image)));
    }
    cases.into_iter().map(|case| case.expected(kvm.is_ok())).collect()
}

fn is_counted(image: Counted) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("counted");
    std::fs::write(&path, image.build()?)?;
    let output = vpmu(folder.path(), &["run", "counted"]).args(Counted::options()).output()?;
    image.check(output.status.code(), &text(&output.stdout), &text(&output.stderr), true)
}

fn survives(guest: Hostile, backend: &str) -> Result<()> {
    let folder = tempfile::tempdir()?;
    std::fs::write(folder.path().join("guest.bin"), guest.build()?)?;
    let limit = if guest.ending == Ending::TimeLimit { TIME_LIMIT } else { TIME_ENOUGH };
    let mut child = Running(
        vpmu(folder.path(), &["run", "guest.bin", "--backend", backend, "--time-limit", limit, "--memory", "16M"])
            .args(["--vcpus", "2"])
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

// Images at the edges of single-stepping: each ends with the exit code that a processor's counters give it, or with a
// refusal that says why.

const SOURCE: &str = include_str!("stepped.S");

/// One image.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stepped {
    pub(crate) name: &'static str,
    defines: &'static [&'static str],
    /// Words that the report must have.
    says: &'static str,
}

/// All images.
pub(crate) const STEPPED: [Stepped; 11] = [
    // The saved RIP is at HLT: 16 + 0.
    stepped("an_nmi_comes_before_hlt", &["CASE_HLT"], "(code 16)"),
    stepped("pushf_shows_no_tf", &["CASE_PUSHF"], "(code 2)"),
    stepped("pushf_shows_no_tf_in_ring_3", &["CASE_PUSHF_RING3"], "(code 2)"),
    stepped("flags_saved_in_a_step_trap_nowhere", &["CASE_POPF"], "(code 4)"),
    stepped("a_guest_that_steps_itself_is_refused", &["CASE_OWN_TF"], "the guest sets RFLAGS.TF itself"),
    stepped("an_nmi_before_iret_to_ring_3_leaves_no_tf", &["CASE_IRET_NMI"], "(code 3)"),
    // 2 NOPs, 5 PUSHes, IRET, 1 NOP (2 at the start), MOV.
    stepped("iret_to_a_handlers_second_byte", &["CASE_IRET_INTO_HANDLER"], "(code 10)"),
    stepped("iret_to_a_handler", &["CASE_IRET_INTO_HANDLER", "AT_START"], "(code 11)"),
    // 3 MOVs, the handler's 45, MOV; RDMSR faults.
    stepped("a_handler_as_it_was", &["CASE_REWRITE", "WHERE=scratch"], "(code 49)"),
    stepped("a_handler_that_is_rewritten_while_steps_are_made", &["CASE_REWRITE", "WHERE=protection"], "(code 49)"),
    stepped("a_triple_fault_is_the_guests_own", &["CASE_TRIPLE"], "triple-faulted"),
];

const fn stepped(name: &'static str, defines: &'static [&'static str], says: &'static str) -> Stepped {
    Stepped { name, defines, says }
}

impl Stepped {
    /// Runs the image.
    pub(crate) fn check(&self) -> Result<()> {
        let folder = tempfile::tempdir()?;
        let image = assemble(&[counted::LONG_MODE, SOURCE].concat(), 64, self.defines, &[])?;
        std::fs::write(folder.path().join("stepped"), image)?;
        let line = ["run", "stepped", "--backend", "step", "--memory", "16M", "--time-limit", "50s"];
        let report = text(&run(folder.path(), &line).stderr);
        ensure!(report.contains(self.says), "the report lacks {:?}: {report}", self.says);
        Ok(())
    }
}
