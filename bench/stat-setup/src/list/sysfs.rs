//! PMUs and trace events from sysfs and tracefs; a [`Sysfs`] reads each file once.

use std::collections::HashMap;
use std::io::Read;
use std::path::{Path, PathBuf};

use cpu_list::CpuList;

use super::ask::Perf;

/// Maximum size of a file, bytes.
const MAX_FILE: u64 = 64 << 10;
/// Folder of the PMUs.
const DEVICES: &str = "sys/bus/event_source/devices";
/// Mount points of tracefs.
const TRACING: [&str; 2] = ["sys/kernel/tracing", "sys/kernel/debug/tracing"];

/// A reader of sysfs with a cache, and the perf that knows names which sysfs does not.
#[derive(Debug)]
pub struct Sysfs {
    root: PathBuf,
    pub(super) perf: Option<Perf>,
    files: HashMap<PathBuf, Result<String, std::io::ErrorKind>>,
}

/// A PMU in sysfs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pmu {
    /// Name.
    pub name: String,
    /// PERF_TYPE.
    pub kind: u32,
    /// CPUs to open its events on; `None` = any.
    pub cpus: Option<Vec<u32>>,
    /// True if this is a core PMU.
    pub core: bool,
}

/// Bit ranges of a term within a config word, low bits first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Format {
    /// Index of config, config1, config2, config3.
    pub word: usize,
    /// First and last bit of each range.
    pub ranges: Vec<(u32, u32)>,
}

impl Format {
    /// Parses e.g. `config:0-7,32-35` or `config1:3`.
    pub fn parse(text: &str) -> Option<Self> {
        let (word, ranges) = text.trim().split_once(':')?;
        let word = ["config", "config1", "config2", "config3"].iter().position(|known| *known == word)?;
        let ranges = ranges
            .split(',')
            .map(|range| {
                let (first, last) = range.split_once('-').unwrap_or((range, range));
                let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
                (first <= last && last < 64).then_some((first, last))
            })
            .collect::<Option<Vec<_>>>()?;
        Some(Self { word, ranges })
    }

    /// Returns `value` placed in the ranges; `None` if it does not fit.
    pub fn place(&self, value: u64) -> Option<u64> {
        let (mut left, mut placed) = (value, 0);
        for &(first, last) in &self.ranges {
            let width = last - first + 1;
            let mask = if width == 64 { u64::MAX } else { (1 << width) - 1 };
            placed |= (left & mask) << first;
            left = if width == 64 { 0 } else { left >> width };
        }
        (left == 0).then_some(placed)
    }
}

impl Sysfs {
    /// Returns the tree of this host.
    pub fn host() -> Self {
        Self::at("/").asking_perf(&[])
    }

    /// Returns a tree below `root`.
    pub fn at(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into(), perf: None, files: HashMap::new() }
    }

    /// Asks the installed perf, in this environment, for names that this tree does not know.
    #[must_use]
    pub fn asking_perf(self, environment: &[(&str, &str)]) -> Self {
        Self { perf: Some(Perf::new(environment)), ..self }
    }

    /// Returns the PMU of this type.
    pub(super) fn of_type(&mut self, kind: u32) -> Option<String> {
        self.names(DEVICES).into_iter().find(|name| self.pmu(name).is_ok_and(|pmu| pmu.kind == kind))
    }

    /// Returns the text of a file without trailing white space.
    pub fn text(&mut self, path: &str) -> Result<String, std::io::ErrorKind> {
        let path = self.root.join(path);
        if let Some(known) = self.files.get(&path) {
            return known.clone();
        }
        let found = read(&path).map_err(|error| error.kind());
        self.files.insert(path, found.clone());
        found
    }

    /// Returns the CPUs in a file, sorted; `None` without one.
    fn cpus(&mut self, path: &str) -> Option<Vec<u32>> {
        let CpuList(mut cpus) = self.text(path).ok()?.parse().ok()?;
        cpus.sort_unstable();
        Some(cpus)
    }

    /// Returns the PMUs of this name with a number after it, `uncore_` before it or both, as perf finds them.
    pub fn instances(&self, name: &str) -> Vec<String> {
        let is = |found: &String| {
            let short =
                if name.starts_with("uncore_") { found } else { found.strip_prefix("uncore_").unwrap_or(found) };
            let number = short.strip_prefix(name).map(|rest| rest.strip_prefix('_').unwrap_or(rest));
            number.is_some_and(|number| number.bytes().all(|b| b.is_ascii_digit()))
        };
        self.names(DEVICES).into_iter().filter(is).collect()
    }

    /// Returns the PMUs that have an event of this name.
    pub fn with_event(&self, event: &str) -> Vec<String> {
        let mut pmus = self.names(DEVICES);
        pmus.retain(|pmu| {
            !event.contains(['.', '*', '?']) && self.root.join(format!("{DEVICES}/{pmu}/events/{event}")).is_file()
        });
        pmus
    }

    fn names(&self, path: &str) -> Vec<String> {
        let Ok(entries) = std::fs::read_dir(self.root.join(path)) else { return Vec::new() };
        let mut names: Vec<String> = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok()).collect();
        names.sort_unstable();
        names
    }

    /// Returns the online CPUs; empty if unknown.
    pub fn online(&mut self) -> Vec<u32> {
        self.cpus("sys/devices/system/cpu/online").unwrap_or_default()
    }

    /// Looks up a PMU by name.
    ///
    /// # Errors
    /// The PMU does not exist or has an invalid type.
    pub fn pmu(&mut self, name: &str) -> Result<Pmu, String> {
        let dir = format!("{DEVICES}/{name}");
        let kind = self.text(&format!("{dir}/type")).map_err(|_| format!("this host has no PMU {name}"))?;
        let kind = kind.parse().map_err(|_| format!("PMU {name} has an invalid type: {kind}"))?;
        let cpus = ["cpumask", "cpus"].iter().find_map(|file| self.cpus(&format!("{dir}/{file}")));
        Ok(Pmu { name: name.to_owned(), kind, cpus, core: matches!(name, "cpu" | "cpu_core" | "cpu_atom") })
    }

    /// Returns the format of a term; `None` if the PMU has no such term.
    pub fn format(&mut self, pmu: &str, term: &str) -> Option<Format> {
        let text = self.text(&format!("{DEVICES}/{pmu}/format/{term}")).ok()?;
        Format::parse(&text)
    }

    /// Terms of a named event.
    pub fn alias(&mut self, pmu: &str, event: &str) -> Option<String> {
        self.text(&format!("{DEVICES}/{pmu}/events/{event}")).ok()
    }

    /// Returns the unit of a named event.
    pub fn unit(&mut self, pmu: &str, event: &str) -> String {
        let unit = self.text(&format!("{DEVICES}/{pmu}/events/{event}.unit")).ok();
        unit.filter(|unit| unit.len() < 32).unwrap_or_default()
    }

    /// Returns the id of a trace event.
    ///
    /// # Errors
    /// The event does not exist, or tracefs is not mounted or not readable.
    pub fn tracepoint(&mut self, group: &str, name: &str) -> Result<u64, String> {
        let mut refused = false;
        for dir in TRACING {
            match self.text(&format!("{dir}/events/{group}/{name}/id")) {
                Ok(id) => return id.parse().map_err(|_| format!("trace event {group}:{name} has no number")),
                Err(std::io::ErrorKind::PermissionDenied) => refused = true,
                Err(_) => {}
            }
        }
        Err(if refused {
            "tracefs is not readable by this user (run as root)".to_owned()
        } else if self.tracing().is_none() {
            "tracefs is not mounted (mount -t tracefs tracefs /sys/kernel/tracing)".to_owned()
        } else {
            "this kernel has no such trace event".to_owned()
        })
    }

    fn tracing(&self) -> Option<&'static str> {
        TRACING.into_iter().find(|dir| self.root.join(dir).join("events").is_dir())
    }

    /// Returns the names of a group's trace events, sorted.
    pub fn tracepoints(&self, group: &str) -> Vec<String> {
        let Some(dir) = self.tracing() else { return Vec::new() };
        let mut names = self.names(&format!("{dir}/events/{group}"));
        names.retain(|name| self.root.join(format!("{dir}/events/{group}/{name}/id")).exists());
        names
    }
}

fn read(path: &Path) -> std::io::Result<String> {
    let mut bytes = Vec::new();
    std::fs::File::open(path)?.take(MAX_FILE).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).trim_end().to_owned())
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Creates a tree of files in a temporary folder.
    pub(crate) fn tree(files: &[(&str, &str)]) -> (tempfile::TempDir, Sysfs) {
        let dir = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = dir.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        let sysfs = Sysfs::at(dir.path());
        (dir, sysfs)
    }

    #[test]
    fn formats_place_bits_in_their_ranges() {
        let format = Format::parse("config:0-7,32-35\n").unwrap();
        assert_eq!(format.place(0xabc), Some(0xa_0000_00bc));
        assert_eq!(format.place(0x1000), None);
        assert_eq!(Format::parse("config1:0-63").unwrap().place(u64::MAX), Some(u64::MAX));
        assert_eq!(Format::parse("config:21").unwrap().place(1), Some(1 << 21));
        for bad in ["", "config", "config:", "config:8-7", "config:64", "config:a", "confug:1"] {
            assert_eq!(Format::parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn cpus_of_a_pmu_and_of_the_host() {
        let (_dir, mut sysfs) = tree(&[
            ("sys/devices/system/cpu/online", "0-2,8\n"),
            ("sys/bus/event_source/devices/uncore/type", "17\n"),
            ("sys/bus/event_source/devices/uncore/cpumask", "0,4\n"),
            ("sys/bus/event_source/devices/cpu_core/type", "4\n"),
            ("sys/bus/event_source/devices/cpu_core/cpus", "0-1\n"),
            ("sys/bus/event_source/devices/software/type", "1\n"),
            ("sys/bus/event_source/devices/software/cpumask", "\n"),
        ]);
        assert_eq!(sysfs.online(), [0, 1, 2, 8]);
        assert_eq!(sysfs.pmu("uncore").unwrap().cpus, Some(vec![0, 4]));
        assert_eq!(sysfs.pmu("cpu_core").unwrap().cpus, Some(vec![0, 1]));
        assert_eq!(sysfs.pmu("software").unwrap().cpus, None, "an empty mask");
    }
}
