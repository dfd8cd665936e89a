//! The host's NMI watchdog in the hands of a run that switches it.

use host_pmu::backend::BackendKey;
use results::host::HostFs;

use crate::setting::backend::EventProbe;
use crate::terminal::console::Change;

const FILE: &str = "proc/sys/kernel/nmi_watchdog";

/// The watchdog; what it was is put back at the end, when dropped and at a panic too. Signals that [`crate::sys::catch_interrupts`] catches end a run in
/// the ordinary way; after a SIGKILL or a second Ctrl-C it stays as the run set it, and `vpmu doctor`'s commands switch it.
#[derive(Debug)]
pub struct Watchdog {
    fs: HostFs,
    was_on: bool,
    _change: Change,
}

impl Watchdog {
    /// Takes the watchdog, if switching it changes anything.
    ///
    /// # Errors
    /// Why it is not switched.
    pub fn take(fs: &HostFs, probe: &dyn EventProbe) -> Result<Self, String> {
        // Nothing is touched for stand-ins.
        probe.try_open(&BackendKey::Hardware).map_err(|refused| refused.why)?;
        let was_on = is_on(fs).ok_or_else(|| format!("cannot read /{FILE}: the kernel has no lockup detector"))?;
        let there = fs.clone();
        // The run has said why it cannot, if anyone listens.
        let change = Change::undone_by(move || _ = switch(&there, was_on));
        let watchdog = Self { fs: fs.clone(), was_on, _change: change };
        // A kernel may refuse or ignore it: what is not possible is known before anything is measured.
        watchdog.switch(!was_on)?;
        watchdog.restore().map(|()| watchdog)
    }

    /// Switches it, and checks that the kernel did.
    ///
    /// # Errors
    /// The kernel refuses or ignores it: a host without a PMU does.
    pub fn switch(&self, on: bool) -> Result<(), String> {
        switch(&self.fs, on)
    }

    /// Puts back what it was.
    ///
    /// # Errors
    /// As [`Self::switch`].
    pub fn restore(&self) -> Result<(), String> {
        self.switch(self.was_on)
    }
}

fn switch(fs: &HostFs, on: bool) -> Result<(), String> {
    let written = std::fs::write(fs.path(FILE), if on { "1" } else { "0" });
    let why = match written {
        Ok(()) if is_on(fs) == Some(on) => return Ok(()),
        Ok(()) => "the kernel took it, and did not switch".to_owned(),
        Err(error) => error.to_string(),
    };
    let on = if on { "on" } else { "off" };
    Err(format!("cannot switch the NMI watchdog {on} (/{FILE}): {why}; it takes root and a hardware PMU"))
}

fn is_on(fs: &HostFs) -> Option<bool> {
    fs.number(FILE).map(|number| number != 0)
}

#[cfg(test)]
mod tests {
    use trials::hosts::tree;

    use super::*;
    use crate::setting::backend::fake::Opens;

    #[test]
    fn the_watchdog_is_taken_only_where_it_matters_and_can_be_switched() {
        let hardware = Opens(&["hardware"]);
        let (_dir, fs) = tree(&[(FILE, "1\n")]);
        assert_eq!(Watchdog::take(&fs, &Opens(&["cpu-clock"])).unwrap_err(), "No such file or directory");
        let taken = Watchdog::take(&fs, &hardware).unwrap();
        assert_eq!(is_on(&fs), Some(true), "as it was found, until a regime begins");
        taken.switch(false).unwrap();
        assert_eq!(is_on(&fs), Some(false));
        drop(taken);
        assert_eq!(is_on(&fs), Some(true));
        assert!(Watchdog::take(&tree(&[]).1, &hardware).unwrap_err().contains("nmi_watchdog"));
        // Nobody may write this one.
        std::fs::remove_file(fs.path(FILE)).unwrap();
        std::os::unix::fs::symlink("/proc/sys/kernel/ngroups_max", fs.path(FILE)).unwrap();
        let refused = Watchdog::take(&fs, &hardware).unwrap_err();
        assert!(refused.starts_with("cannot switch the NMI watchdog off"), "{refused}");
    }
}
