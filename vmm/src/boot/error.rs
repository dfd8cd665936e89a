//! Why a guest cannot be put into its memory.

/// Why a guest cannot be put into its memory, in words: what is wrong, and what to do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct BootError(pub(crate) String);

/// Returns the error of these words.
pub(crate) fn refused<T>(why: impl Into<String>) -> Result<T, BootError> {
    Err(BootError(why.into()))
}

impl From<vm_memory::GuestMemoryError> for BootError {
    fn from(error: vm_memory::GuestMemoryError) -> Self {
        Self(format!("guest memory: {error}"))
    }
}

impl From<vm_memory::mmap::FromRangesError> for BootError {
    fn from(error: vm_memory::mmap::FromRangesError) -> Self {
        Self(format!("guest memory: {error}"))
    }
}
