//! Decompresses the frames of records: complete ones, and perf's, which are parts of one stream.

use zstd::stream::raw::{Decoder, InBuffer, Operation as _, OutBuffer};

use super::damage::{Damage, MOST_INFLATED};

/// Most bytes that one record is decompressed to: more than any ring that perf empties at once.
const MOST_OF_ONE: usize = 64 << 20;
/// Bytes that are decompressed at once.
const STEP: usize = 256 << 10;

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

    /// What is decompressed and not used.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.out
    }

    /// The first `length` bytes were used.
    pub(super) fn used(&mut self, length: usize) {
        self.out.drain(..length);
    }
}
