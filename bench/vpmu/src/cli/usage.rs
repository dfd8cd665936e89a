//! Usage errors in one line, with the new name of an option that was renamed.

use std::ffi::{OsStr, OsString};
use std::path::Path;

use clap::Command;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use results::error::{Error, one_line};

use super::sides;

/// Options that a command no longer has: the command, the option, the remedy.
const RENAMED: &[(&str, &str, &str)] = &[
    ("compare", "--p", "it is --alpha"),
    ("compare", "--strength", "it is --threshold"),
    ("compare", "--statistic", "it is --quantile"),
    ("compare", "--allow-unlike-hosts", "it is --ignore-host-differences"),
    ("compare", "--thresholds", "it is --rules, with keys alpha and threshold in place of p and strength"),
    ("history", "--p", "it is --alpha"),
    ("history", "--strength", "it is --threshold"),
    ("history", "--statistic", "it is --quantile"),
    ("stat-setup", "--in", "inside a guest it is vpmu guest-stat"),
    ("stat-setup", "--backend", "vpmu guest-stat has it"),
    ("stat-setup", "--vcpus", "vpmu guest-stat has it"),
    ("stat-setup", "--samples", "vpmu guest-stat has it"),
    ("guest-stat", "--cpus", "it is --vcpus and --pin"),
    ("guest-stat", "--count", "it is --window"),
    ("sim", "--backend", "the model is the backend: vpmu sim MODEL, or vpmu nmi-latency --backend KEY"),
    ("sim", "--pin", "each simulated vCPU has a CPU of its own"),
    ("sim", "--no-seccomp", "a simulation confines no threads"),
];

/// Commands with a `--json` that took a file.
const TOOK_A_FILE: [&str; 4] = ["nmi-latency", "sim", "stat-setup", "guest-stat"];

/// One line of clap's several: what is wrong, with which value, and where help is. `args` has the program's name first.
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
    if let Some(renamed) = renamed(name.map_or("", String::as_str), get(ContextKind::InvalidArg).as_deref()) {
        return renamed;
    }
    if matches!(words.first().map(String::as_str), Some("record" | "top"))
        && let Some(said) = sides::error(error, command, &words)
    {
        return said;
    }
    if let Some(value) = value_of_json(&words, name) {
        return Error::usage(
            format!("--json takes no file ('{}')", one_line(value)),
            "it puts the document on stdout",
            format!("--json > {}, or -o for the command's own output", if value == "-" { "FILE" } else { value }),
        );
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

fn renamed(command: &str, option: Option<&str>) -> Option<Error> {
    let option = option?.split(['=', ' ']).next()?;
    let (_, _, remedy) = RENAMED.iter().find(|(of, old, _)| *of == command && *old == option)?;
    Some(Error::usage(format!("vpmu {command} has no option {option}"), "", *remedy))
}

/// The file after `--json`, which was no flag once.
fn value_of_json<'a>(words: &'a [String], command: Option<&String>) -> Option<&'a str> {
    if command.is_some_and(|name| !TOOK_A_FILE.contains(&name.as_str())) {
        return None;
    }
    let at = words.iter().position(|word| word == "--json" || word.starts_with("--json="))?;
    match words[at].strip_prefix("--json=") {
        Some(value) => Some(value),
        None => {
            let next = words.get(at + 1)?;
            let file = next == "-" || Path::new(next).extension() == Some(OsStr::new("json"));
            file.then_some(next)
        }
    }
}

/// Where help is.
fn help(command: Option<&String>) -> String {
    match command {
        Some(name) => format!("`vpmu {name} --help` lists its options"),
        None => "`vpmu --help` lists commands and options".to_owned(),
    }
}

/// Help of the main job, where clap takes an option's value, as in `vpmu --guest linux`, for the command.
fn taken_for_a_word(name: Option<&String>, said: &str) -> Option<&'static str> {
    let main_job = name.is_none_or(|name| name == "linux");
    (main_job && said.contains("--kernel")).then_some("`vpmu nmi-latency --help` lists the options of --guest linux")
}

/// The options of one command from a line without program and command name.
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
    fn an_old_name_names_the_new_one() {
        let error = renamed("compare", Some("--p")).unwrap().to_string();
        assert_eq!(error, "vpmu compare has no option --p; it is --alpha");
        assert!(renamed("compare", Some("--statistic=p10")).unwrap().to_string().contains("--quantile"));
        assert_eq!(renamed("report", Some("--p")), None);
        assert_eq!(renamed("compare", None), None);
    }

    #[test]
    fn a_file_after_json_is_found() {
        let words = |line: &str| line.split(' ').map(str::to_owned).collect::<Vec<_>>();
        for (line, file) in [
            ("--json x.json", Some("x.json")),
            ("--json=x", Some("x")),
            ("--rounds 3 --json -", Some("-")),
            ("--json --rounds", None),
            ("--json", None),
            ("--json doctor", None),
        ] {
            assert_eq!(value_of_json(&words(line), None), file, "{line}");
        }
        let compare = "compare".to_owned();
        assert_eq!(value_of_json(&words("compare --json a.json"), Some(&compare)), None);
    }
}
