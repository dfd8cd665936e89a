//! Values as users write them: durations, sizes, bounded numbers.

use std::borrow::Borrow;
use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Args, Command};
use results::error::Error;
use vmm::machine::Cpu;

pub use results::parse::{duration, fault};

/// How names of processors begin, and their short forms in names of guests' processors and of models.
const PROCESSORS: [(&str, &str); 3] = [("cascade", "clx"), ("ice", "icx"), ("sapphire", "spr")];

/// Suggests a remedy for a name that is none of `known`, as [`results::parse::suggestion`], of processors by their whole names, too.
pub fn suggestion<S: Borrow<str>>(name: &str, known: &[S], or: &str) -> String {
    let lower = name.to_lowercase();
    let short = PROCESSORS.iter().find(|(whole, _)| lower.starts_with(whole));
    results::parse::suggestion(short.map_or(name, |(_, short)| short), known, or)
}

/// A folder that a command writes several files to. `-` is stdout for commands that write one.
pub fn folder(text: &str) -> Result<PathBuf, String> {
    match text {
        "" => Err("an empty name; give a folder".to_owned()),
        "-" => Err("several files do not go to stdout; give a folder (./- for one of that name)".to_owned()),
        path => Ok(PathBuf::from(path)),
    }
}

/// A share above 0 and up to 1: `3%` or `0.03`.
pub fn share(text: &str) -> Result<f64, String> {
    let text = text.trim();
    let (number, whole) = text.strip_suffix('%').map_or((text, 1.0), |number| (number.trim_end(), 100.0));
    let share = number.parse::<f64>().map_err(|_| "not a share; give e.g. 3% or 0.03".to_owned())? / whole;
    if share > 0.0 && share <= 1.0 {
        Ok(share)
    } else if share > 1.0 && share <= 100.0 && !text.ends_with('%') {
        Err(format!("out of range; {share} % is {} or {share}%", share / 100.0))
    } else {
        Err("out of range; give more than 0% and up to 100%".to_owned())
    }
}

/// A level of significance, above 0 and up to one half.
pub fn level(text: &str) -> Result<f64, String> {
    let level = share(text)?;
    if level <= 0.5 { Ok(level) } else { Err("out of range; a level is at most 0.5".to_owned()) }
}

/// A duration within `range`.
pub fn duration_in(
    range: RangeInclusive<Duration>,
) -> impl Fn(&str) -> Result<Duration, String> + Clone + Send + Sync + 'static {
    move |text| {
        let value = duration(text)?;
        if range.contains(&value) {
            Ok(value)
        } else {
            Err(format!("{value:?} is out of range; give {:?} to {:?}", range.start(), range.end()))
        }
    }
}

/// A whole number within `range`; `_` may group digits.
pub fn number_in(range: RangeInclusive<u64>) -> impl Fn(&str) -> Result<u64, String> + Clone + Send + Sync + 'static {
    move |text| {
        let value = text.replace('_', "").parse::<u64>().map_err(|_| "not a whole number".to_owned());
        let bounded = value.and_then(|n| if range.contains(&n) { Ok(n) } else { Err(format!("{n} is out of range")) });
        bounded.map_err(|why| format!("{why}; give {} to {}", range.start(), range.end()))
    }
}

/// A size in bytes like `256M` within `range`: a whole number and K, M or G; a multiple of 4K.
pub fn size_in(range: RangeInclusive<u64>) -> impl Fn(&str) -> Result<u64, String> + Clone + Send + Sync + 'static {
    move |text| {
        let text = text.trim();
        let unit = text.chars().last().and_then(|last| "KMG".find(last.to_ascii_uppercase()));
        let unit = unit.ok_or("a size needs its unit: K, M or G, e.g. 256M")?;
        let number = text[..text.len() - 1].parse::<u64>().map_err(|_| "not a size; give e.g. 256M")?;
        let bytes = number.checked_mul(1024 << (10 * unit)).filter(|bytes| range.contains(bytes));
        let bytes =
            bytes.ok_or_else(|| format!("out of range; give {}M to {}G", range.start() >> 20, range.end() >> 30))?;
        if bytes.is_multiple_of(4096) { Ok(bytes) } else { Err("not a multiple of 4K".to_owned()) }
    }
}

/// One of `all`, by name. Help lists the names.
pub fn one_of<T: Copy + Send + Sync + 'static>(
    all: &'static [T],
    name: fn(T) -> &'static str,
    about: fn(T) -> &'static str,
) -> impl TypedValueParser<Value = T> {
    let shown = all.iter().map(move |&value| PossibleValue::new(name(value)).help(about(value)));
    PossibleValuesParser::new(shown).try_map(move |text| {
        let found = all.iter().copied().find(|&value| name(value) == text);
        found.ok_or_else(|| std::io::Error::other("no such value"))
    })
}

/// A processor of a guest.
pub fn processor() -> impl TypedValueParser<Value = Cpu> {
    const ALL: [Cpu; 4] = [Cpu::CascadeLake, Cpu::Generic, Cpu::Milan, Cpu::Genoa];
    one_of(&ALL, Cpu::name, |cpu| match cpu {
        Cpu::CascadeLake => "Cascade Lake-SP: family 6, model 0x55",
        Cpu::Generic => "An Intel processor of no known model: Linux uses the architectural PMU alone",
        Cpu::Milan => "AMD EPYC 7003: family 0x19, six counters without a global control",
        Cpu::Genoa => "AMD EPYC 9004: family 0x19, PerfMonV2",
    })
}

/// Reads options from a line without a program's name.
///
/// # Errors
/// clap's.
pub fn options<A: Args>(line: &[&str]) -> Result<A, clap::Error> {
    let command = A::augment_args(Command::new("vpmu").no_binary_name(true).args_override_self(true));
    A::from_arg_matches(&command.try_get_matches_from(line)?)
}

/// Returns the options that a line without any of them has.
///
/// # Panics
/// If one of them must be given.
pub fn defaults<A: Args>() -> A {
    options(&[]).expect("options that need not be given")
}

/// Returns whether a word is a file of definitions, and no name.
pub fn is_toml(word: &str) -> bool {
    Path::new(word).extension().is_some_and(|extension| extension == "toml")
}

/// Keys and their values, as text: options as a table has them.
pub type Keys = BTreeMap<String, String>;

/// Returns the text of a key's value in TOML: text, a number, true or false.
pub fn value_text(value: &toml::Value) -> Option<String> {
    match value {
        toml::Value::String(text) => Some(text.clone()),
        toml::Value::Integer(_) | toml::Value::Float(_) | toml::Value::Boolean(_) => Some(value.to_string()),
        _ => None,
    }
}

/// Reads options from keys: what the command line has as `--KEY VALUE`, by the same parsers. `NAME.PART` is `--NAME PART=VALUE`.
///
/// # Errors
/// Exit 2 with the key that is wrong.
pub fn of_keys<A: Args>(keys: &Keys) -> Result<A, Error> {
    let command = A::augment_args(Command::new("vpmu sim").no_binary_name(true));
    let is_word = |name: &str| command.get_positionals().any(|arg| arg.get_id() == name);
    let (words, others): (Vec<_>, Vec<_>) = keys.iter().partition(|(name, _)| is_word(name));
    let line = others.into_iter().map(|(name, value)| match name.split_once('.') {
        Some((name, part)) => format!("--{name}={part}={value}"),
        None => format!("--{name}={value}"),
    });
    let words = words.into_iter().map(|(_, value)| value.clone());
    let line: Vec<_> = line.chain(std::iter::once("--".to_owned())).chain(words).collect();
    let found = command.try_get_matches_from(line).and_then(|matches| A::from_arg_matches(&matches));
    found.map_err(|error| refused(&error))
}

/// Folds clap's lines into one: what is wrong, and its tip or where help is: that of the command whose usage clap shows.
pub fn refused(error: &clap::Error) -> Error {
    let text = error.to_string();
    let usage = text.lines().find_map(|line| line.trim().strip_prefix("Usage: vpmu ")).unwrap_or_default();
    let path: Vec<_> = usage.split(' ').take_while(|word| word.starts_with(|c: char| c.is_ascii_lowercase())).collect();
    let told = |line: &&str| !["Usage:", "For more information", "[possible"].iter().any(|end| line.starts_with(end));
    let mut lines = text.trim_start_matches("error: ").lines().map(str::trim).take_while(told);
    let what = lines.by_ref().take_while(|line| !line.is_empty()).collect::<Vec<_>>().join(" ");
    if let Some(ContextValue::Strings(known)) =
        error.get(ContextKind::ValidValue).filter(|known| !known.to_string().is_empty())
    {
        let given = error.get(ContextKind::InvalidValue).map(ToString::to_string).unwrap_or_default();
        return Error::usage(what, "", suggestion(&given, known, ""));
    }
    let tip = lines.find_map(|line| line.strip_prefix("tip: ").filter(|tip| tip.contains("exist")));
    let remedy = match (error.kind(), tip, &*path.join(" ")) {
        (_, Some(tip), _) => tip.to_owned(),
        (ErrorKind::UnknownArgument, _, "ab") => "options of the runs stand behind --".to_owned(),
        // What refuses a value says what it takes, and what misses one names its option.
        (ErrorKind::ValueValidation | ErrorKind::InvalidValue, ..) => String::new(),
        (ErrorKind::ArgumentConflict, ..) if text.contains("subcommand") => "give options after the command".to_owned(),
        (ErrorKind::ArgumentConflict, ..) => "leave one of them out".to_owned(),
        (_, _, "") => "`vpmu --help` lists the commands, `vpmu nmi-latency --help` the options".to_owned(),
        (_, _, path) => format!("`vpmu {path} --help` lists its options"),
    };
    if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        return Error::usage("no command given", "", remedy);
    }
    Error::usage(what, "", remedy)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn values_are_read_in_all_their_forms() {
        for (text, ns) in
            [("250us", 250_000), ("4 ms", 4_000_000), ("0.0005ms", 500), ("250μs", 250_000), ("1m 30s", 90_000_000_000)]
        {
            assert_eq!(duration(text), Ok(Duration::from_nanos(ns)), "{text}");
        }
        assert_eq!(["3%", "0.03", " 3 %", "100%", "1"].map(share), [Ok(0.03), Ok(0.03), Ok(0.03), Ok(1.0), Ok(1.0)]);
        assert!(share("3").unwrap_err().ends_with("3 % is 0.03 or 3%"));
        assert!(folder("").is_err() && folder("./-").is_ok());
        assert_eq!(number_in(1..=100_000)("10_000"), Ok(10_000));
        assert_eq!(size_in(4096..=8192)(" 8k "), Ok(8192));
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused_without_a_panic(text in ".{0,40}") {
            let (_, _, _) = (duration(&text), share(&text), folder(&text));
            let (_, _) = (number_in(1..=9)(&text), size_in(4096..=8192)(&text));
            let _ = text.parse::<crate::setting::strategy::StrategyChoice>();
        }
    }
}
