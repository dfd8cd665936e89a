//! Decompresses the frames of records: complete ones, and perf's, which are parts of one stream.

use zstd::stream::raw::{Decoder, InBuffer, Operation as _, OutBuffer};

use super::damage::{Damage, allowed};
use crate::bytes::Take;
use crate::record::HEADER;

/// Bytes that are decompressed at once.
const STEP: usize = 256 << 10;
/// Bytes that are used before the frame ends: more than a recorder puts into one, so that a damaged frame is not used in part.
const FULL: usize = 2 << 20;
/// Most bytes that wait for the rest of their record: its size has 16 bits.
pub const MOST_UNUSED: usize = 64 << 10;

/// The stream, and what of it is not used yet.
pub(super) struct Inflate {
    decoder: Option<Decoder<'static>>,
    out: Vec<u8>,
    step: Vec<u8>,
    /// Bytes so far: compressed, and decompressed.
    compressed: u64,
    total: u64,
}

impl Inflate {
    pub(super) fn new() -> Self {
        Self { decoder: None, out: Vec::new(), step: Vec::new(), compressed: 0, total: 0 }
    }

    /// Decompresses a frame or a part of one. `take` is given what waits, and says how much of it are whole records.
    pub(super) fn add(&mut self, frame: &[u8], damage: &mut Damage, mut take: impl FnMut(&[u8], &mut Damage) -> usize) {
        if damage.too_much {
            return;
        }
        self.compressed += frame.len() as u64;
        if self.step.is_empty() {
            self.step = vec![0; STEP];
        }
        let mut input = InBuffer::around(frame);
        let before = self.total;
        // The frame has records so far.
        let mut sound = true;
        loop {
            if self.decoder.is_none() {
                self.decoder = Decoder::new().ok();
            }
            let Some(decoder) = &mut self.decoder else {
                damage.frames += 1;
                return;
            };
            let mut output = OutBuffer::around(&mut self.step[..]);
            let run = decoder.run(&mut input, &mut output);
            let length = output.pos();
            let rest = &frame[input.pos()..];
            if run.is_err() {
                // The next frame may be whole.
                self.decoder = None;
                // The padding of a record, behind a complete frame, is no frame.
                if rest.len() < 8 && self.total > before && rest.iter().all(|&byte| byte == 0) {
                    break;
                }
                damage.frames += 1;
                self.out.clear();
                return;
            }
            self.total += length as u64;
            if self.total > allowed(self.compressed) {
                damage.too_much = true;
                self.out.clear();
                return;
            }
            if sound {
                self.out.extend_from_slice(&self.step[..length]);
            }
            // A full buffer may hide more.
            if input.pos() == frame.len() && length < STEP {
                break;
            }
            if self.out.len() >= FULL {
                let used = take(&self.out, damage);
                sound = self.used(used);
                damage.records += u64::from(!sound);
            }
        }
        if sound {
            let used = take(&self.out, damage);
            damage.records += u64::from(!self.used(used));
        }
    }

    /// Bytes that were decompressed so far.
    pub(super) const fn total(&self) -> u64 {
        self.total
    }

    /// Returns the number of bytes that are decompressed and not used.
    pub(super) fn unused(&self) -> usize {
        self.out.len()
    }

    /// Drops the first `length` bytes, which were used. `false`: what is behind them cannot be the begin of a record, and is dropped.
    fn used(&mut self, length: usize) -> bool {
        self.out.drain(..length);
        let size = self.out.get(6..).and_then(|size| Take(size).u16());
        let begin = self.out.len() <= MOST_UNUSED && size.is_none_or(|size| usize::from(size) >= HEADER);
        if !begin {
            self.out.clear();
        }
        begin
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_become_a_record_does_not_wait() {
        let mut inflate = Inflate::new();
        let mut add = |bytes: &[u8], used: usize| {
            let (frame, mut damage) = (zstd::bulk::compress(bytes, 1).unwrap(), Damage::default());
            inflate.add(&frame, &mut damage, |_, _| used);
            (damage.records == 0, inflate.unused())
        };
        assert_eq!(add(&[9, 0, 0, 0, 0, 0, 16], 0), (true, 7), "a header in two parts");
        assert_eq!(add(&[0, 1, 2], 0), (true, 10));
        assert_eq!(add(&[3; 6], 16), (true, 0));
        assert_eq!(add(&[9, 0, 0, 0, 0, 0, 7, 0, 1], 0), (false, 0), "a size below that of a header");
        assert_eq!(add(&vec![0xff; MOST_UNUSED + 1], 0), (false, 0), "longer than a record");
    }

    #[test]
    fn a_large_frame_is_used_in_parts_and_a_small_one_does_not_become_gigabytes() {
        // Records of eight bytes: 4 KiB of them are compressed to some hundred MiB.
        let (mut inflate, mut damage) = (Inflate::new(), Damage::default());
        let frame = zstd::bulk::compress(&[9, 0, 0, 0, 0, 0, 8, 0].repeat(40 << 17), 1).unwrap();
        let (mut used, mut most) = (0, 0);
        for _ in 0..3 {
            inflate.add(&frame, &mut damage, |bytes, _| {
                most = most.max(bytes.len());
                used += bytes.len();
                bytes.len()
            });
        }
        assert!(most <= FULL + STEP && damage.too_much && inflate.total() > allowed(0), "{most}, {damage:?}");
        assert!(used as u64 <= allowed(3 * frame.len() as u64) && used >= 64 << 20, "{used}");
        assert!(inflate.out.capacity() <= 2 * (FULL + STEP), "{}", inflate.out.capacity());
    }
}
