//! Usage errors: clap's message folded into one line, with a remedy.

use std::ffi::OsString;

use clap::Command;
use clap::error::ErrorKind;
use results::error::Error;

/// Folds clap's lines into one: what is wrong, and its tip or where help is. `args` has the program's name first.
pub(super) fn error(error: &clap::Error, definition: &Command, args: &[OsString]) -> Error {
    let command = args.get(1).and_then(|word| definition.find_subcommand(word)).map(Command::get_name);
    let text = error.to_string();
    let told = |line: &&str| !line.starts_with("Usage:") && !line.starts_with("For more information");
    let mut lines = text.trim_start_matches("error: ").lines().map(str::trim).take_while(told);
    let what: Vec<_> = lines.by_ref().take_while(|line| !line.is_empty()).collect();
    let tip = lines.find_map(|line| line.strip_prefix("tip: ").filter(|tip| tip.contains("exist")));
    let remedy = match (error.kind(), tip, command) {
        (_, Some(tip), _) => tip.to_owned(),
        // What refuses a value says what it takes.
        (ErrorKind::ValueValidation | ErrorKind::InvalidValue, ..) => String::new(),
        (ErrorKind::ArgumentConflict, ..) if text.contains("subcommand") => {
            "the command comes before its options".to_owned()
        }
        (_, _, Some(name)) => format!("`vpmu {name} --help` lists its options"),
        _ => "`vpmu --help` lists the commands, `vpmu nmi-latency --help` the options".to_owned(),
    };
    if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        return Error::usage("no command given", "", remedy);
    }
    Error::usage(what.join(" "), "", remedy)
}

/// Parses the options of one command from a line without program and command name.
#[cfg(test)]
pub(super) fn parsed<A: clap::Args>(line: &[&str]) -> Result<A, Error> {
    crate::setting::parse::options(line).map_err(|found| error(&found, &Command::new("vpmu"), &[]))
}
