//! A strategy is data: a few independent choices about the host events behind the vPMCs.
//!
//! The presets are KVM's own history (commits in `docs/strategies.md`) plus `pool`, `gate`, `virtual` and `gate-pool`, which are ours.

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// The array of the `name`s of a table's rows, as a constant.
macro_rules! names {
    ($table:ident) => {{
        let mut names = [""; $table.len()];
        let mut row = 0;
        while row < names.len() {
            names[row] = $table[row].name;
            row += 1;
        }
        names
    }};
}

pub(crate) use names;

/// Largest pool of parked events per vCPU.
pub const MAX_POOL: usize = 64;

/// Parked events that may serve a counter again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reuse {
    /// None: every start opens an event.
    None,
    /// The counter's own last event, if its configuration is the same to the bit.
    Last,
    /// Any parked event of the vCPU with the same configuration. At most K events are open, but for counters that are on,
    /// which always have one; the least recently parked one gives way.
    Pool(usize),
}

/// Condition under which a parked event is released.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Release {
    /// Its counter stops.
    Eager,
    /// The guest wrote nothing of its counter (the counter, its selector, its nibble of FIXED_CTR_CTRL) for N sched slices,
    /// and the counter's own enable is off.
    Slices(u32),
    /// Never, until the configuration changes.
    Never,
}

/// Time at which counters are reprogrammed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Apply {
    /// At the guest's access.
    AtOnce,
    /// Once before the next guest entry, from a bitmap.
    Deferred,
}

/// Treatment of a host event that overflowed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OnOverflow {
    /// It is paused and resumed before the next entry, aimed at the counter's next overflow (KVM).
    #[default]
    Reprogram,
    /// It counts on; it is aimed anew when its counter is next started. Relies on overflow signals that come before half a
    /// counter's width is counted.
    Keep,
}

/// Ways to pause a counter that goes off.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Pause {
    /// Its host event stops.
    #[default]
    Host,
    /// Its host event runs on, and its counts until the counter is on again are subtracted: two looks at its count,
    /// which cost no host call where the backend can look without one. Backends without that ability pause as by
    /// `Host`.
    Virtual,
    /// Its host event is stopped on its CPU without perf's core: below KVM's own vPMU alone, by the [kernel
    /// module](crate::kernel).
    Direct,
}

/// The rules by which host events are kept behind vPMCs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Strategy {
    /// Its name in tables and results; a file may leave it out, and has that of the file.
    #[serde(default)]
    pub name: String,
    /// Parked events that may serve again.
    pub reuse: Reuse,
    /// Condition under which a parked event is released.
    pub release: Release,
    /// Time at which counters are reprogrammed.
    pub apply: Apply,
    /// No host call to pause an event that is paused.
    #[serde(default)]
    pub skip_paused: bool,
    /// No host call to set a period that the event has anyway.
    #[serde(default)]
    pub skip_period: bool,
    /// Treatment of an event that overflowed.
    #[serde(default)]
    pub overflow: OnOverflow,
    /// Way to pause a counter that goes off.
    #[serde(default)]
    pub pause: Pause,
    /// All events of a vCPU are one group behind a leader that counts nothing: one call stops or starts them all.
    #[serde(default)]
    pub gate: bool,
}

/// Reason why a strategy cannot be used.
#[derive(Debug, Error)]
pub enum StrategyError {
    /// No preset of that name.
    #[error("unknown strategy '{0}'; use {known}, or the path of a .toml file", known = PRESETS.join(", "))]
    Unknown(String),
    /// The TOML does not describe a strategy.
    #[error("not a strategy: {}", .0.message())]
    Syntax(#[from] toml::de::Error),
    /// Choices that contradict each other, or are out of range.
    #[error("strategy '{name}': {why}")]
    Impossible {
        /// The strategy's name.
        name: String,
        /// The fault that was found.
        why: &'static str,
    },
}

/// A preset: its name, its description, and its difference from a base.
pub(crate) struct Preset {
    pub(crate) name: &'static str,
    pub(crate) about: &'static str,
    pub(crate) of: fn(Strategy) -> Strategy,
}

/// The presets, one row each, as differences from the whole series of Linux 5.5.
const TABLE: [Preset; 9] = [
    Preset {
        name: "recreate",
        about: "an event is opened at each start and closed at each stop; KVM before 5.5",
        of: |base| Strategy { reuse: Reuse::None, release: Release::Eager, ..base },
    },
    // The 2019 series without its lazy release (a6da0d77e98e).
    Preset {
        name: "reuse",
        about: "a stopped counter keeps its event for its next start; never released",
        of: |base| Strategy { release: Release::Never, ..base },
    },
    // The whole series (b35e5548b411).
    Preset {
        name: "reuse-lazy",
        about: "as reuse, and released after a sched slice without use; KVM 5.5",
        of: |base| base,
    },
    Preset {
        name: "paused-flag",
        about: "as reuse-lazy, without calls to pause a paused event; KVM 5.15",
        of: |base| Strategy { skip_paused: true, ..base },
    },
    // Linux 6.2 (68fb4757e867).
    Preset { name: "deferred", about: "as paused-flag, and reprogrammed once per entry; KVM 6.2", of: deferred },
    Preset {
        name: "pool",
        about: "stopped events of the vCPU serve any counter of the same configuration",
        of: |base| Strategy { reuse: Reuse::Pool(16), ..deferred(base) },
    },
    // A Cascade Lake guest can run seven counters at once.
    Preset {
        name: "gate",
        about: "all events of the vCPU are one group; one call stops or starts them all",
        of: |base| Strategy { reuse: Reuse::Pool(7), ..gate(base) },
    },
    Preset {
        name: "virtual",
        about: "events go on while the guest has its counters off, and these counts are left out",
        of: |base| Strategy {
            reuse: Reuse::Pool(7),
            pause: Pause::Virtual,
            overflow: OnOverflow::Keep,
            skip_period: true,
            ..deferred(base)
        },
    },
    Preset {
        name: "gate-pool",
        about: "as gate, and events of counters that rotate are kept for four slices",
        of: |base| Strategy { reuse: Reuse::Pool(16), release: Release::Slices(4), ..gate(base) },
    },
];

/// Names of the presets.
pub const PRESETS: [&str; TABLE.len()] = names!(TABLE);

/// Returns one line about the preset `name`; empty if there is none.
pub fn about(name: &str) -> &'static str {
    TABLE.iter().find(|row| row.name == name).map_or("", |row| row.about)
}

fn deferred(base: Strategy) -> Strategy {
    Strategy { skip_paused: true, apply: Apply::Deferred, ..base }
}

fn gate(base: Strategy) -> Strategy {
    Strategy { gate: true, overflow: OnOverflow::Keep, skip_period: true, ..deferred(base) }
}

impl Strategy {
    /// Returns the preset `name`.
    pub fn preset(name: &str) -> Result<Self, StrategyError> {
        let preset =
            TABLE.iter().find(|row| row.name == name).ok_or_else(|| StrategyError::Unknown(name.to_owned()))?;
        Ok((preset.of)(Self {
            name: name.to_owned(),
            reuse: Reuse::Last,
            release: Release::Slices(1),
            apply: Apply::AtOnce,
            skip_paused: false,
            skip_period: false,
            overflow: OnOverflow::Reprogram,
            pause: Pause::Host,
            gate: false,
        }))
    }

    /// Reads a strategy from its TOML text.
    pub fn from_toml(text: &str) -> Result<Self, StrategyError> {
        let strategy: Self = toml::from_str(text)?;
        strategy.check()?;
        Ok(strategy)
    }

    /// Returns the strategy of a TOML definition or, without one, the preset `name`.
    pub fn named(name: &str, definition: Option<&str>) -> Result<Self, StrategyError> {
        definition.map_or_else(|| Self::preset(name), Self::from_toml)
    }

    fn check(&self) -> Result<(), StrategyError> {
        let Self { name, reuse, release, pause, gate, .. } = self;
        let is_name_char = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        let is_name = (1..=64).contains(&name.len()) && name.chars().all(is_name_char);
        let (parks, goes_on) = (*reuse != Reuse::None, *pause != Pause::Host);
        let faults = [
            (!is_name, "the name must be 1 to 64 letters, digits, '-', '_' or '.'"),
            (matches!(*reuse, Reuse::Pool(k) if k == 0 || k > MAX_POOL), "a pool holds 1 to 64 events"),
            (parks && *release == Release::Eager, "with release = \"eager\" nothing is parked that could be reused"),
            (*release == Release::Slices(0), "release after 0 slices is \"eager\""),
            (*gate && !parks, "with reuse = \"none\" there is nothing a gate could stop and start again"),
            (goes_on && !parks, "pause: with reuse = \"none\" no event is left to go on"),
            (goes_on && *gate, "pause: behind a gate a pause is one call for all events already: use one of the two"),
            (*pause == Pause::Direct, "pause = \"direct\": only the kernel can, below KVM's own vPMU: kvm:direct"),
        ];
        match faults.into_iter().find(|(found, _)| *found) {
            Some((_, why)) => Err(StrategyError::Impossible { name: name.clone(), why }),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_preset_is_possible_and_survives_toml() {
        for name in PRESETS {
            let preset = Strategy::preset(name).unwrap();
            preset.check().unwrap();
            let text = toml::to_string(&preset).unwrap();
            assert_eq!(Strategy::from_toml(&text).unwrap(), preset, "{text}");
            assert!(!about(name).is_empty(), "{name}");
        }
    }

    #[test]
    fn contradictions_and_typos_are_refused_by_name() {
        let with = |line: &str| {
            let text = format!("name = 'x'\nreuse = 'last'\nrelease = 'never'\napply = 'at-once'\n{line}");
            Strategy::from_toml(&text).unwrap_err().to_string()
        };
        assert!(with("skip-pause = true").contains("skip-pause"));
        for (reuse, release, why) in [
            ("'last'", "'eager'", "nothing is parked"),
            ("{ pool = 0 }", "'never'", "1 to 64"),
            ("{ pool = 65 }", "'never'", "1 to 64"),
            ("'last'", "{ slices = 0 }", "eager"),
            ("'none'\ngate = true", "'eager'", "a gate"),
            ("'none'\npause = 'virtual'", "'eager'", "no event is left"),
            ("'last'\npause = 'virtual'\ngate = true", "'never'", "one of the two"),
            ("'last'\npause = 'direct'", "'never'", "kvm:direct"),
        ] {
            let text = format!("name = 'x'\nreuse = {reuse}\nrelease = {release}\napply = 'at-once'");
            let error = Strategy::from_toml(&text).unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
        }
        assert!(Strategy::from_toml("name = ''\nreuse = 'none'\nrelease = 'eager'\napply = 'at-once'").is_err());
        assert!(Strategy::preset("reus").unwrap_err().to_string().contains("reuse-lazy"));
    }
}
