//! How records are written.

/// Asynchronous writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Aio {
    /// How many may be on their way at once.
    pub writes: usize,
    /// Whether io_uring is tried. Without it, and where the kernel does not allow it, a thread writes.
    pub ring: bool,
}

/// How records are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// zstd's level; 0: no compression.
    pub level: u32,
    /// Threads that compress; with 0 and 1 the writer does it by itself.
    pub threads: usize,
    /// Least bytes of records that are taken together. `None`: whatever there is at each flush.
    pub least: Option<usize>,
    /// Asynchronous writes, for files.
    pub aio: Option<Aio>,
}

impl Options {
    /// Sets one thread and serial writes.
    #[must_use]
    pub const fn level(level: u32) -> Self {
        Self { level, threads: 1, least: None, aio: None }
    }
}

/// How a file was written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Streaming {
    /// One write after the other.
    #[default]
    Serial,
    /// By io_uring, so many writes at once.
    Ring(usize),
    /// By a thread, so many writes ahead of it.
    Thread {
        /// Most writes ahead of it.
        writes: usize,
        /// Why not by io_uring, if that was tried.
        why: Option<String>,
    },
}
