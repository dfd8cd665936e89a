//! Images whose instructions are known: `vpmu run --backend step` must count each of them exactly, or refuse.

use std::process::Command;

use anyhow::{Context as _, Result, ensure};

const SOURCE: &str = include_str!("counted.S");
/// The entry of a 64-bit image.
pub(crate) const LONG_MODE: &str = include_str!("long_mode.S");
/// TURNS of the source.
const TURNS: u64 = 1000;

/// One image.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Counted {
    pub(crate) name: &'static str,
    define: &'static str,
    /// Beside the loop in ring 0: name, FIXED0, PMC0, PMC1.
    lines: &'static [(&'static str, u64, u64, u64)],
    /// Messages of a host that cannot run the image, in place of wrong counts.
    refusals: &'static [&'static str],
}

const EVENTS: &[(&str, u64, u64, u64)] = &[
    ("rep", 6, 0, 0),
    ("mov-ss", 7, 0, 0),
    ("fault", 7, 2, 1),
    ("interrupt", 10, 1, 1),
    ("hlt", 10, 1, 1),
    ("exits", 9, 0, 0),
    ("rep-outs", 7, 0, 0),
];
const RING3: &[(&str, u64, u64, u64)] = &[("ring3", 1 + 2 * TURNS, 16, TURNS)];
const INT: &[(&str, u64, u64, u64)] = &[("int", 5, 2, 2)];
const CANNOT: &str = "backend step cannot count";
const NO_INT: &str = "KVM internal error, suberror 1, instruction bytes [cd";

/// All images. Without hardware virtualization KVM emulates ring 0, and its emulator has no INT n.
pub(crate) const ALL: [Counted; 3] = [
    Counted { name: "counts_ring_0", define: "CASE_EVENTS", lines: EVENTS, refusals: &[CANNOT] },
    Counted { name: "counts_ring_3", define: "CASE_RING3", lines: RING3, refusals: &[CANNOT] },
    Counted { name: "counts_int", define: "CASE_INT", lines: INT, refusals: &[CANNOT, NO_INT] },
];

impl Counted {
    /// Assembles and links the image.
    pub(crate) fn build(&self) -> Result<Vec<u8>> {
        assemble(&[LONG_MODE, SOURCE].concat(), 64, &[self.define], &[])
    }

    /// Options of `vpmu run` after the image.
    pub(crate) fn options() -> [&'static str; 6] {
        ["--backend", "step", "--memory", "16M", "--time-limit", "100s"]
    }

    /// Checks a run's exit code, the image's serial output and the report. `may_refuse`: this host need not be able to.
    pub(crate) fn check(&self, code: Option<i32>, output: &str, report: &str, may_refuse: bool) -> Result<()> {
        let line =
            |(name, fixed0, pmc0, pmc1): (&str, u64, u64, u64)| format!("{name} {fixed0:08x} {pmc0:08x} {pmc1:08x}");
        let ring_0 = line(("loop", 4 + 2 * TURNS, TURNS, TURNS - 1));
        ensure!(output.lines().any(|have| have == ring_0), "no line {ring_0:?}: {output}\n{report}");
        let refused = self.refusals.iter().find(|why| report.contains(**why));
        if code != Some(0)
            && may_refuse
            && let Some(why) = refused
        {
            for &(name, ..) in self.lines {
                ensure!(!output.contains(name), "counts of {name} before the refusal: {output}");
            }
            eprintln!("# {}: refused here: {why}", self.name);
            return Ok(());
        }
        for &expected in self.lines {
            let expected = line(expected);
            ensure!(output.lines().any(|have| have.ends_with(&expected)), "no line {expected:?}: {output}\n{report}");
        }
        ensure!(code == Some(0), "exit code {code:?}: {report}");
        ensure!(report.contains("counts: backend step") && !report.contains("warning"), "{report}");
        eprintln!("# {}: exact", self.name);
        Ok(())
    }
}

/// Assembles an image of so many bits, and links it to 1 MiB with further options of ld.
pub(crate) fn assemble(source: &str, bits: u32, defines: &[&str], ld: &[&str]) -> Result<Vec<u8>> {
    let folder = tempfile::tempdir()?;
    let (from, to) = (folder.path().join("image.S"), folder.path().join("image"));
    std::fs::write(&from, source)?;
    let mut cc = Command::new("cc");
    cc.args(["-nostdlib", "-static", "-no-pie", "-Wl,-N,-Ttext=0x100000,--build-id=none"]).arg(format!("-m{bits}"));
    cc.args(defines.iter().map(|define| format!("-D{define}"))).args(ld.iter().map(|option| format!("-Wl,{option}")));
    let output = cc.arg(from).arg("-o").arg(&to).output().context("cannot run cc")?;
    ensure!(output.status.success(), "cc: {}", String::from_utf8_lossy(&output.stderr));
    std::fs::read(to).context("the image was not linked")
}
