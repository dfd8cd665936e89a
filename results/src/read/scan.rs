//! Tokens of JSON text, read in place.
//!
//! Nothing here says what is wrong with a text: `None` means that the reader for everything, which does, must look at it.

/// How deep values may be nested where they are skipped.
const DEPTH: usize = 100;

/// A place in a text.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scan<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Scan<'a> {
    pub(super) const fn new(text: &'a str) -> Self {
        Self { text, at: 0 }
    }

    pub(super) const fn at(self) -> usize {
        self.at
    }

    /// The next byte that is no white space.
    pub(super) fn peek(&mut self) -> Option<u8> {
        const SPACES: &[u8] = b"        ";
        let bytes = self.text.as_bytes();
        loop {
            match *bytes.get(self.at)? {
                b' ' | b'\n' | b'\t' | b'\r' => self.at += 1,
                other => return Some(other),
            }
            // Indentation.
            while bytes.get(self.at..self.at + 8) == Some(SPACES) {
                self.at += 8;
            }
        }
    }

    /// Takes the byte if it is next.
    pub(super) fn eat(&mut self, byte: u8) -> bool {
        let next = self.peek() == Some(byte);
        self.at += usize::from(next);
        next
    }

    /// Takes a byte that must be next.
    pub(super) fn expect(&mut self, byte: u8) -> Option<()> {
        self.eat(byte).then_some(())
    }

    /// Goes to the next element of a list or an object, after `first`; `Some(false)` at its end.
    pub(super) fn next(&mut self, first: &mut bool, end: u8) -> Option<bool> {
        if self.eat(end) {
            return Some(false);
        }
        if !std::mem::take(first) {
            self.expect(b',')?;
            if self.peek()? == end {
                return None;
            }
        }
        Some(true)
    }

    /// A text without escapes.
    pub(super) fn plain(&mut self) -> Option<&'a str> {
        self.expect(b'"')?;
        let start = self.at;
        let rest = &self.text.as_bytes()[start..];
        let length = rest.iter().position(|&byte| byte == b'"' || byte == b'\\' || byte < 0x20)?;
        if rest[length] != b'"' {
            return None;
        }
        self.at += length + 1;
        self.text.get(start..start + length)
    }

    /// The key of an object's field.
    pub(super) fn key(&mut self) -> Option<&'a str> {
        let key = self.plain()?;
        self.expect(b':')?;
        Some(key)
    }

    /// A literal such as `true`.
    pub(super) fn word(&mut self, word: &str) -> Option<()> {
        self.peek()?;
        self.text.as_bytes()[self.at..].starts_with(word.as_bytes()).then(|| self.at += word.len())
    }

    /// A number as it is written, as JSON has it.
    pub(super) fn number(&mut self) -> Option<Number<'a>> {
        self.peek()?;
        let bytes = self.text.as_bytes();
        let start = self.at;
        let digits = |at: usize| bytes[at..].iter().take_while(|byte| byte.is_ascii_digit()).count();
        let mut end = start + usize::from(bytes[start] == b'-');
        let whole = digits(end);
        if whole == 0 || whole > 1 && bytes[end] == b'0' {
            return None;
        }
        end += whole;
        let mut is_whole = bytes[start] != b'-';
        if bytes.get(end) == Some(&b'.') {
            let part = digits(end + 1);
            if part == 0 {
                return None;
            }
            (end, is_whole) = (end + 1 + part, false);
        }
        if matches!(bytes.get(end), Some(b'e' | b'E')) {
            let sign = usize::from(matches!(bytes.get(end + 1), Some(b'+' | b'-')));
            let part = digits(end + 1 + sign);
            if part == 0 {
                return None;
            }
            (end, is_whole) = (end + 1 + sign + part, false);
        }
        self.at = end;
        Some(Number { text: self.text.get(start..end)?, is_whole })
    }

    /// A whole number of 64 bits.
    pub(super) fn unsigned(&mut self) -> Option<u64> {
        self.number()?.unsigned()
    }

    /// Goes past any value and gives it as it is written. It may be no JSON at all: only strings and brackets are looked at.
    pub(super) fn skip(&mut self) -> Option<&'a str> {
        self.peek()?;
        let bytes = self.text.as_bytes();
        let (start, mut depth) = (self.at, 0_usize);
        loop {
            match *bytes.get(self.at)? {
                b'"' => {
                    self.quoted()?;
                }
                b'{' | b'[' if depth < DEPTH => {
                    depth += 1;
                    self.at += 1;
                }
                b'}' | b']' if depth > 0 => {
                    depth -= 1;
                    self.at += 1;
                }
                b'{' | b'[' | b'}' | b']' => return None,
                // A number or a literal ends where no byte of one is.
                _ if depth == 0 => {
                    let part = |byte: &&u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'.');
                    let length = bytes[self.at..].iter().take_while(part).count();
                    self.at += length;
                    return (length > 0).then(|| self.text.get(start..self.at)).flatten();
                }
                _ => self.at += 1,
            }
            if depth == 0 {
                return self.text.get(start..self.at);
            }
        }
    }

    /// Goes past a text with or without escapes.
    fn quoted(&mut self) -> Option<()> {
        let bytes = self.text.as_bytes();
        self.at += 1;
        loop {
            let length = bytes.get(self.at..)?.iter().position(|&byte| byte == b'"' || byte == b'\\')?;
            self.at += length + 1;
            if bytes[self.at - 1] == b'"' {
                return Some(());
            }
            self.at += 1;
        }
    }
}

/// A number as it is written.
#[derive(Clone, Copy, Debug)]
pub(super) struct Number<'a> {
    text: &'a str,
    /// Digits and nothing else.
    is_whole: bool,
}

impl Number<'_> {
    pub(super) fn unsigned(self) -> Option<u64> {
        if self.is_whole { self.text.parse().ok() } else { None }
    }

    /// The number, unless no counter of 64 bits can hold it.
    pub(super) fn float(self) -> Option<f64> {
        let value: f64 = self.text.parse().ok()?;
        (value.abs() <= u64::MAX as f64).then_some(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_those_of_json() {
        for text in ["0", "-0", "17", "18446744073709551615", "1.5", "-1.5e3", "0.25E-2", "1e5"] {
            let number = Scan::new(text).number().unwrap();
            assert_eq!(number.text, text);
            let known: serde_json::Value = serde_json::from_str(text).unwrap();
            assert_eq!(number.unsigned(), known.as_u64(), "{text}");
            assert_eq!(number.float(), known.as_f64(), "{text}");
        }
        for text in ["", "-", "+1", ".5", "01", "-01", "1.", "1.e5", "1e", "1e+", "x", "NaN"] {
            assert!(Scan::new(text).number().is_none(), "{text}");
        }
        assert_eq!(Scan::new("18446744073709551616").unsigned(), None);
        assert!(Scan::new("1e20").number().unwrap().float().is_none());
    }

    #[test]
    fn values_are_skipped_to_their_ends() {
        for value in ["{\"a\": [1, \"]\\\"}\", {}]}", "[]", "\"x\\\\\"", "-1.5e3", "null"] {
            let text = format!("  {value}   , 7");
            let mut scan = Scan::new(&text);
            assert_eq!(scan.skip(), Some(value));
            assert!(scan.eat(b',') && scan.unsigned() == Some(7));
        }
        let deep = "[".repeat(DEPTH + 1) + &"]".repeat(DEPTH + 1);
        for text in ["", "[", "{\"a", "\"\\", "]", ",", &deep] {
            assert_eq!(Scan::new(text).skip(), None, "{text}");
        }
    }

    #[test]
    fn keys_have_no_escapes() {
        assert_eq!(Scan::new("\n                 \"a b\" : 1").key(), Some("a b"));
        for text in ["\"a\\n\":", "\"a", "\"a\" 1", "a:", "\"a\n\":"] {
            assert_eq!(Scan::new(text).key(), None, "{text}");
        }
    }
}
