//! `perf_event_attr` as it lies in a file: size 112, which every perf since 4.8 knows.

use crate::bytes::{Put as _, Take};

/// Bytes of an attribute as it is written (PERF_ATTR_SIZE_VER5).
pub const SIZE: usize = 112;
/// Bytes of the first version of the structure.
const LEAST: usize = 64;

// PERF_SAMPLE_*: the fields of a sample, in their order but for the identifier, which is first.
pub(crate) const IP: u64 = 1 << 0;
pub(crate) const TID: u64 = 1 << 1;
pub(crate) const TIME: u64 = 1 << 2;
pub(crate) const ADDR: u64 = 1 << 3;
pub(crate) const READ: u64 = 1 << 4;
pub(crate) const CALLCHAIN: u64 = 1 << 5;
pub(crate) const ID: u64 = 1 << 6;
pub(crate) const CPU: u64 = 1 << 7;
pub(crate) const PERIOD: u64 = 1 << 8;
pub(crate) const STREAM_ID: u64 = 1 << 9;
pub(crate) const RAW: u64 = 1 << 10;
pub(crate) const IDENTIFIER: u64 = 1 << 16;

/// The fields of samples that are written, without a call chain.
const FIELDS: u64 = IDENTIFIER | IP | TID | TIME | CPU | PERIOD;

/// Bits of the attribute's flags.
const EXCLUDE_KERNEL: u64 = 1 << 5;
const EXCLUDE_HV: u64 = 1 << 6;
const FREQ: u64 = 1 << 10;
const SAMPLE_ID_ALL: u64 = 1 << 18;
const EXCLUDE_HOST: u64 = 1 << 19;
const MMAP2: u64 = 1 << 23;
const USE_CLOCKID: u64 = 1 << 25;
const CLOCK_MONOTONIC: u32 = 1;

/// An event of a recording.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Event {
    /// `type`.
    pub type_: u32,
    /// `config`.
    pub config: u64,
    /// Sampling period, or frequency with `by_frequency`.
    pub period: u64,
    /// `period` is a frequency in Hz.
    pub by_frequency: bool,
    /// It counts in guest mode only.
    pub exclude_host: bool,
    /// It counts in user mode only. perf then does not warn that it knows no symbols of the kernel.
    pub exclude_kernel: bool,
    /// Its name.
    pub name: String,
    /// The id that its records have.
    pub id: u64,
}

impl Event {
    /// Appends the attribute: its samples have [`FIELDS`], and `chains`; times are those of CLOCK_MONOTONIC.
    pub(crate) fn put(&self, to: &mut Vec<u8>, chains: bool) {
        let start = to.len();
        let flag = |set: bool, bit: u64| if set { bit } else { 0 };
        to.u32(self.type_);
        to.u32(SIZE as u32);
        to.u64(self.config);
        to.u64(self.period);
        to.u64(FIELDS | flag(chains, CALLCHAIN));
        // PERF_FORMAT_*: no counts are read.
        to.u64(0);
        to.u64(
            USE_CLOCKID
                | MMAP2
                | SAMPLE_ID_ALL
                | flag(self.by_frequency, FREQ)
                | flag(self.exclude_host, EXCLUDE_HOST)
                | flag(self.exclude_kernel, EXCLUDE_KERNEL | EXCLUDE_HV),
        );
        to.resize(start + 92, 0);
        to.u32(CLOCK_MONOTONIC);
        to.resize(start + SIZE, 0);
    }
}

/// Fields of an event's samples, as they are read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Layout(u64);

impl Layout {
    /// Takes an attribute from `bytes`, and says how long it is by itself. `None`: it makes no sense, its samples have counts of a whole
    /// group, as `{...}:S` has them, or no time.
    pub(crate) fn take(bytes: &[u8]) -> Option<(Self, usize)> {
        let mut from = Take(bytes);
        let (_type, size) = (from.u32()?, from.u32()? as usize);
        let (_config, _period, fields) = (from.u64()?, from.u64()?, from.u64()?);
        let layout = Self(fields);
        let is_read = (LEAST..=bytes.len()).contains(&size) && !layout.has(READ) && layout.has(TIME);
        is_read.then_some((layout, size))
    }

    /// Returns whether samples have this field.
    pub(crate) const fn has(self, field: u64) -> bool {
        self.0 & field != 0
    }
}
