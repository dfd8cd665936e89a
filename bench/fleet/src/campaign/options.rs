//! Options of an experiment as a plan writes them, and as words of a command line.

use serde::Deserialize;
use toml::{Table, Value};

/// Options that a campaign sets itself, or that would keep a result from its folder.
const OWN: [&str; 8] = ["output", "json", "quiet", "no-save", "save-baseline", "dry-run", "part", "markdown"];

/// Options by their long names: `rounds = 160`, `strategy = ['reuse', 'gate']`, `quick = true`, `cost.open = [0.1, 1]`.
/// `args` is a list of further words, such as a model.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(transparent)]
pub struct Options(Table);

impl Options {
    /// Checks names and types; what an option's value may be is the command's business.
    ///
    /// # Errors
    /// A fault, with `whose` options they are.
    pub fn check(&self, whose: &str) -> Result<(), String> {
        for (name, value) in &self.0 {
            let is_plain = name.starts_with(|c: char| c.is_ascii_lowercase() || c.is_ascii_digit())
                && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-');
            let words = words_of(name, value);
            let why = if !is_plain {
                "write its long name without the dashes, such as time-limit = '1s'"
            } else if OWN.contains(&name.as_str()) {
                "the campaign sets it"
            } else if words.is_none() {
                "give text, a number, true, or a list of texts or numbers"
            } else if name == ARGS && words.iter().flatten().any(|word| word.starts_with('-')) {
                "give options by their names, and here only words without dashes"
            } else {
                continue;
            };
            return Err(format!("{whose}: option {name}: {why}"));
        }
        Ok(())
    }

    /// Formats the options as words, in the order of their names, `args` first.
    pub fn words(&self) -> Vec<String> {
        let mut words = self.0.get(ARGS).and_then(|args| words_of(ARGS, args)).unwrap_or_default();
        let others = self.0.iter().filter(|(name, _)| *name != ARGS);
        words.extend(others.filter_map(|(name, value)| words_of(name, value)).flatten());
        words
    }

    /// Merges the values of `other` into these, in place of those of the same name.
    pub fn with(&self, other: &Self) -> Self {
        let mut all = self.0.clone();
        all.extend(other.0.clone());
        Self(all)
    }
}

/// The key of words that are no options.
const ARGS: &str = "args";

fn words_of(name: &str, value: &Value) -> Option<Vec<String>> {
    if name == ARGS {
        let Value::Array(words) = value else { return None };
        return words.iter().map(|word| Some(word.as_str()?.to_owned())).collect();
    }
    let option = format!("--{name}");
    Some(match value {
        Value::Boolean(true) => vec![option],
        Value::Boolean(false) => Vec::new(),
        // Axes: `cost.open = [0.1, 1]` is --cost open=0.1,1.
        Value::Table(axes) => {
            let mut words = Vec::new();
            for (key, value) in axes {
                words.extend([option.clone(), format!("{key}={}", text(value)?)]);
            }
            words
        }
        value => vec![option, text(value)?],
    })
}

/// Formats a value as an option takes it: lists with commas.
fn text(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Integer(number) => Some(number.to_string()),
        Value::Float(number) => Some(number.to_string()),
        Value::Array(list) if !list.is_empty() => {
            let list: Option<Vec<String>> =
                list.iter().map(|entry| if entry.is_array() { None } else { text(entry) }).collect();
            Some(list?.join(","))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(text: &str) -> Options {
        Options(toml::from_str(text).unwrap())
    }

    #[test]
    fn options_become_words() {
        let options = options(
            "rounds = 160\nstrategy = ['reuse', 'gate']\nquick = true\nverbose = false\nargs = ['clx-ap']\n\
             cost = { open = [0.1, 1], exit = 2 }\ntime-limit = '100ms'\n",
        );
        options.check("x").unwrap();
        assert_eq!(
            options.words().join(" "),
            "clx-ap --cost exit=2 --cost open=0.1,1 --quick --rounds 160 --strategy reuse,gate --time-limit 100ms"
        );
    }

    #[test]
    fn what_the_campaign_sets_and_what_is_no_option_is_refused() {
        for (text, needle) in [
            ("output = 'x'", "the campaign sets it"),
            ("no-save = true", "the campaign sets it"),
            ("'--rounds' = 1", "without the dashes"),
            ("Rounds = 1", "without the dashes"),
            ("rounds = []", "a list of texts"),
            ("rounds = [[1]]", "a list of texts"),
            ("rounds = 2020-01-01", "give text"),
            ("args = 'x'", "give text"),
            ("args = ['--no-save']", "without dashes"),
        ] {
            let error = options(text).check("experiment 'x'").unwrap_err();
            assert!(error.starts_with("experiment 'x': option ") && error.contains(needle), "{error}");
        }
    }
}
