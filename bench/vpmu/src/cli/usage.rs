//! Usage errors: clap's message folded into one line, with a remedy.

use std::ffi::OsString;

use clap::Command;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use results::error::Error;

/// Folds clap's lines into one: what is wrong, and its tip or where help is. `args` has the program's name first.
pub(super) fn error(error: &clap::Error, definition: &Command, args: &[OsString]) -> Error {
    let words: Vec<_> = args.iter().skip(1).map(|arg| arg.to_string_lossy().into_owned()).collect();
    let get = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.as_str()),
        _ => None,
    };
    let path = path(definition, words.iter().take_while(|word| get(ContextKind::InvalidSubcommand) != Some(word)));
    if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        return Error::usage(format!("vpmu {path}: no command given"), "", help(&path));
    }
    let text = error.to_string();
    let told = |line: &&str| !line.starts_with("Usage:") && !line.starts_with("For more information");
    let mut lines = text.trim_start_matches("error: ").lines().map(str::trim).take_while(told);
    let what: Vec<_> = lines.by_ref().take_while(|line| !line.is_empty()).collect();
    let tip = lines.find_map(|line| line.strip_prefix("tip: ").filter(|tip| tip.contains("exist")));
    let remedy = match (error.kind(), tip) {
        (_, Some(tip)) => tip.to_owned(),
        // What refuses a value says what it takes.
        (ErrorKind::ValueValidation | ErrorKind::InvalidValue, _) => String::new(),
        (ErrorKind::ArgumentConflict, _) if text.contains("subcommand") => {
            "the command comes before its options".to_owned()
        }
        _ => help(&path),
    };
    Error::usage(what.join(" "), "", remedy)
}

/// Names the help of a command.
fn help(path: &str) -> String {
    match path {
        "" => "`vpmu --help` lists the commands, `vpmu nmi-latency --help` the options".to_owned(),
        _ => format!("`vpmu {path} --help` lists its options"),
    }
}

/// Returns the command that the words name, such as `trace record`.
fn path<'a>(definition: &Command, mut words: impl Iterator<Item = &'a String>) -> String {
    let Some(command) = words.next().and_then(|word| definition.find_subcommand(word)) else { return String::new() };
    let own = words.find_map(|word| command.find_subcommand(word));
    let names: Vec<_> = std::iter::once(command).chain(own).map(Command::get_name).collect();
    names.join(" ")
}

/// Parses the options of one command from a line without program and command name.
#[cfg(test)]
pub(super) fn parsed<A: clap::Args>(line: &[&str]) -> Result<A, Error> {
    crate::setting::parse::options(line).map_err(|found| error(&found, &Command::new("vpmu"), &[]))
}
