//! A kernel's own list of its symbols: `ADDRESS TYPE NAME [MODULE]`.

use super::limit::NAME;

/// Most lines that are read.
const MOST: usize = 2_000_000;

/// (start, 0, name) of each function; those of a module with its name.
pub(super) fn read(text: &str) -> Vec<(u64, u64, String)> {
    text.lines().take(MOST).filter_map(line).collect()
}

fn line(line: &str) -> Option<(u64, u64, String)> {
    let mut words = line.split_ascii_whitespace();
    let (address, kind, name) = (words.next()?, words.next()?, words.next()?);
    let address = u64::from_str_radix(address, 16).ok().filter(|&address| address != 0)?;
    let of_code = matches!(kind, "t" | "T" | "w" | "W");
    let module = words.next().map_or(String::new(), |module| format!(" {module}"));
    (of_code && name.len() <= NAME).then(|| (address, 0, format!("{name}{module}")))
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
