//! `vpmu top`.

pub(super) const EXAMPLES: &str = "\
Examples:
  # the payload, a table each second
  vpmu top -- payload --samples 100000 --time-limit 5m
  # an image
  vpmu top -- run kernel.elf
  # a distribution's kernel, with names from a recording
  vpmu top --symbols perf.data.kallsyms -- linux vmlinuz \\
    --run 'sleep 60'
  # three tables, one each half second
  vpmu top --interval 500ms --iterations 3 -- payload

Exit codes: 0 the guest is done, or was ended by
--iterations; with run and linux otherwise that of the guest,
2 bad usage or input, 3 interrupted, or nothing reads stdout,
4 the host cannot do it, 70 a bug of vpmu.";

#[cfg(test)]
mod tests {
    use host_pmu::sampler::Rate;

    use super::super::app::{Command, Parsed, parse};
    use crate::inspect::sampled::GuestSpec;

    #[test]
    fn without_a_guest_it_is_the_payload_until_its_reader_has_seen_enough() {
        let top = |args: &[&str]| match parse(["vpmu", "top"].iter().chain(args)) {
            Ok(Parsed::Run(Command::Top(args))) => (*args).clone(),
            other => panic!("not top: {other:?}"),
        };
        let args = top(&["-e", "cpu-clock,kvm:kvm_exit", "-c", "50000", "--", "run", "k.elf"]);
        assert_eq!((args.sampling.event.len(), args.sampling.rate()), (2, Rate::Period(50_000)));
        assert!(matches!(args.guest, GuestSpec::Run(_)));
        let alone = top(&["--iterations", "3"]);
        assert!(matches!(alone.guest, GuestSpec::Payload(payload) if payload.samples == 1_000_000));
    }
}
