//! Parser for perf's event list syntax, without the parts only sampling uses.
//!
//! ```text
//! list   = item { "," item }
//! item   = event | "{" event { "," event } "}" [ ":" modifiers ]
//! event  = name [ ":" [ modifiers ] ]                page-faults:u, cycles, LLC-load-misses, r1a8
//!        | name "/" terms "/" [ modifiers ]          cs/name=mine/u
//!        | group ":" name [ ":" modifiers ]          sched:sched_switch
//!        | pmu "/" terms "/" [ modifiers ]           cpu/event=0x3c,umask=0/u, msr/tsc/
//!        | type ":" config [ ":" modifiers | "/" terms "/" [ modifiers ] ]   1:1:u, 4:0x1a8/name='a,b'/
//! ```
//!
//! An unknown event name is not a syntax error; the event ends as `<not supported>`.

use super::names::{Modifiers, number, symbol};

/// Maximum length of a list, bytes.
pub const MAX_TEXT: usize = 4 << 20;
/// Maximum number of events of a list.
pub const MAX_EVENTS: usize = 100_000;
/// Maximum length of an event, bytes.
const MAX_EVENT: usize = 1024;

/// Syntactic form of an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A plain name.
    Symbol(String),
    /// A trace event.
    Tracepoint {
        /// Group, such as sched.
        group: String,
        /// Name.
        name: String,
    },
    /// An event of a PMU in sysfs, or a plain name with terms.
    Pmu {
        /// Name of the PMU.
        pmu: String,
        /// Terms such as event=0x3c; a term without value means 1.
        terms: Vec<(String, Option<String>)>,
    },
}

/// An event as written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Written {
    /// The text, with modifiers.
    pub text: String,
    /// Form.
    pub kind: Kind,
    /// Modifiers of the event and of its group.
    pub modifiers: Modifiers,
}

/// A group as written, or a single event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WrittenGroup {
    /// Events, the leader first; never empty.
    pub events: Vec<Written>,
    /// True if the group may be broken up.
    pub weak: bool,
}

/// Says what is wrong, and the text there, at most 40 characters.
fn wrong(what: impl std::fmt::Display, near: &str) -> String {
    format!("{what} at '{}'", near.chars().take(40).collect::<String>())
}

/// Parses a list.
///
/// # Errors
/// The first syntax error.
pub fn parse(text: &str) -> Result<Vec<WrittenGroup>, String> {
    if text.len() > MAX_TEXT {
        return Err(wrong(format!("a list may have {MAX_TEXT} bytes"), text));
    }
    let mut rest = text.trim();
    let mut groups = Vec::new();
    let mut events = 0;
    loop {
        let group;
        if let Some(inside) = rest.strip_prefix('{') {
            (group, rest) = braces(inside)?;
        } else {
            let (event, after) = event(rest)?;
            let weak = event.modifiers.weak();
            group = WrittenGroup { events: vec![event], weak };
            rest = after;
        }
        events += group.events.len();
        if events > MAX_EVENTS {
            return Err(wrong(format!("a list may have {MAX_EVENTS} events"), rest));
        }
        groups.push(group);
        rest = rest.trim_start();
        match rest.strip_prefix(',') {
            Some(after) => rest = after.trim_start(),
            None if rest.is_empty() => return Ok(groups),
            None => return Err(wrong("a comma is missing", rest)),
        }
    }
}

/// Parses a group after its opening brace; returns the rest of the text.
fn braces(text: &str) -> Result<(WrittenGroup, &str), String> {
    let mut rest = text;
    let mut events = Vec::new();
    loop {
        let (event, after) = event(rest.trim_start())?;
        events.push(event);
        if events.len() > MAX_EVENTS {
            return Err(wrong(format!("a list may have {MAX_EVENTS} events"), rest));
        }
        rest = after.trim_start();
        if let Some(after) = rest.strip_prefix(',') {
            rest = after;
        } else if let Some(after) = rest.strip_prefix('}') {
            rest = after;
            break;
        } else if rest.is_empty() {
            return Err(wrong("the closing brace is missing", text));
        } else {
            return Err(wrong("a comma or a closing brace is missing", rest));
        }
    }
    let mut shared = Modifiers::default();
    if let Some(after) = rest.strip_prefix(':') {
        let end = after.find([',', ' ']).unwrap_or(after.len());
        let (letters, after_letters) = after.split_at(end);
        shared = Modifiers::parse(letters.trim()).map_err(|what| wrong(what, letters))?;
        rest = after_letters;
    }
    for event in &mut events {
        event.modifiers = event.modifiers.and(shared);
    }
    Ok((WrittenGroup { events, weak: shared.weak() }, rest))
}

/// Parses one event; returns the rest of the text.
fn event(text: &str) -> Result<(Written, &str), String> {
    let mut in_terms = false;
    let end = text.find(|c: char| {
        in_terms ^= c == '/';
        !in_terms && matches!(c, ',' | '}' | '{')
    });
    let end = end.unwrap_or(text.len());
    if in_terms && end == text.len() {
        return Err(wrong("the closing / is missing", text));
    }
    let (word, rest) = text.split_at(end);
    let word = word.trim();
    if word.is_empty() {
        return Err(wrong("an event's name is missing", text));
    }
    if word.len() > MAX_EVENT {
        return Err(wrong(format!("an event may have {MAX_EVENT} bytes"), word));
    }
    if !word.chars().all(|c| c.is_ascii_graphic()) {
        return Err(wrong("an event's name has printable ASCII without spaces", word));
    }
    if word.starts_with("mem:") {
        return Err(wrong("breakpoints are not set up here", word));
    }
    let (kind, modifiers) = if word.contains('/') { pmu(word)? } else { named(word)? };
    Ok((Written { text: word.to_owned(), kind, modifiers }, rest))
}

fn is_name(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"_-.".contains(&b))
}

/// Returns whether perf takes this between quotes, as a name.
fn is_quotable(text: &str) -> bool {
    let first = text.starts_with(|c: char| c.is_ascii_alphabetic() || "_*?[]".contains(c));
    first && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"_*?-,.[]:=".contains(&b))
}

/// Reads what is left of an event's text, with an optional colon before it.
fn modifiers(letters: &str, word: &str) -> Result<Modifiers, String> {
    match letters.strip_prefix(':').unwrap_or(letters) {
        "" => Ok(Modifiers::default()),
        letters => Modifiers::parse(letters).map_err(|what| wrong(what, word)),
    }
}

/// Reads `name[:modifiers]` or `group:name[:modifiers]`.
fn named(word: &str) -> Result<(Kind, Modifiers), String> {
    // perf takes a colon without modifiers.
    let parts: Vec<&str> = word.strip_suffix(':').unwrap_or(word).split(':').collect();
    if let Some(bad) = parts.iter().find(|part| !is_name(part)) {
        return Err(wrong(
            if bad.is_empty() { "a name is missing" } else { "not a name, and no pattern is taken" },
            word,
        ));
    }
    let tracepoint = |group: &str, name: &str| Kind::Tracepoint { group: group.to_owned(), name: name.to_owned() };
    match *parts.as_slice() {
        [name] => Ok((Kind::Symbol(name.to_owned()), Modifiers::default())),
        [kind, config, ref letters @ ..] if number(kind).is_some() && letters.len() < 2 => {
            let found = modifiers(letters.first().unwrap_or(&""), word)?;
            Ok((Kind::Symbol(format!("{kind}:{config}")), found))
        }
        // As in perf, `cycles:u` is an event with a modifier and `sched:sched_switch` a trace event.
        [name, letters] if symbol(name).is_some() || Modifiers::parse(letters).is_ok() => {
            Ok((Kind::Symbol(name.to_owned()), modifiers(letters, word)?))
        }
        [group, name] => Ok((tracepoint(group, name), Modifiers::default())),
        [group, name, letters] => Ok((tracepoint(group, name), modifiers(letters, word)?)),
        _ => Err(wrong("too many colons", word)),
    }
}

/// Reads `pmu/terms/[modifiers]`, with an optional colon before the modifiers.
fn pmu(word: &str) -> Result<(Kind, Modifiers), String> {
    let parts: Vec<&str> = word.split('/').collect();
    let &[pmu, terms, letters] = parts.as_slice() else {
        return Err(wrong("a PMU's event is pmu/terms/", word));
    };
    let named = is_name(pmu) && !pmu.starts_with('.');
    if !named && symbol(pmu).is_none() {
        return Err(wrong("not a PMU's name", word));
    }
    let mut found = Vec::new();
    let mut quoted = false;
    let terms = terms.split(|c| {
        quoted ^= c == '\'';
        c == ',' && !quoted
    });
    for term in terms.map(str::trim).filter(|term| !term.is_empty()) {
        let (key, value) = match term.split_once('=') {
            Some((key, value)) => (key, Some(value)),
            None => (term, None),
        };
        if !is_name(key) || key.starts_with('.') {
            return Err(wrong("not a term's name", term));
        }
        let value = match value.map(|value| (value, value.strip_prefix('\'').and_then(|rest| rest.strip_suffix('\''))))
        {
            Some((_, Some(inside))) if key == "name" && is_quotable(inside) => Some(inside.to_owned()),
            Some((value, _)) if value.contains('\'') => return Err(wrong("not a name in quotes", term)),
            plain => plain.map(|(value, _)| value.to_owned()),
        };
        found.push((key.to_owned(), value));
    }
    let modifiers = modifiers(letters, word)?;
    Ok((Kind::Pmu { pmu: pmu.to_owned(), terms: found }, modifiers))
}

/// Joins the lines of a file to one list; `#` begins a comment.
pub fn join_lines(text: &str) -> String {
    let lines = text.lines().map(|line| line.split('#').next().unwrap_or_default().trim().trim_end_matches(','));
    lines.filter(|line| !line.is_empty()).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn texts(list: &str) -> Vec<Vec<String>> {
        let groups = parse(list).unwrap();
        groups.into_iter().map(|group| group.events.into_iter().map(|event| event.text).collect()).collect()
    }

    #[test]
    fn every_form_perf_writes() {
        let groups =
            parse("page-faults:u, {cs,migrations}:W ,sched:sched_switch:k,cpu/event=0x3c,umask=0/u,msr/tsc/,r1a8")
                .unwrap();
        assert_eq!(groups.len(), 6);
        assert_eq!(groups[0].events[0].kind, Kind::Symbol("page-faults".into()));
        assert!(groups[1].weak && groups[1].events.len() == 2 && !groups[0].weak);
        let trace = Kind::Tracepoint { group: "sched".into(), name: "sched_switch".into() };
        assert_eq!(groups[2].events[0].kind, trace);
        let Kind::Pmu { pmu, terms } = &groups[3].events[0].kind else { panic!("{groups:?}") };
        assert_eq!(pmu, "cpu");
        assert_eq!(*terms, [("event".into(), Some("0x3c".into())), ("umask".into(), Some("0".into()))]);
        assert_eq!(groups[3].events[0].text, "cpu/event=0x3c,umask=0/u");
        assert_eq!(texts("msr/tsc/,{a,b}"), [vec!["msr/tsc/"], vec!["a", "b"]]);
        assert_eq!(texts("cs:"), [["cs:"]]);
        for (text, name, hypervisor) in [("1:1", "1:1", false), ("0x1:01:hp", "0x1:01", true)] {
            let event = &parse(text).unwrap()[0].events[0];
            assert_eq!(event.kind, Kind::Symbol(name.into()));
            assert_eq!(event.modifiers == Modifiers::parse("hp").unwrap(), hypervisor, "{text}");
        }
        let Kind::Pmu { pmu, terms } = &parse("4:0x6530160/name='a,b:c',period=1/u,cs").unwrap()[0].events[0].kind
        else {
            panic!()
        };
        assert_eq!((pmu.as_str(), terms.len(), terms[0].1.as_deref()), ("4:0x6530160", 2, Some("a,b:c")));
    }

    #[test]
    fn syntax_errors_say_what_and_where() {
        for (list, what) in [
            ("", "name is missing"),
            ("a,,b", "name is missing"),
            ("{a,b", "closing brace"),
            ("{a}b", "comma"),
            ("{a,{b}}", "name is missing"),
            ("{a}:", "no modifier"),
            ("cpu/event=1", "closing /"),
            ("../../etc/passwd/", "pmu/terms/"),
            ("../x/", "not a PMU's name"),
            ("cycles:x", "not a modifier"),
            ("a:b:c:d", "too many colons"),
            ("mem:0x1000:r", "breakpoints"),
            ("1:1:x", "not a modifier"),
            ("sched:*", "not a name, and no pattern is taken"),
            ("1:1/u", "closing /"),
            ("cs/name='1,b'/", "in quotes"),
            ("cs/name='a/", "in quotes"),
            ("pa ge", "without spaces"),
            (":u", "name is missing"),
            ("a\u{1b}[0m", "printable"),
        ] {
            let error = parse(list).unwrap_err();
            assert!(error.contains(what), "{list}: {error}");
        }
    }

    #[test]
    fn a_file_is_a_list_a_line() {
        assert_eq!(join_lines("# mix\ncs,page-faults,\n\n{a,b}:W # weak\n"), "cs,page-faults,{a,b}:W");
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused_without_a_panic(text in "[a-z{}:,/=W*. 0-9é]{0,60}") {
            let _ = parse(&text);
            let _ = parse(&join_lines(&text));
        }
    }
}
