//! Usage errors of commands that have a guest: which side of `--` an option belongs to, and how perf's spellings are spelt here.

use std::path::Path;

use crate::setting::parse;
use clap::Command;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use results::error::{Error, one_line};

use super::record::GUESTS;

/// Ways to unwind that perf's `--call-graph` takes.
const WAYS: [&str; 5] = ["fp", "dwarf", "lbr", "no", "graph"];
const HOW: &str = "give -- payload, run IMAGE or linux KERNEL";

/// Returns the error of a line of `vpmu NAME`, where there is more to say than what clap says. `words` begin with the command's name.
pub(super) fn error(error: &clap::Error, command: &Command, words: &[String]) -> Option<Error> {
    let name = words.first()?;
    let get = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.as_str()),
        _ => None,
    };
    match error.kind() {
        ErrorKind::MissingSubcommand | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            Some(Error::usage(format!("vpmu {name}: no guest given"), "", HOW))
        }
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
            ("top", "no guest given"),
            ("record -z 3 -- run k.elf", "write -z3"),
            ("record --compression-level 3 -- run k.elf", "write --compression-level=3"),
            ("record --aio 4 -- run k.elf", "write --aio=4"),
            ("record --call-graph fp -- run k.elf", "give -g alone"),
            ("record --call-graph=dwarf,512 -- run k.elf", "give -g alone"),
            ("record -g -- Cargo.toml", "write -- run Cargo.toml"),
            ("record -- paylod", "did you mean payload?"),
            ("record -- sleep 1", "no command of this host"),
        ] {
            let error = parse(std::iter::once("vpmu").chain(line.split(' '))).unwrap_err();
            assert_eq!(error.exit.code(), 2);
            assert!(error.to_string().contains(needle), "{line}: {error} lacks {needle:?}");
        }
    }
}
