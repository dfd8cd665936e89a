//! Recordings as perf.data files, which stock perf of version 5.2 and later reads.
//!
//! - [`writer`]: a file or a pipe, plain or compressed; what it wrote stays readable when the disk is full or the
//!   process is killed.
//! - [`reader`]: the same back, and perf's own files; it distrusts every byte.
//! - [`record`], [`attr`], [`feature`]: the format, as of tools/perf/Documentation/perf.data-file-format.txt and
//!   <linux/perf_event.h>.
//! - [`tracepoint`]: which fields the samples of a tracepoint have, by the recorded kernel's own word.
//! - [`symbols`]: names of addresses, from ELF files and from a kernel's list of symbols.
//! - [`unwind`]: callers, by the `.eh_frame` of ELF files.
//! - [`spaces`], [`names`]: which file is where in each process of a recording at each time, and names by that.
//! - [`calls`]: the frames of a sample, and all stacks of a recording as a tree.
//! - [`history`]: the samples of a recording with the names of their time, in bounded memory.
//! - [`plain`]: files that a recording names, which a stranger may have chosen.

pub mod attr;
mod bytes;
pub mod calls;
pub mod feature;
pub mod history;
pub mod names;
pub mod plain;
pub mod reader;
pub mod record;
pub mod spaces;
pub mod symbols;
pub mod tracepoint;
pub mod unwind;
pub mod writer;
