//! Recordings as perf.data files, which stock perf of version 5.2 and later reads.
//!
//! - [`writer`]: a file, plain or compressed; what it wrote stays readable when the disk is full or the
//!   process is killed.
//! - [`reader`]: samples and losses of perf's own files and of ours; it distrusts every byte.
//! - [`record`], [`attr`], [`feature`]: the format, as of tools/perf/Documentation/perf.data-file-format.txt and
//!   <linux/perf_event.h>.
//! - [`tracepoint`]: which fields the samples of a tracepoint have, by the recorded kernel's own word.
//! - [`symbols`]: names of addresses, from ELF files and from a kernel's list of symbols.
//! - [`unwind`]: callers, by the `.eh_frame` of ELF files.

pub mod attr;
mod bytes;
pub mod feature;
pub mod reader;
pub mod record;
pub mod symbols;
pub mod tracepoint;
pub mod unwind;
pub mod writer;
