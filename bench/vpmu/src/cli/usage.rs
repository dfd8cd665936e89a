//! This does what clap does not do for a command line: perf's spellings, and an option that must not be repeated.

use std::ffi::OsString;

/// Accepts perf's spellings: `-- GUEST` after the options, and `-z` without a level.
pub(super) fn as_perf_spells(mut args: Vec<OsString>) -> Vec<OsString> {
    if args.get(1).is_none_or(|command| command != "record" && command != "trace") {
        return args;
    }
    let ends = |arg: &OsString| ["--", "payload", "run", "linux"].iter().any(|word| arg == word);
    let Some(first) = args.iter().position(ends) else { return args };
    let is_bare = |two: &[OsString]| two[0] == "-z" && two[1].to_string_lossy().parse::<u8>().is_err();
    if let Some(at) = args[..=first].windows(2).position(is_bare) {
        args[at] = "-z1".into();
    }
    if args[first] == "--" {
        args.remove(first);
    }
    args
}

/// Returns whether a word gives the workload, or says that the next does.
pub(super) fn is_workload(word: &str) -> bool {
    word == "--workload" || word.starts_with("--workload=")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn perfs_spellings_are_taken_ahead_of_the_guest() {
        let spelt = |line: &str| as_perf_spells(line.split(' ').map(OsString::from).collect()).join(" ".as_ref());
        assert_eq!(spelt("vpmu record -z3 -g -- run k -- x"), "vpmu record -z3 -g run k -- x");
        assert_eq!(spelt("vpmu record -z 3 -o run payload"), "vpmu record -z 3 -o run payload");
        assert_eq!(spelt("vpmu record -z payload"), "vpmu record -z1 payload");
        assert_eq!(spelt("vpmu trace record -- payload"), "vpmu trace record payload");
        assert_eq!(spelt("vpmu linux -- x"), "vpmu linux -- x");
    }
}
