//! Filter of a guest's output to a terminal: control bytes are shown, not obeyed. An image must not steer the user's terminal.

use std::fmt::Write as _;

use results::shown;

/// Bytes as a terminal may have them: text, line feeds, tabs, and the carriage return of a line's end as they are; any other
/// control character in the notation of `cat -v`, bytes that are no UTF-8 in hexadecimal, and what turns or hides text as `\u202e`.
#[derive(Debug, Default)]
pub(crate) struct Filter {
    /// The beginning of a character, or a carriage return whose successor is not known.
    rest: Vec<u8>,
}

impl Filter {
    /// The next bytes; `last`: no more follow.
    pub(crate) fn shown(&mut self, bytes: &[u8], last: bool) -> Vec<u8> {
        let mut all = std::mem::take(&mut self.rest);
        all.extend_from_slice(bytes);
        let mut out = String::with_capacity(all.len());
        let mut chunks = all.utf8_chunks().peekable();
        while let Some(chunk) = chunks.next() {
            let end = chunks.peek().is_none();
            let mut text = chunk.valid();
            if end && !last && chunk.invalid().is_empty() && text.ends_with('\r') {
                text = &text[..text.len() - 1];
                self.rest.push(b'\r');
            }
            escape(text, &mut out);
            // An incomplete character at the end may go on in the next bytes.
            let whole = std::str::from_utf8(chunk.invalid());
            let incomplete = end && !last && whole.is_err_and(|error| error.error_len().is_none());
            if incomplete {
                self.rest.extend_from_slice(chunk.invalid());
            } else {
                chunk.invalid().iter().for_each(|&byte| hexadecimal(u32::from(byte), &mut out));
            }
        }
        out.into_bytes()
    }
}

fn hexadecimal(code: u32, out: &mut String) {
    // Writing to a String cannot fail.
    let _ = write!(out, "\\x{code:02x}");
}

fn escape(text: &str, out: &mut String) {
    let mut characters = text.chars().peekable();
    while let Some(character) = characters.next() {
        match character {
            '\n' | '\t' => out.push(character),
            '\r' if characters.peek() == Some(&'\n') => out.push(character),
            // ^A is 0x01, ^[ is ESC, ^? is DEL.
            control if control.is_ascii_control() => {
                out.push('^');
                out.push(char::from(control as u8 ^ 0x40));
            }
            control if control.is_control() => hexadecimal(u32::from(control), out),
            turning if shown::steers(turning) => shown::escape(turning, out),
            text => out.push(text),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn shown(bytes: &[u8]) -> String {
        String::from_utf8(Filter::default().shown(bytes, true)).unwrap()
    }

    #[test]
    fn a_terminal_gets_text_and_sees_control_bytes() {
        for (bytes, text) in [
            (&b"plain\ttext\r\n"[..], "plain\ttext\r\n"),
            (b"\x1b]0;title\x07", "^[]0;title^G"),
            (b"\x1b[31mred\x7f", "^[[31mred^?"),
            (b"over\rwritten", "over^Mwritten"),
            (b"\x9b2J", "\\x9b2J"),
            ("\u{9b}2J µs".as_bytes(), "\\x9b2J µs"),
            ("a\u{202e}b\u{2066}c\u{200b}".as_bytes(), "a\\u202eb\\u2066c\\u200b"),
            (b"cut \xc2", "cut \\xc2"),
        ] {
            assert_eq!(shown(bytes), text);
        }
    }

    proptest! {
        /// However the bytes are cut, the terminal gets the same, and never a control byte.
        #[test]
        fn cuts_change_nothing(
            bytes in prop_oneof![prop::collection::vec(any::<u8>(), 0..40), "\\PC{0,6}\\p{C}{0,6}".prop_map(String::into_bytes)],
            cut in 0_usize..40,
        ) {
            let cut = cut.min(bytes.len());
            let mut filter = Filter::default();
            let mut parts = filter.shown(&bytes[..cut], false);
            parts.extend(filter.shown(&bytes[cut..], true));
            let parts = String::from_utf8(parts).unwrap();
            prop_assert_eq!(&parts, &shown(&bytes));
            let text = parts.replace("\r\n", "\n");
            prop_assert!(!text.chars().any(|c| shown::steers(c) && c != '\n' && c != '\t'));
        }
    }
}
