//! Samples of a process and everything it starts, by one event, with what call chains are made from.
//!
//! The kernel walks its own part of a chain. For the user's part it copies the registers and the top of the stack, from which
//! [`perf_data::unwind`] finds the callers afterwards.

use std::collections::HashMap;
use std::io;
use std::os::fd::OwnedFd;

use perf_data::unwind::{End, PLACE, STACK_POINTER};

use crate::counting::Event;
use crate::records::{REGISTER_MASK, Records, SAMPLE_TYPE, Sample};
use crate::symbols::{Frame, Maps, Names};
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
    /// Attaches to process `pid` and whatever it starts from now on, once in `period` counts on each of `cpus`. Nothing
    /// is sampled yet.
    ///
    /// # Errors
    /// Returns the errors of perf_event_open(2) and of mmap(2).
    pub fn attach(pid: i32, event: &Event, user_only: bool, period: u64, cpus: &[u32]) -> io::Result<Self> {
        let mut attr = event.attr(user_only).map_err(io::Error::other)?;
        attr.set_disabled(1);
        attr.sample_type = SAMPLE_TYPE;
        attr.sample_regs_user = REGISTER_MASK;
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
    /// Returns the errors of ioctl(2).
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

    /// Reads the last ones, and returns all.
    pub fn finish(mut self) -> Sampled {
        self.drain();
        Sampled { records: self.records, maps: self.maps }
    }
}

// Call chains with names, from samples.

/// Most frames of user code; a longer chain is one that runs in a circle.
const DEEPEST: usize = 128;

/// End of a chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ended {
    /// Begin of its thread.
    Bottom,
    /// The copy of the stack ends before it does.
    Beyond,
    /// No rule leads further than this frame.
    Broken(Frame),
    /// Its task has no user part.
    Kernel,
}

/// A call chain, innermost first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chain {
    /// Its functions.
    pub frames: Vec<Frame>,
    /// Its end.
    pub ended: Ended,
}

/// Builds the chains of all samples.
pub fn chains(sampled: &Sampled, names: &mut Names) -> Vec<Chain> {
    let (nothing, mut kernel) = (Maps::default(), HashMap::new());
    let of = |sample: &Sample| {
        let mut frames: Vec<Frame> = sample
            .kernel
            .iter()
            .map(|&address| kernel.entry(address).or_insert_with(|| names.in_kernel(address)).clone())
            .collect();
        let maps = sampled.maps.get(&sample.pid).unwrap_or(&nothing);
        let ended = user(sample, maps, names, &mut frames);
        Chain { frames, ended }
    };
    sampled.records.samples.iter().map(of).collect()
}

fn user(sample: &Sample, maps: &Maps, names: &mut Names, frames: &mut Vec<Frame>) -> Ended {
    let Some(mut registers) = sample.registers else { return Ended::Kernel };
    let base = registers[STACK_POINTER].unwrap_or_default();
    let memory = |address: u64| {
        let at = usize::try_from(address.checked_sub(base)?).ok()?;
        sample.stack.get(at..at.checked_add(8)?)?.try_into().ok().map(u64::from_le_bytes)
    };
    let mut exact = true;
    for _ in 0..DEEPEST {
        let Some(place) = registers[PLACE] else { break };
        // A return address may be the first of the next function: the call is before it.
        let place = if exact { place } else { place.wrapping_sub(1) };
        let frame = names.in_user(maps, place);
        frames.push(frame.clone());
        let map = maps.find(place);
        let image = map.and_then(|map| Some((map.offset_of(place), names.module(&map.path)?)));
        let caller = image.map(|(offset, image)| image.caller(offset, &registers, memory));
        match caller.unwrap_or(Err(End::Unknown)) {
            Ok(caller) => (registers, exact) = (caller.registers, caller.interrupted),
            Err(End::Bottom) => return Ended::Bottom,
            Err(End::Beyond) => return Ended::Beyond,
            Err(End::Unknown) => return Ended::Broken(frame),
        }
    }
    Ended::Beyond
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chains_that_cannot_be_followed_say_where() {
        let mut registers = [Some(0); 17];
        registers[PLACE] = Some(0x1234);
        let of_user = Sample { pid: 1, kernel: vec![u64::MAX - 5000], registers: Some(registers), stack: vec![] };
        let of_kernel = Sample { registers: None, ..of_user.clone() };
        let records = Records { samples: vec![of_user, of_kernel], ..Records::default() };
        let found = chains(&Sampled { records, maps: HashMap::new() }, &mut Names::default());
        let unknown = Frame { symbol: "0x1234".to_owned(), module: "[unknown]".to_owned() };
        assert_eq!(found[0].ended, Ended::Broken(unknown.clone()));
        assert_eq!(found[0].frames[1], unknown);
        assert!(found[0].frames[0].in_kernel() && found[0].frames[0].symbol == "(hidden)");
        assert_eq!((found[1].frames.len(), &found[1].ended), (1, &Ended::Kernel));
    }
}
