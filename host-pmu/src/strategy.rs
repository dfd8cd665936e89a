//! A strategy is data: a few independent choices about the host events behind the vPMCs.
//!
//! The presets are files beside this one, whose first line is about them: KVM's own history (commits in `docs/strategies.md`) plus
//! `pool`, `gate`, `virtual` and `gate-pool`, which are ours.

use serde::{Deserialize, Serialize};
use thiserror::Error;

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
    #[error("strategy '{0}': {1}")]
    Impossible(String, &'static str),
}

/// Defines the presets, whose files are beside this one, by their names.
macro_rules! presets {
    ($($name:literal)+) => {
        /// Names of the presets.
        pub const PRESETS: [&str; TABLE.len()] = [$($name),+];
        const TABLE: [(&str, &str); 9] = [$(($name, include_str!(concat!("presets/", $name, ".toml")))),+];
    };
}

presets! { "recreate" "reuse" "reuse-lazy" "paused-flag" "deferred" "pool" "gate" "virtual" "gate-pool" }

/// Returns one line about the preset `name`; empty if there is none.
pub fn about(name: &str) -> &'static str {
    let text = TABLE.iter().find(|(preset, _)| *preset == name).and_then(|(_, text)| text.lines().next());
    text.and_then(|line| line.strip_prefix("# ")).unwrap_or_default()
}

impl Strategy {
    /// Returns the preset `name`.
    pub fn preset(name: &str) -> Result<Self, StrategyError> {
        let (name, text) = TABLE
            .into_iter()
            .find(|(preset, _)| *preset == name)
            .ok_or_else(|| StrategyError::Unknown(name.to_owned()))?;
        Ok(Self { name: name.to_owned(), ..toml::from_str(text)? })
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
        let is_name = (1..=40).contains(&name.len()) && name.chars().all(is_name_char);
        let (parks, goes_on) = (*reuse != Reuse::None, *pause != Pause::Host);
        let faults = [
            (!is_name, "the name must be 1 to 40 letters, digits, '-', '_' or '.'"),
            (matches!(*reuse, Reuse::Pool(k) if k == 0 || k > MAX_POOL), "a pool holds 1 to 64 events"),
            (parks && *release == Release::Eager, "with release = \"eager\" nothing is parked that could be reused"),
            (*release == Release::Slices(0), "release after 0 slices is \"eager\""),
            (*gate && !parks, "with reuse = \"none\" there is nothing a gate could stop and start again"),
            (goes_on && !parks, "pause: with reuse = \"none\" no event is left to go on"),
            (goes_on && *gate, "pause: behind a gate a pause is one call for all events already: use one of the two"),
            (*pause == Pause::Direct, "pause = \"direct\": only the kernel can, below KVM's own vPMU: kvm:direct"),
        ];
        match faults.into_iter().find(|(found, _)| *found) {
            Some((_, why)) => Err(StrategyError::Impossible(name.clone(), why)),
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
