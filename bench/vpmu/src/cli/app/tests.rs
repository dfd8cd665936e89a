//! Tests of the command line as a whole.

use super::*;

fn main_job(line: &[&str]) -> Result<NmiLatencyArgs, Error> {
    match parse(std::iter::once("vpmu").chain(line.iter().copied()))? {
        Parsed::Run(Command::NmiLatency(args)) => Ok(*args),
        other => panic!("not nmi-latency: {other:?}"),
    }
}

#[test]
fn a_line_of_a_plan_is_checked_to_its_names_and_estimated() {
    let check = |line: &[&str]| check(std::iter::once("vpmu").chain(line.iter().copied()).map(str::to_owned).collect());
    for (line, needle) in [
        (&["nmi-latency", "--strategy", "reues"][..], "unknown strategy 'reues'"),
        (&["nmi-latency", "--backend", "sim:hots"], "no model 'hots'"),
        (&["sim", "no-model"], "no model 'no-model'"),
        (&["guest-stat", "--strategy", "reues"], "unknown strategy"),
        (&["stat-setup", "--strategy", "reues"], "reues"),
        (&["nmi-latency", "--rond", "3"], "--rond"),
    ] {
        let error = check(line).unwrap_err();
        assert!(error.exit.code() == 2 && error.to_string().contains(needle), "{error} lacks {needle:?}");
    }
    // A file is looked for where the command runs.
    assert!(check(&["sim", "elsewhere.toml", "--strategy", "reuse,mine.toml"]).unwrap().is_none());
    assert!(check(&["nmi-latency", "--guest", "linux", "--kernel", "vmlinuz"]).unwrap().is_none());
    let one = check(&["guest-stat", "--events", "10"]).unwrap().unwrap();
    assert!(check(&["guest-stat", "--events", "10,10"]).unwrap().unwrap() == 2 * one && !one.is_zero());
}

#[test]
fn definitions_are_consistent() {
    definition().debug_assert();
}

#[test]
fn no_command_is_the_main_job_with_its_defaults() {
    let args = main_job(&[]).unwrap();
    assert_eq!(args.spec.arms.strategy.len(), 3);
    assert_eq!(main_job(&["nmi-latency"]).unwrap().spec.arms.rounds, args.spec.arms.rounds);
    assert_eq!(main_job(&["--rounds", "3"]).unwrap().spec.arms.rounds, Some(3));
}

#[test]
fn json_is_a_flag_and_a_command_comes_before_its_options() {
    assert!(main_job(&["--json"]).unwrap().result.json);
    for (line, needle) in [
        (&["--json", "x.json"][..], "x.json"),
        (&["--json=x"], "unexpected value 'x' for '--json'"),
        (&["--json", "doctor"], "vpmu doctor --json"),
        (&["frobnicate"], "frobnicate"),
    ] {
        let error = main_job(line).unwrap_err();
        assert!(error.to_string().contains(needle), "{error} lacks {needle}");
    }
}

#[test]
fn help_and_version_are_not_errors() {
    for (flag, needle) in [("--help", "Examples:"), ("--version", env!("CARGO_PKG_VERSION"))] {
        let Parsed::Print(text) = parse(["vpmu", flag]).unwrap() else { panic!() };
        assert!(text.contains(needle));
    }
}

#[test]
fn help_is_a_command_too() {
    let printed = |line: &[&str]| match parse(line) {
        Ok(Parsed::Print(text)) => text,
        other => panic!("{line:?}: {other:?}"),
    };
    assert_eq!(printed(&["vpmu", "help"]), printed(&["vpmu", "--help"]));
    assert_eq!(printed(&["vpmu", "help", "sim"]), printed(&["vpmu", "sim", "--help"]));
    assert_eq!(printed(&["vpmu", "help", "record", "payload"]), printed(&["vpmu", "record", "payload", "--help"]));
    let error = parse(["vpmu", "help", "docter"]).unwrap_err();
    assert!(error.to_string().contains("did you mean doctor"), "{error}");
}

#[test]
fn help_of_every_command_begins_with_what_it_does() {
    let definition = definition();
    for command in definition.get_subcommands() {
        let about = command.get_about().unwrap().to_string();
        for help in ["--help", "-h"] {
            let Ok(Parsed::Print(text)) = parse(["vpmu", command.get_name(), help]) else { panic!() };
            let start: String = about.chars().take(40).collect();
            assert!(text.starts_with(&start), "{} {help}: {text}", command.get_name());
        }
    }
}

/// Exit codes are part of the interface: each command's help ends with its own.
#[test]
fn help_of_every_command_ends_with_its_exit_codes() {
    let definition = definition();
    let shown = definition.get_subcommands().filter(|command| !command.is_hide_set());
    for command in std::iter::once(&definition).chain(shown) {
        let text = after_help(command).unwrap_or_default();
        let codes = text.split("\nExit codes: ").nth(1).unwrap_or_else(|| panic!("{} has none", command.get_name()));
        assert!(codes.starts_with("0 ") && !codes.contains("\n\n"), "{}: {codes}", command.get_name());
        assert!(codes.replace('\n', " ").ends_with("70 a bug of vpmu."), "{}: {codes}", command.get_name());
    }
}

/// Help fits a terminal of 80 columns and one of 60, and every command shows examples.
#[test]
fn help_fits_narrow_terminals_and_teaches_by_example() {
    for width in [60, 80] {
        let mut command = definition().term_width(width);
        command.build();
        let shown = command.get_subcommands().filter(|command| !command.is_hide_set());
        let all = std::iter::once(command.clone()).chain(shown.cloned());
        for command in all {
            let name = command.get_name().to_owned();
            let text = command.term_width(width).render_long_help().to_string();
            assert!(text.contains("Examples:\n  "), "{name} has no examples");
            let long = text.lines().find(|line| line.chars().count() > width);
            assert_eq!(long, None, "{name} at {width} columns");
        }
    }
}

/// Examples are broken by hand, so they are measured as written: the help wraps its text to any width.
#[test]
fn examples_of_help_are_at_most_72_columns_as_written() {
    for text in definition().get_subcommands().filter_map(after_help).chain(after_help(&definition())) {
        let long = text.lines().find(|line| line.chars().count() > 72);
        assert_eq!(long, None);
    }
}

#[test]
fn examples_of_help_are_command_lines_that_parse() {
    let mut texts: Vec<String> = definition().get_subcommands().filter_map(after_help).collect();
    texts.extend(after_help(&definition()));
    let mut found = 0;
    for text in texts {
        let joined = text.replace("\\\n", " ");
        for line in joined.lines().map(str::trim).filter(|line| *line == "vpmu" || line.starts_with("vpmu ")) {
            let words = words(line);
            assert!(parse(&words).is_ok(), "{line}: {:?}", parse(&words).err());
            found += 1;
        }
    }
    assert!(found > 40, "{found}");
}

/// Words of a shell's line up to a pipe or redirection; single quotes keep spaces.
fn words(line: &str) -> Vec<String> {
    let parts = line.split('\'').enumerate().flat_map(|(at, part)| match at % 2 {
        0 => part.split_whitespace().map(str::to_owned).collect(),
        _ => vec![part.to_owned()],
    });
    parts.take_while(|word| word != "|" && word != ">").collect()
}

fn after_help(command: &clap::Command) -> Option<String> {
    command.get_after_help().map(ToString::to_string)
}
