//! `vpmu run`.

use std::ffi::OsString;

use results::error::{Error, Exit};

use crate::inspect::run;
use crate::inspect::run::spec::RunSpec;
use crate::setting::backend::{ThisHost, choose};

pub(super) const EXAMPLES: &str = "\
Examples:
  # a multiboot image; its serial port on stdout
  vpmu run x86/pmu.flat
  vpmu run x86/apic.flat --vcpus 2 --memory 512M
  vpmu run x86/vmexit.flat --time-limit 2m \\
    --append 'cpuid wr_tsc_adjust_msr'
  vpmu run kernel.elf --module initrd --environ NR_CPUS=1

Exit codes: 0 the guest ended with code 0 (OUT 0 to port 0xf4:
status 1), 1 it ended with another code, 2 bad usage or input,
3 it skipped its work (status 77) or did not end by itself
(time limit, interruption, triple fault, reset, KVM error),
4 the host cannot do it, 70 a bug of vpmu.";

pub(super) fn run(args: &RunSpec) -> Result<Exit, Error> {
    let chosen = choose(&args.counters.backend, &ThisHost)?;
    run::run(args, &chosen.backend)
}

/// Accepts QEMU's spelling of what comes with an image, `-append` and `-initrd`, after `run`.
pub(super) fn as_qemu_spells(args: Vec<OsString>) -> Vec<OsString> {
    if args.get(1).is_none_or(|command| command != "run") {
        return args;
    }
    args.into_iter()
        .map(|arg| match arg.to_str() {
            Some("-append") => "--append".into(),
            Some("-initrd") => "--initrd".into(),
            _ => arg,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::usage::parsed;
    use std::path::PathBuf;

    use vmm::machine::image::Rdpmc;

    use super::*;

    fn run(args: &[&str]) -> Result<RunSpec, Error> {
        let words = ["vpmu", "run"].iter().chain(args).map(OsString::from).collect();
        let spelt: Vec<_> = as_qemu_spells(words).into_iter().skip(2).map(|word| word.into_string().unwrap()).collect();
        parsed(&spelt.iter().map(String::as_str).collect::<Vec<_>>())
    }

    #[test]
    fn options_as_users_of_qemu_know_them() {
        let args = run(&["x.flat", "-append", "-v a=1", "-initrd", "e", "--memory", "1G", "--vcpus", "2"]).unwrap();
        assert_eq!((args.append.as_str(), args.memory, args.vcpus), ("-v a=1", 1 << 30, 2));
        assert_eq!(args.module, [PathBuf::from("e")]);
        let args = run(&["x.flat", "--environ", "A=b=c", "--environ", "NR_CPUS=3"]).unwrap();
        assert_eq!(args.environ, [("A".to_owned(), "b=c".to_owned()), ("NR_CPUS".to_owned(), "3".to_owned())]);
        assert_eq!((args.memory, args.rdpmc, args.no_seccomp), (256 << 20, Rdpmc::Rewrite, false));
    }

    #[test]
    fn bad_values_are_refused_in_one_line() {
        for (args, needle) in [
            (&["x", "--memory", "256"][..], "unit"),
            (&["x", "--memory", "1K"], "out of range"),
            (&["x", "--memory", "4G"], "2M to 3G"),
            (&["x", "--memory=-1M"], "not a size"),
            (&["x", "--memory", "99999999999999999999G"], "not a size"),
            (&["x", "--memory", "M"], "not a size"),
            (&["x", "--memory", "2049K"], "multiple"),
            (&["x", "--vcpus", "255"], "1 to 254"),
            (&["x", "--environ", "A"], "KEY=VALUE"),
            (&["x", "--environ", "A B=1"], "letters"),
            (&["x", "--rdpmc", "maybe"], "--rdpmc"),
            (&["x", "y"], "y"),
            (&[], "IMAGE"),
        ] {
            let error = run(args).unwrap_err();
            assert_eq!(error.exit.code(), 2);
            assert!(error.to_string().contains(needle), "{error} lacks {needle:?}");
        }
    }
}
