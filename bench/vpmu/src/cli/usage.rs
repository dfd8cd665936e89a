//! Usage errors in one line: the command that has an option, the side of `--` that it belongs to, and how perf's
//! spellings are spelt here.

use std::ffi::OsString;
use std::path::Path;

use clap::Command;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use results::error::{Error, one_line};

use super::record::GUESTS;
use crate::setting::parse;

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
    let command_line = name.map(|name| of_two_words(command, name, &words));
    if let Some(elsewhere) = elsewhere(name.map_or("", String::as_str), get(ContextKind::InvalidArg).as_deref()) {
        return elsewhere;
    }
    if matches!(words.first().map(String::as_str), Some("record" | "top"))
        && let Some(said) = guest_error(error, command, &words)
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
        return Error::usage(format!("{command}: no command given"), "", help(command_line.as_deref()));
    }
    if let Some(said) = misplaced(error, &get(ContextKind::InvalidArg).unwrap_or_default(), args) {
        return said;
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
            .map_or_else(|| help(command_line.as_deref()), |suggested| format!("did you mean {suggested}?")),
    };
    Error::usage(first, "", remedy)
}

/// Returns the error of a word that is no option: a value below 0, a third source of `compare`, or bytes that are no text.
fn misplaced(error: &clap::Error, word: &str, args: &[OsString]) -> Option<Error> {
    let before = |place: usize| {
        let option = args[..place].last().map(|option| option.to_string_lossy()).filter(|it| it.starts_with('-'));
        option.map_or_else(String::new, |option| format!(" for {option}"))
    };
    match error.kind() {
        ErrorKind::UnknownArgument if word.starts_with('-') && word[1..].starts_with(|c: char| c.is_ascii_digit()) => {
            let option = before(args.iter().rposition(|arg| arg.to_str().is_some_and(|arg| arg.starts_with(word)))?);
            let what = format!("bad value '{word}'{option}");
            (!option.is_empty()).then(|| Error::usage(what, "no value here is below 0", "--help has its range"))
        }
        ErrorKind::UnknownArgument if args.get(1)? == "compare" && !word.starts_with('-') => {
            let remedy = "put the results of a side into a folder: vpmu compare BASE-DIR NEW-DIR";
            Some(Error::usage(
                format!("one source too many: {word}"),
                "BASE and NEW are a file or a folder each",
                remedy,
            ))
        }
        ErrorKind::InvalidUtf8 => {
            let place = args.iter().position(|arg| arg.to_str().is_none())?;
            let what = format!("bad value '{}'{}", args[place].to_string_lossy(), before(place));
            Some(Error::usage(what, "it is not UTF-8, and documents and tables could not name it", "give another name"))
        }
        _ => None,
    }
}

fn elsewhere(command: &str, option: Option<&str>) -> Option<Error> {
    let option = option?.split(['=', ' ']).next()?;
    let (_, _, remedy) = ELSEWHERE.iter().find(|(of, other, _)| *of == command && *other == option)?;
    Some(Error::usage(format!("vpmu {command} has no option {option}"), "", *remedy))
}

/// Returns the command with its own command, as in `trace record`, whose options stand there.
fn of_two_words(command: &Command, name: &String, words: &[String]) -> String {
    let own = command.find_subcommand(name);
    let mut behind = words.iter().skip_while(|word| *word != name).skip(1);
    let is_own = |word: &&String| own.is_some_and(|own| own.find_subcommand(word).is_some());
    match behind.find(is_own).filter(|word| !GUESTS.contains(&word.as_str())) {
        Some(second) => format!("{name} {second}"),
        None => name.clone(),
    }
}

/// Names the command that prints help.
fn help(command: Option<&str>) -> String {
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

/// Returns whether all that a command that samples lacks is its guest.
pub(super) fn lacks_guest(error: &clap::Error) -> bool {
    matches!(error.kind(), ErrorKind::MissingSubcommand | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand)
}

/// Ways to unwind that perf's `--call-graph` takes.
const WAYS: [&str; 5] = ["fp", "dwarf", "lbr", "no", "graph"];
const HOW: &str = "give -- payload, run IMAGE or linux KERNEL";

/// Returns the error of a line of `vpmu NAME`, where there is more to say than what clap says. `words` begin with the
/// command's name.
fn guest_error(error: &clap::Error, command: &Command, words: &[String]) -> Option<Error> {
    let name = words.first()?;
    let get = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.as_str()),
        _ => None,
    };
    match error.kind() {
        _ if lacks_guest(error) => Some(Error::usage(format!("vpmu {name}: no guest given"), "", HOW)),
        ErrorKind::UnknownArgument => wrong_side(name, get(ContextKind::InvalidArg)?, command, words),
        ErrorKind::InvalidSubcommand => no_guest(name, get(ContextKind::InvalidSubcommand)?, words),
        ErrorKind::TooManyValues if get(ContextKind::InvalidArg)?.starts_with("--call-graph") => Some(no_way()),
        _ => None,
    }
}

fn no_way() -> Error {
    Error::usage(
        "-g takes no way of unwinding",
        "a Linux kernel's chains are followed by its ORC tables, all others by frame pointers",
        "give -g alone",
    )
}

fn wrong_side(name: &str, unknown: &str, command: &Command, words: &[String]) -> Option<Error> {
    let option = unknown.split(['=', ' ']).next().filter(|option| option.starts_with('-'))?;
    let mut command = command.clone();
    command.build();
    let own = command.find_subcommand(name)?;
    let guest = words.iter().skip(1).position(|word| GUESTS.contains(&word.as_str())).map(|at| at + 1);
    let ahead = guest.is_none_or(|guest| words[1..guest].iter().any(|word| word.starts_with(option)));
    let what = format!("unexpected argument '{}' ", one_line(option));
    if ahead {
        let of: Vec<_> = own.get_subcommands().filter(|guest| has(guest, option)).map(Command::get_name).collect();
        // Several guests have it: that of the line, if it is one of them.
        let named = guest.map(|at| words[at].as_str()).filter(|guest| of.contains(guest));
        let of = named.map_or(of, |guest| vec![guest]);
        let first = of.first()?;
        return Some(Error::usage(
            format!("{what}before the guest"),
            format!("it is an option of {}", of.join(" and ")),
            format!("put it behind the guest: vpmu {name} -- {first} ... {option}"),
        ));
    }
    let guest = &words[guest?];
    has(own, option).then(|| {
        Error::usage(
            format!("{what}behind the guest"),
            format!("it is an option of vpmu {name} itself"),
            format!("put it before the guest: vpmu {name} {option} ... -- {guest} ..."),
        )
    })
}

fn has(command: &Command, option: &str) -> bool {
    command.get_arguments().any(|arg| match option.strip_prefix("--") {
        Some(long) => arg.get_long() == Some(long) || arg.get_all_aliases().is_some_and(|all| all.contains(&long)),
        None => arg.get_short().is_some_and(|short| option.strip_prefix('-') == Some(short.to_string().as_str())),
    })
}

fn no_guest(name: &str, word: &str, words: &[String]) -> Option<Error> {
    let at = words.iter().position(|other| other == word)?;
    let number = !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_digit());
    match (words.get(at - 1).map(String::as_str), number) {
        (Some(option @ ("-z" | "--compression-level")), true) => {
            let spelt = if option == "-z" { format!("-z{word}") } else { format!("{option}={word}") };
            let why = "the level is a part of the option, as it may be left out";
            return Some(Error::usage(format!("a space between {option} and {word}"), why, format!("write {spelt}")));
        }
        (Some("--aio"), true) => {
            let why = "the number is a part of the option, as it may be left out";
            return Some(Error::usage(format!("a space between --aio and {word}"), why, format!("write --aio={word}")));
        }
        (Some("-g" | "--call-graph"), _) if WAYS.contains(&word.split(',').next().unwrap_or(word)) => {
            return Some(no_way());
        }
        _ => {}
    }
    let what = format!("'{}' is no guest", one_line(word));
    let like = parse::most_like(word, GUESTS.into_iter());
    Some(match like {
        _ if Path::new(word).is_file() => Error::usage(
            what,
            "it is a file",
            format!("write -- run {0} for an image, -- linux {0} for a Linux kernel", one_line(word)),
        ),
        Some(like) => Error::usage(what, "", format!("did you mean {like}? {HOW}")),
        None => Error::usage(what, format!("vpmu {name} runs a guest, no command of this host"), HOW),
    })
}

#[cfg(test)]
mod tests {
    use super::super::app::parse;
    use super::*;

    #[test]
    fn an_option_of_another_command_is_named_with_it() {
        let error = elsewhere("stat-setup", Some("--samples=3")).unwrap().to_string();
        assert_eq!(error, "vpmu stat-setup has no option --samples; vpmu guest-stat has it");
        assert_eq!((elsewhere("report", Some("--samples")), elsewhere("sim", None)), (None, None));
    }

    #[test]
    fn an_option_on_the_wrong_side_is_told_the_right_one() {
        for (line, needle) in [
            ("record -- run k.elf -F 100", "before the guest: vpmu record -F ... -- run ..."),
            ("record run k.elf -F100", "before the guest"),
            ("record -- payload --call-graph", "vpmu record --call-graph ... -- payload"),
            ("top -- run k.elf --interval=1s", "vpmu top --interval ... -- run"),
            (
                "record --vcpus 2 -- run k.elf",
                "it is an option of run; put it behind the guest: vpmu record -- run ... --vcpus",
            ),
            ("record --vcpus 2", "payload and run and linux"),
            ("record --initrd x run k.elf", "vpmu record -- run ... --initrd"),
            ("record --nonsense run k.elf", "`vpmu record --help`"),
            ("record run k.elf --nonsense", "`vpmu record --help`"),
            ("record -g", "no guest given"),
            ("record -z 3 -- run k.elf", "write -z3"),
            ("record --compression-level 3 -- run k.elf", "write --compression-level=3"),
            ("record --aio 4 -- run k.elf", "write --aio=4"),
            ("record --call-graph fp -- run k.elf", "give -g alone"),
            ("record --call-graph=dwarf,512 -- run k.elf", "give -g alone"),
            ("record -g -- Cargo.toml", "write -- run Cargo.toml"),
            ("record -- paylod", "did you mean payload?"),
            ("record -- sleep 1", "no command of this host"),
            ("trace import --nonsense", "`vpmu trace import --help`"),
        ] {
            let error = parse(std::iter::once("vpmu").chain(line.split(' '))).unwrap_err();
            assert_eq!(error.exit.code(), 2);
            assert!(error.to_string().contains(needle), "{line}: {error} lacks {needle:?}");
        }
    }
}
