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
