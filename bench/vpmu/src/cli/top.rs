//! `vpmu top`.

pub(super) const EXAMPLES: &str = "\
Examples:
  # the payload, until q
  vpmu top
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

#[cfg(test)]
mod tests {
    use host_pmu::sampler::Rate;

    use results::error::Error;

    use super::super::app::{Command, Parsed, parse};
    use crate::inspect::sampled::GuestSpec;
    use crate::inspect::top::spec::TopSpec;

    fn top(args: &[&str]) -> Result<TopSpec, Error> {
        match parse(["vpmu", "top"].iter().chain(args))? {
            Parsed::Run(Command::Top(args)) => Ok((*args).clone()),
            other => panic!("not top: {other:?}"),
        }
    }

    #[test]
    fn options_are_those_of_record() {
        let args = top(&["-e", "cpu-clock,kvm:kvm_exit", "-c", "50000", "-g", "--", "run", "k.elf"]).unwrap();
        let sampling = &args.sampling;
        assert_eq!((sampling.event.len(), sampling.rate(), sampling.chains), (2, Rate::Period(50_000), true));
        assert!(matches!(args.guest, GuestSpec::Run(_)));
        let spec = top(&["--stdio", "--interval", "300ms", "--window", "1s", "--", "payload"]).unwrap();
        assert_eq!((spec.span(), spec.stdio, spec.iterations), (4, true, None));
        assert_eq!(top(&["--interval", "1h", "payload"]).unwrap().span(), 1);
        let alone = top(&["--stdio"]).unwrap();
        assert!(alone.stdio && matches!(alone.guest, GuestSpec::Payload(payload) if payload.samples == 1_000_000));
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
