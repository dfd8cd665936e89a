//! `vpmu top`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use results::error::{Error, Exit};

use super::record::RecordedGuest;
use super::sampling::SamplingOptions;
use crate::inspect::top::guests;
use crate::inspect::top::spec::TopSpec;
use crate::setting::parse::{duration_in, number_in};

pub(super) const EXAMPLES: &str = "\
Examples:
  # the payload, its handler's latency, its strategy's calls
  vpmu top -- payload --samples 100000 --time-limit 5m
  # an image with the callers of each function
  vpmu top -g -- run kernel.elf
  # a distribution's kernel, with names from a recording
  vpmu top --symbols perf.data.kallsyms -- linux vmlinuz \\
    --run 'sleep 60'
  # three plain tables, one each second
  vpmu top --stdio --iterations 3 -- payload \\
    --samples 100000 --time-limit 5m

Exit codes: 0 the guest is done, or was ended by q or
--iterations; with run and linux otherwise that of the guest,
2 bad usage or input, 3 interrupted, or nothing reads stdout,
4 the host cannot do it, 70 a bug of vpmu.";

/// Options of `vpmu top`.
#[derive(Clone, Debug, Args)]
pub struct TopArgs {
    /// Sampling.
    #[command(flatten)]
    pub sampling: SamplingOptions,

    /// Time between two screen updates or tables
    #[arg(long, value_name = "TIME", default_value = "1s",
          value_parser = duration_in(Duration::from_millis(100)..=Duration::from_secs(3600)))]
    pub interval: Duration,

    /// Length of the sliding window: rates and the first column of functions are of this time
    #[arg(long, value_name = "TIME", default_value = "10s",
          value_parser = duration_in(Duration::from_millis(100)..=Duration::from_secs(60)))]
    pub window: Duration,

    /// End the guest after so many screen updates or tables
    #[arg(long, value_name = "N", value_parser = number_in(1..=1_000_000_000))]
    pub iterations: Option<u64>,

    /// Plain tables on stdout, as also where stdout is no terminal
    #[arg(long)]
    pub stdio: bool,

    /// Where the guest's own output goes; otherwise it is dropped and its bytes are counted
    #[arg(long, value_name = "FILE")]
    pub guest_output: Option<PathBuf>,

    /// Names of a Linux guest's kernel while it runs, as /proc/kallsyms lists them
    ///
    /// `vpmu record -- linux` leaves such a list of the same kernel: FILE.kallsyms. Without one, functions of a kernel without a
    /// symbol table are shown by page; at the end of --run they have names.
    #[arg(long, value_name = "FILE")]
    pub symbols: Option<PathBuf>,

    /// No report of the guest on stderr
    #[arg(short, long)]
    pub quiet: bool,

    /// The guest.
    #[command(subcommand)]
    pub guest: RecordedGuest,
}

impl TopArgs {
    fn spec(&self) -> TopSpec {
        TopSpec {
            events: self.sampling.event.clone(),
            rate: self.sampling.rate(),
            chains: self.sampling.chains,
            interval: self.interval,
            window: self.window,
            iterations: self.iterations,
            stdio: self.stdio,
            guest_output: self.guest_output.clone(),
            symbols: self.symbols.clone(),
            quiet: self.quiet,
        }
    }
}

pub(super) fn run(args: TopArgs) -> Result<Exit, Error> {
    let spec = args.spec();
    args.sampling.check(&spec.events)?;
    guests::top(&spec, args.guest.into_spec())
}

#[cfg(test)]
mod tests {
    use host_pmu::sampler::Rate;

    use super::super::app::{Command, Parsed, parse};
    use super::*;

    fn top(args: &[&str]) -> Result<TopArgs, Error> {
        match parse(["vpmu", "top"].iter().chain(args))? {
            Parsed::Run(Command::Top(args)) => Ok(args.into_inner()),
            other => panic!("not top: {other:?}"),
        }
    }

    #[test]
    fn options_are_those_of_record() {
        let args = top(&["-e", "cpu-clock,kvm:kvm_exit", "-c", "50000", "-g", "--", "run", "k.elf"]).unwrap();
        let spec = args.spec();
        assert_eq!((spec.events.len(), spec.rate, spec.chains), (2, Rate::Period(50_000), true));
        assert!(matches!(args.guest, RecordedGuest::Run(_)));
        let spec = top(&["--stdio", "--interval", "300ms", "--window", "1s", "--", "payload"]).unwrap().spec();
        assert_eq!((spec.span(), spec.stdio, spec.iterations), (4, true, None));
        assert_eq!(top(&["--interval", "1h", "payload"]).unwrap().spec().span(), 1);
    }

    #[test]
    fn bad_values_are_refused_in_one_line() {
        for (args, needle) in [
            (&["-e", "cycels", "payload"][..], "cpu-clock"),
            (&["--interval", "1ms", "payload"], "100ms"),
            (&["--iterations", "0", "payload"], "1"),
            (&["--", "sleep", "1"], "sleep"),
        ] {
            let error = top(args).unwrap_err();
            assert_eq!(error.exit.code(), 2);
            assert!(error.to_string().contains(needle), "{error} lacks {needle:?}");
        }
    }
}
