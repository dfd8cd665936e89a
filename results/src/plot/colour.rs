//! Colours of strategies: a name has one colour on all pages and in all plots.

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
}

impl Ink {
    /// Returns the classes of an element in this ink.
    pub(crate) fn class(self) -> String {
        match self {
            Self::Strategy(colour, 0) => format!("c{colour}"),
            Self::Strategy(colour, pattern) => format!("c{colour} d{pattern}"),
            Self::Floor => "c-floor".to_owned(),
        }
    }

    /// Returns the classes of a mark: filled, or hollow where a line would have a pattern.
    pub(crate) fn mark(self) -> String {
        let hollow = matches!(self, Self::Strategy(_, pattern) if pattern > 0);
        format!("{} {}", if hollow { 'o' } else { 'f' }, self.class())
    }
}

/// Returns the ink of a name, the same on every page.
///
/// Presets have their own. Every other name has one of the further colours and patterns by its hash: two may share one, and the name
/// stands beside the line. `kvm:NAME`, a strategy below KVM's own vPMU, has the colour of NAME with another pattern.
pub(crate) fn ink(name: &str) -> Ink {
    let base = plain(name);
    if base == "floor" {
        return Ink::Floor;
    }
    let place = hash(base) % (OTHERS * PATTERNS);
    let preset = PRESETS.iter().position(|own| *own == base).map(|colour| (colour, 0));
    let (colour, pattern) = preset.unwrap_or((PRESETS.len() + place % OTHERS, place / OTHERS));
    Ink::Strategy(colour, (pattern + usize::from(name.starts_with(BELOW_KVM))) % PATTERNS)
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

    #[test]
    fn presets_have_colours_of_their_own_and_others_a_stable_one_that_is_no_presets() {
        let colour = |name: &str| match ink(name) {
            Ink::Strategy(colour, _) => colour,
            Ink::Floor => panic!("{name}"),
        };
        for (place, name) in PRESETS.into_iter().enumerate() {
            assert_eq!((colour(name), colour(&format!("kvm:{name}"))), (place, place));
            assert_ne!(ink(&format!("kvm:{name}")), ink(name));
        }
        assert!((0..40).all(|n| colour(&format!("mine-{n}")) >= PRESETS.len()));
        assert_eq!((ink("floor"), ink("mine*")), (Ink::Floor, ink("mine")));
    }

    #[test]
    fn every_class_is_in_the_style_sheet() {
        let style = crate::plot::STYLE;
        for colour in 0..PRESETS.len() + OTHERS {
            assert!(style.contains(&format!(".{} {{", Ink::Strategy(colour, 0).class())), "{colour}");
        }
        assert!(style.contains(".c-floor {"));
    }
}
