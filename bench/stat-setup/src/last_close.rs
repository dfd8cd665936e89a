//! Ways to shorten the last close of a tracepoint.
//!
//! `perf_trace_destroy` unregisters the last user of a trace event and waits for grace periods
//! (`tracepoint_synchronize_unregister`) with `event_mutex` held, so last closes of different tracepoints serialise. Each
//! way opens one event of each tracepoint and closes them all.

use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use crate::list::{Class, EventList};
use crate::sys::{self, Child, Target};

/// A way to close, and its duration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Way {
    /// Description.
    pub way: String,
    /// Number of distinct tracepoints.
    pub tracepoints: usize,
    /// Time until the end of the last close.
    pub wall: Duration,
}

/// Number of threads or processes that share the work.
const SHARES: usize = 4;
/// Maximum number of tracepoints: a close takes tens of ms.
const MOST: usize = 32;

type Attr = perf_event_open_sys::bindings::perf_event_attr;

/// Returns one event of each distinct tracepoint of the list.
fn distinct(list: &EventList) -> Vec<Attr> {
    let mut attrs: Vec<Attr> = Vec::new();
    for event in &list.events {
        if let Ok(open) = &event.open
            && open.class == Class::Tracepoint
            && attrs.iter().all(|attr| attr.config != open.attr.config)
        {
            attrs.push(open.attr);
        }
    }
    attrs.truncate(MOST);
    attrs
}

fn open(attrs: &[Attr]) -> std::io::Result<Vec<OwnedFd>> {
    attrs.iter().map(|attr| sys::open(attr, Target::ThisThread, None)).collect()
}

/// Measures every way. The caller must have no other threads.
///
/// # Errors
/// An event does not open, or a process does not start.
pub fn measure(list: &EventList) -> std::io::Result<Vec<Way>> {
    let attrs = distinct(list);
    let mut ways = Vec::new();
    let mut add = |way: &str, wall| ways.push(Way { way: way.to_owned(), tracepoints: attrs.len(), wall });
    if attrs.is_empty() {
        return Ok(ways);
    }

    let fds = open(&attrs)?;
    let began = Instant::now();
    drop(fds);
    add("one by one", began.elapsed());

    let mut fds = open(&attrs)?;
    let share = attrs.len().div_ceil(SHARES);
    let began = Instant::now();
    std::thread::scope(|scope| {
        while !fds.is_empty() {
            let part = fds.split_off(fds.len().saturating_sub(share));
            std::thread::Builder::new().spawn_scoped(scope, move || drop(part))?;
        }
        Ok::<(), std::io::Error>(())
    })?;
    add(&format!("by {SHARES} threads"), began.elapsed());

    let mut children = Vec::new();
    for part in attrs.chunks(share) {
        children.push(Child::start(|| open(part).ok(), drop)?);
    }
    let began = Instant::now();
    children.iter_mut().for_each(Child::go);
    drop(children);
    add(&format!("by {SHARES} processes"), began.elapsed());

    let child = Child::start(|| open(&attrs).ok(), std::mem::forget)?;
    let began = Instant::now();
    drop(child);
    add("by the process's end", began.elapsed());

    let anchors = open(&attrs)?;
    let fds = open(&attrs)?;
    let began = Instant::now();
    drop(fds);
    add("while another descriptor holds each", began.elapsed());
    drop(anchors);
    Ok(ways)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::list::{parse::parse, resolve::resolve, sysfs::Sysfs};

    #[test]
    fn lists_without_tracepoints_have_nothing_to_close() {
        let list = resolve(&parse("cs,cycles").unwrap(), &mut Sysfs::at("/nonexistent"));
        assert!(measure(&list).unwrap().is_empty());
    }
}
