//! Usage errors in one line, with the command that has an option.

use std::ffi::OsString;

use clap::Command;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use results::error::Error;

use super::sides;

/// Options of another command: the command, the option, the remedy.
const ELSEWHERE: &[(&str, &str, &str)] = &[
    ("stat-setup", "--backend", "vpmu guest-stat has it"),
    ("stat-setup", "--vcpus", "vpmu guest-stat has it"),
    ("stat-setup", "--samples", "vpmu guest-stat has it"),
    ("guest-stat", "--cpus", "it is --vcpus and --pin"),
    ("sim", "--backend", "the model is the backend: vpmu sim MODEL, or vpmu nmi-latency --backend KEY"),
    ("sim", "--pin", "each simulated vCPU has a CPU of its own"),
    ("sim", "--no-seccomp", "a simulation confines no threads"),
];

/// Turns clap's lines into one: what is wrong, with which value, and where help is. `args` has the program's name first.
pub(super) fn error(error: &clap::Error, command: &Command, args: &[OsString]) -> Error {
    let get = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.clone()),
        Some(ContextValue::Strings(list)) => Some(list.join(", ")),
        Some(ContextValue::StyledStr(text)) => Some(text.to_string()),
        Some(ContextValue::StyledStrs(list)) => {
            Some(list.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))
        }
        _ => None,
    };
    let words: Vec<String> = args.iter().skip(1).map(|arg| arg.to_string_lossy().into_owned()).collect();
    let name = words.iter().find(|word| command.get_subcommands().any(|sub| sub.get_name() == word.as_str()));
    if let Some(elsewhere) = elsewhere(name.map_or("", String::as_str), get(ContextKind::InvalidArg).as_deref()) {
        return elsewhere;
    }
    if matches!(words.first().map(String::as_str), Some("record" | "top"))
        && let Some(said) = sides::error(error, command, &words)
    {
        return said;
    }
    if error.kind() == ErrorKind::ValueValidation
        && let Some(arg) = get(ContextKind::InvalidArg)
    {
        let why = std::error::Error::source(error).map(ToString::to_string).unwrap_or_default();
        let value = get(ContextKind::InvalidValue).unwrap_or_default();
        // Our own parsers say the remedy in the same breath.
        return Error::usage(format!("bad value '{value}' for {arg}"), why, "");
    }
    if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        let command = name.map_or("vpmu".to_owned(), |name| format!("vpmu {name}"));
        return Error::usage(format!("{command}: no command given"), "", help(name));
    }
    let text = error.to_string();
    let first = text.split("\n\n").next().unwrap_or_default().trim_start_matches("error: ").to_owned();
    if error.kind() == ErrorKind::ArgumentConflict
        && name.is_none()
        && let Some(word) = first.strip_prefix("the subcommand '").and_then(|rest| rest.split('\'').next())
    {
        return Error::usage(format!("unrecognized command '{word}'"), "", help(None));
    }
    if error.kind() == ErrorKind::MissingRequiredArgument && name.is_some_and(|name| name == "show") {
        return Error::usage(first, "", "KIND is strategies, models, workloads or metrics");
    }
    if let Some(said) = taken_for_a_word(name, &first) {
        return Error::usage(first, "", said);
    }
    let suggested = [ContextKind::SuggestedArg, ContextKind::SuggestedSubcommand, ContextKind::SuggestedValue];
    let remedy = match (name, words.first()) {
        // Options of the main job stand before a command.
        (Some(name), Some(option)) if error.kind() == ErrorKind::ArgumentConflict && option.starts_with('-') => {
            format!("put the command first: vpmu {name} {option} ...")
        }
        _ => suggested
            .into_iter()
            .find_map(get)
            .map_or_else(|| help(name), |suggested| format!("did you mean {suggested}?")),
    };
    Error::usage(first, "", remedy)
}

fn elsewhere(command: &str, option: Option<&str>) -> Option<Error> {
    let option = option?.split(['=', ' ']).next()?;
    let (_, _, remedy) = ELSEWHERE.iter().find(|(of, other, _)| *of == command && *other == option)?;
    Some(Error::usage(format!("vpmu {command} has no option {option}"), "", *remedy))
}

/// Names the command that prints help.
fn help(command: Option<&String>) -> String {
    match command {
        Some(name) => format!("`vpmu {name} --help` lists its options"),
        None => "`vpmu --help` lists commands and options".to_owned(),
    }
}

/// Returns the help of the main job, where clap takes an option's value, as in `vpmu --guest linux`, for the command.
fn taken_for_a_word(name: Option<&String>, said: &str) -> Option<&'static str> {
    let main_job = name.is_none_or(|name| name == "linux");
    (main_job && said.contains("--kernel")).then_some("`vpmu nmi-latency --help` lists the options of --guest linux")
}

/// Parses the options of one command from a line without program and command name.
#[cfg(test)]
pub(super) fn parsed<A: clap::Args>(line: &[&str]) -> Result<A, Error> {
    let command = A::augment_args(Command::new("vpmu").no_binary_name(true));
    let words: Vec<OsString> = std::iter::once(&"vpmu").chain(line).map(OsString::from).collect();
    let matches = command.clone().try_get_matches_from(line).map_err(|found| error(&found, &command, &words))?;
    A::from_arg_matches(&matches).map_err(|found| error(&found, &command, &words))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_option_of_another_command_is_named_with_it() {
        let error = elsewhere("stat-setup", Some("--samples=3")).unwrap().to_string();
        assert_eq!(error, "vpmu stat-setup has no option --samples; vpmu guest-stat has it");
        assert_eq!((elsewhere("report", Some("--samples")), elsewhere("sim", None)), (None, None));
    }
}
