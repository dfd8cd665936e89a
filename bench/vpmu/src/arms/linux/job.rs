//! From an experiment's plan to its Linux guests.

use std::ffi::OsStr;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use linux_guest::agent::{self, Agent, AgentError};
use results::document::{LinuxParameters, SetUpParameters};
use results::error::Error;
use results::open;
use vmm::boot::linux::Kernel;
use vmm::kvm::{Host, linux_refusal};
use vmm::machine::linux::{LinuxPlan, PcOutcome};
use vmm::machine::{CounterSource, Plan as Machine};
use vmm::outcome::{End, RunOutcome};

use super::runner::{Boots, Left, LinuxRunner, vcpu};
use super::session::{Ended, Shell};
use super::spec::{GuestKind, LinuxGuestOptions};
use super::task::{FTEST, PERF, Task};
use crate::arms::arm::runner::{Arm, ArmRunner};
use crate::arms::arm::{counters, real};
use crate::arms::rounds::plan::Plan;
use crate::machine::linux::guest::{LinuxGuest, OnInterrupt, channel, kernel_log};
use crate::machine::linux::job as boot_job;
use crate::machine::linux::place::in_path;
use crate::machine::linux::userland::{Wanted, initramfs};
use crate::machine::rdpmcs_elsewhere;
use crate::setting::backend::open_kvm;
use crate::setting::workload::{EventSet, GuestWork, Workload};
use crate::sys;

/// Job of the guests of an experiment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `perf record` of the plan's events.
    Record,
    /// `perf stat` of them.
    SetUp,
}

/// An experiment's Linux guests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinuxJob {
    /// The kernel.
    pub kernel: PathBuf,
    /// The guest.
    pub guest: LinuxGuestOptions,
    /// Job of the guest.
    pub kind: Kind,
}

impl LinuxJob {
    /// Returns the job of these options, if their guest is Linux.
    ///
    /// # Errors
    /// Exit 2 for a kernel of a guest that is not Linux.
    pub fn new(guest: &LinuxGuestOptions, kind: Kind) -> Result<Option<Self>, Error> {
        let Some(kernel) = guest.kernel.clone() else { return Ok(None) };
        if guest.guest == GuestKind::Payload {
            return Err(Error::usage("--kernel is for a Linux guest", "the guest is the payload", "add --guest linux"));
        }
        Ok(Some(Self { kernel, guest: guest.clone(), kind }))
    }

    /// Makes a plan for the payload one for Linux, but for what the kernel's file says.
    ///
    /// # Errors
    /// Exit 2 for what a Linux guest does not do.
    pub fn adapt(&self, plan: &mut Plan, workload: Workload) -> Result<(), Error> {
        if self.kind == Kind::Record {
            check(workload)?;
        }
        let interval = Duration::from_nanos(plan.parameters.mux_interval_ns);
        if !interval.as_nanos().is_multiple_of(1_000_000) {
            return Err(Error::usage(
                format!("--mux-interval {interval:?} is no whole number of milliseconds"),
                "Linux takes it so (perf_event_mux_interval_ms)",
                "give e.g. 4ms",
            ));
        }
        plan.parameters.rounds_per_guest = None;
        plan.parameters.workload = format!("linux:{}", plan.parameters.workload);
        (plan.parameters.baseline_ticks, plan.parameters.tail_ticks) = (0, 0);
        if self.kind == Kind::SetUp {
            let once = SetUpParameters { enable: "once".to_owned(), window_ticks: 0, gap_ticks: 0 };
            plan.parameters.set_up = Some(once);
        }
        Ok(())
    }

    fn task(&self, plan: &Plan) -> Task {
        let events = plan.parameters.events.clone();
        let limit = Duration::from_nanos(plan.parameters.time_limit_ns);
        match self.kind {
            Kind::Record => Task::Record { events, freq_hz: plan.parameters.freq_hz, limit },
            Kind::SetUp => Task::SetUp { events, limit },
        }
    }

    /// The runner of a plan, to which it adds what the document says of the guest.
    ///
    /// # Errors
    /// Exit 2 for a kernel or a perf that cannot be used, 4 where this host cannot boot Linux.
    pub fn runner(&self, plan: &mut Plan) -> Result<Box<dyn ArmRunner>, Error> {
        let vcpus = plan.parameters.vcpus;
        real::ensure(vcpus)?;
        let boot = Boot::new(self, &plan.guest.machine)?;
        let task = self.task(plan);
        plan.parameters.linux = Some(boot.parameters(&task.command(plan.parameters.samples, vcpus)));
        Ok(Box::new(LinuxRunner::new(boot, &plan.parameters, task, &plan.backend)))
    }
}

fn check(workload: Workload) -> Result<(), Error> {
    if workload.events == EventSet::Counting1 {
        return Err(Error::usage(
            "a counting event takes no NMIs in a Linux guest",
            "perf gives it a period of half its counter's width, which no run reaches",
            "take sampling10, sampling4 or single; `vpmu guest-stat --guest linux` times perf stat",
        ));
    }
    if workload.work != GuestWork::Ftest {
        return Err(Error::usage(
            format!("a Linux guest does not do the work {}", workload.work.key()),
            "",
            "its work is ftest",
        ));
    }
    Ok(())
}

/// Time for a kernel to come up.
const BOOT: Duration = Duration::from_secs(300);
/// A guest is ended after this time: perf alone may take minutes on an emulated host.
const LONGEST: Duration = Duration::from_secs(1800);

/// One kernel with one userland, for any number of guests.
#[derive(Debug)]
pub(super) struct Boot {
    host: Arc<Host>,
    kernel: Kernel,
    initrd: Vec<u8>,
    machine: Machine,
    memory: u64,
    append: String,
    /// perf's own words on its version.
    version: String,
}

impl Boot {
    /// Reads the kernel and makes the initial RAM disk.
    pub(super) fn new(job: &LinuxJob, machine: &Machine) -> Result<Self, Error> {
        linux_refusal().map_err(|why| Error::host("cannot boot a kernel", why, ""))?;
        let host = open_kvm()?;
        let kernel = boot_job::kernel(&job.kernel)?;
        let perf = find(&job.guest.perf, std::env::var_os("PATH").as_deref())?;
        let version = version(&perf)?;
        let mut files = initramfs(&Wanted {
            kernel: &job.kernel,
            release: kernel.release(),
            modules: job.guest.modules.as_deref(),
            load: &[],
            with: &[],
            shell: false,
        })?;
        let cannot = |error: linux_guest::initramfs::InitramfsError| {
            Error::usage("cannot put perf into the guest", error.to_string(), "")
        };
        files.program(PERF, &perf).map_err(cannot)?;
        files.file(FTEST, 0o755, guest::FTEST).map_err(cannot)?;
        let initrd = files.finish().map_err(cannot)?;
        Ok(Self {
            host: Arc::new(host),
            kernel,
            initrd,
            machine: machine.clone(),
            memory: job.guest.memory,
            append: job.guest.append.clone().unwrap_or_default(),
            version,
        })
    }

    /// The guest for the document, with the command that is measured.
    pub(super) fn parameters(&self, command: &[String]) -> LinuxParameters {
        LinuxParameters {
            release: Some(self.kernel.release().to_owned()),
            cpu: self.machine.cpu.name().to_owned(),
            perf: self.version.clone(),
            memory: self.memory,
            command: command.join(" "),
        }
    }

    fn plan(&self, behind: CounterSource) -> LinuxPlan {
        let machine = Machine { behind, time_limit: LONGEST, ..self.machine.clone() };
        let (initrd, command_line) = (self.initrd.clone(), self.append.clone());
        LinuxPlan { machine, memory: self.memory, initrd, command_line }
    }
}

/// perf's file: a path with a slash, or a name in PATH.
fn find(perf: &Path, path: Option<&OsStr>) -> Result<PathBuf, Error> {
    let is_path = perf.to_string_lossy().contains('/');
    let found = if is_path { perf.is_file().then(|| perf.to_owned()) } else { in_path(perf, path) };
    let found = found.ok_or_else(|| {
        Error::usage(
            format!("no perf: {}", perf.display()),
            if is_path { "there is no such file" } else { "no such program is in PATH" },
            "install it (Debian package: linux-perf), or name its file with --perf, ./perf for one here",
        )
    })?;
    let mut magic = [0; 4];
    let read = open::found(&found, u64::MAX).and_then(|mut file| file.read_exact(&mut magic));
    match read {
        Ok(()) if magic == *b"\x7fELF" => Ok(found),
        Err(error) if error.kind() != io::ErrorKind::UnexpectedEof => {
            Err(Error::usage(format!("cannot read {}", found.display()), error.to_string(), ""))
        }
        _ => Err(Error::usage(
            format!("{} is no program, but a script", found.display()),
            "a distribution's script looks for the perf of the running kernel, which the guest does not have",
            "name the perf it starts with --perf: e.g. /usr/bin/perf_6.1, or perf in a folder of /usr/lib/linux-tools",
        )),
    }
}

/// The first line of `perf --version`.
fn version(perf: &Path) -> Result<String, Error> {
    let cannot = |why: String| {
        Error::usage(format!("cannot run {}", perf.display()), why, "name a perf of this host with --perf")
    };
    let output = Command::new(perf).arg("--version").output().map_err(|error| cannot(error.to_string()))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let line = text.lines().next().map(str::trim).filter(|line| output.status.success() && !line.is_empty());
    line.map(str::to_owned).ok_or_else(|| cannot(format!("`--version` ended with {}", output.status)))
}

impl Boots for Boot {
    fn boot(
        &mut self,
        behind: CounterSource,
        work: &mut dyn FnMut(&mut dyn Shell) -> Result<(), String>,
    ) -> Result<(Left, Result<(), String>), Error> {
        let (end, agent) = channel()?;
        let (kernel, plan, ends) = (self.kernel.clone(), self.plan(behind), (None, Some(end)));
        let guest = LinuxGuest::start(&self.host, kernel, plan, io::sink(), ends, OnInterrupt::PowerCut)?;
        let mut shell = AgentShell(agent);
        let worked = shell
            .0
            .hello(BOOT)
            .map_err(|error| format!("the guest did not come up: {error}"))
            .and_then(|()| work(&mut shell));
        let log = kernel_log(&mut shell.0);
        let worked =
            worked.and_then(|()| shell.0.power_off().map_err(|error| format!("the guest did not power off: {error}")));
        let console = guest.console();
        let mut outcome = guest.end(worked.is_ok(), log)?;
        if outcome.end == End::Stopped && !sys::interrupted().load(Ordering::Relaxed) {
            // Nobody else stopped it: why its work failed says more.
            outcome.end = End::Done;
        }
        let worked = worked.map_err(|why| match console.last() {
            Some(line) => format!("{why}; the last line of its console: {line}"),
            None => why,
        });
        Ok((left(outcome), worked))
    }

    fn available(&mut self, arm: &Arm) -> Result<(), String> {
        counters::available(arm, &self.host, self.machine.cpu)
    }
}

fn left(outcome: PcOutcome) -> Left {
    let PcOutcome { end, vcpus, complaints, wall, .. } = outcome;
    let whole = matches!(end, End::Done | End::PowerOff);
    let end = if whole { End::Done } else { end };
    let rdpmcs = vcpus.iter().map(|vcpu| vcpu.account.counts.rdpmcs).sum();
    let elsewhere: u64 = vcpus.iter().map(|vcpu| vcpu.account.counts.rdpmcs_elsewhere).sum();
    let mut complained = complaints.lines();
    complained.extend((elsewhere > 0).then(|| rdpmcs_elsewhere(elsewhere)));
    let vcpus = vcpus.into_iter().map(|run| vcpu(run, end.clone())).collect();
    Left {
        run: RunOutcome { end, vcpus, wall, start: Duration::ZERO },
        rdpmcs,
        complaints: complaints.grave() + elsewhere,
        complained,
    }
}

/// The agent of a guest.
struct AgentShell(Agent<'static>);

impl Shell for AgentShell {
    fn run(&mut self, command: &[String]) -> Result<Ended, String> {
        let (mut out, mut err) = (Kept::default(), Kept::default());
        let ended = self.0.run(&agent::Command::new(command), &mut out, &mut err).map_err(text)?;
        let as_text = |kept: Kept| String::from_utf8_lossy(&kept.0).into_owned();
        Ok(Ended { status: ended.exit.shell_status(), wall_ns: ended.wall_ns, out: as_text(out), err: as_text(err) })
    }

    fn write(&mut self, path: &str, value: &str) -> Result<(), String> {
        self.0.write(path, value.as_bytes()).map_err(text)
    }

    fn get(&mut self, path: &str) -> Result<String, String> {
        let mut bytes = Vec::new();
        self.0.get(path, MOST_KEPT as u64, &mut bytes).map_err(text)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }
}

/// Most bytes of a program's output, or of a file, that are kept in memory: a trace of some million lines.
const MOST_KEPT: usize = 256 << 20;

/// Output of a program in the guest, bounded.
#[derive(Debug, Default)]
struct Kept(Vec<u8>);

impl io::Write for Kept {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.0.len() + bytes.len() > MOST_KEPT {
            return Err(io::Error::other(format!("it is more than {} MiB", MOST_KEPT >> 20)));
        }
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[expect(clippy::needless_pass_by_value, reason = "the shape of map_err")]
fn text(error: AgentError) -> String {
    error.to_string()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;
    use crate::arms::rounds::mock;
    use crate::setting::parse::defaults;

    fn job(kind: Kind) -> LinuxJob {
        LinuxJob { kernel: "vmlinuz".into(), guest: defaults(), kind }
    }

    fn adapted(kind: Kind, workload: &str) -> Result<Plan, Error> {
        let mut plan = mock::plan(&["--workload", workload])?;
        job(kind).adapt(&mut plan, workload.parse().unwrap())?;
        Ok(plan)
    }

    #[test]
    fn a_plan_for_linux_has_its_own_name_and_fresh_guests() {
        let plan = adapted(Kind::Record, "sampling10").unwrap();
        assert_eq!((plan.parameters.workload.as_str(), plan.keeps_guests()), ("linux:sampling10/ftest", false));
        assert!(matches!(job(Kind::Record).task(&plan), Task::Record { events, .. } if events.len() == 10));
        let plan = adapted(Kind::SetUp, "single").unwrap();
        assert_eq!(plan.parameters.set_up.as_ref().unwrap().enable, "once");
        assert!(matches!(job(Kind::SetUp).task(&plan), Task::SetUp { .. }));
    }

    #[test]
    fn what_linux_does_not_do_is_refused_with_a_remedy() {
        for (workload, needle) in [("counting1", "no NMIs"), ("single/io", "work io"), ("idle", "work idle")] {
            let error = adapted(Kind::Record, workload).unwrap_err();
            assert!(error.exit.code() == 2 && error.to_string().contains(needle), "{error}");
        }
    }

    #[test]
    fn a_perf_is_a_program_of_path_or_a_file_with_a_slash_and_no_script() {
        let folder = tempfile::tempdir().unwrap();
        for (name, bytes) in [("perf", &b"\x7fELF etc"[..]), ("script", b"#!/bin/sh\n"), ("empty", b"")] {
            let file = folder.path().join(name);
            std::fs::write(&file, bytes).unwrap();
            std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755)).unwrap();
        }
        let find = |perf: &str| find(Path::new(perf), Some(folder.path().as_os_str()));
        let file = folder.path().join("perf");
        assert_eq!((find("perf").unwrap(), find(file.to_str().unwrap()).unwrap()), (file.clone(), file));
        // There is a folder `src` here, and no such program.
        for (perf, needle) in
            [("script", "is no program"), ("empty", "is no program"), ("src", "PATH"), ("./perf", "no such file")]
        {
            let error = find(perf).unwrap_err();
            assert!(error.exit.code() == 2 && error.to_string().contains(needle), "{error}");
        }
    }
}
