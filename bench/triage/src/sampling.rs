//! Samples of a process and everything it starts, by one event, with what call chains are made from.
//!
//! The kernel walks its own part of a chain. For the user's part it copies the registers and the top of the stack, from which
//! [`perf_data::unwind`] finds the callers afterwards.

use std::collections::HashMap;
use std::io;
use std::os::fd::OwnedFd;

use perf_event_open_sys::bindings as perf;

use crate::counting::Event;
use crate::symbols::{Frame, Maps, Names};
use crate::sys::{self, Ring};
use perf_data::unwind::{End, PLACE, STACK_POINTER};

// Records of perf's ring as far as triage reads them.

/// User registers in a sample, by perf's numbers (arch/x86/include/uapi/asm/perf_regs.h): AX BX CX DX SI DI BP SP IP, R8 to R15.
const REGISTER_MASK: u64 = 0x1ff | 0xff << 16;
/// Place of each of these in DWARF's order.
const DWARF: [usize; 17] = [0, 3, 2, 1, 4, 5, 6, 7, 16, 8, 9, 10, 11, 12, 13, 14, 15];
/// Parts of a sample, in the kernel's order: see [`sample`].
const SAMPLE_TYPE: u64 =
    (perf::PERF_SAMPLE_TID | perf::PERF_SAMPLE_CALLCHAIN | perf::PERF_SAMPLE_REGS_USER | perf::PERF_SAMPLE_STACK_USER)
        as u64;
/// From here down an entry of a chain is a marker (PERF_CONTEXT_MAX).
const MARKERS: u64 = (-4095_i64).cast_unsigned();

/// A sample as it was taken.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sample {
    /// The process.
    pub pid: i32,
    /// The kernel's part of the chain, innermost first.
    pub kernel: Vec<u64>,
    /// The user's registers in DWARF's order; `None`: the task has no user part.
    pub registers: Option<[Option<u64>; 17]>,
    /// The top of the user's stack.
    pub stack: Vec<u8>,
}

/// Contents of the records.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Records {
    /// The samples.
    pub samples: Vec<Sample>,
    /// Missing records.
    pub losses: Losses,
}

/// Samples that are missing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Losses {
    /// Samples that found no room.
    pub lost: u64,
    /// Records that could not be read.
    pub damaged: u64,
    /// Times that the kernel held the event back for a while; it says not how many samples that cost.
    pub throttled: u64,
}

impl Records {
    /// Takes the records of `bytes`.
    fn take(&mut self, bytes: &[u8]) {
        let mut rest = bytes;
        while let Some((header, _)) = rest.split_first_chunk::<8>() {
            let kind = u32::from_le_bytes([header[0], header[1], header[2], header[3]]);
            let size = usize::from(u16::from_le_bytes([header[6], header[7]]));
            let Some(body) = rest.get(8..size) else {
                self.losses.damaged += 1;
                return;
            };
            match kind {
                perf::PERF_RECORD_SAMPLE => match sample(body) {
                    Some(sample) => self.samples.push(sample),
                    None => self.losses.damaged += 1,
                },
                perf::PERF_RECORD_LOST => self.losses.lost += word(body, 1).unwrap_or(1),
                perf::PERF_RECORD_THROTTLE => self.losses.throttled += 1,
                _ => {}
            }
            rest = &rest[size..];
        }
    }
}

fn word(body: &[u8], index: usize) -> Option<u64> {
    body.get(8 * index..8 * index + 8)?.try_into().ok().map(u64::from_le_bytes)
}

/// Reads PID and TID; the chain; the registers' ABI and, unless that is none, the registers; the stack's size and,
/// unless that is 0, the stack and how much of it is filled.
fn sample(body: &[u8]) -> Option<Sample> {
    let pid = (word(body, 0)? as u32).cast_signed();
    let count = usize::try_from(word(body, 1)?).ok().filter(|&count| count <= body.len() / 8)?;
    let chain: Option<Vec<u64>> = (0..count).map(|at| word(body, 2 + at)).collect();
    // The user's part is not asked for, and a marker is no address.
    let kernel = chain?.into_iter().filter(|&address| address < MARKERS && address >> 63 == 1).collect();
    let mut at = 2 + count;
    let abi = word(body, at)?;
    at += 1;
    let mut registers = None;
    if abi != 0 {
        let mut found = [None; 17];
        for (index, number) in DWARF.into_iter().enumerate() {
            found[number] = Some(word(body, at + index)?);
        }
        at += DWARF.len();
        registers = Some(found);
    }
    let size = usize::try_from(word(body, at)?).ok()?;
    let mut stack = Vec::new();
    if size != 0 {
        let begin = 8 * (at + 1);
        let end = begin.checked_add(size)?;
        let filled = usize::try_from(u64::from_le_bytes(body.get(end..end + 8)?.try_into().ok()?)).ok()?;
        stack = body.get(begin..begin + filled.min(size))?.to_vec();
    }
    Some(Sample { pid, kernel, registers, stack })
}

// Events that sample, and their rings.

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
    use proptest::prelude::*;

    use super::*;

    fn record(kind: u32, body: &[u64]) -> Vec<u8> {
        let mut bytes = kind.to_le_bytes().to_vec();
        bytes.extend([0, 0]);
        bytes.extend((8 + 8 * body.len() as u16).to_le_bytes());
        bytes.extend(body.iter().flat_map(|word| word.to_le_bytes()));
        bytes
    }

    fn planted() -> Vec<u8> {
        let kernel = (-128_i64).cast_unsigned();
        let mut body = vec![0x7_0000_002a, 3, kernel, 0xffff_ffff_8100_0010, 0xffff_ffff_8100_0020, 2];
        body.extend(100..117);
        // A copy of 16 bytes of which 8 are filled.
        body.extend([16, 0xabcd, 0, 8]);
        record(perf::PERF_RECORD_SAMPLE, &body)
    }

    #[test]
    fn samples_are_read_with_registers_in_dwarfs_order() {
        let mut records = Records::default();
        let kernel_thread = record(perf::PERF_RECORD_SAMPLE, &[9, 0, 0, 0]);
        let throttled = record(perf::PERF_RECORD_THROTTLE, &[1, 2, 3]);
        let released = record(perf::PERF_RECORD_UNTHROTTLE, &[1, 2, 3]);
        let lost = record(perf::PERF_RECORD_LOST, &[0, 5]);
        records.take(&[planted(), lost, throttled, released, kernel_thread].concat());
        assert_eq!((records.samples.len(), records.losses), (2, Losses { lost: 5, damaged: 0, throttled: 1 }));
        let sample = &records.samples[0];
        assert_eq!((sample.pid, sample.kernel.len(), sample.stack.len()), (42, 2, 8));
        let registers = sample.registers.unwrap();
        // AX, BX as third, SP, and IP in the place of the return address.
        assert_eq!(
            (registers[0], registers[3], registers[7], registers[16]),
            (Some(100), Some(101), Some(107), Some(108))
        );
        assert_eq!((records.samples[1].registers, records.samples[1].pid), (None, 9));
    }

    #[test]
    fn cut_records_are_counted() {
        let mut records = Records::default();
        let whole = planted();
        records.take(&whole[..whole.len() - 8]);
        records.take(&record(perf::PERF_RECORD_SAMPLE, &[1, u64::MAX]));
        assert_eq!((records.samples.len(), records.losses.damaged), (0, 2));
    }

    proptest! {
        #[test]
        fn any_bytes_are_read(at in any::<prop::sample::Index>(), byte in any::<u8>(), more in prop::collection::vec(any::<u8>(), 0..64)) {
            let mut bytes = planted();
            let at = at.index(bytes.len());
            bytes[at] = byte;
            bytes.extend(more);
            Records::default().take(&bytes);
        }
    }

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
