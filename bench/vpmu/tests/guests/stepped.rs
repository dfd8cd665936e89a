//! Images at the edges of single-stepping: each ends with the exit code that a processor's counters give it, or with a
//! refusal that says why.

use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};

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
pub(crate) const ALL: [Stepped; 11] = [
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
        let (source, image) = (folder.path().join("stepped.S"), folder.path().join("stepped"));
        std::fs::write(&source, SOURCE)?;
        let mut cc = Command::new("cc");
        cc.args(["-nostdlib", "-static", "-no-pie", "-Wl,-N,-Ttext,0x100000,--build-id=none"]);
        cc.args(self.defines.iter().map(|define| format!("-D{define}")));
        let built = cc.arg(&source).arg("-o").arg(&image).output().context("cannot run cc")?;
        ensure!(built.status.success(), "cc: {}", String::from_utf8_lossy(&built.stderr));
        let options = ["--backend", "step", "--memory", "16M", "--time-limit", "50s"];
        let vpmu = env!("CARGO_BIN_EXE_vpmu");
        let output = Command::new(vpmu).arg("run").arg(&image).args(options).stdin(Stdio::null()).output()?;
        let report = String::from_utf8_lossy(&output.stderr);
        ensure!(report.contains(self.says), "the report lacks {:?}: {report}", self.says);
        Ok(())
    }
}
