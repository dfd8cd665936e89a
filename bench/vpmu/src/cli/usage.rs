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

/// Accepts perf's spelling: `-- GUEST` after the options, and `-zN` of `record`.
pub(super) fn as_perf_spells(mut args: Vec<OsString>) -> Vec<OsString> {
    if args.get(1).is_none_or(|command| command != "record" && command != "trace") {
        return args;
    }
    let ends = |arg: &OsString| ["--", "payload", "run", "linux"].iter().any(|word| arg == word);
    let ahead = args.iter().position(ends).unwrap_or(args.len());
    for arg in &mut args[..ahead] {
        let level = arg.to_str().and_then(|word| word.strip_prefix("-z")).filter(|level| level.parse::<u8>().is_ok());
        if let Some(spelt) = level.map(|level| format!("-z={level}")) {
            *arg = spelt.into();
        }
    }
    if args.get(ahead).is_some_and(|arg| arg == "--") {
        args.remove(ahead);
    }
    args
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
