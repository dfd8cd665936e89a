//! The parameters of one set-up.

use crate::list::EventList;
use crate::method::Method;
use crate::phase::Use;

/// One set-up: events, CPUs, method.
#[derive(Clone, Copy, Debug)]
pub struct Job<'a> {
    /// Events to open.
    pub list: &'a EventList,
    /// CPU numbers, without duplicates.
    pub cpus: &'a [u32],
    /// Order, place and grouping of the calls.
    pub method: Method,
    /// Counting or mapping.
    pub purpose: Use,
    /// Data pages of a mapped buffer, a power of two.
    pub ring_pages: usize,
}
