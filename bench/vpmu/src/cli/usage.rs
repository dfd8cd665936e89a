//! This does what clap does not do for a command line: perf's spellings, and its message folded into one line, with a remedy.

use std::ffi::OsString;

use clap::error::ErrorKind;
use results::error::Error;

/// Folds clap's lines into one: what is wrong, and its tip or where help is: that of the command whose usage clap shows.
pub(super) fn error(error: &clap::Error) -> Error {
    let text = error.to_string();
    let usage = text.lines().find_map(|line| line.trim().strip_prefix("Usage: vpmu ")).unwrap_or_default();
    let path: Vec<_> = usage.split(' ').take_while(|word| word.starts_with(|c: char| c.is_ascii_lowercase())).collect();
    let told = |line: &&str| !line.starts_with("Usage:") && !line.starts_with("For more information");
    let mut lines = text.trim_start_matches("error: ").lines().map(str::trim).take_while(told);
    let what: Vec<_> = lines.by_ref().take_while(|line| !line.is_empty()).collect();
    let tip = lines.find_map(|line| line.strip_prefix("tip: ").filter(|tip| tip.contains("exist")));
    let remedy = match (error.kind(), tip, &*path.join(" ")) {
        (_, Some(tip), _) => tip.to_owned(),
        // What refuses a value says what it takes.
        (ErrorKind::ValueValidation | ErrorKind::InvalidValue, ..) => String::new(),
        (ErrorKind::ArgumentConflict, ..) if text.contains("subcommand") => {
            "the command comes before its options".to_owned()
        }
        (_, _, "") => "`vpmu --help` lists the commands, `vpmu nmi-latency --help` the options".to_owned(),
        (_, _, path) => format!("`vpmu {path} --help` lists its options"),
    };
    if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        return Error::usage("no command given", "", remedy);
    }
    Error::usage(what.join(" "), "", remedy)
}

/// Parses the options of one command from a line without program and command name.
#[cfg(test)]
pub(super) fn parsed<A: clap::Args>(line: &[&str]) -> Result<A, Error> {
    crate::setting::parse::options(line).map_err(|found| error(&found))
}

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
