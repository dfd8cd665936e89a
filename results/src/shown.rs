//! Text of others on its way to a reader: documents, campaigns, recordings and guests choose their names, and none of
//! them may steer a terminal, begin a line, or become structure of the page that it stands on.

use std::fmt::Write as _;

/// Returns whether a character does something else than show itself: control characters of both sets, those that turn
/// the direction of the text around them, and those without a width or a place of their own.
pub fn steers(character: char) -> bool {
    character.is_control()
        || matches!(character,
            '\u{ad}' | '\u{61c}' | '\u{180e}'
            | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
            | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{fffe}' | '\u{ffff}' | '\u{e0000}'..='\u{e007f}')
}

/// Escapes text for printing, of any number of lines: line ends and tabs as they are, any other character that
/// [`steers`] as `\u001b`. The notation is that of JSON, in which such characters are in strings only: the value stays
/// the same.
pub fn text(text: &str) -> String {
    filtered(text, |character, next| match character {
        '\n' | '\t' => Some(character),
        '\r' if next == Some('\n') => Some(character),
        character => Some(character).filter(|character| !steers(*character)),
    })
}

/// Filters a name in a line: a character that would end the line or move in it is a blank, the rest as in [`text`].
pub fn line(text: &str) -> String {
    filtered(text, |character, _| match character {
        '\n' | '\r' | '\t' => Some(' '),
        character => Some(character).filter(|character| !steers(*character)),
    })
}

/// Gives each character, of which the next one is known, what it is shown as; one that has nothing is escaped.
fn filtered(text: &str, shown: impl Fn(char, Option<char>) -> Option<char>) -> String {
    let mut out = String::with_capacity(text.len());
    for (character, next) in text.chars().zip(text.chars().skip(1).map(Some).chain([None])) {
        match shown(character, next) {
            Some(character) => out.push(character),
            None => escape(character, &mut out),
        }
    }
    out
}

/// Filters a line of Markdown, or a cell of its tables: nothing in it ends the cell, is HTML, code, or a link, or names somebody.
pub fn markdown(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut before = ' ';
    for character in line(text).chars() {
        match (before, character) {
            (_, '<') => out.push_str("&lt;"),
            (_, '>') => out.push_str("&gt;"),
            (_, '&') => out.push_str("&amp;"),
            // Cells, code, [text](target), [text][name] and the definition of a name; GitHub makes links of bare addresses, too.
            (_, '\\' | '|' | '`') | (']', '(' | '[' | ':') | (':', '/') | ('w' | 'W', '.') => {
                out.extend(['\\', character]);
            }
            // Whoever has the name, or the issue of that number, would be told: GitHub looks for it once the page is made.
            ('@', _) if character.is_alphanumeric() => out.extend(["&#8203;", character.encode_utf8(&mut [0; 4])]),
            ('#', '0'..='9') => out.extend(["&#8203;", character.encode_utf8(&mut [0; 4])]),
            _ => out.push(character),
        }
        before = character;
    }
    out
}

/// Escapes as JSON does: a character beyond the first plane is a pair.
pub fn escape(character: char, out: &mut String) {
    for unit in character.encode_utf16(&mut [0; 2]) {
        // Writing to a String cannot fail.
        let _ = write!(out, "\\u{unit:04x}");
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const HOSTILE: &str = "a\x1b]0;t\x07\u{9b}2J\u{202e}b\u{2066}\u{200b}c\rd\u{e0041}\x7f";

    #[test]
    fn what_steers_is_shown() {
        let shown = r"a\u001b]0;t\u0007\u009b2J\u202eb\u2066\u200bc\u000dd\udb40\udc41\u007f";
        assert_eq!(text(HOSTILE), shown);
        assert_eq!(line(HOSTILE), shown.replace(r"\u000d", " "));
        for plain in ["1.50 µs × ● ✅ é 漢\tx\n\ny\r\n", ""] {
            assert_eq!(text(plain), plain);
        }
        assert_eq!(line("a\nvpmu: error: b\tc"), "a vpmu: error: b c");
    }

    #[test]
    fn json_keeps_its_value() {
        let json = serde_json::to_string_pretty(&[HOSTILE]).unwrap();
        let printed = text(&json);
        assert!(!printed.chars().any(|c| steers(c) && c != '\n') && printed != json);
        assert_eq!(serde_json::from_str::<Vec<String>>(&printed).unwrap(), [HOSTILE]);
    }

    #[test]
    fn markdown_has_neither_cells_nor_links_nor_html_of_others() {
        for (text, shown) in [
            ("a|b\n| c", r"a\|b \| c"),
            ("<img src=x>&lt;", "&lt;img src=x&gt;&amp;lt;"),
            ("[a](http://b)", r"[a]\(http:\//b)"),
            ("[a]: //b", r"[a]\: //b"),
            ("![a][b] www.c", r"![a]\[b] www\.c"),
            (r"`\", r"\`\\"),
            ("@name of a/b#12, a@b", "@&#8203;name of a/b#&#8203;12, a@&#8203;b"),
            ("+3.1 % [+2.9, +3.3]", "+3.1 % [+2.9, +3.3]"),
        ] {
            assert_eq!(markdown(text), shown);
        }
    }

    proptest! {
        #[test]
        fn nothing_that_steers_is_left(given in "\\PC*|[\\x00-\\u{ff}]*|\\p{C}*") {
            let lines = text(&given).replace("\r\n", "\n");
            prop_assert!(!lines.chars().any(|c| steers(c) && !matches!(c, '\n' | '\t')), "{lines:?}");
            prop_assert!(!line(&given).chars().any(steers));
            prop_assert!(!markdown(&given).chars().any(steers));
        }
    }
}
