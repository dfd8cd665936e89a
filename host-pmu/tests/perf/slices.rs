//! Sched slices and sleeps of the calling thread. The host may preempt a test between two looks: each is repeated.

use std::time::Duration;

use host_pmu::backend::Backend as _;
use host_pmu::backend::monitor::Monitor;

use crate::clock;
use crate::events::CYCLES;

fn notices_a_sleep(mut monitor: Monitor) {
    monitor.sched_in();
    assert!((0..100).any(|_| !monitor.sched_in()), "every look claims a new slice");
    std::thread::sleep(Duration::from_millis(2));
    assert!(monitor.sched_in(), "the thread slept and was switched in again");
    monitor.slept();
    assert!((0..100).any(|_| !monitor.slept()), "every look claims a sleep");
    std::thread::sleep(Duration::from_millis(2));
    assert!(monitor.slept());
}

pub(crate) fn counts_notice_a_sleep() {
    notices_a_sleep(Monitor::without_ring());
}

pub(crate) fn ring_notices_a_sleep() {
    let monitor = Monitor::new();
    assert!(monitor.sees_records());
    notices_a_sleep(monitor);
}

/// Each resume adds the event to the CPU anew, which moves the sequence count of the page it shares.
pub(crate) fn a_resume_is_no_slice() {
    let mut backend = clock("recreate");
    assert!(backend.monitor().sees_records());
    let mut event = backend.open(CYCLES, 1 << 40).unwrap();
    let mut slices = || {
        backend.sched_in();
        backend.pause(&mut event).unwrap();
        backend.resume(&mut event, false).unwrap();
        backend.sched_in()
    };
    assert!((0..100).any(|_| !slices()), "every resume claims a slice");
    backend.release(event);
}
