//! Guests on this host's KVM: hostile ones, with which `vpmu run` ends in time and in bounds and reports; ones of known length, whose
//! instructions backend `step` counts exactly or not at all; and one of each boot protocol.

use std::io::Read as _;
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use arch_pmu::msr;
use arch_pmu::spec::Vendor;
use trials::Case;

use crate::binary::{run, text, vpmu};
use crate::counted::{self, Counted, assemble};
use crate::prerequisites::{Running, events, kvm};

/// The limit given to the VMM for a guest that runs into it, and for one that ends by itself, on a busy host, too.
const TIME_LIMIT: &str = "1500ms";
const TIME_ENOUGH: &str = "50s";
/// A VMM that still runs after this hangs.
const HANG: Duration = Duration::from_secs(60);
/// Most memory of the VMM, guest memory included: these guests touch a few pages of it.
const MOST_KIB: u64 = 96 << 10;

/// The required end of a run: the limit that it has, its exit code, and words of which its report has one.
type End = (&'static str, i32, &'static [&'static str]);
/// The guest ends itself, with code 0.
const ITSELF: End = (TIME_ENOUGH, 0, &["status 1 (code 0)"]);
/// The time limit ends it.
const LIMITED: End = (TIME_LIMIT, 3, &["the time limit passed"]);
/// A fault that KVM reports ends it: which one depends on whether ring 0 is emulated.
const FAULT: End = (TIME_ENOUGH, 3, &["triple-faulted", "KVM internal error"]);

/// Hostile guests, each with its define, its end and a further word that the report must have.
const HOSTILE: [(&str, &str, End, &str); 11] = [
    ("garbage_in_every_pmu_register", "CASE_GARBAGE", ITSELF, ""),
    ("global_ctrl_flood", "CASE_FLOOD", LIMITED, ""),
    ("lvtpc_masked_for_ever", "CASE_MASKED", LIMITED, "masked"),
    ("period_one_on_all_counters", "CASE_PERIOD_ONE", LIMITED, ""),
    ("triple_fault", "CASE_TRIPLE_FAULT", FAULT, ""),
    ("interrupts_off_for_ever", "CASE_INTERRUPTS_OFF", LIMITED, ""),
    ("halted_for_ever", "CASE_HALTED", LIMITED, ""),
    ("memory_and_ports_that_are_not_there", "CASE_ABSENT", ITSELF, "does not have"),
    ("runs_where_nothing_is", "CASE_NOWHERE", FAULT, ""),
    ("serial_flood", "CASE_SERIAL", LIMITED, ""),
    ("a_vcpu_that_is_never_started", "CASE_ENDS", ITSELF, ""),
];

/// Images at the edges of single-stepping, each with its defines: it ends with the exit code that a processor's counters give it, or with
/// a refusal that says why.
const STEPPED: [(&str, &[&str], &str); 11] = [
    // The saved RIP is at HLT: 16 + 0.
    ("an_nmi_comes_before_hlt", &["CASE_HLT"], "(code 16)"),
    ("pushf_shows_no_tf", &["CASE_PUSHF"], "(code 2)"),
    ("pushf_shows_no_tf_in_ring_3", &["CASE_PUSHF_RING3"], "(code 2)"),
    ("flags_saved_in_a_step_trap_nowhere", &["CASE_POPF"], "(code 4)"),
    ("a_guest_that_steps_itself_is_refused", &["CASE_OWN_TF"], "the guest sets RFLAGS.TF itself"),
    ("an_nmi_before_iret_to_ring_3_leaves_no_tf", &["CASE_IRET_NMI"], "(code 3)"),
    // 2 NOPs, 5 PUSHes, IRET, 1 NOP (2 at the start), MOV.
    ("iret_to_a_handlers_second_byte", &["CASE_IRET_INTO_HANDLER"], "(code 10)"),
    ("iret_to_a_handler", &["CASE_IRET_INTO_HANDLER", "AT_START"], "(code 11)"),
    // 3 MOVs, the handler's 45, MOV; RDMSR faults.
    ("a_handler_as_it_was", &["CASE_REWRITE", "WHERE=scratch"], "(code 49)"),
    ("a_handler_that_is_rewritten_while_steps_are_made", &["CASE_REWRITE", "WHERE=protection"], "(code 49)"),
    ("a_triple_fault_is_the_guests_own", &["CASE_TRIPLE"], "triple-faulted"),
];

/// An image of each boot protocol, which prints its command line, and of those that are refused by name.
const PROTOCOLS: [(&str, &[&str], &str, &str); 6] = [
    ("boot::multiboot_1", &["AT=0", "FLAGS=0"], "image hello\n", "boot protocol: multiboot 1"),
    ("boot::multiboot_1_with_a_video_mode", &["AT=0", "FLAGS=4"], "image hello\n", "asks for a video mode"),
    ("boot::pvh", &["PVH"], "hello\n", "boot protocol: PVH"),
    ("boot::a_late_header", &["AT=9000", "FLAGS=0"], "", "link its section first"),
    ("boot::multiboot_2", &["MULTIBOOT_2"], "", "build it for multiboot 1 or PVH"),
    ("boot::elf_without_a_protocol", &["NONE"], "", "XEN_ELFNOTE_PHYS32_ENTRY"),
];

pub(crate) fn cases() -> Vec<Case> {
    let (kvm, perf) = (kvm(), events());
    let mut cases = Vec::new();
    for (name, define, end, says) in HOSTILE {
        for (backend, missing) in [("none", kvm.clone().err()), ("cpu-clock", kvm.clone().and(perf.clone()).err())] {
            let name = format!("{name}::{backend}");
            cases.push(Case::fallible(name, missing, move || survives(define, end, says, backend)));
        }
    }
    let missing = || kvm.clone().err();
    cases.extend(STEPPED.map(|(name, defines, says)| {
        Case::fallible(name, missing(), move || {
            let image = assemble(&[counted::LONG_MODE, include_str!("stepped.S")].concat(), 64, defines, &[])?;
            ends(&image, &["--backend", "step"], None, says)
        })
    }));
    cases.extend(PROTOCOLS.map(|(name, defines, prints, says)| {
        Case::fallible(name, missing(), move || {
            let image = assemble(include_str!("protocols.S"), 32, defines, &["--section-start=.note.Xen=0x101000"])?;
            ends(&image, &["--backend", "none", "--append", "hello"], Some(prints), says)
        })
    }));
    cases.extend(counted::ALL.map(|image| Case::fallible(image.name, missing(), move || is_counted(image))));
    cases.into_iter().map(|case| case.expected(kvm.is_ok())).collect()
}

/// Runs an image whose report, or error, must have these words. With `prints`, that is its output, and without any it is refused.
fn ends(image: &[u8], options: &[&str], prints: Option<&str>, says: &str) -> Result<()> {
    let folder = tempfile::tempdir()?;
    std::fs::write(folder.path().join("image"), image)?;
    let line = ["run", "image", "--memory", "16M", "--time-limit", TIME_ENOUGH];
    let output = run(folder.path(), &[&line[..], options].concat());
    let is_right = |prints: &str| {
        let code = if prints.is_empty() { 2 } else { 0 };
        output.status.code() == Some(code) && text(&output.stdout) == prints
    };
    ensure!(text(&output.stderr).contains(says) && prints.is_none_or(is_right), "{output:?} lacks {says:?}");
    Ok(())
}

fn is_counted(image: Counted) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("counted");
    std::fs::write(&path, image.build()?)?;
    let output = vpmu(folder.path(), &["run", "counted"]).args(Counted::options()).output()?;
    image.check(output.status.code(), &text(&output.stdout), &text(&output.stderr), true)
}

fn survives(define: &str, (limit, expected, ends): End, says: &str, backend: &str) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let ranges = msr::ranges(Vendor::Intel).into_iter().map(|(first, count)| format!("\tregisters {first}, {count}\n"));
    let source = include_str!("hostile.S").replace("RANGES\n", &ranges.collect::<String>());
    std::fs::write(folder.path().join("guest.bin"), assemble(&source, 32, &[define], &["--oformat=binary"])?)?;
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
    ensure!(code == expected, "exit code {code}, not {expected}: {report}");
    ensure!(ends.iter().any(|end| report.contains(end)), "the report lacks {ends:?}: {report}");
    ensure!(report.contains(says) && report.contains("PMU: "), "the report lacks {says:?}: {report}");
    ensure!(peak_kib <= MOST_KIB, "took {peak_kib} KiB of memory");
    Ok(())
}

/// Most memory a process had so far (VmHWM); 0 when it is gone.
fn high_water_kib(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}
