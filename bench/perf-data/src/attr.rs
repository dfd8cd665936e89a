//! `perf_event_attr` as it lies in a file: size 112, which every perf since 4.8 knows.

use crate::bytes::{Put as _, Take};

/// Bytes of an attribute as it is written (PERF_ATTR_SIZE_VER5).
pub const SIZE: usize = 112;
/// Bytes of the first version of the structure.
const LEAST: usize = 64;

/// PERF_SAMPLE_IP.
pub const IP: u64 = 1 << 0;
/// PERF_SAMPLE_TID.
pub const TID: u64 = 1 << 1;
/// PERF_SAMPLE_TIME.
pub const TIME: u64 = 1 << 2;
/// PERF_SAMPLE_ADDR.
pub const ADDR: u64 = 1 << 3;
/// PERF_SAMPLE_READ.
pub const READ: u64 = 1 << 4;
/// PERF_SAMPLE_CALLCHAIN.
pub const CALLCHAIN: u64 = 1 << 5;
/// PERF_SAMPLE_ID.
pub const ID: u64 = 1 << 6;
/// PERF_SAMPLE_CPU.
pub const CPU: u64 = 1 << 7;
/// PERF_SAMPLE_PERIOD.
pub const PERIOD: u64 = 1 << 8;
/// PERF_SAMPLE_STREAM_ID.
pub const STREAM_ID: u64 = 1 << 9;
/// PERF_SAMPLE_RAW.
pub const RAW: u64 = 1 << 10;
/// PERF_SAMPLE_IDENTIFIER.
pub const IDENTIFIER: u64 = 1 << 16;

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
pub struct Attr {
    /// `type`.
    pub type_: u32,
    /// `config`.
    pub config: u64,
    /// Sampling period, or frequency with `by_frequency`.
    pub period: u64,
    /// `period` is a frequency in Hz.
    pub by_frequency: bool,
    /// Fields of each sample, PERF_SAMPLE_*.
    pub sample_type: u64,
    /// Records other than samples end with the fields that identify one.
    pub sample_id_all: bool,
    /// It counts in guest mode only.
    pub exclude_host: bool,
    /// It counts in user mode only. perf then does not warn that it knows no symbols of the kernel.
    pub exclude_kernel: bool,
}

impl Attr {
    /// Appends the attribute. Times are those of CLOCK_MONOTONIC.
    pub(crate) fn put(&self, to: &mut Vec<u8>) {
        let start = to.len();
        to.u32(self.type_);
        to.u32(SIZE as u32);
        to.u64(self.config);
        to.u64(self.period);
        to.u64(self.sample_type);
        // PERF_FORMAT_*: no counts are read.
        to.u64(0);
        let flag = |set: bool, bit: u64| if set { bit } else { 0 };
        to.u64(
            USE_CLOCKID
                | MMAP2
                | flag(self.by_frequency, FREQ)
                | flag(self.sample_id_all, SAMPLE_ID_ALL)
                | flag(self.exclude_host, EXCLUDE_HOST)
                | flag(self.exclude_kernel, EXCLUDE_KERNEL | EXCLUDE_HV),
        );
        to.resize(start + 92, 0);
        to.u32(CLOCK_MONOTONIC);
        to.resize(start + SIZE, 0);
    }

    /// Takes an attribute from `bytes`, and says how long it is by itself.
    pub(crate) fn take(bytes: &[u8]) -> Option<(Self, usize)> {
        let mut from = Take(bytes);
        let (type_, size) = (from.u32()?, from.u32()? as usize);
        if size < LEAST || size > bytes.len() {
            return None;
        }
        let (config, period, sample_type, _format, flags) =
            (from.u64()?, from.u64()?, from.u64()?, from.u64()?, from.u64()?);
        let sample_id_all = flags & SAMPLE_ID_ALL != 0;
        let attr = Self { type_, config, period, sample_type, sample_id_all, ..Self::default() };
        Some((attr, size))
    }
}

/// An event with its name, and the ids that its records have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Event {
    /// Its attribute.
    pub attr: Attr,
    /// Its name; not read back.
    pub name: String,
    /// Its ids.
    pub ids: Vec<u64>,
}
