//! Counts of events over a process and everything it starts.

mod event;
mod tracefs;

use std::io;
use std::os::fd::OwnedFd;

use perf_event_open_sys::bindings::{PERF_FORMAT_TOTAL_TIME_ENABLED, PERF_FORMAT_TOTAL_TIME_RUNNING};
use rustix::io::Errno;

pub use event::{ALL, Class, Event, Source};

use crate::sys;

/// An event, and whether it can be counted here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offer {
    /// The event.
    pub event: Event,
    /// `Ok(true)`: in user mode only; the reason if it cannot be counted.
    pub user_only: Result<bool, String>,
}

/// Tries every event on this process.
#[must_use]
pub fn offers() -> Vec<Offer> {
    ALL.iter().map(|&event| Offer { event, user_only: probe(&event) }).collect()
}

fn probe(event: &Event) -> Result<bool, String> {
    let open = |user_only| {
        let mut attr = event.attr(user_only)?;
        attr.set_disabled(1);
        Ok::<_, String>(sys::open(&attr, 0, -1))
    };
    match open(false)? {
        Ok(_) => Ok(false),
        Err(error) if denied(&error) && event.in_user_mode => match open(true)? {
            Ok(_) => Ok(true),
            Err(error) => Err(reason(event, &error)),
        },
        Err(error) => Err(reason(event, &error)),
    }
}

fn denied(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::ACCESS | Errno::PERM))
}

fn reason(event: &Event, error: &io::Error) -> String {
    match (Errno::from_io_error(error), event.class) {
        (Some(Errno::ACCESS | Errno::PERM), _) => {
            "it happens in the kernel: needs kernel.perf_event_paranoid 1 or less, or CAP_PERFMON".to_owned()
        }
        (Some(Errno::NOENT | Errno::NODEV | Errno::OPNOTSUPP), Class::Hardware) => "this host has no PMU".to_owned(),
        (Some(Errno::NOENT | Errno::INVAL | Errno::OPNOTSUPP), _) => "this kernel has no such event".to_owned(),
        (Some(Errno::NOSYS), _) => "this kernel has no perf events".to_owned(),
        _ => error.to_string(),
    }
}

/// Events of one process.
#[derive(Debug)]
pub struct Counters {
    /// One per offer; `None`: not countable here.
    open: Vec<Option<OwnedFd>>,
}

impl Counters {
    /// Every countable event of `offers`, in process `pid` and whatever it starts from now on. Nothing is counted yet.
    ///
    /// # Errors
    /// Those of perf_event_open(2) for an event that opened on this process.
    pub fn attach(pid: i32, offers: &[Offer]) -> io::Result<Self> {
        let open = offers.iter().map(|offer| {
            let Ok(user_only) = offer.user_only else { return Ok(None) };
            let mut attr = offer.event.attr(user_only).map_err(io::Error::other)?;
            attr.set_disabled(1);
            attr.read_format = u64::from(PERF_FORMAT_TOTAL_TIME_ENABLED | PERF_FORMAT_TOTAL_TIME_RUNNING);
            sys::open(&attr, pid, -1).map(Some)
        });
        Ok(Self { open: open.collect::<io::Result<_>>()? })
    }

    /// Begins to count.
    ///
    /// # Errors
    /// Those of ioctl(2).
    pub fn enable(&self) -> io::Result<()> {
        self.open.iter().flatten().try_for_each(sys::enable)
    }

    /// The counts, one per offer, after the processes have ended. An event that shared its counter with others is scaled to its
    /// whole time; one that never had a counter has no count.
    ///
    /// # Errors
    /// Those of read(2).
    pub fn read(self) -> io::Result<Vec<Option<f64>>> {
        let count = |fd: Option<OwnedFd>| {
            let Some(fd) = fd else { return Ok(None) };
            let mut bytes = [0; 24];
            let got = rustix::io::read(&fd, &mut bytes)?;
            let word =
                |at: usize| bytes.get(8 * at..8 * at + 8).and_then(|word| word.try_into().ok()).map(u64::from_le_bytes);
            match (word(0), word(1), word(2)) {
                (Some(value), Some(enabled), Some(running)) if got == bytes.len() => {
                    Ok(scaled(value, enabled, running))
                }
                _ => Err(io::ErrorKind::UnexpectedEof.into()),
            }
        };
        self.open.into_iter().map(count).collect()
    }
}

fn scaled(value: u64, enabled: u64, running: u64) -> Option<f64> {
    if running == 0 {
        return (enabled == 0).then_some(value as f64);
    }
    Some(value as f64 * (enabled.max(running) as f64 / running as f64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_event_can_be_counted_or_has_a_reason() {
        for offer in offers() {
            assert!(offer.user_only.as_ref().map_or_else(|why| !why.is_empty(), |_| true), "{offer:?}");
        }
    }

    #[test]
    fn shared_counters_are_scaled_and_those_that_never_ran_have_no_count() {
        assert_eq!(scaled(7, 100, 100), Some(7.0));
        assert_eq!(scaled(7, 100, 50), Some(14.0));
        assert_eq!((scaled(0, 100, 0), scaled(0, 0, 0)), (None, Some(0.0)));
    }

    #[test]
    fn reasons_name_the_remedy() {
        let switches = Event::named("context-switches").unwrap();
        let why = |errno: Errno, event: &Event| reason(event, &errno.into());
        assert!(why(Errno::ACCESS, switches).contains("perf_event_paranoid"));
        assert!(why(Errno::NOENT, Event::named("cycles").unwrap()).contains("no PMU"));
        assert!(why(Errno::INVAL, switches).contains("no such event"));
    }
}
