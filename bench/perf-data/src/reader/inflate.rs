//! Decompresses the frames of records: complete ones, and perf's, which are parts of one stream.

use zstd::stream::raw::{Decoder, InBuffer, Operation as _, OutBuffer};

use super::damage::{Damage, MOST_INFLATED};
use crate::bytes::Take;
use crate::record::HEADER;

/// Most bytes that one record is decompressed to: more than any ring that perf empties at once.
const MOST_OF_ONE: usize = 64 << 20;
/// Bytes that are decompressed at once.
const STEP: usize = 256 << 10;
/// Most bytes that wait for the rest of their record: its size has 16 bits.
pub const MOST_UNUSED: usize = 64 << 10;

/// The stream, and what of it is not used yet.
pub(super) struct Inflate {
    decoder: Option<Decoder<'static>>,
    out: Vec<u8>,
    step: Vec<u8>,
    total: u64,
}

impl Inflate {
    pub(super) fn new() -> Self {
        Self { decoder: None, out: Vec::new(), step: Vec::new(), total: 0 }
    }

    /// Decompresses a frame or a part of one; `false`: it is damaged.
    pub(super) fn add(&mut self, frame: &[u8], damage: &mut Damage) -> bool {
        if self.step.is_empty() {
            self.step = vec![0; STEP];
        }
        if self.decoder.is_none() {
            self.decoder = Decoder::new().ok();
        }
        let Some(decoder) = &mut self.decoder else { return false };
        let mut input = InBuffer::around(frame);
        let before = self.out.len();
        loop {
            let mut output = OutBuffer::around(&mut self.step[..]);
            let run = decoder.run(&mut input, &mut output);
            let rest = &frame[input.pos()..];
            if run.is_err() && self.out.len() > before && rest.len() < 8 && rest.iter().all(|&byte| byte == 0) {
                // The padding of a record, behind a complete frame.
                self.decoder = None;
                return true;
            }
            if run.is_err() || self.out.len() - before > MOST_OF_ONE {
                // The next frame may be whole.
                self.decoder = None;
                self.out.clear();
                return false;
            }
            let length = output.pos();
            self.total += length as u64;
            if self.total > MOST_INFLATED {
                damage.too_much = true;
                self.out.clear();
                return true;
            }
            self.out.extend_from_slice(&self.step[..length]);
            // A full buffer may hide more.
            if input.pos() == frame.len() && length < STEP {
                return true;
            }
        }
    }

    /// Bytes that were decompressed so far.
    pub(super) const fn total(&self) -> u64 {
        self.total
    }

    /// What is decompressed and not used.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.out
    }

    /// The first `length` bytes were used. `false`: what is behind them cannot be the begin of a record, and is dropped.
    pub(super) fn used(&mut self, length: usize) -> bool {
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
            let frame = zstd::bulk::compress(bytes, 1).unwrap();
            assert!(inflate.add(&frame, &mut Damage::default()));
            (inflate.used(used), inflate.bytes().len())
        };
        assert_eq!(add(&[9, 0, 0, 0, 0, 0, 16], 0), (true, 7), "a header in two parts");
        assert_eq!(add(&[0, 1, 2], 0), (true, 10));
        assert_eq!(add(&[3; 6], 16), (true, 0));
        assert_eq!(add(&[9, 0, 0, 0, 0, 0, 7, 0, 1], 0), (false, 0), "a size below that of a header");
        assert_eq!(add(&vec![0xff; MOST_UNUSED + 1], 0), (false, 0), "longer than a record");
    }
}
