//! Values of options that clap must know in advance, for help and completions.

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};

/// Parses one of `all`, by name.
pub(super) fn one_of<T: Copy + Send + Sync + 'static>(
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
