//! Strategies of a comparison: preset names and TOML files, checked and read once.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use host_pmu::kernel;
use host_pmu::strategy::{PRESETS, Strategy};
use sim::mediated::{MEDIATED, Mediated};
use toml::de::DeTable;

use results::compare::GEOMEAN;
use results::document::{BELOW_KVM, KVM_ARMS, StrategyParameter};
use results::error::Error;
use results::host::HostFs;

use crate::setting::parse::{fault, is_toml, suggestion};

/// Largest strategy file.
const MAX_DEFINITION: u64 = 64 << 10;

/// One entry of a list of strategies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StrategyChoice {
    /// A preset's name; with `kvm:` before it, of the host events of KVM's own vPMU. Whether it exists is checked by [`resolve`].
    Preset(String),
    /// A TOML file.
    File(PathBuf),
    /// A definition that was read or made already.
    Defined(StrategyParameter),
}

impl StrategyChoice {
    /// Lists preset names.
    pub fn presets(names: &[&str]) -> Vec<Self> {
        names.iter().map(|&name| Self::Preset(name.to_owned())).collect()
    }
}

impl std::str::FromStr for StrategyChoice {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let text = text.trim();
        if text.is_empty() {
            return Err("an empty name; give e.g. recreate,reuse".to_owned());
        }
        let path = PathBuf::from(text);
        let is_file = is_toml(text) && !text.starts_with(BELOW_KVM);
        Ok(if is_file { Self::File(path) } else { Self::Preset(text.to_owned()) })
    }
}

/// Resolves the strategies of a list, each with its definition in TOML. Those that only a simulated guest can have are among them:
/// [`refuse_modelled`] is for real ones.
///
/// # Errors
/// Exit 2 for an unknown preset, a bad file, or two entries of the same name.
pub fn resolve(list: &[StrategyChoice]) -> Result<Vec<StrategyParameter>, Error> {
    let below = |one: &StrategyChoice| match one {
        StrategyChoice::Preset(name) if name.starts_with(BELOW_KVM) => Some(name.clone()),
        _ => None,
    };
    if let Some(name) = list.iter().find_map(below) {
        return Err(Error::usage(
            format!("{name} is an arm of experiments on this host"),
            "its host events are those of KVM's own vPMU, not of the tool's",
            "give it to nmi-latency, guest-stat, advise or ab",
        ));
    }
    resolve_arms(list)
}

/// Resolves the strategies of a comparison's arms: as [`resolve`], and those of KVM's own vPMU, of this host's kernel.
///
/// # Errors
/// As [`resolve`], and exit 2 for what cannot be had below KVM.
pub fn resolve_arms(list: &[StrategyChoice]) -> Result<Vec<StrategyParameter>, Error> {
    // Names that differ in their case alone are one to readers.
    let mut seen = BTreeSet::from(["floor", KVM_ARMS[0], KVM_ARMS[1], GEOMEAN].map(str::to_owned));
    let mut found = Vec::new();
    for choice in list {
        let strategy = match choice {
            StrategyChoice::Preset(name) => match name.strip_prefix(BELOW_KVM) {
                Some(below) => below_kvm(below)?,
                None => preset(name)?,
            },
            StrategyChoice::File(path) => definition(path)?,
            StrategyChoice::Defined(strategy) => strategy.clone(),
        };
        if !seen.insert(strategy.name.to_ascii_lowercase()) {
            return Err(Error::usage(
                format!("two arms are called '{}'", strategy.name),
                "",
                "leave one out, or give the file's strategy another `name`",
            ));
        }
        found.push(strategy);
    }
    Ok(found)
}

/// Returns a strategy with its definition: all choices in one form, so that two of them can be compared.
fn whole(name: String, strategy: &Strategy) -> Result<StrategyParameter, Error> {
    let definition = toml::to_string(strategy).map_err(|error| Error::internal("a strategy has no TOML", error))?;
    Ok(StrategyParameter { name, definition: Some(definition) })
}

/// Resolves a preset, or a model, which has no definition.
fn preset(name: &str) -> Result<StrategyParameter, Error> {
    if name == "floor" || KVM_ARMS.contains(&name) {
        return Err(Error::usage(
            format!("{name} is not a strategy"),
            "that arm comes by itself, kvm where KVM has a vPMU",
            format!("leave it out; strategies are {}, or a .toml file", PRESETS.join(", ")),
        ));
    }
    if Mediated::named(name).is_some() {
        return Ok(StrategyParameter { name: name.to_owned(), definition: None });
    }
    let preset = Strategy::preset(name).map_err(|_| {
        let known: Vec<&str> = PRESETS.into_iter().chain(MEDIATED.map(|kind| kind.name)).collect();
        let others = " (the latter two: simulated guests only), and files ending in .toml";
        Error::usage(format!("unknown strategy '{name}'"), "", suggestion(name, &known, others))
    })?;
    whole(name.to_owned(), &preset)
}

/// Resolves `kvm:NAME`, below the KVM of this host.
fn below_kvm(name: &str) -> Result<StrategyParameter, Error> {
    let release = HostFs::default().text("proc/sys/kernel/osrelease").unwrap_or_default();
    let arm = format!("{BELOW_KVM}{name}");
    let Some(preset) = kernel::preset(name, kernel::applies(&release)) else {
        let known = kernel::PRESETS.map(|(name, _)| format!("{BELOW_KVM}{name}"));
        return Err(Error::usage(format!("no strategy {arm}"), "", suggestion(name, &known, "")));
    };
    whole(arm, &preset)
}

/// Refuses what only a simulated guest can have.
///
/// # Errors
/// Exit 2 with the command that simulates it.
pub fn refuse_modelled(strategies: &[StrategyParameter]) -> Result<(), Error> {
    match strategies.iter().find(|strategy| Mediated::named(&strategy.name).is_some()) {
        Some(StrategyParameter { name, .. }) => Err(Error::usage(
            format!("strategy {name} is a model: no guest of vpmu's own VMM can have it"),
            "the host's kernel would have to give its PMU to the guest",
            format!("simulate it: vpmu sim spr-2026 --strategy {name}"),
        )),
        None => Ok(()),
    }
}

/// Checks the names in a list, and leaves files to where they are.
///
/// # Errors
/// Exit 2 for an unknown preset, or one that is there twice.
pub fn check_names(list: &[StrategyChoice]) -> Result<(), Error> {
    let names: Vec<_> = list.iter().filter(|choice| matches!(choice, StrategyChoice::Preset(_))).cloned().collect();
    resolve_arms(&names).map(drop)
}

/// Describes a key beside the one that a choice has, as a table.
fn second_key(text: &str) -> Option<String> {
    let table = DeTable::parse(text).ok()?;
    [("reuse", "pool"), ("release", "slices")].into_iter().find_map(|(choice, own)| {
        let keys = table.get_ref().get(choice)?.get_ref().as_table().filter(|keys| keys.len() > 1)?;
        let key = keys.keys().find(|key| key.get_ref() != own)?;
        let line = 1 + text[..key.span().start].matches('\n').count();
        Some(format!("line {line}: unknown field `{}` in `{choice}` (did you mean {own}?)", key.get_ref()))
    })
}

/// Reads a definition: its text, named by its `name` key or else by its file.
fn definition(path: &Path) -> Result<StrategyParameter, Error> {
    let cannot =
        |why: String, remedy: &str| Error::usage(format!("cannot use strategy file {}", path.display()), why, remedy);
    let refuse = |why: String| cannot(why, "`vpmu show strategies deferred` prints a file to start from");
    let text = results::open::named_text(path, MAX_DEFINITION)
        .map_err(|error| cannot(error.to_string(), "give an existing file"))?;
    let mut strategy: Strategy =
        toml::from_str(&text).map_err(|error| refuse(second_key(&text).unwrap_or_else(|| fault(&text, &error))))?;
    if strategy.name.is_empty() {
        strategy.name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    }
    let name = strategy.name.clone();
    if PRESETS.iter().any(|preset| preset.eq_ignore_ascii_case(&name)) {
        let why = format!("its name '{name}' is that of a preset");
        return Err(cannot(why, "rename the file, or give it a `name` of its own"));
    }
    if Mediated::named(&name).is_some() {
        return Err(refuse(format!("its name '{name}' is that of a model, which is no strategy of host events")));
    }
    let whole = whole(name, &strategy)?;
    Strategy::from_toml(whole.definition.as_deref().unwrap_or_default()).map_err(|error| refuse(error.to_string()))?;
    Ok(whole)
}

/// Resolves the one strategy of a command that compares none, ready for use.
///
/// # Errors
/// As [`ready`].
pub fn resolve_one(choice: &StrategyChoice) -> Result<Strategy, Error> {
    let mut found = ready(std::slice::from_ref(choice))?;
    found.pop().ok_or_else(|| Error::usage("no strategy", "", ""))
}

/// Lists the strategies of a list, ready for use.
///
/// # Errors
/// As [`resolve`] and [`refuse_modelled`].
pub fn ready(list: &[StrategyChoice]) -> Result<Vec<Strategy>, Error> {
    let strategies = resolve(list)?;
    refuse_modelled(&strategies)?;
    strategies.iter().map(|StrategyParameter { name, definition }| named(name, definition.as_deref())).collect()
}

/// Returns the strategy of this name, and of this definition if it has one.
///
/// # Errors
/// Exit 2 for one that cannot be read.
pub fn named(name: &str, definition: Option<&str>) -> Result<Strategy, Error> {
    Strategy::named(name, definition).map_err(|error| Error::usage(format!("strategy {name}"), error.to_string(), ""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_preset_has_a_colour_of_its_own_in_plots() {
        assert_eq!(PRESETS, results::plot::PRESETS);
    }

    #[test]
    fn a_strategy_file_is_named_by_itself_and_kept_whole_as_are_those_below_kvm() {
        let dir = tempfile::tempdir().unwrap();
        let file = |name: &str, text: &str| {
            let path = dir.path().join(name);
            std::fs::write(&path, text).unwrap();
            path.into_os_string().into_string().unwrap()
        };
        let mine = file("a.toml", "name = 'mine'\nreuse = 'last'\nrelease = 'never'\napply = 'at-once'");
        let by_file = file("other.toml", "reuse = 'none'\nrelease = 'eager'\napply = 'at-once'");
        let list = [mine.as_str(), &by_file, "kvm:stock", "recreate", "kvm:recreate"];
        let found = resolve_arms(&list.map(|entry| entry.parse().unwrap())).unwrap();
        let names: Vec<_> = found.iter().map(|one| one.name.as_str()).collect();
        assert_eq!(names, ["mine", "other", "kvm:stock", "recreate", "kvm:recreate"]);
        for (strategy, reuse) in found.iter().zip(["last", "none", "last", "none", "none"]) {
            let definition = strategy.definition.as_ref().unwrap();
            let has = |text: &str| definition.contains(text);
            assert!(has(&format!("reuse = \"{reuse}\"")) && has("gate = false"), "{definition}");
        }
    }
}
