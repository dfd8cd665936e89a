//! One boot of host B: from a list of files and commands to what each command left.
//!
//! QEMU emulates an AMD processor with SVM in software (TCG), Debian's kernel boots with an initramfs made here, and
//! its unmodified `kvm-amd` gives the commands a `/dev/kvm`. Nothing but QEMU's serial ports leads in or out.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use linux_guest::initramfs::Initramfs;
use linux_guest::modules::Module;

use super::frames::{self, Finished};
use super::monitor::{self, Ended, Files};
use super::parts::{self, Parts};
use crate::prerequisites::Running;

/// Boots of a machine that hangs.
const BOOTS: u32 = 3;

/// Clock of the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Clock {
    /// As on the machine outside.
    Host,
    /// One nanosecond per executed instruction, and every source of chance pinned: two runs with equal files and
    /// commands execute the same instructions, whatever else the machine outside does.
    Instructions,
}

/// Machine to boot: build it, then [`Job::run`] it.
#[derive(Clone, Debug)]
pub(crate) struct Job {
    clock: Clock,
    cpus: String,
    memory: &'static str,
    limit: Duration,
    silence: Duration,
    binaries: Vec<(String, PathBuf)>,
    files: Vec<(String, u32, Vec<u8>)>,
    commands: Vec<Vec<String>>,
}

/// Output of one boot.
#[derive(Clone, Debug)]
pub(crate) struct Report {
    /// One per command, in order.
    pub(crate) commands: Vec<Finished>,
    /// From starting QEMU to its end.
    pub(crate) wall: Duration,
    /// The longest time without a byte from the machine.
    silence: Duration,
}

/// One boot that came to an end, or a machine that fell silent: where it was.
enum Boot {
    Ended(Report),
    Hung(String),
}

impl Report {
    /// Prints the times of a boot from power-on to power-off, and returns what its commands left.
    pub(crate) fn done<const N: usize>(&self) -> Result<&[Finished; N]> {
        self.say("boot to power-off");
        self.commands.as_slice().try_into().with_context(|| format!("{} commands came back", self.commands.len()))
    }

    /// Prints the times of a boot.
    pub(crate) fn say(&self, what: &str) {
        let (wall, silence) = (self.wall.as_secs_f64(), self.silence.as_secs_f64());
        eprintln!("# {what}: {wall:.1} s, longest silence {silence:.1} s");
    }
}

impl Job {
    /// A machine with one CPU, the time of the host and a limit of three minutes.
    pub(crate) fn new() -> Self {
        Self {
            clock: Clock::Host,
            cpus: "1".to_owned(),
            memory: "1G",
            limit: Duration::from_secs(180),
            silence: monitor::SILENCE,
            binaries: Vec::new(),
            files: Vec::new(),
            commands: Vec::new(),
        }
    }

    /// Chooses how time passes.
    pub(crate) fn clock(mut self, clock: Clock) -> Self {
        self.clock = clock;
        self
    }

    /// Number of its CPUs and sockets, as QEMU's -smp has it.
    pub(crate) fn cpus(mut self, cpus: &str) -> Self {
        cpus.clone_into(&mut self.cpus);
        self
    }

    /// Size of its memory, as QEMU's -m has it.
    pub(crate) fn memory(mut self, memory: &'static str) -> Self {
        self.memory = memory;
        self
    }

    /// Wall time after which the machine is stopped and the run fails.
    pub(crate) fn limit(mut self, limit: Duration) -> Self {
        self.limit = limit;
        self
    }

    /// Time without a sign of life after which the machine counts as hung.
    pub(crate) fn silence(mut self, silence: Duration) -> Self {
        self.silence = silence;
        self
    }

    /// Puts a binary of this machine at `path`, with its shared libraries where its loader looks for them.
    pub(crate) fn binary(mut self, path: &str, binary: &Path) -> Self {
        self.binaries.push((path.to_owned(), binary.to_owned()));
        self
    }

    /// Puts a file at `path`.
    pub(crate) fn file(mut self, path: &str, permissions: u32, contents: &[u8]) -> Self {
        self.files.push((path.to_owned(), permissions, contents.to_vec()));
        self
    }

    /// Puts modules where guests of a kernel of this release look for them.
    pub(crate) fn modules(self, release: &str, modules: &[Module]) -> Self {
        let folder = format!("/guest/lib/modules/{release}/kernel");
        modules.iter().fold(self, |job, Module { name, bytes }| job.file(&format!("{folder}/{name}.ko"), 0o644, bytes))
    }

    /// Adds a command: a program (by path or from busybox) and its arguments. It runs as root, in `/run`.
    pub(crate) fn command<W: Into<String>>(mut self, words: impl IntoIterator<Item = W>) -> Self {
        self.commands.push(words.into_iter().map(Into::into).collect());
        self
    }

    /// Boots, runs the commands, powers off. Any end but a whole one is an error with the console's last lines. A
    /// machine that hangs, or panics by an INT3 of the emulator's, is booted again, since the emulator may be at fault (docs/evidence.md); the error of the
    /// last time has all of them.
    pub(crate) fn run(&self, parts: &Parts) -> Result<Report> {
        let mut hung = Vec::new();
        for boot in 0..BOOTS {
            match self.boot(parts, boot)? {
                Boot::Ended(report) => return Ok(report),
                Boot::Hung(where_) => {
                    eprintln!(
                        "# host B hung or met the emulator's fault at boot {} of at most {BOOTS}. {where_}",
                        boot + 1
                    );
                    hung.push(where_);
                }
            }
        }
        bail!("host B hung {BOOTS} times.\n{}", hung.join("\n"))
    }

    fn boot(&self, parts: &Parts, boot: u32) -> Result<Boot> {
        let folder = tempfile::Builder::new()
            .prefix("host-b-")
            .tempdir_in(env!("CARGO_TARGET_TMPDIR"))
            .context("cannot make a folder for the machine's files")?;
        let initramfs = folder.path().join("initramfs.cpio");
        std::fs::write(&initramfs, self.initramfs(parts, boot)?)?;
        let files = Files { console: folder.path().join("console"), results: folder.path().join("results") };
        let messages = folder.path().join("qemu");

        let mut qemu = self.qemu(parts, &initramfs, &files);
        let started = Instant::now();
        let child = qemu
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(File::create(&messages)?)
            .spawn()
            .with_context(|| format!("cannot run {}", parts.qemu.display()))?;
        let mut running = Running(child);
        let (ended, silence) = monitor::wait(&mut running.0, &files, started + self.limit, self.silence)?;
        let wall = started.elapsed();
        drop(running);

        let said = std::fs::read(&messages).unwrap_or_default();
        let mut log = String::from_utf8_lossy(&std::fs::read(&files.console).unwrap_or_default()).into_owned();
        log.push_str(&String::from_utf8_lossy(&said));
        let how = match ended {
            Ended::Limit => format!("was stopped after {} s", self.limit.as_secs()),
            Ended::Silent => format!("sent nothing for {} s and was stopped", self.silence.as_secs()),
            Ended::Exit(status) if status.success() => "ended early".to_owned(),
            Ended::Exit(status) => format!("failed ({status})"),
        };
        let left = format!("console:\n{}", monitor::tail(&log, 150));
        let (commands, whole) = frames::parse(&std::fs::read(&files.results).unwrap_or_default());
        let finished = commands.len();
        let at = self
            .commands
            .get(finished)
            .map_or("after the last command".to_owned(), |words| format!("in command {finished}, {words:?}"));
        // Several CPUs in threads of the emulator: the kernel patches its code by INT3, and one of them may keep it.
        let kept_int3 = !whole && self.cpus != "1" && log.contains("int3: 0000 [#");
        if kept_int3 || matches!(ended, Ended::Silent) {
            return Ok(Boot::Hung(format!("{} s after power-on it {how} {at}; {left}", wall.as_secs())));
        }
        ensure!(whole, "host B {how} {at}; {left}");
        ensure!(
            matches!(ended, Ended::Exit(status) if status.success()),
            "host B {how}, though its commands had finished; {left}"
        );
        ensure!(finished == self.commands.len(), "{finished} of {} commands ran", self.commands.len());
        Ok(Boot::Ended(Report { commands, wall, silence }))
    }

    fn qemu(&self, parts: &Parts, initramfs: &Path, files: &Files) -> Command {
        let mut command = Command::new(&parts.qemu);
        let accel = if self.cpus == "1" { "tcg" } else { "tcg,thread=multi" };
        command.args(["-accel", accel, "-cpu", "max,+svm", "-m", self.memory, "-smp", &self.cpus]).args([
            "-nodefaults",
            "-no-user-config",
            "-display",
            "none",
            "-no-reboot",
        ]);
        // A script in place of our Linux guests' init. A panic reboots, and QEMU ends at a reboot.
        let mut line = "console=ttyS0 quiet panic=-1 rdinit=/host-b".to_owned();
        if self.cpus != "1" {
            // Its CPUs wait for one another longer than any hardware's, and for the timer on a busy host: the kernel's check of
            // it panics.
            line.push_str(
                " no_timer_check tsc=reliable mitigations=off nowatchdog rcupdate.rcu_cpu_stall_suppress=1 nokaslr",
            );
        }
        match self.clock {
            Clock::Host => {}
            Clock::Instructions => {
                // The guest's other sources of chance: the time of day, RDRAND and the boot loader's seed, and the
                // addresses that are made from them.
                command.args(["-icount", "shift=0,sleep=off", "-seed", "1"]);
                command.args(["-rtc", "base=2024-01-01T00:00:00,clock=vm"]);
                line.push_str(" nokaslr norandmaps");
            }
        }
        command.arg("-kernel").arg(parts::bootable(parts));
        command.arg("-initrd").arg(initramfs).args(["-append", &line]);
        for port in [&files.console, &files.results] {
            // A comma ends a file name for QEMU; two stand for one.
            let path = port.display().to_string().replace(',', ",,");
            command.args(["-serial", &format!("file:{path}")]);
        }
        command
    }

    fn initramfs(&self, parts: &Parts, boot: u32) -> Result<Vec<u8>> {
        let mut initramfs = Initramfs::new();
        initramfs.program("/bin/busybox", &parts.busybox)?;
        for module in &parts.modules {
            initramfs.module(&module.name, &module.bytes, "")?;
        }
        let modules: Vec<_> = parts.modules.iter().map(|module| &*module.name).collect();
        initramfs.file("/host-b", 0o755, frames::init(&modules, &self.commands, boot).as_bytes())?;
        for (path, permissions, contents) in &self.files {
            initramfs.file(path, *permissions, contents)?;
        }
        let folder = tempfile::tempdir()?;
        for (path, binary) in &self.binaries {
            initramfs.program(path, &parts::stripped(binary, folder.path()))?;
        }
        Ok(initramfs.finish()?)
    }
}
