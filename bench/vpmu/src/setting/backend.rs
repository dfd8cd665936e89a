//! The choice of a backend: one of the host's, a simulated one, or `auto`.

use std::fmt;
use std::str::FromStr;

use host_pmu::backend::BackendKey;

use crate::setting::abilities::{EventProbe, choose_backend};
use results::error::Error;

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

/// The default sampling period: about 1 ms of cycles or of a clock scaled to cycles at 2 GHz, 1 ms of a clock at a rate of its own, 100
/// occurrences of a tracepoint.
#[must_use]
pub const fn default_period(backend: &BackendKey) -> u64 {
    match backend {
        BackendKey::Tracepoint { .. } | BackendKey::Step => 100,
        BackendKey::CpuClockAt { mhz } => *mhz as u64 * 1000,
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
    /// Why.
    pub why: String,
    /// Guests that live at the same time spare each other the cost of the host's first event and of its last close.
    pub shares_first: bool,
}

impl Chosen {
    /// A backend of this host.
    #[must_use]
    pub const fn here(backend: BackendKey, why: String) -> Self {
        let shares_first = backend.first_open_is_expensive();
        Self { backend, why, shares_first }
    }
}

/// The backend to use: the one asked for if it opens, or what `auto` finds.
pub fn choose(asked: &BackendChoice, probe: &dyn EventProbe) -> Result<Chosen, Error> {
    let key = match asked {
        BackendChoice::Auto => {
            let auto = choose_backend(probe);
            return auto.backend.map(|backend| Chosen::here(backend, auto.why.clone())).ok_or_else(|| {
                Error::host("no host event can stand behind a counter", auto.why, remedy(&auto.remedy, ""))
            });
        }
        BackendChoice::Key(key) => key,
        BackendChoice::Sim(name) => {
            return Err(Error::usage(
                format!("backend sim:{name} runs no real guest"),
                "a simulated host has none",
                "take `vpmu sim`, or another --backend",
            ));
        }
    };
    probe.try_open(key).map_err(|refused| {
        Error::host(
            format!("backend {key} does not work here"),
            refused.why,
            remedy(&refused.remedy, ", or take --backend auto"),
        )
    })?;
    Ok(Chosen::here(key.clone(), "asked for".to_owned()))
}

/// The remedy for this reason, else the command that knows more; and what else helps.
fn remedy(known: &str, or: &str) -> String {
    let first = if known.is_empty() { "`vpmu doctor` says what is missing" } else { known };
    format!("{first}{or}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::setting::abilities::fake::Opens;
    use results::error::Exit;

    #[test]
    fn the_backend_asked_for_must_open() {
        let probe = Opens(&["cpu-clock"]);
        assert_eq!(choose(&BackendChoice::Auto, &probe).unwrap().backend, BackendKey::CpuClock);
        assert!(choose(&BackendChoice::Key(BackendKey::CpuClock), &probe).is_ok());
        let error = choose(&BackendChoice::Key(BackendKey::Hardware), &probe).unwrap_err();
        assert_eq!(error.exit, Exit::Host);
        assert!(error.to_string().ends_with("; look elsewhere, or take --backend auto"), "{error}");
        assert_eq!(choose(&BackendChoice::Auto, &Opens(&[])).unwrap_err().exit, Exit::Host);
    }

    #[test]
    fn every_key_reads_back_as_written() {
        for text in
            ["auto", "hardware", "cpu-clock", "task-clock", "step", "none", "tracepoint:kvm/kvm_exit", "sim:icx-2021"]
        {
            assert_eq!(text.parse::<BackendChoice>().unwrap().to_string(), text);
        }
        assert!("sim:".parse::<BackendChoice>().is_err());
        assert!("cpuclock".parse::<BackendChoice>().unwrap_err().to_string().contains("cpu-clock"));
    }
}
