//! Events that sample, and their rings.

use std::collections::HashMap;
use std::io;
use std::os::fd::OwnedFd;

use super::record::{self, Records};
use crate::counting::Event;
use crate::symbols::Maps;
use crate::sys::{self, Ring};

/// Bytes of the user's stack that are copied.
pub const STACK: u32 = 8192;
/// Pages of a CPU's ring: what an ordinary user may lock, less the page of the kernel's (kernel.perf_event_mlock_kb, 516).
const PAGES: usize = 128;
/// Samples that are kept; those beyond are counted as lost.
const MOST: usize = 20_000;

/// An event that samples.
#[derive(Debug)]
pub struct Sampler {
    rings: Vec<(OwnedFd, Ring)>,
    buffer: Vec<u8>,
    records: Records,
    maps: HashMap<i32, Maps>,
}

/// Result of sampling.
#[derive(Debug, Default)]
pub struct Sampled {
    /// The records.
    pub records: Records,
    /// The mappings of each process that was met.
    pub maps: HashMap<i32, Maps>,
}

impl Sampler {
    /// For process `pid` and whatever it starts from now on, once in `period` counts on each of `cpus`. Nothing is sampled yet.
    ///
    /// # Errors
    /// Those of perf_event_open(2) and of mmap(2).
    pub fn attach(pid: i32, event: &Event, user_only: bool, period: u64, cpus: &[u32]) -> io::Result<Self> {
        let mut attr = event.attr(user_only).map_err(io::Error::other)?;
        attr.set_disabled(1);
        attr.sample_type = record::SAMPLE_TYPE;
        attr.sample_regs_user = record::REGISTER_MASK;
        attr.sample_stack_user = STACK;
        attr.set_exclude_callchain_user(1);
        attr.set_exclude_callchain_kernel(u64::from(user_only));
        attr.__bindgen_anon_1.sample_period = period;
        // An inherited event has a ring only on one CPU.
        let open = |cpu: &u32| {
            let fd = sys::open(&attr, pid, cpu.cast_signed())?;
            let ring = Ring::new(&fd, PAGES)?;
            Ok((fd, ring))
        };
        let rings = cpus.iter().map(open).collect::<io::Result<Vec<_>>>()?;
        Ok(Self { rings, buffer: Vec::new(), records: Records::default(), maps: HashMap::from([(pid, Maps::of(pid))]) })
    }

    /// Begins to sample.
    ///
    /// # Errors
    /// Those of ioctl(2).
    pub fn enable(&self) -> io::Result<()> {
        self.rings.iter().try_for_each(|(fd, _)| sys::enable(fd))
    }

    /// Takes what has been sampled, and the mappings of processes that are new.
    pub fn drain(&mut self) {
        for (_, ring) in &mut self.rings {
            self.buffer.clear();
            ring.drain(&mut self.buffer);
            let known = self.records.samples.len();
            self.records.take(&self.buffer);
            for sample in &self.records.samples[known..] {
                self.maps.entry(sample.pid).or_insert_with(|| Maps::of(sample.pid));
            }
        }
        let beyond = self.records.samples.len().saturating_sub(MOST);
        self.records.samples.truncate(MOST);
        self.records.losses.lost += beyond as u64;
    }

    /// The last ones, and all.
    #[must_use]
    pub fn finish(mut self) -> Sampled {
        self.drain();
        Sampled { records: self.records, maps: self.maps }
    }
}
