//! Tokens of JSON text, read in place.
//!
//! Nothing here says what is wrong with a text: `None` means that the reader for everything, which does, must look at it.

use std::borrow::Cow;

/// How deep values may be nested where they are skipped.
const DEPTH: usize = 100;
/// Most keys of an object that is checked here.
const MOST_KEYS: usize = 256;
/// Digits of any number that fits 64 bits.
const EXACT: usize = 19;
/// A byte of 1 in each place of a word.
const EACH: u64 = u64::MAX / 255;

/// The byte in each place of a word.
const fn each(byte: u8) -> u64 {
    EACH * byte as u64
}

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

    /// The next byte that is no white space.
    pub(super) fn peek(&mut self) -> Option<u8> {
        let bytes = self.text.as_bytes();
        loop {
            let byte = *bytes.get(self.at)?;
            if byte > b' ' {
                return Some(byte);
            }
            match byte {
                b' ' | b'\t' | b'\r' => self.at += 1,
                b'\n' => {
                    self.at += 1;
                    self.indentation();
                }
                other => return Some(other),
            }
        }
    }

    /// Goes past spaces, eight at a time.
    fn indentation(&mut self) {
        while let Some(word) = self.word_at(self.at) {
            let other = word ^ each(b' ');
            if other != 0 {
                self.at += other.trailing_zeros() as usize / 8;
                return;
            }
            self.at += 8;
        }
    }

    /// Eight bytes of the text, the first one lowest.
    fn word_at(&self, at: usize) -> Option<u64> {
        let bytes = self.text.as_bytes().get(at..)?.first_chunk()?;
        Some(u64::from_le_bytes(*bytes))
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
        let next = self.peek()?;
        if next == end {
            self.at += 1;
            return Some(false);
        }
        if !std::mem::take(first) {
            if next != b',' {
                return None;
            }
            self.at += 1;
            if self.peek()? == end {
                return None;
            }
        }
        Some(true)
    }

    /// How far it is to the quotation mark that ends a text; `None` if an escape or a control character comes first.
    fn until_quote(&self, from: usize) -> Option<usize> {
        // The lowest bit that is set is of the first byte of that kind.
        let zeros = |word: u64| word.wrapping_sub(EACH) & !word & (EACH << 7);
        let mut at = from;
        while let Some(word) = self.word_at(at) {
            let (quote, escape) = (zeros(word ^ each(b'"')), zeros(word ^ each(b'\\')));
            let control = word.wrapping_sub(each(b' ')) & !word & (EACH << 7);
            let found = quote | escape | control;
            if found != 0 {
                return (found.trailing_zeros() == quote.trailing_zeros())
                    .then(|| at - from + found.trailing_zeros() as usize / 8);
            }
            at += 8;
        }
        let rest = self.text.as_bytes().get(at..)?;
        let length = rest.iter().position(|&byte| byte == b'"' || byte == b'\\' || byte < b' ')?;
        (rest[length] == b'"').then_some(at - from + length)
    }

    /// A text without escapes.
    pub(super) fn plain(&mut self) -> Option<&'a str> {
        self.expect(b'"')?;
        let start = self.at;
        let length = self.until_quote(start)?;
        self.at += length + 1;
        self.text.get(start..start + length)
    }

    /// A text.
    pub(super) fn text(&mut self) -> Option<Cow<'a, str>> {
        let mut ahead = *self;
        if let Some(text) = ahead.plain() {
            *self = ahead;
            return Some(Cow::Borrowed(text));
        }
        self.peek().filter(|byte| *byte == b'"')?;
        serde_json::from_str(self.skip()?).ok().map(Cow::Owned)
    }

    /// The key of an object's field.
    pub(super) fn key(&mut self) -> Option<&'a str> {
        let key = self.plain()?;
        self.expect(b':')?;
        Some(key)
    }

    /// Takes the key of an object's field if it is this one.
    pub(super) fn known_key(&mut self, key: &str) -> bool {
        if self.peek() != Some(b'"') {
            return false;
        }
        let start = self.at + 1;
        let rest = self.text.as_bytes().get(start..).unwrap_or_default();
        if !rest.starts_with(key.as_bytes()) || rest.get(key.len()) != Some(&b'"') {
            return false;
        }
        let mut ahead = Self { text: self.text, at: start + key.len() + 1 };
        let found = ahead.eat(b':');
        if found {
            *self = ahead;
        }
        found
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
        let first = end;
        // Exact up to 19 digits.
        let mut value = 0_u64;
        while let Some(digit) = bytes.get(end).map(|byte| byte.wrapping_sub(b'0')).filter(|digit| *digit < 10) {
            value = value.wrapping_mul(10).wrapping_add(u64::from(digit));
            end += 1;
        }
        let whole = end - first;
        if whole == 0 || whole > 1 && bytes[first] == b'0' {
            return None;
        }
        let mut is_whole = first == start;
        let mut is_small = whole <= EXACT;
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
            (end, is_whole, is_small) = (end + 1 + sign + part, false, false);
        }
        self.at = end;
        Some(Number { text: self.text.get(start..end)?, value, is_whole, is_small })
    }

    /// A whole number of 64 bits.
    pub(super) fn unsigned(&mut self) -> Option<u64> {
        self.number()?.unsigned()
    }

    /// Goes past any value that is JSON, has no key twice in an object and no number that is too large for a counter. `keys` is empty
    /// memory that is lent.
    pub(super) fn sound(&mut self, keys: &mut Vec<&'a str>) -> Option<Sound<'a>> {
        self.peek()?;
        let start = self.at;
        let mut has_median = false;
        self.check(keys, DEPTH, &mut has_median)?;
        Some(Sound { text: self.text.get(start..self.at)?, has_median })
    }

    fn check(&mut self, keys: &mut Vec<&'a str>, depth: usize, has_median: &mut bool) -> Option<()> {
        let mut first = true;
        match self.peek()? {
            b'{' => {
                self.at += 1;
                let above = keys.len();
                let depth = depth.checked_sub(1)?;
                while self.next(&mut first, b'}')? {
                    let key = self.key()?;
                    // Each is compared with all: the reader for everything has a tree for more.
                    if keys.len() - above >= MOST_KEYS || keys[above..].contains(&key) {
                        return None;
                    }
                    keys.push(key);
                    *has_median |= key == "p50";
                    self.check(keys, depth, has_median)?;
                }
                keys.truncate(above);
            }
            b'[' => {
                self.at += 1;
                let depth = depth.checked_sub(1)?;
                while self.next(&mut first, b']')? {
                    self.check(keys, depth, has_median)?;
                }
            }
            b'"' => drop(self.text()?),
            b't' => self.word("true")?,
            b'f' => self.word("false")?,
            b'n' => self.word("null")?,
            _ => self.number()?.is_in_range()?,
        }
        Some(())
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

/// A value that is JSON.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sound<'a> {
    /// As it is written.
    pub(super) text: &'a str,
    /// Whether an object in it has a median: only then a summary may be in it.
    pub(super) has_median: bool,
}

/// A number as it is written.
#[derive(Clone, Copy, Debug)]
pub(super) struct Number<'a> {
    text: &'a str,
    /// The digits before the point, if they are few enough.
    value: u64,
    /// Digits and nothing else.
    is_whole: bool,
    /// Few digits before the point, and no exponent.
    is_small: bool,
}

impl Number<'_> {
    pub(super) fn unsigned(self) -> Option<u64> {
        match (self.is_whole, self.is_small) {
            (true, true) => Some(self.value),
            (true, false) => self.text.parse().ok(),
            (false, _) => None,
        }
    }

    /// That a counter of 64 bits can hold it.
    pub(super) fn is_in_range(self) -> Option<()> {
        if self.is_small { Some(()) } else { self.float().map(drop) }
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
