//! Values as people write them, and names that they may have meant.

use std::borrow::Borrow;
use std::time::Duration;

/// Reads a duration like `4ms`, `250us`, `1.5s`, `1h 30m`: decimal numbers with their units. Exact to the nanosecond.
pub fn duration(text: &str) -> Result<Duration, String> {
    // The Greek letter, too, stands for micro.
    humantime::parse_duration(&text.replace('μ', "µ")).map_err(|error| match error {
        humantime::DurationError::NumberOverflow => "too long, or finer than 1 ns".to_owned(),
        humantime::DurationError::UnknownUnit { .. } => {
            "a duration needs its unit: ns, us, ms, s, m or h, e.g. 4ms".to_owned()
        }
        _ => "not a duration; give e.g. 4ms or 1.5s".to_owned(),
    })
}

/// Suggests a remedy for a name that is none of `known`: the one most like it, if any is, and all of them; `or` is what
/// else may be given.
pub fn suggestion<S: Borrow<str>>(name: &str, known: &[S], or: &str) -> String {
    let all = format!("{}{or}", known.join(", "));
    match most_like(name, known.iter().map(Borrow::borrow)) {
        Some(like) => format!("did you mean {like}? There are {all}"),
        None => format!("there are {all}"),
    }
}

/// Describes the fault of a TOML text: its line, and to a name that is not known the one most like it.
pub fn fault(text: &str, error: &toml::de::Error) -> String {
    let line = error.span().map_or(1, |span| 1 + text[..span.start].matches('\n').count());
    let (message, names) = (error.message(), || error.message().split('`').skip(1).step_by(2));
    let nearest = names().next().and_then(|name| most_like(name, names().skip(1)));
    let nearest = nearest.filter(|_| message.starts_with("unknown "));
    let nearest = nearest.map_or_else(String::new, |name| format!(" (did you mean {name}?)"));
    format!("line {line}: {message}{nearest}")
}

/// Finds the first of `known` that begins with `name`, else the one that is most like it, if any is.
fn most_like<'a>(name: &str, known: impl Iterator<Item = &'a str> + Clone) -> Option<&'a str> {
    if let Some(longer) = known.clone().find(|known| !name.is_empty() && known.starts_with(name)) {
        return Some(longer);
    }
    let by_likeness = known.map(|known| (strsim::jaro(name, known), known));
    // clap's own bound for options and commands.
    by_likeness.max_by(|(a, _), (b, _)| a.total_cmp(b)).filter(|(likeness, _)| *likeness > 0.7).map(|(_, like)| like)
}
