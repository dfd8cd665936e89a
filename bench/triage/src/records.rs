//! Records of perf's ring as far as triage reads them.

use perf_event_open_sys::bindings as perf;

/// User registers in a sample, by perf's numbers (arch/x86/include/uapi/asm/perf_regs.h): AX BX CX DX SI DI BP SP IP, R8 to R15.
pub(crate) const REGISTER_MASK: u64 = 0x1ff | 0xff << 16;
/// Place of each of these in DWARF's order.
const DWARF: [usize; 17] = [0, 3, 2, 1, 4, 5, 6, 7, 16, 8, 9, 10, 11, 12, 13, 14, 15];
/// Parts of a sample, in the kernel's order: see [`sample`].
pub(crate) const SAMPLE_TYPE: u64 =
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
    pub(crate) fn take(&mut self, bytes: &[u8]) {
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
}
