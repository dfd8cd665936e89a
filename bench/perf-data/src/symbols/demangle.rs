//! Names of functions as they are written in the source.

use std::fmt::{self, Write};

/// Longest name that is shown demangled: a short symbol may stand for a name without end.
const LONGEST: usize = 4096;

/// Returns a symbol as a reader knows it: Rust's without hash, C++'s without parameters and result as perf shows them, others as they are.
/// A module of the kernel's, which follows the symbol in brackets, stays.
#[must_use]
pub fn demangled(symbol: &str) -> String {
    let (symbol, module) = symbol.split_at(symbol.find(' ').unwrap_or(symbol.len()));
    rust(symbol).or_else(|| cpp(symbol)).unwrap_or_else(|| symbol.to_owned()) + module
}

fn rust(symbol: &str) -> Option<String> {
    let name = rustc_demangle::try_demangle(symbol).ok()?;
    let mut out = Bounded::default();
    write!(out, "{name:#}").ok().map(|()| out.text)
}

fn cpp(symbol: &str) -> Option<String> {
    // Other texts are read as types: `i` is no function `int`.
    let symbol = symbol.starts_with("_Z").then(|| cpp_demangle::Symbol::new(symbol).ok()).flatten()?;
    let options = cpp_demangle::DemangleOptions::new().no_params().no_return_type();
    let mut out = Bounded::default();
    symbol.structured_demangle(&mut out, &options).ok().map(|()| out.text)
}

/// Text that takes no more than [`LONGEST`] bytes.
#[derive(Default)]
struct Bounded {
    text: String,
}

impl Write for Bounded {
    fn write_str(&mut self, more: &str) -> fmt::Result {
        if self.text.len() + more.len() > LONGEST {
            return Err(fmt::Error);
        }
        self.text.push_str(more);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn names_are_those_of_the_source() {
        for (symbol, name) in [
            ("_ZN6triage9workloads4rand11draw_shared17h2790c4996fa9a298E", "triage::workloads::rand::draw_shared"),
            ("_ZN6triage4crew28_$u7b$$u7b$closure$u7d$$u7d$17h2790c4996fa9a298E", "triage::crew::{{closure}}"),
            ("_ZN26_$LT$F$u20$as$u20$a..B$GT$2go17h2790c4996fa9a298E.llvm.77", "<F as a::B>::go"),
            ("_RNvNtNtCsjrHSEGnQ3l9_3std6thread11main_thread4main", "std::thread::main_thread::main"),
            ("_RNvMsi_NtNtNtCsjrHSEGnQ3l9_3std3sys2fs4unixNtB5_4File4read", "<std::sys::fs::unix::File>::read"),
            ("_RNCNvCs4_1a1b0", "a::b::{closure#0}"),
            ("_RINvCs4_1a1bhE", "a::b::<u8>"),
            ("_ZNSt6vectorIiSaIiEE9push_backERKi", "std::vector<int, std::allocator<int> >::push_back"),
            ("_ZN3fooC1Ev.cold", "foo::foo"),
            ("_RNvB1_", "_RNvB1_"),
            ("rand", "rand"),
            ("_RNvCs4_1a1b [rust_module]", "a::b [rust_module]"),
            ("i", "i"),
            ("_ZN", "_ZN"),
            ("_R", "_R"),
        ] {
            assert_eq!(demangled(symbol), name);
        }
    }

    /// Each template argument is a pair of the one before: the last has 2^16 names.
    #[test]
    fn a_name_without_end_is_left_as_it_is() {
        let pair = |level: u32| {
            let former = level.checked_sub(1).and_then(|level| char::from_digit(2 * level + 1, 36));
            let former = former.map_or("i".to_owned(), |digit| format!("S{}_", digit.to_ascii_uppercase()));
            format!("1pI{former}{former}E")
        };
        let symbol = |levels| format!("_Z1fI{}Evv", (0..levels).map(pair).collect::<String>());
        assert_eq!(demangled(&symbol(2)), "f<p<int, int>, p<p<int, int>, p<int, int> > >");
        assert_eq!(demangled(&symbol(16)), symbol(16));
    }

    proptest! {
        #[test]
        fn any_text_has_a_name(symbol in "(_R|_ZN|_Z)?[NCMBIKSTvts0-9_a-cE$.é]{0,40}") {
            prop_assert!(!demangled(&symbol).is_empty() || symbol.is_empty());
        }
    }
}
