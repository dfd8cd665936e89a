//! A guest kernel's lists of its own code, on their way to whoever names addresses.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use linux_guest::loaded::Code;
use results::write::Target;

use crate::sys::monotonic_ns;

/// Files for the guest's lists.
#[derive(Clone, Debug)]
pub struct Symbols {
    /// The file for the kernel's list of symbols, at the end.
    pub kallsyms: Target,
    /// Its code, before the command and after it.
    pub reports: Arc<CodeReports>,
}

/// The code of a guest's kernel, each time that it was asked for, and when its command ran.
#[derive(Debug, Default)]
pub struct CodeReports {
    codes: Mutex<VecDeque<Code>>,
    /// Begin and end of the command, CLOCK_MONOTONIC, ns; 0 before it.
    command: [AtomicU64; 2],
}

impl CodeReports {
    /// Notes that the command begins now.
    pub fn command_begins(&self) {
        self.command[0].store(monotonic_ns(), Ordering::Relaxed);
    }

    /// Notes that the command has ended.
    pub fn command_ended(&self) {
        self.command[1].store(monotonic_ns(), Ordering::Relaxed);
    }

    /// Its begin and its end, where they have been.
    pub fn command(&self) -> [Option<u64>; 2] {
        [0, 1].map(|at| Some(self.command[at].load(Ordering::Relaxed)).filter(|&ns| ns > 0))
    }

    /// Adds what the guest said.
    pub fn push(&self, code: Code) {
        self.codes.lock().unwrap_or_else(PoisonError::into_inner).push_back(code);
    }

    /// Takes the oldest that was not taken.
    pub fn take(&self) -> Option<Code> {
        self.codes.lock().unwrap_or_else(PoisonError::into_inner).pop_front()
    }
}
