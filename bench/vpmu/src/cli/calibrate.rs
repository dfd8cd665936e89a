//! `vpmu calibrate`.

use clap::Args;
use host_pmu::backend::BackendKey;
use results::error::{Error, Exit};
use results::write::check_file;

use super::files::write_to;
use crate::experiment::calibrate::measure::CalibrateSpec;
use crate::experiment::calibrate::run::run as calibrate;
use crate::setting::backend::{BackendChoice, Chosen, Probe, choose, this_host};
use crate::setting::options::{OutputOption, QuietOption};
use crate::setting::parse::number_in;
use crate::terminal::console::{self, print};
use crate::terminal::progress;

/// Options of `vpmu calibrate`.
#[derive(Clone, Debug, Args)]
pub struct CalibrateArgs {
    /// Event source behind the guest's counters: auto (cpu-clock), hardware,
    /// cpu-clock or tracepoint:kvm/kvm_userspace_exit
    #[arg(long, value_name = "KEY", default_value = "auto")]
    pub backend: BackendChoice,

    /// The model's file, whose name is the model's.
    #[command(flatten)]
    pub output: OutputOption,

    /// Rounds: in each, a guest of every arm of every workload, in random order [default: 40, 6 with a tracepoint]
    #[arg(long, value_name = "N", value_parser = number_in(2..=1000))]
    pub rounds: Option<u64>,

    /// Nothing on stderr but errors.
    #[command(flatten)]
    pub quiet: QuietOption,
}

pub(super) fn run(args: &CalibrateArgs) -> Result<Exit, Error> {
    let path = args.output.output.clone().unwrap_or_else(|| "calibrated.toml".into());
    let output = check_file(&path)?;
    let chosen = backend(&args.backend, &this_host)?;
    let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let calibration = CalibrateSpec { name, rounds: args.rounds, ..CalibrateSpec::default() };
    console::catch_interrupts()?;
    let mut progress = progress::shown(!args.quiet.quiet);
    let (draft, [low, high]) = calibrate(calibration, &chosen, progress.as_mut())?;
    write_to(&output, draft.toml().as_bytes())?;
    print(&format!(
        "The model takes {low} to {high} % of the measured latencies of the NMI handler, but for what it was fitted to.\n\
         saved: {0}; use it: vpmu sim {0}\n",
        path.display()
    ))?;
    Ok(Exit::Done)
}

/// Returns the backend to calibrate. `auto` is cpu-clock, which any host has: models of two hosts compare.
fn backend(asked: &BackendChoice, probe: Probe<'_>) -> Result<Chosen, Error> {
    let clock = BackendChoice::Key(BackendKey::CpuClock);
    let asked = if *asked == BackendChoice::Auto { &clock } else { asked };
    match asked {
        BackendChoice::Key(BackendKey::Hardware | BackendKey::CpuClock) => choose(asked, probe),
        BackendChoice::Key(BackendKey::Tracepoint { name, .. }) if name == "kvm_userspace_exit" => choose(asked, probe),
        other => Err(Error::usage(
            format!("{other} cannot be calibrated"),
            "real guests are measured, whose events follow their time, their thread's or its exits to userspace",
            "take hardware, cpu-clock or tracepoint:kvm/kvm_userspace_exit",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::setting::backend::fake::opens;

    #[test]
    fn auto_is_cpu_clock_where_hardware_events_open_too() {
        let host = opens(&["hardware", "cpu-clock"]);
        assert_eq!(backend(&BackendChoice::Auto, &host).unwrap().backend, BackendKey::CpuClock);
        let hardware = BackendChoice::Key(BackendKey::Hardware);
        assert_eq!(backend(&hardware, &host).unwrap().backend, BackendKey::Hardware);
        assert_eq!(backend(&hardware, &opens(&["cpu-clock"])).unwrap_err().exit, Exit::Host);
        let paced = "cpu-clock:20MHz".parse().unwrap();
        assert_eq!(backend(&BackendChoice::Key(paced), &host).unwrap_err().exit, Exit::Usage);
        assert_eq!(backend(&BackendChoice::Auto, &opens(&["hardware"])).unwrap_err().exit, Exit::Host);
    }
}
