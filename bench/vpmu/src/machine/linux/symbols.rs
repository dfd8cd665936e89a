//! A guest kernel's lists of its own code, on their way to whoever names addresses.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use linux_guest::loaded::Code;
use results::write::Target;

/// Files for the guest's lists.
#[derive(Clone, Debug)]
pub struct Symbols {
    /// The file for the kernel's list of symbols, at the end.
    pub kallsyms: Target,
    /// Its code, before the command and after it.
    pub reports: Arc<CodeReports>,
}

/// The code of a guest's kernel, each time that it was asked for.
#[derive(Debug, Default)]
pub struct CodeReports {
    codes: Mutex<VecDeque<Code>>,
}

impl CodeReports {
    /// Adds what the guest said.
    pub fn push(&self, code: Code) {
        self.codes.lock().unwrap_or_else(PoisonError::into_inner).push_back(code);
    }

    /// Takes the oldest that was not taken.
    pub fn take(&self) -> Option<Code> {
        self.codes.lock().unwrap_or_else(PoisonError::into_inner).pop_front()
    }
}
