//! Colours of strategies: a name has one colour on all pages and in all plots.

use crate::document::BELOW_KVM;

/// Names of strategies with a colour of their own, in the order of the style sheet: all presets.
pub const PRESETS: [&str; 9] =
    ["recreate", "reuse", "reuse-lazy", "paused-flag", "deferred", "pool", "gate", "virtual", "gate-pool"];
/// Further colours of the style sheet, for all other names.
const OTHERS: usize = 3;
/// Patterns of a further colour: solid, dashed, dotted.
const PATTERNS: usize = 3;

/// Returns the classes of a name in the style sheet, the same on every page: a colour, and perhaps a pattern.
///
/// Presets have a colour of their own. Every other name has one of the further colours and patterns by its hash: two may share one, and
/// the name stands beside the line. `kvm:NAME`, a strategy below KVM's own vPMU, has the colour of NAME with another pattern.
pub(crate) fn ink(name: &str) -> String {
    let base = plain(name);
    if base == "floor" {
        return "c-floor".to_owned();
    }
    let place = hash(base) % (OTHERS * PATTERNS);
    let preset = PRESETS.iter().position(|own| *own == base).map(|colour| (colour, 0));
    let (colour, pattern) = preset.unwrap_or((PRESETS.len() + place % OTHERS, place / OTHERS));
    match (pattern + usize::from(name.starts_with(BELOW_KVM))) % PATTERNS {
        0 => format!("c{colour}"),
        pattern => format!("c{colour} d{pattern}"),
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

    #[test]
    fn presets_have_colours_of_their_own_and_others_a_stable_one_that_is_no_presets() {
        let colour = |name: &str| -> usize { ink(name).split(' ').next().unwrap()[1..].parse().unwrap() };
        for (place, name) in PRESETS.into_iter().enumerate() {
            assert_eq!((colour(name), colour(&format!("kvm:{name}"))), (place, place));
            assert_ne!(ink(&format!("kvm:{name}")), ink(name));
        }
        let others: Vec<usize> = (0..40).map(|n| colour(&format!("mine-{n}"))).collect();
        assert!(others.iter().all(|colour| (PRESETS.len()..PRESETS.len() + OTHERS).contains(colour)), "{others:?}");
        assert_eq!((ink("floor"), ink("mine*")), ("c-floor".to_owned(), ink("mine")));
        let names = (0..PRESETS.len() + OTHERS).map(|colour| format!(".c{colour} {{"));
        assert!(names.chain([".c-floor {".to_owned()]).all(|class| crate::plot::STYLE.contains(&class)));
    }
}
