//! Usage errors: clap's message folded into one line, with a remedy.

use std::ffi::OsString;

use clap::Command;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use results::error::Error;

use crate::removed;

/// Folds clap's lines into one: what is wrong, and its tip or where help is. `args` has the program's name first.
pub(super) fn error(error: &clap::Error, definition: &Command, args: &[OsString]) -> Error {
    let words: Vec<_> = args.iter().skip(1).map(|arg| arg.to_string_lossy().into_owned()).collect();
    let get = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.as_str()),
        _ => None,
    };
    let path = path(definition, words.iter().take_while(|word| get(ContextKind::InvalidSubcommand) != Some(word)));
    let option = get(ContextKind::InvalidArg).and_then(|arg| arg.split(['=', ' ']).next());
    let gone = match (option, get(ContextKind::InvalidSubcommand), get(ContextKind::InvalidValue)) {
        (Some(option), _, Some(value)) => removed::option(&path, &format!("{option} {value}")),
        (Some(option), ..) => removed::option(&path, option),
        (_, Some(word), _) => removed::command(&path, word),
        _ => None,
    };
    if let Some(gone) = gone {
        return gone;
    }
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
        (ErrorKind::ArgumentConflict, _) if path.is_empty() => "the command comes before its options".to_owned(),
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

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::app::run;

    /// A line, and what its error says. None of them needs KVM, and none leaves a file.
    const REFUSED: &[(&str, &str)] = &[
        // Words that are none.
        ("bogus", "unrecognized subcommand 'bogus'; `vpmu --help` lists the commands"),
        ("--strateg reuse", "'--strategy'"),
        ("sim --pin 0", "unexpected argument '--pin' found; `vpmu sim --help` lists its options"),
        ("stat-setup --json=x.json", "unexpected value 'x.json' for '--json'"),
        ("--json doctor", "the command comes before its options"),
        ("show", "<KIND>"),
        ("show strategies mediated", "no definition in TOML"),
        ("show models clx", "There are development-host"),
        // Guests of record and trace.
        ("record", "vpmu record: no command given; `vpmu record --help`"),
        ("record -g", "requires a subcommand"),
        ("record -z 3 -- payload", "unrecognized subcommand '3'; `vpmu record --help`"),
        ("record --vcpus 2 -- run k.elf", "'run --vcpus' exists"),
        ("record -- run k.elf -F 100", "`vpmu record run --help`"),
        ("record -F 5 -c 5 payload", "--count"),
        ("record -e cycels payload", "cpu-clock"),
        ("record --interval 1ms payload", "100ms"),
        // Values.
        ("--period 0", "'--period <N>': 0 is out of range; give 2 to"),
        ("--rounds=-3", "--rounds"),
        ("--pin 8000 --quiet", "not online"),
        ("--strategy reues", "did you mean reuse? There are recreate"),
        ("--strategy mediated", "simulate it: vpmu sim spr-2026 --strategy mediated"),
        ("--strategy reuse,mediated-filter --backend none", "no guest of vpmu's own VMM can have it"),
        ("--backend abacus", "cpu-clock"),
        ("--backend tracepoint:../../x/y", "GROUP/NAME"),
        ("--backend step", "vpmu conformance"),
        ("--backend sim:icx-2021 --pin 0", "not supported by a simulated host"),
        ("--backend sim:spr-2026 --strategy mediated --cpu milan", "owns an Intel's PMU alone"),
        ("--guest linux", "--kernel"),
        ("-o Cargo.toml", "-o DIR"),
        ("sim -o -", "several files do not go to stdout"),
        ("sim --force", "--save-baseline"),
        ("sim --cpus 2", "more than the vCPUs can use"),
        ("sweep vcpus=1-1000", "a range, where a number is wanted"),
        ("sweep --part 5/4", "K from 1 to N"),
        ("guest-stat --backend step", "vpmu conformance"),
        ("conformance -q --backend tracepoint:kvm/kvm_exit", "does not serve conformance"),
        ("report .", "no .json"),
        ("export no-such.json --format csv", "No such file"),
        ("advise --on this-host,icx-2021", "this-host and a model are not one answer"),
        ("advise --backend sim:icx-2021", "take --on icx-2021"),
        ("advise --rounds 4", "no interval; take --rounds 5"),
        ("advise --backend step", "backend step measures no latencies"),
        ("advise --strategy gate,mediated", "no guest of vpmu's own VMM can have it"),
        ("advise --strategy gate,mediated --on spr-2026,development-host", "cannot have strategy mediated"),
        // Images and kernels.
        ("run x --memory 4G", "2M to 3G"),
        ("run x --environ A", "KEY=VALUE"),
        ("linux k --get /x", "--run"),
        ("linux k --initrd i --run x", "--initrd"),
        ("run x --environ =1", "KEY of letters"),
        ("linux k --with=", "FILE"),
        ("linux k --load nested=1", "NAME PARAMETER=VALUE"),
        ("linux k --cpu epyc", "clx"),
    ];

    #[test]
    fn bad_usage_is_exit_2_in_one_line_and_leaves_no_folder() {
        let mut wrong = Vec::new();
        for (line, needle) in REFUSED {
            let words = std::iter::once("vpmu").chain(line.split(' ')).map(Into::into);
            let error = run(words).expect_err(line);
            let text = error.to_string();
            if error.exit.code() != 2 || !text.contains(needle) || text.contains('\n') {
                wrong.push(format!("{line}: {text} lacks {needle:?}"));
            }
        }
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
        assert!(!Path::new("vpmu-results").exists());
    }
}
