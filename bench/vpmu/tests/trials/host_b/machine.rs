//! One boot of host B: from a list of files and commands to what each command left.
//!
//! QEMU emulates an AMD processor with SVM in software (TCG), Debian's kernel boots with an initramfs made here, and
//! its unmodified `kvm-amd` gives the commands a `/dev/kvm`. Nothing but QEMU's serial ports leads in or out.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use linux_guest::initramfs::Initramfs;
use linux_guest::modules::Module;

use super::frames::{self, BEAT, Finished};
use super::parts::{self, Parts};
use crate::prerequisites::Running;

/// Boots of a machine that hangs.
const BOOTS: u32 = 3;

/// Machine to boot: build it, then [`Job::run`] it.
#[derive(Clone, Debug)]
pub(crate) struct Job {
    /// Time passes by executed instructions, one a nanosecond, and every source of chance is pinned: two runs with equal files and
    /// commands execute the same instructions, whatever else the machine outside does. Else it is the time outside.
    pub(crate) by_instructions: bool,
    /// Number of its CPUs.
    pub(crate) cpus: u64,
    /// Size of its memory, as QEMU's -m has it.
    pub(crate) memory: &'static str,
    /// Seconds after which the machine is stopped and the run fails.
    pub(crate) limit: u64,
    /// Seconds without a byte on any of its serial ports, where the init script sends a sign of life every few seconds of the machine's own
    /// time, after which the machine counts as hung. Under a nested guest 30 s were seen.
    pub(crate) silence: u64,
    // Set by the functions below.
    pub(super) binaries: Vec<(String, PathBuf)>,
    pub(super) files: Vec<(String, u32, Vec<u8>)>,
    pub(super) commands: Vec<Vec<String>>,
}

impl Job {
    /// A machine with one CPU and the time outside, that has this `/vpmu`.
    pub(crate) fn new(vpmu: impl AsRef<Path>) -> Self {
        let (binaries, files, commands) =
            (vec![("/vpmu".to_owned(), vpmu.as_ref().to_owned())], Vec::new(), Vec::new());
        Self { by_instructions: false, cpus: 1, memory: "1G", limit: 1800, silence: 200, binaries, files, commands }
    }

    /// Puts a binary of this machine at `path`, with its shared libraries where its loader looks for them.
    pub(crate) fn binary(mut self, path: &str, binary: impl AsRef<Path>) -> Self {
        self.binaries.push((path.to_owned(), binary.as_ref().to_owned()));
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

    /// Adds a script of the shell's.
    pub(crate) fn script(self, script: &str) -> Self {
        self.command(["sh", "-c", script])
    }

    /// Runs so many commands.
    pub(crate) fn run<const N: usize>(&self, parts: &Parts) -> Result<[Finished; N]> {
        self.run_all(parts)?.try_into().map_err(|_| anyhow::anyhow!("{} commands, {N} wanted", self.commands.len()))
    }

    /// Boots, runs the commands, powers off. Any end but a whole one is an error with the console's last lines. A
    /// machine that hangs, or panics by an INT3 of the emulator's, is booted again, since the emulator may be at fault
    /// (docs/evidence.md); the error of the last time has all of them.
    pub(crate) fn run_all(&self, parts: &Parts) -> Result<Vec<Finished>> {
        let mut hung = Vec::new();
        for boot in 1..=BOOTS {
            match self.boot(parts, boot - 1)? {
                Ok(commands) => return Ok(commands),
                Err(why) => {
                    eprintln!("# host B hung or met the emulator's fault at boot {boot} of at most {BOOTS}: {why}");
                    hung.push(why);
                }
            }
        }
        bail!("host B hung {BOOTS} times.\n{}", hung.join("\n"))
    }

    /// Boots once; of a machine that hung returns where.
    fn boot(&self, parts: &Parts, boot: u32) -> Result<Result<Vec<Finished>, String>> {
        let folder = tempfile::Builder::new().prefix("host-b-").tempdir_in(env!("CARGO_TARGET_TMPDIR"))?;
        let at = |name: &str| folder.path().join(name);
        fs::write(at("initramfs"), self.initramfs(parts, boot)?)?;
        let mut qemu = self.qemu(parts, folder.path())?;
        qemu.stdin(Stdio::null()).stdout(Stdio::null()).stderr(File::create(at("qemu"))?);
        let mut running = Running(qemu.spawn().context("cannot run QEMU")?);

        let size = || ["console", "results"].map(|name| fs::metadata(at(name)).map_or(0, |file| file.len()));
        let begun = Instant::now();
        let (mut seen, mut since, mut longest) = (size(), begun, Duration::ZERO);
        let (is_hung, how) = loop {
            let (ended, now) = (running.0.try_wait()?, size());
            longest = longest.max(since.elapsed());
            if now != seen {
                (seen, since) = (now, Instant::now());
            }
            if let Some(status) = ended {
                break (false, format!("ended early ({status})"));
            } else if begun.elapsed().as_secs() >= self.limit {
                break (false, format!("was stopped after {} s", self.limit));
            } else if since.elapsed().as_secs() >= self.silence {
                break (true, format!("sent nothing for {} s and was stopped", self.silence));
            }
            std::thread::sleep(Duration::from_millis(20));
        };
        let is_sound = running.0.try_wait()?.is_some_and(|status| status.success());
        let wall = begun.elapsed().as_secs_f64();
        drop(running);

        let (commands, is_whole) = frames::parse(&fs::read(at("results")).unwrap_or_default());
        if is_whole && is_sound && commands.len() == self.commands.len() {
            eprintln!("# power-on to power-off: {wall:.1} s, longest silence {:.1} s", longest.as_secs_f64());
            return Ok(Ok(commands));
        }
        let log = ["console", "qemu"].map(|name| fs::read(at(name)).unwrap_or_default()).concat();
        let log = String::from_utf8_lossy(&log);
        let lines: Vec<_> = log.lines().filter(|line| !line.trim().is_empty() && !line.starts_with(BEAT)).collect();
        let last = lines[lines.len().saturating_sub(150)..].join("\n");
        let (number, words) = (commands.len(), self.commands.get(commands.len()));
        let why = format!("{wall:.0} s after power-on it {how} in command {number}, {words:?}; console:\n{last}");
        // Several CPUs in threads of the emulator: the kernel patches its code by INT3, and one of them may keep it.
        let has_kept_int3 = !is_whole && self.cpus > 1 && log.contains("int3: 0000 [#");
        if is_hung || has_kept_int3 { Ok(Err(why)) } else { bail!("host B: {why}") }
    }

    fn qemu(&self, parts: &Parts, folder: &Path) -> Result<Command> {
        let mut command = Command::new(parts::QEMU);
        command
            .args("-nodefaults -no-user-config -display none -no-reboot -cpu max,+svm -m".split(' '))
            .arg(self.memory);
        command.args(["-smp", &self.cpus.to_string()]);
        // A script in place of our Linux guests' init. A panic reboots, and QEMU ends at a reboot.
        let mut line = "console=ttyS0 quiet panic=-1 rdinit=/host-b".to_owned();
        if self.cpus > 1 {
            command.args(["-accel", "tcg,thread=multi"]);
            // Its CPUs wait for one another longer than any hardware's, and for the timer on a busy host: the kernel's check of
            // it panics.
            line += " no_timer_check tsc=reliable mitigations=off nowatchdog rcupdate.rcu_cpu_stall_suppress=1 nokaslr";
        } else {
            command.args(["-accel", "tcg"]);
        }
        if self.by_instructions {
            // The guest's other sources of chance: the time of day, RDRAND and the boot loader's seed, and the
            // addresses that are made from them.
            command.args(["-icount", "shift=0,sleep=off", "-seed", "1", "-rtc", "base=2024-01-01T00:00:00,clock=vm"]);
            line += " nokaslr norandmaps";
        }
        command.arg("-kernel").arg(parts.bootable()?).arg("-initrd").arg(folder.join("initramfs"));
        command.args(["-append", &line]);
        for port in ["console", "results"] {
            // A comma ends a file name for QEMU; two stand for one.
            let path = folder.join(port).display().to_string().replace(',', ",,");
            command.args(["-serial", &format!("file:{path}")]);
        }
        Ok(command)
    }

    fn initramfs(&self, parts: &Parts, boot: u32) -> Result<Vec<u8>> {
        let mut initramfs = Initramfs::new();
        initramfs.program(parts::BUSYBOX, parts::BUSYBOX.as_ref())?;
        for module in &parts.modules {
            initramfs.module(&module.name, &module.bytes, "")?;
        }
        let modules: Vec<_> = parts.modules.iter().map(|module| &*module.name).collect();
        initramfs.file("/host-b", 0o755, frames::INIT.as_bytes())?;
        initramfs.file("/commands", 0o644, frames::commands(&modules, &self.commands, boot)?.as_bytes())?;
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
