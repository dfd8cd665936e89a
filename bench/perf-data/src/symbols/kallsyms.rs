//! A kernel's own list of its symbols: `ADDRESS TYPE NAME [MODULE]`.

use std::borrow::Cow;

use super::limit::{MOST, NAME};

/// Returns (start, 0, name) of each function; those of a module with its name.
pub(super) fn read(text: &str) -> Vec<(u64, u64, Cow<'_, str>)> {
    text.lines().take(MOST).filter_map(line).collect()
}

fn line(line: &str) -> Option<(u64, u64, Cow<'_, str>)> {
    let mut words = line.split_ascii_whitespace();
    let (address, kind, name) = (words.next()?, words.next()?, words.next()?);
    let address = u64::from_str_radix(address, 16).ok().filter(|&address| address != 0)?;
    let of_code = matches!(kind, "t" | "T" | "w" | "W");
    let module = words.next();
    let short = name.len() + module.map_or(0, str::len) <= NAME;
    let name = || module.map_or(Cow::Borrowed(name), |module| Cow::Owned(format!("{name} {module}")));
    (of_code && short).then(|| (address, 0, name()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_are_listed_and_hidden_addresses_are_none() {
        let text = "ffffffff81000000 T _text\nffffffff81000040 t one\nffffffffc0000000 t two\t[loop]\n\
                    ffffffff82000000 D data\n0000000000000000 T hidden\nnonsense\n";
        let names: Vec<_> = read(text).into_iter().map(|(_, _, name)| name).collect();
        assert_eq!(names, ["_text", "one", "two [loop]"]);
        assert_eq!(read(text)[1].0, 0xffff_ffff_8100_0040);
    }
}
