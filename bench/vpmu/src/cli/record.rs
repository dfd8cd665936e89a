//! `vpmu record`.

use std::ffi::OsString;

/// The names of guests on a command line.
const GUESTS: [&str; 3] = ["payload", "run", "linux"];

/// Accepts perf's spelling: `-- GUEST` after the options, and `-zN` of `record`.
pub(super) fn as_perf_spells(args: Vec<OsString>) -> Vec<OsString> {
    let of = |name: &str| args.get(1).is_some_and(|command| command == name);
    let record = of("record");
    if !record && !of("trace") {
        return args;
    }
    let mut ahead = true;
    let mut spelt = Vec::with_capacity(args.len());
    for arg in args {
        let word = arg.to_str().unwrap_or_default();
        if ahead && word == "--" {
            ahead = false;
            continue;
        }
        ahead &= !GUESTS.contains(&word);
        match word.strip_prefix("-z") {
            Some(level) if record && ahead && !level.is_empty() && level.bytes().all(|byte| byte.is_ascii_digit()) => {
                spelt.push(format!("-z={level}").into());
            }
            _ => spelt.push(arg),
        }
    }
    spelt
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn perfs_spellings_are_taken_ahead_of_the_guest() {
        let spelt = |line: &str| as_perf_spells(line.split(' ').map(OsString::from).collect()).join(" ".as_ref());
        assert_eq!(spelt("vpmu record -z3 -g -- run k -z9 -- x"), "vpmu record -z=3 -g run k -z9 -- x");
        assert_eq!(spelt("vpmu trace record -- payload"), "vpmu trace record payload");
        assert_eq!(spelt("vpmu linux -- x"), "vpmu linux -- x");
    }
}
