//! Colours of strategies: a name has one colour on all pages and in all plots.

use std::collections::{BTreeMap, BTreeSet};

use crate::document::BELOW_KVM;

/// Names of strategies with a colour of their own, in the order of the style sheet: all presets.
pub const PRESETS: [&str; 9] =
    ["recreate", "reuse", "reuse-lazy", "paused-flag", "deferred", "pool", "gate", "virtual", "gate-pool"];
/// Further colours of the style sheet, for all other names.
const OTHERS: usize = 3;
/// Patterns of a further colour: solid, dashed, dotted.
const PATTERNS: usize = 3;

/// A class of the style sheet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ink {
    /// A strategy's colour and pattern.
    Strategy(usize, usize),
    /// The floor.
    Floor,
    /// A Pareto front.
    Front,
}

impl Ink {
    /// Returns the classes of an element in this ink.
    pub(crate) fn class(self) -> String {
        match self {
            Self::Strategy(colour, 0) => format!("c{colour}"),
            Self::Strategy(colour, pattern) => format!("c{colour} d{pattern}"),
            Self::Floor => "c-floor".to_owned(),
            Self::Front => "c-front".to_owned(),
        }
    }

    /// Returns the classes of a mark: filled, or hollow where a line would have a pattern.
    pub(crate) fn mark(self) -> String {
        let hollow = matches!(self, Self::Strategy(_, pattern) if pattern > 0);
        format!("{} {}", if hollow { 'o' } else { 'f' }, self.class())
    }
}

/// The ink of each name on a page.
///
/// Presets have their own. Every other name has one of the further colours by its hash, so that it keeps it from page to page;
/// where two names of a page would have the same, the alphabetically later one gets the next that is free. `kvm:NAME`, a strategy
/// below KVM's own vPMU, has the colour of NAME with another pattern.
#[derive(Debug)]
pub(crate) struct Inks(BTreeMap<String, Ink>);

impl Inks {
    /// Returns the inks of a page with these names.
    pub(crate) fn new<'a>(names: impl IntoIterator<Item = &'a str>) -> Self {
        let others: BTreeSet<&str> =
            names.into_iter().map(plain).filter(|name| *name != "floor" && !PRESETS.contains(name)).collect();
        let mut inks = BTreeMap::new();
        let mut free = [true; OTHERS * PATTERNS];
        for name in others {
            let first = hash(name) % free.len();
            let place = (first..first + free.len()).map(|place| place % free.len()).find(|place| free[*place]);
            // More names than inks share them.
            let place = place.unwrap_or(first);
            free[place] = false;
            inks.insert(name.to_owned(), Ink::Strategy(PRESETS.len() + place % OTHERS, place / OTHERS));
        }
        Self(inks)
    }

    /// Returns the ink of a name.
    pub(crate) fn of(&self, name: &str) -> Ink {
        let base = plain(name);
        let preset = PRESETS.iter().position(|own| *own == base).map(|colour| Ink::Strategy(colour, 0));
        match preset.or_else(|| self.0.get(base).copied()) {
            _ if base == "floor" => Ink::Floor,
            Some(Ink::Strategy(colour, pattern)) if name.starts_with(BELOW_KVM) => {
                Ink::Strategy(colour, (pattern + 1) % PATTERNS)
            }
            ink => ink.unwrap_or(Ink::Front),
        }
    }
}

/// Returns a strategy's name without the place where it runs, what a sweep gave it, and the star of figures that are not whole.
fn plain(name: &str) -> &str {
    let name = name.strip_prefix(BELOW_KVM).unwrap_or(name);
    name.split(' ').next().unwrap_or(name).trim_end_matches('*')
}

/// Returns FNV-1a's hash, which is the same in every build.
fn hash(name: &str) -> usize {
    let hash = name.bytes().fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    (hash >> 8) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the colour of a name on a page with these others.
    fn colour(name: &str, page: &[&str]) -> usize {
        match Inks::new(page.iter().copied()).of(name) {
            Ink::Strategy(colour, _) => colour,
            other => panic!("{name}: {other:?}"),
        }
    }

    #[test]
    fn presets_have_colours_of_their_own_and_keep_them_on_every_page() {
        let colours: BTreeSet<usize> = PRESETS.iter().map(|name| colour(name, &PRESETS)).collect();
        assert_eq!(colours.len(), PRESETS.len());
        for name in PRESETS {
            assert_eq!(colour(name, &[]), colour(name, &["zebra", "auto", name]), "{name}");
            assert_eq!(colour(&format!("kvm:{name}"), &[]), colour(name, &[]));
            assert_ne!(Inks::new([]).of(&format!("kvm:{name}")), Inks::new([]).of(name));
        }
        assert_eq!(Inks::new([]).of("floor"), Ink::Floor);
    }

    #[test]
    fn other_names_have_a_stable_colour_that_is_no_presets() {
        let names: Vec<String> = (0..40).map(|n| format!("mine-{n}")).collect();
        for name in &names {
            assert!(colour(name, &[name]) >= PRESETS.len(), "{name}");
            assert_eq!(
                Inks::new([name.as_str()]).of(name),
                Inks::new([name.as_str(), "recreate", "kvm:pool"]).of(name)
            );
        }
        // As many names as there are inks have one each, in whatever order they come.
        let few: Vec<&str> = names.iter().take(OTHERS * PATTERNS).map(String::as_str).collect();
        let inks = Inks::new(few.iter().copied());
        let classes: BTreeSet<String> = few.iter().map(|name| inks.of(name).class()).collect();
        assert_eq!(classes.len(), few.len());
        let reversed = Inks::new(few.iter().rev().copied());
        assert!(few.iter().all(|name| inks.of(name) == reversed.of(name)));
    }

    #[test]
    fn every_class_is_in_the_style_sheet() {
        let style = crate::plot::STYLE;
        for colour in 0..PRESETS.len() + OTHERS {
            assert!(style.contains(&format!(".{} {{", Ink::Strategy(colour, 0).class())), "{colour}");
        }
        assert!(style.contains(".c-floor {") && style.contains(".c-front {"));
    }
}
