//! The choice of a backend: one of the host's, a simulated one, or `auto`.

use std::fmt;
use std::str::FromStr;

use arch_pmu::spec::Vendor;
use host_pmu::backend::{BackendKey, HostError};
use results::error::Error;
use results::host::HostFacts;
use vmm::kvm::Host;
use vmm::machine::Cpu;

/// A backend as a user names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BackendChoice {
    /// The first that works here.
    Auto,
    /// This one.
    Key(BackendKey),
    /// A simulated host, by its model's name or file.
    Sim(String),
}

/// The default sampling period: about 1 ms of cycles or of a clock scaled to cycles at 2 GHz, 1 ms of a clock at a rate
/// of its own, 100 occurrences of a tracepoint.
pub const fn default_period(backend: &BackendKey) -> u64 {
    match backend {
        BackendKey::Tracepoint { .. } | BackendKey::Step => 100,
        BackendKey::CpuClockAt(mhz) => *mhz as u64 * 1000,
        _ => 2_000_000,
    }
}

impl fmt::Display for BackendChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Key(key) => key.fmt(f),
            Self::Sim(model) => write!(f, "sim:{model}"),
        }
    }
}

impl FromStr for BackendChoice {
    type Err = host_pmu::backend::UnknownBackend;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.strip_prefix("sim:") {
            Some(model) if !model.is_empty() => Ok(Self::Sim(model.to_owned())),
            _ if text == "auto" => Ok(Self::Auto),
            _ => text.parse().map(Self::Key),
        }
    }
}

/// The backend to use, and why it was chosen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chosen {
    /// Never `auto`.
    pub backend: BackendKey,
    /// Why this backend was chosen.
    pub why: String,
    /// Guests that live at the same time spare each other the cost of the host's first event and of its last close.
    pub shares_first: bool,
    /// A model's, on which no time of this host passes.
    pub simulated: bool,
}

impl Chosen {
    /// A backend of this host.
    pub const fn here(backend: BackendKey, why: String) -> Self {
        let shares_first = backend.first_open_is_expensive();
        Self { backend, why, shares_first, simulated: false }
    }
}

/// Returns the processor of guests whose events the backend counts as they are: an Intel's have no counterpart on an AMD's PMU.
/// Any of KVM's vPMUs there has a Milan's six counters.
pub fn guest_cpu(backend: &BackendKey, host: &HostFacts) -> Cpu {
    let amd = matches!(backend, BackendKey::Hardware) && host.cpu_vendor.as_deref() == Some("AuthenticAMD");
    if amd { Cpu::Milan } else { Cpu::default() }
}

/// Returns the processor whose PMU KVM shows a guest on a host of this vendor, with PerfMonV2 or without.
pub fn shown_by(vendor: Option<Vendor>, perfmon_v2: bool) -> Option<Cpu> {
    Some(match vendor? {
        Vendor::Intel => Cpu::CascadeLake,
        Vendor::Amd if perfmon_v2 => Cpu::Genoa,
        Vendor::Amd => Cpu::Milan,
    })
}

/// The backend to use: the one asked for if it opens, or what `auto` finds.
pub fn choose(asked: &BackendChoice, probe: Probe<'_>) -> Result<Chosen, Error> {
    // The remedy for this reason, else the command that knows more; and what else helps.
    let or = |other: &str, error: Error| {
        let first = if error.remedy.is_empty() { "`vpmu doctor` says what is missing" } else { &error.remedy };
        Error { remedy: format!("{first}{other}"), ..error }
    };
    match asked {
        BackendChoice::Auto => auto(probe).map_err(|error| or("", error)),
        BackendChoice::Key(key) => {
            let opened = probe(key).map(|()| Chosen::here(key.clone(), "asked for".to_owned()));
            opened.map_err(|error| or(", or take --backend auto", error))
        }
        BackendChoice::Sim(name) => Err(Error::usage(
            format!("backend sim:{name} runs no real guest"),
            "a simulated host has none",
            "take `vpmu sim`, or another --backend",
        )),
    }
}

/// Opens KVM. Exit 4 where this host cannot run guests.
pub fn open_kvm() -> Result<Host, Error> {
    let remedy = "`vpmu doctor` says what is missing";
    Host::open().map_err(|error| Error::host("cannot start a guest", error.to_string(), remedy))
}

/// Opens and closes one sampling event of a backend; its error has exit 4.
pub type Probe<'a> = &'a dyn Fn(&BackendKey) -> Result<(), Error>;

/// Tries `hardware`, then `cpu-clock`.
///
/// # Errors
/// Neither opens.
pub fn auto(probe: Probe<'_>) -> Result<Chosen, Error> {
    let Err(hardware) = probe(&BackendKey::Hardware) else {
        let why = "the host has a hardware PMU and lets this user sample with it".to_owned();
        return Ok(Chosen::here(BackendKey::Hardware, why));
    };
    match probe(&BackendKey::CpuClock) {
        Ok(()) => {
            let why = format!("a stand-in, since hardware events do not open ({})", hardware.why);
            Ok(Chosen::here(BackendKey::CpuClock, why))
        }
        Err(clock) => {
            let why = format!("neither hardware events ({}) nor cpu-clock ({}) open", hardware.why, clock.why);
            Err(Error::host("no host event can stand behind a counter", why, clock.remedy))
        }
    }
}

/// Tries an event of this host's perf.
///
/// # Errors
/// Exit 4 if it does not open.
pub fn this_host(backend: &BackendKey) -> Result<(), Error> {
    host_pmu::open::probe(backend).map_err(|error| {
        let (why, remedy) = match &error {
            HostError::Os { call, errno, remedy } => {
                let why = format!("{call}: {}", std::io::Error::from_raw_os_error(*errno));
                (why, remedy.trim_start_matches("; "))
            }
            _ => (error.to_string(), ""),
        };
        Error::host(format!("backend {backend} does not work here"), why, remedy)
    })
}

#[cfg(test)]
pub(crate) mod fake {
    use super::*;

    /// Opens exactly the backends named.
    pub(crate) fn opens(keys: &[&str]) -> impl Fn(&BackendKey) -> Result<(), Error> {
        let keys: Vec<String> = keys.iter().map(|&key| key.to_owned()).collect();
        move |backend| {
            let refused = Error::host("it does not open", "No such file or directory", "look elsewhere");
            if keys.contains(&backend.to_string()) { Ok(()) } else { Err(refused) }
        }
    }
}

#[cfg(test)]
mod tests {
    use results::error::Exit;

    use super::fake::opens;
    use super::*;

    #[test]
    fn the_backend_asked_for_must_open() {
        let probe = opens(&["cpu-clock"]);
        assert_eq!(choose(&BackendChoice::Auto, &probe).unwrap().backend, BackendKey::CpuClock);
        assert!(choose(&BackendChoice::Key(BackendKey::CpuClock), &probe).is_ok());
        let error = choose(&BackendChoice::Key(BackendKey::Hardware), &probe).unwrap_err();
        assert_eq!(error.exit, Exit::Host);
        assert!(error.to_string().ends_with("; look elsewhere, or take --backend auto"), "{error}");
        assert_eq!(choose(&BackendChoice::Auto, &opens(&[])).unwrap_err().exit, Exit::Host);
    }

    #[test]
    fn auto_prefers_hardware_and_says_why_not() {
        assert_eq!(auto(&opens(&["hardware", "cpu-clock"])).unwrap().backend, BackendKey::Hardware);
        let clock = auto(&opens(&["cpu-clock"])).unwrap();
        assert!(
            clock.backend == BackendKey::CpuClock
                && clock.why.contains("stand-in")
                && clock.why.contains("No such file")
        );
        let none = auto(&opens(&[])).unwrap_err();
        assert_eq!(none.remedy, "look elsewhere");
        assert!(!none.why.contains("elsewhere"), "a remedy within the reason: {}", none.why);
    }
}
