//! Rust's names as they are written in the source.

/// A symbol as a reader knows it: Rust's names without their hashes, and others as they are. Of the newer mangling plain paths only;
/// what has types in it is left as it is.
#[must_use]
pub fn demangled(symbol: &str) -> String {
    legacy(symbol).or_else(|| plain_path(symbol)).unwrap_or_else(|| symbol.to_owned())
}

/// `_ZN` parts `E`, each with its length; the last is `h` and sixteen digits. Something of the compiler's may follow.
fn legacy(symbol: &str) -> Option<String> {
    const HASH: &str = "17h";
    let symbol = symbol.strip_prefix("_ZN")?;
    let end = symbol.rfind(HASH)? + HASH.len() + 16;
    let mut rest = symbol.get(..end).filter(|_| symbol[end..].starts_with('E'))?;
    let mut parts = Vec::new();
    while !rest.is_empty() {
        let (part, after) = counted(rest)?;
        parts.push(part);
        rest = after;
    }
    let hash = parts.pop()?;
    let is_hash = hash.len() == 17 && hash.starts_with('h') && hash[1..].bytes().all(|byte| byte.is_ascii_hexdigit());
    (is_hash && !parts.is_empty()).then(|| parts.iter().map(|part| unescaped(part)).collect::<Vec<_>>().join("::"))
}

/// A part behind its decimal length.
fn counted(text: &str) -> Option<(&str, &str)> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let length: usize = text[..digits].parse().ok()?;
    let rest = &text[digits..];
    (rest.len() >= length && rest.is_char_boundary(length)).then(|| rest.split_at(length))
}

fn unescaped(part: &str) -> String {
    let part = part.strip_prefix('_').filter(|rest| rest.starts_with('$')).unwrap_or(part);
    [
        ("$LT$", "<"),
        ("$GT$", ">"),
        ("$u20$", " "),
        ("$RF$", "&"),
        ("$BP$", "*"),
        ("$C$", ","),
        ("$LP$", "("),
        ("$RP$", ")"),
    ]
    .into_iter()
    .chain([("$u7b$", "{"), ("$u7d$", "}"), ("$u5b$", "["), ("$u5d$", "]"), ("$u27$", "'"), ("..", "::")])
    .fold(part.to_owned(), |name, (from, to)| name.replace(from, to))
}

/// `_R` and nested names only, those of a type's own functions included: RFC 2603 without generic arguments.
fn plain_path(symbol: &str) -> Option<String> {
    let mut names = Vec::new();
    let whole = symbol.strip_prefix("_R")?;
    let rest = path((whole, whole), &mut names, 64)?;
    // The crate that instantiated it may follow.
    (rest.is_empty() || rest.starts_with(['C', '.'])).then(|| names.join("::"))
}

/// A path at the beginning of `text`, which is a part of `whole`; what follows it.
fn path<'a>((whole, text): (&'a str, &'a str), names: &mut Vec<String>, depth: usize) -> Option<&'a str> {
    let depth = depth.checked_sub(1)?;
    match text.as_bytes().first()? {
        b'C' => name(text.get(1..)?, None, names),
        b'N' => {
            let kind = text.get(1..2)?;
            let rest = path((whole, text.get(2..)?), names, depth)?;
            name(rest, Some(kind), names)
        }
        // Where the implementation is, then the type.
        b'M' => {
            let place = undisambiguated(text.get(1..)?)?;
            let rest = path((whole, place), &mut Vec::new(), depth)?;
            path((whole, rest), names, depth)
        }
        // A path that was there before.
        b'B' => {
            let end = text.find('_')?;
            let at = base_62(text.get(1..end)?)?;
            path((whole, whole.get(at..)?), names, depth)?;
            text.get(end + 1..)
        }
        _ => None,
    }
}

/// Behind an optional `s`, number, `_`.
fn undisambiguated(text: &str) -> Option<&str> {
    match text.strip_prefix('s') {
        Some(rest) => rest.find('_').and_then(|at| rest.get(at + 1..)),
        None => Some(text),
    }
}

/// Nothing is 0, and `0` is 1.
fn base_62(digits: &str) -> Option<usize> {
    let digit = |value: usize, byte: u8| {
        let own = match byte {
            b'0'..=b'9' => byte - b'0',
            b'a'..=b'z' => byte - b'a' + 10,
            b'A'..=b'Z' => byte - b'A' + 36,
            _ => return None,
        };
        value.checked_mul(62)?.checked_add(own.into())
    };
    if digits.is_empty() { Some(0) } else { digits.bytes().try_fold(0, digit)?.checked_add(1) }
}

fn name<'a>(text: &'a str, kind: Option<&str>, names: &mut Vec<String>) -> Option<&'a str> {
    let text = undisambiguated(text)?;
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let length: usize = text[..digits].parse().ok()?;
    let rest = text[digits..].strip_prefix('_').unwrap_or(&text[digits..]);
    let (own, rest) = (rest.get(..length)?, rest.get(length..)?);
    names.push(if kind == Some("C") { format!("{{closure}}{own}") } else { own.to_owned() });
    Some(rest)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn rust_names_are_those_of_the_source() {
        for (symbol, name) in [
            ("_ZN6triage9workloads4rand11draw_shared17h2790c4996fa9a298E", "triage::workloads::rand::draw_shared"),
            ("_ZN6triage4crew28_$u7b$$u7b$closure$u7d$$u7d$17h2790c4996fa9a298E", "triage::crew::{{closure}}"),
            ("_ZN26_$LT$F$u20$as$u20$a..B$GT$2go17h2790c4996fa9a298E.llvm.77", "<F as a::B>::go"),
            ("_RNvNtNtCsjrHSEGnQ3l9_3std6thread11main_thread4main", "std::thread::main_thread::main"),
            ("_RNvMsi_NtNtNtCsjrHSEGnQ3l9_3std3sys2fs4unixNtB5_4File4read", "std::sys::fs::unix::File::read"),
            ("_RNvB1_", "_RNvB1_"),
            ("_RNCNvCs4_1a1b0", "a::b::{closure}"),
            ("_RINvCs4_1a1bhE", "_RINvCs4_1a1bhE"),
            ("_ZNSt6vectorE", "_ZNSt6vectorE"),
            ("rand", "rand"),
            ("_ZN", "_ZN"),
            ("_R", "_R"),
        ] {
            assert_eq!(demangled(symbol), name);
        }
    }

    proptest! {
        #[test]
        fn any_text_has_a_name(symbol in "(_R|_ZN)?[NCMBvts0-9_a-cE$.é]{0,20}") {
            prop_assert!(!demangled(&symbol).is_empty() || symbol.is_empty());
        }
    }
}
