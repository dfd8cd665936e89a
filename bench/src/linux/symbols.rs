//! What a guest's kernel says of its own code, on its way to whoever names addresses.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use linux_guest::loaded::Code;

/// Where the guest's lists go.
#[derive(Clone, Debug)]
pub struct Symbols {
    /// The file for the kernel's list of symbols, at the end.
    pub kallsyms: PathBuf,
    /// The file for the list of its modules, at the end.
    pub modules: PathBuf,
    /// Its code, before the command and after it.
    pub reports: Arc<CodeReports>,
}

/// The code of a guest's kernel, each time that it was asked for.
#[derive(Debug, Default)]
pub struct CodeReports(Mutex<VecDeque<Code>>);

impl CodeReports {
    /// Adds what the guest said.
    pub fn push(&self, code: Code) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push_back(code);
    }

    /// Takes the oldest that was not taken.
    pub fn take(&self) -> Option<Code> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).pop_front()
    }
}
