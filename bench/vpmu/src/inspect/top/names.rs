//! Names of a guest's addresses, fit for a terminal: a guest chooses its symbols.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::sync::Arc;

use perf_data::symbols::{Symbols, demangled};

/// The address of code that is not told apart any more.
pub const OTHERS: u64 = u64::MAX;
/// Longest name that is shown, characters.
const LONGEST: usize = 160;
/// Most names that are kept; others are looked up again.
const MOST_KNOWN: usize = 1 << 18;

/// Place of a vCPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Place {
    /// It is at privilege level 3.
    pub user: bool,
    /// Linear address.
    pub address: u64,
}

/// Guest that names are of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Of {
    /// All of the guest: one program.
    Everything,
    /// Its kernel alone.
    Kernel,
}

/// Names of addresses.
#[derive(Debug)]
pub struct Names {
    symbols: Symbols,
    of: Of,
    known: HashMap<Place, Arc<str>>,
}

impl Names {
    /// With these symbols.
    #[must_use]
    pub fn new(symbols: Symbols, of: Of) -> Self {
        Self { symbols, of, known: HashMap::new() }
    }

    /// Returns whether there are no symbols.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.symbols.is_empty()
    }

    /// The function, or the page of code that has no name.
    pub fn of(&mut self, place: Place) -> Arc<str> {
        if let Some(known) = self.known.get(&place) {
            return Arc::clone(known);
        }
        let name: Arc<str> = self.find(place).into();
        if self.known.len() < MOST_KNOWN {
            self.known.insert(place, Arc::clone(&name));
        }
        name
    }

    fn find(&self, place: Place) -> String {
        if place.address == OTHERS {
            return "[others]".to_owned();
        }
        let named = self.of == Of::Everything || !place.user;
        let symbol = named.then(|| self.symbols.find(place.address)).flatten();
        symbol.map_or_else(|| format!("{:#x}xxx", place.address >> 12), |symbol| escaped(&demangled(symbol)))
    }
}

/// Text of a guest's as printable characters, cut.
#[must_use]
pub fn escaped(text: &str) -> String {
    let mut out = String::new();
    for (at, character) in text.chars().enumerate() {
        if at == LONGEST {
            out.push_str("...");
            break;
        }
        // Neither control characters nor those that turn or hide text.
        if character == ' ' || character.is_ascii_graphic() || character.is_alphanumeric() {
            out.push(character);
        } else {
            let _ = write!(out, "\\u{{{:x}}}", u32::from(character));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(user: bool, address: u64) -> Place {
        Place { user, address }
    }

    #[test]
    fn what_has_no_name_is_its_page() {
        let symbols = || {
            Symbols::of_kallsyms("ffffffff81000000 T start\nffffffff81001000 T next\nffffffff81002000 t _RNvCs4_1a1b\n")
        };
        let mut names = Names::new(symbols(), Of::Kernel);
        assert_eq!(&*names.of(at(false, 0xffff_ffff_8100_0010)), "start");
        assert_eq!(&*names.of(at(false, 0xffff_ffff_8100_2000)), "a::b");
        assert_eq!(&*names.of(at(false, 0x1234)), "0x1xxx");
        assert_eq!(&*names.of(at(true, 0xffff_ffff_8100_0010)), "0xffffffff81000xxx", "user code is no kernel's");
        assert_eq!(&*Names::new(symbols(), Of::Everything).of(at(true, 0xffff_ffff_8100_0010)), "start");
        assert_eq!(&*names.of(at(true, OTHERS)), "[others]");
    }

    #[test]
    fn names_that_are_kept_are_bounded() {
        let mut names = Names::new(Symbols::default(), Of::Kernel);
        for page in 0..MOST_KNOWN as u64 + 10 {
            assert!(names.of(at(false, page << 12)).ends_with("xxx"));
        }
        assert_eq!((names.known.len(), &*names.of(at(false, 0x7fff_f123))), (MOST_KNOWN, "0x7ffffxxx"));
    }

    #[test]
    fn a_symbol_does_not_steer_the_terminal() {
        assert_eq!(escaped("a\x1b[31mb\r\u{202e}c\u{9b}"), "a\\u{1b}[31mb\\u{d}\\u{202e}c\\u{9b}");
        assert_eq!(escaped("core::ptr<é>"), "core::ptr<é>");
        assert_eq!(escaped(&"x".repeat(500)).len(), LONGEST + 3);
    }
}
