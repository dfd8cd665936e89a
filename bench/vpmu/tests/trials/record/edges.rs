//! Recordings at their edges: a full disk, what lies beside them, the guest's last exit, another recorder's files.

use std::path::Path;
use std::process::{Command, Output};

use anyhow::{Context as _, Result, ensure};
use perf_data::attr::{Attr, CALLCHAIN, Event, IP, TID, TIME};
use perf_data::feature::Facts;
use perf_data::record::{Mode, Record, Sample, Stamp, kind};
use perf_data::writer::{self, MOST_OF_CHUNK, Options, Writer};
use tempfile::TempDir;

use super::rig::{RATE, leaves, perf_script, planted, record, said_samples, vpmu};

/// A folder that is a small disk, as long as it is there.
pub(crate) struct SmallDisk(TempDir);

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.0.path()).status();
    }
}

pub(crate) fn small_disk() -> Result<SmallDisk, String> {
    let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
    let mount = Command::new("mount").args(["-t", "tmpfs", "-o", "size=160k", "tmpfs"]).arg(folder.path()).output();
    if mount.is_ok_and(|done| done.status.success()) {
        Ok(SmallDisk(folder))
    } else {
        Err("it takes root to mount a small disk".to_owned())
    }
}

pub(crate) fn full_disk() -> Result<()> {
    let folder = planted(50_000_000)?;
    let disk = small_disk().map_err(anyhow::Error::msg)?;
    let file = disk.0.path().join("x.data");
    let file = file.to_str().context("a path")?;
    // Writes that fail while the guest runs, and one that is begun at its end and fails only then.
    let ways: [(&[&str], &[&str]); 4] = [
        (&["-F", RATE, "-g", "--mmap-flush", "4K"], &["run", "planted"]),
        (&["-F", RATE, "-g", "--mmap-flush", "4K", "-z", "--aio=4"], &["run", "planted"]),
        (&["-g", "--mmap-flush", "1M", "--aio=2", "-e", "exit"], &["payload", "--samples", "400"]),
        (&["-g", "--mmap-flush", "1M", "-e", "exit"], &["payload", "--samples", "400"]),
    ];
    for (options, guest) in ways {
        let output = vpmu()
            .current_dir(folder.path())
            .args(["record", "-o", file])
            .args(options)
            .arg("--")
            .args(guest)
            .output()?;
        let shown = perf_script(folder.path(), file);
        for left in std::fs::read_dir(disk.0.path())? {
            std::fs::remove_file(left?.path())?;
        }
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        // perf refuses a file without a single record, which a disk of this size may leave of one large write.
        let shown = if said_samples(&output)? == 0 { shown.map_or(0, |samples| samples.len()) } else { shown?.len() };
        ensure!(output.status.code() == Some(3), "{options:?}: {}: {said}", output.status);
        ensure!(said.contains("ended early") && said.contains("No space left"), "{options:?}: {said}");
        ensure!(said_samples(&output)? == shown, "{options:?}: perf script shows {shown}: {said}");
        ensure!(said.contains(&format!("recorded {shown} of ")), "{options:?}: all are there? {said}");
    }
    Ok(())
}

/// The earlier recording is kept once there is a new one; what cannot be written beside it hides nothing; another
/// recording's list is not used.
pub(crate) fn beside() -> Result<()> {
    let folder = tempfile::tempdir()?;
    super::rig::build_planted(&folder.path().join("planted"), 20, true)?;
    let at = |name: &str| folder.path().join(name);
    std::fs::write(at("perf.data"), "earlier")?;
    std::fs::write(at("perf.data.kallsyms"), "earlier")?;
    std::fs::write(at("perf.data.old"), "before it")?;
    record(folder.path(), &["-e", "exit:io"])?;
    let text = |name: &str| std::fs::read_to_string(at(name)).ok();
    ensure!(text("perf.data.old").as_deref() == Some("earlier"), "{:?}", text("perf.data.old"));
    ensure!(text("perf.data.old.kallsyms").as_deref() == Some("earlier") && text("perf.data.kallsyms").is_none());
    // A folder where the payload's NMIs are to be.
    std::fs::create_dir(at("x.data.nmis"))?;
    let options = ["record", "-e", "exit", "-o", "x.data", "--", "payload", "--samples", "20"];
    let output = vpmu().current_dir(folder.path()).args(options).output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.code() == Some(3) && said.contains("recorded ") && said.contains("x.data.nmis"), "{said}");
    // Cut at the end of a record: the last one of the data.
    let whole = std::fs::read(at("perf.data"))?;
    let word = |at: usize| u64::from_le_bytes(whole[at..at + 8].try_into().unwrap_or_default()) as usize;
    let (data, mut end) = (word(40), word(40));
    while let Some(size) = whole.get(end + 6..end + 8).filter(|_| end < data + word(48) - 64) {
        end += usize::from(u16::from_le_bytes([size[0], size[1]]));
    }
    std::fs::write(at("cut"), &whole[..end])?;
    let cut = vpmu().current_dir(folder.path()).args(["report", "cut", "--format", "folded"]).output()?;
    let said = String::from_utf8_lossy(&cut.stderr);
    ensure!(cut.status.code() == Some(3) && said.contains("bytes of records are missing"), "{said}");
    Ok(())
}

/// Samples that fell into the handling of an exit are at the instruction that made it: a store to a place without
/// memory, alone in its symbol.
pub(crate) fn at_the_exit() -> Result<()> {
    let folder = tempfile::tempdir()?;
    super::rig::build_stores(&folder.path().join("planted"), 20_000)?;
    let output = record(folder.path(), &["-F", RATE])?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let stacks = perf_script(folder.path(), "perf.data")?;
    let found = leaves(stacks.iter().filter_map(|stack| Some(stack.first()?.as_str())));
    let percent = said.lines().find(|line| line.contains("handling of an exit"));
    let percent = percent.and_then(|line| line.split(" %").next()?.split_whitespace().last()?.parse::<f64>().ok());
    let at_exit = percent.with_context(|| format!("no share of exits: {said}"))? / 100.0 * stacks.len() as f64;
    let others = (stacks.len() - found.get("store").copied().unwrap_or(0)) as f64;
    // The share has one digit behind the point.
    let most = stacks.len() as f64 - at_exit + 0.001 * stacks.len() as f64 + 1.0;
    ensure!(
        others <= most,
        "{others} samples beside the store, where {at_exit:.0} of {} are of its exits: {found:?}",
        stacks.len()
    );
    Ok(())
}

/// The overflow of the guest's last exit is a sample, although the guest is not entered again.
pub(crate) fn last_overflow() -> Result<()> {
    let folder = tempfile::tempdir()?;
    super::rig::build_planted(&folder.path().join("planted"), 10, true)?;
    let options = ["record", "-c", "1", "-e", "exit,kvm:kvm_userspace_exit", "--", "run", "planted"];
    let output = vpmu().current_dir(folder.path()).args(options).output()?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    ensure!(output.status.success(), "{}: {said}", output.status);
    let count = |name: &str| {
        let (_, rest) = said.split_once(&format!("{name} ("))?;
        rest.split(')').next()?.parse::<usize>().ok()
    };
    let (exits, returns) = (count("exit").context("exits")?, count("kvm:kvm_userspace_exit").context("returns")?);
    ensure!(exits == 101 && returns >= exits, "{exits} exits, {returns} returns from KVM_RUN: {said}");
    Ok(())
}

/// perf's recording of two programs at the same addresses, one of which begins as another: each sample has the name of
/// its own program.
pub(crate) fn programs_of_perf() -> Result<()> {
    let folder = tempfile::tempdir()?;
    for (name, function) in [("one", "func_alpha"), ("two", "func_beta")] {
        let source = folder.path().join(format!("{name}.c"));
        let text = format!(
            "__attribute__((noipa)) void {function}(void) {{ for (volatile long i = 0; i < 200000000; i++); }}\n\
             int main(void) {{ {function}(); return 0; }}\n"
        );
        std::fs::write(&source, text)?;
        let built =
            Command::new("cc").current_dir(folder.path()).args(["-O1", "-no-pie", "-o", name]).arg(&source).output()?;
        ensure!(built.status.success(), "cc: {}", String::from_utf8_lossy(&built.stderr));
    }
    let command =
        ["record", "-q", "-e", "cpu-clock:u", "-o", "x.data", "--", "sh", "-c", "./one & ./two; wait; exec ./two"];
    let recorded = Command::new("perf").current_dir(folder.path()).args(command).output()?;
    ensure!(recorded.status.success(), "perf record: {}", String::from_utf8_lossy(&recorded.stderr));
    // A list of another kernel lies there by chance.
    std::fs::write(folder.path().join("x.data.kallsyms"), "0000000000000001 T of_another\n")?;
    let report = vpmu().current_dir(folder.path()).args(["report", "x.data", "--format", "folded"]).output()?;
    let text = String::from_utf8_lossy(&report.stdout).into_owned();
    ensure!(report.status.success(), "{}", String::from_utf8_lossy(&report.stderr));
    for (thread, function) in [("one", "func_alpha"), ("two", "func_beta")] {
        ensure!(text.lines().any(|line| line.starts_with(&format!("{thread};{function} "))), "{thread}: {text}");
    }
    ensure!(
        !text.contains("one;func_beta") && !text.contains("two;func_alpha") && !text.contains("of_another"),
        "{text}"
    );
    Ok(())
}

/// perf's recordings of all kinds: one file for each thread, stacks of user tasks, packed by others, and nothing at all.
pub(crate) fn kinds_of_perf() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let source = "__attribute__((noipa)) long leaf(long n) { volatile long s = 0; while (n--) s += n; return s; }\n\
        __attribute__((noipa)) long outer(long n) { return leaf(n) + 1; }\n\
        int main(void) { return outer(300000000) == 0; }\n";
    std::fs::write(folder.path().join("x.c"), source)?;
    let run = |command: &str| -> Result<String> {
        let output = Command::new("sh").current_dir(folder.path()).args(["-ec", command]).output()?;
        ensure!(output.status.success(), "{command}: {}", said(&output));
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    };
    run("cc -O2 -fomit-frame-pointer -o x x.c; perf record -q -e cpu-clock:u --threads -o threads ./x; \
        perf record -q -e cpu-clock:u --call-graph dwarf -o stacks ./x; gzip <stacks >stacks.gz; xz <stacks >stacks.xz; \
        perf record -q -e dummy -o none true")?;
    let stacks = |name: &str| -> Result<(String, usize)> {
        let (code, output) = report(folder.path(), &[name, "--format", "folded"])?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        ensure!(code == Some(0), "{name}: {code:?}: {}", said(&output));
        let samples = text.lines().filter_map(|line| line.rsplit(' ').next()?.parse::<usize>().ok()).sum();
        Ok((text, samples))
    };
    for (name, stack) in [("threads", ";leaf "), ("stacks", ";main;outer;leaf ")] {
        let (text, samples) = stacks(name)?;
        let perf = run(&format!("perf script -F ip -G -i {name} | grep -c ."))?.trim().parse::<usize>()?;
        ensure!(samples == perf && text.contains(stack), "{name}: perf has {perf} samples: {text}");
    }
    ensure!(stacks("stacks.gz")? == stacks("stacks")? && stacks("stacks.xz")? == stacks("stacks")?);
    let (code, output) = report(folder.path(), &["none", "--format", "folded"])?;
    ensure!(code == Some(3) && said(&output).contains("no samples"), "{code:?}: {}", said(&output));
    Ok(())
}

// A stranger's recordings: whatever they hold, `vpmu report` ends, in bounded memory, and touches nothing that they
// name but plain ELF files.

/// Most KiB of address space that a report is given: a recording takes 1 GiB of memory at the most.
const KIBIBYTES: u64 = 1536 << 10;
/// Seconds after which a report that waits for something is ended.
const PATIENCE: &str = "300";

/// Exit code and both outputs of a report, in little memory.
fn report(folder: &Path, options: &[&str]) -> Result<(Option<i32>, Output)> {
    let mut command = Command::new("timeout");
    command.args(["-s", "KILL", PATIENCE, "sh", "-c", &format!("ulimit -v {KIBIBYTES}; exec \"$@\""), "sh"]);
    let output = command.arg(env!("CARGO_BIN_EXE_vpmu")).arg("report").args(options).current_dir(folder).output()?;
    Ok((output.status.code(), output))
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// A recording in a pipe's form of one event whose samples have [`TYPE`].
struct Pipe(Vec<u8>);

const TYPE: u64 = IP | TID | TIME | CALLCHAIN;

impl Pipe {
    fn new() -> Self {
        let mut pipe = Self(b"PERFILE2\x10\0\0\0\0\0\0\0".to_vec());
        // perf_event_attr: a clock, 112 bytes.
        let mut attr = vec![0; 112];
        attr[..8].copy_from_slice(&[1, 0, 0, 0, 112, 0, 0, 0]);
        attr[24..32].copy_from_slice(&TYPE.to_le_bytes());
        pipe.record(kind::HEADER_ATTR, 0, &attr);
        pipe
    }

    fn record(&mut self, kind: u32, misc: u16, body: &[u8]) {
        let size = (8 + body.len()) as u16;
        self.0.extend(kind.to_le_bytes());
        self.0.extend(misc.to_le_bytes());
        self.0.extend(size.to_le_bytes());
        self.0.extend_from_slice(body);
    }

    fn mapping(&mut self, address: u64, length: u64, file: &str) {
        let mut body = [7_u32, 7].map(u32::to_le_bytes).concat();
        body.extend([address, length, 0].map(u64::to_le_bytes).concat());
        body.extend_from_slice(file.as_bytes());
        body.resize((body.len() + 1).next_multiple_of(8), 0);
        self.record(kind::MMAP, Mode::User as u16, &body);
    }

    fn sample(&mut self, time: u64, chain: impl IntoIterator<Item = u64>) {
        let chain: Vec<u64> = chain.into_iter().collect();
        let mut body = 0x1000_u64.to_le_bytes().to_vec();
        body.extend([7_u32, 7].map(u32::to_le_bytes).concat());
        body.extend([time, chain.len() as u64].map(u64::to_le_bytes).concat());
        body.extend(chain.iter().flat_map(|entry| entry.to_le_bytes()));
        self.record(kind::SAMPLE, Mode::User as u16, &body);
    }

    fn write(&self, folder: &Path) -> Result<()> {
        Ok(std::fs::write(folder.join("x"), &self.0)?)
    }
}

pub(crate) fn deep_chains() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let mut pipe = Pipe::new();
    pipe.mapping(0x1000, 0x1000, "/no/such");
    pipe.sample(1, std::iter::repeat_n(0x1800, 4000));
    pipe.sample(2, std::iter::repeat_n(0x1800, 8000));
    pipe.write(folder.path())?;
    for (format, output) in [("folded", "-"), ("page", "x.html"), ("firefox", "x.json")] {
        let (code, output) = report(folder.path(), &["x", "--format", format, "-o", output])?;
        let notice = "2 call chains have more than 1024 entries: the 9952 outermost are left out, below [cut]";
        ensure!(code == Some(0) && said(&output).contains(notice), "{format}: {code:?}, {}", said(&output));
        if format == "folded" {
            let expected = format!("thread 7;[cut]{} 2\n", ";[such]".repeat(1024));
            ensure!(String::from_utf8_lossy(&output.stdout) == expected, "other stacks");
        }
    }
    Ok(())
}

pub(crate) fn long_names() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let mut pipe = Pipe::new();
    // Two functions with long names, and stacks of them that are all different.
    for (address, letter) in [(0x1000, "a"), (0x2000, "b")] {
        pipe.mapping(address, 0x1000, &format!("/{}", letter.repeat(3000)));
    }
    let mut noise = 1_u64;
    for time in 0..600 {
        let mut address = || {
            noise = noise.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            if noise >> 63 == 0 { 0x1800 } else { 0x2800 }
        };
        pipe.sample(time, (0..1000).map(|_| address()));
    }
    pipe.write(folder.path())?;
    let (code, output) = report(folder.path(), &["x", "--format", "folded"])?;
    let text = said(&output);
    ensure!(code == Some(2) && text.contains("more than 512 MiB") && output.stdout.is_empty(), "{code:?}, {text}");
    for (format, file) in [("page", "x.html"), ("firefox", "x.json")] {
        let (code, output) = report(folder.path(), &["x", "--format", format, "-o", file])?;
        ensure!(code == Some(0), "{format}: {code:?}, {}", said(&output));
        // Some 20 bytes for each function of each stack, and more for the profiler's tables.
        let size = std::fs::metadata(folder.path().join(file))?.len();
        ensure!(size < 100 << 20, "{format}: {size} bytes");
    }
    Ok(())
}

pub(crate) fn compressed() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let event = Event { attr: Attr { type_: 1, ..Attr::default() }, ids: vec![1], ..Event::default() };
    let mut bytes = Vec::new();
    let options = Options { least: Some(MOST_OF_CHUNK), ..Options::level(19) };
    let mut writer = Writer::begin(writer::Output::Pipe(&mut bytes), &[event], true, options, &Facts::default())?;
    let sample = Sample { misc: 2, id: 1, chain: vec![0x1000; 1000], ..Sample::default() };
    for _ in 0..MOST_OF_CHUNK / 8100 {
        writer.add(&Record::Sample(sample.clone()), Stamp::default())?;
    }
    writer.finish(&Facts::default()).1?;
    // The frame, a record of its own, a thousand times.
    let mut at = 16;
    while bytes[at] != kind::COMPRESSED as u8 {
        at += usize::from(u16::from_le_bytes([bytes[at + 6], bytes[at + 7]]));
    }
    let frame = bytes[at..at + usize::from(u16::from_le_bytes([bytes[at + 6], bytes[at + 7]]))].to_vec();
    bytes.truncate(at);
    bytes.extend(frame.repeat(1000));
    std::fs::write(folder.path().join("x"), &bytes)?;
    ensure!(bytes.len() < 500_000, "{} bytes", bytes.len());
    let (code, output) = report(folder.path(), &["x", "--format", "folded"])?;
    let text = said(&output);
    ensure!(code == Some(3) && text.contains("more is compressed in it"), "{code:?}, {text}");
    let stack = String::from_utf8_lossy(&output.stdout);
    let samples: Option<u64> = stack.rsplit(' ').next().and_then(|samples| samples.trim().parse().ok());
    let samples = samples.context("no stack")?;
    ensure!((8000..90_000).contains(&samples), "{samples} of some 129 000 samples");
    Ok(())
}

pub(crate) fn names_of_the_kernels_files() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let fifo = folder.path().join("fifo");
    ensure!(Command::new("mkfifo").arg(&fifo).status()?.success(), "no FIFO");
    let link = folder.path().join("link");
    std::os::unix::fs::symlink("/proc/kmsg", &link)?;
    let [fifo, link] = [&fifo, &link].map(|path| path.to_string_lossy());
    let files = ["/proc/kmsg", "/sys/kernel/tracing/trace_pipe", "/dev/zero", &fifo, &link];
    let mut pipe = Pipe::new();
    for (file, address) in files.iter().zip((0x1000..).step_by(0x1000)) {
        pipe.mapping(address, 0x1000, file);
        pipe.sample(address, [address]);
    }
    pipe.write(folder.path())?;
    let (code, output) = report(folder.path(), &["x", "--format", "folded"])?;
    let found = String::from_utf8_lossy(&output.stdout);
    let names = ["fifo", "kmsg", "link", "trace_pipe", "zero"];
    let expected = names.map(|name| format!("thread 7;[{name}] 1\n")).concat();
    ensure!(code == Some(0) && found == expected, "{code:?}, {found}, {}", said(&output));
    Ok(())
}
