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
