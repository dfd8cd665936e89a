//! Host events by `perf_event_open`, bound to the thread that opens them.

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use arch_pmu::intel::PerfEvtSel;
use arch_pmu::spec::{MAX_COUNTERS, Spec, Vendor};
use perf_event_open_sys::bindings::perf_event_attr;

use super::attr::{EventKind, event_attr, gate_attr, leader_attr};
use super::encoding::Offers;
use super::monitor::Monitor;
use super::scheduling::SHORTEST_PERIOD;
use super::{Backend, BackendKey, Facts, HostError, Overflow, Scale, encoding};
use crate::strategy::{MAX_POOL, Pause, Strategy};
use crate::sys;

/// Mount points of tracefs.
const TRACEFS: [&str; 2] = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];

/// The selector with which a guest's driver samples the cycles of both rings. Where kernel.perf_event_paranoid is 2, a user without
/// CAP_PERFMON may have those of ring 3 alone.
pub const CYCLES: Spec = PerfEvtSel::from_bits(0x53_003c).spec();

/// Bounds of the shortest period asked of a clock, ns.
const CLOCK_PERIODS: [u64; 2] = [50_000, 2_000_000];
/// Shortest period of a clock in system calls of this host: a timer interrupt and a signal cost as much as some tens of them.
const CLOCK_PERIOD_CALLS: u64 = 200;

/// Returns the shortest period asked of a clock on this host, ns.
///
/// With the kernel's own limit of 10 µs, a counter restarted just before its overflow takes a timer interrupt and a signal every
/// 10 µs until the vCPU thread reads it. Where these cost as much (nested hosts; emulated ones far more), the thread makes no
/// progress. The count of an overflow stays exact; its signal is late by up to this time.
pub fn shortest_clock_period() -> u64 {
    let [least, most] = CLOCK_PERIODS;
    sys::cheapest_call_ns().saturating_mul(CLOCK_PERIOD_CALLS).clamp(least, most)
}

/// Opens perf events on the calling thread; overflows raise [`crate::kick::signal`] there.
#[derive(Debug)]
pub struct PerfBackend {
    kind: EventKind,
    /// Hardware events that it may ask for.
    offers: Offers,
    /// The host's.
    vendor: Option<Vendor>,
    scale: Scale,
    /// In host counts.
    shortest_period: u64,
    facts: Facts,
    /// The monitor of this thread.
    pub monitor: Monitor,
    /// The monitor has its rings, if it can have them.
    attends: bool,
    /// The leader of all its events: a gate, or what one read has all their counts by.
    leader: Option<OwnedFd>,
    /// The gate is open.
    is_open: bool,
    /// Id and count of each event when the gate was shut, in host counts.
    shut: Vec<(u64, u64)>,
    /// Known counts of clock events; room for none where none is asked for without a call.
    anchors: Anchors,
    /// Hardware events count this thread itself, outside guest mode, too: for tests on a PMU without a guest.
    pub counts_host: bool,
}

impl PerfBackend {
    /// Creates a backend for `key` with events as `strategy` needs them, behind a gate for one; without one they are single events.
    /// `tsc_khz` scales clocks to cycles.
    pub fn new(key: &BackendKey, tsc_khz: u64, strategy: Option<&Strategy>) -> Result<Self, HostError> {
        let clock = |scale| (EventKind::CpuClock, scale, shortest_clock_period());
        let (kind, scale, shortest_period) = match key {
            BackendKey::Hardware => (EventKind::Hardware, Scale::ONE, SHORTEST_PERIOD),
            BackendKey::CpuClock => clock(Scale::new(tsc_khz, 1_000_000)),
            BackendKey::CpuClockAt(mhz) => clock(Scale::new(u64::from(*mhz), 1000)),
            BackendKey::Tracepoint { group, name } => {
                (EventKind::Tracepoint(tracepoint_id(group, name)?), Scale::ONE, 1)
            }
            BackendKey::Step | BackendKey::None => {
                return Err(HostError::Os { call: "a backend without perf events", errno: libc::EINVAL, remedy: "" });
            }
        };
        let is_hardware = kind == EventKind::Hardware;
        let of = |strategy: &Strategy| (strategy.gate, strategy.pause == Pause::Virtual);
        let (gate, virtual_pauses) = strategy.map_or((false, false), of);
        let anchored = virtual_pauses && kind == EventKind::CpuClock;
        let leads = gate.then(|| gate_attr(kind)).or_else(|| anchored.then(leader_attr));
        let leader = leads.map(|attr| asked("perf_event_open", sys::open_on_this_thread(attr, None))).transpose()?;
        if let Some(leader) = leader.as_ref().filter(|_| gate && is_hardware) {
            // Since Linux 6.15 a group that gets no counters signals its owner.
            asked(SIGNAL, sys::signal_this_thread(leader))?;
        }
        let shortest = scale.to_guest(shortest_period);
        Ok(Self {
            kind,
            offers: Offers::listed_in(encoding::DEVICES.as_ref()),
            vendor: is_hardware.then(encoding::host_vendor).flatten(),
            scale,
            shortest_period,
            facts: Facts { gate, virtual_pauses, one_pace: !is_hardware, blind: false, shortest_period: shortest },
            // The first event of a thread on a host waits for a grace period, so the monitor gets its rings when the guest runs.
            monitor: Monitor::without_ring(),
            attends: false,
            leader,
            is_open: false,
            shut: Vec::with_capacity(if gate { MOST_IN_GROUP } else { 0 }),
            anchors: Anchors(Vec::with_capacity(if anchored { MOST_IN_GROUP } else { 0 })),
            counts_host: false,
        })
    }
}

/// Reads the id of a tracepoint from tracefs.
pub fn tracepoint_id(group: &str, name: &str) -> Result<u64, HostError> {
    let events = TRACEFS.map(|root| Path::new(root).join("events")).into_iter().find(|events| events.is_dir());
    let events = events.ok_or_else(|| os(NO_TRACEFS, &io::Error::from_raw_os_error(libc::ENOENT)))?;
    let id = std::fs::read_to_string(events.join(group).join(name).join("id"));
    asked("read the tracepoint's id", id.and_then(|id| id.trim().parse().map_err(io::Error::other)))
}

/// The calls that make an event signal its thread.
const SIGNAL: &str = "fcntl on a perf event";
const READ: &str = "read of a perf event";
const NO_TRACEFS: &str = "tracefs is not mounted, or not readable by this user";

/// Names the call that failed.
fn asked<T>(call: &'static str, result: io::Result<T>) -> Result<T, HostError> {
    result.map_err(|error| os(call, &error))
}

/// Returns the error of a call, with the remedy if one is known.
pub fn os(call: &'static str, error: &io::Error) -> HostError {
    let errno = error.raw_os_error().unwrap_or(libc::EIO);
    let remedy = match (call, errno) {
        ("perf_event_open", libc::EACCES | libc::EPERM) => {
            "; run as root or with CAP_PERFMON, or sudo sysctl kernel.perf_event_paranoid=1 (-1 for a tracepoint), and \
             outside of a container whose seccomp profile forbids it; `vpmu doctor` names all that is missing"
        }
        ("perf_event_open", libc::ENOENT | libc::ENODEV) => "; this host has no PMU for that event: use cpu-clock",
        // A sampling event of a PMU without an interrupt, or one that counts in guests while a VM has a mediated vPMU.
        ("perf_event_open", libc::EOPNOTSUPP) => {
            "; a guest with a mediated vPMU has the PMU (Linux 7.0: end it, or load kvm_amd or kvm_intel with \
             enable_mediated_pmu=0), or the PMU has no interrupt: use cpu-clock"
        }
        (NO_TRACEFS, _) => "; mount it with: mount -t tracefs tracefs /sys/kernel/tracing",
        ("read the tracepoint's id", _) => "; ls /sys/kernel/tracing/events has those of this host",
        // Each timer has a place in the queue of signals, which all processes of a user share.
        ("timer_create", libc::EAGAIN) => {
            "; this user's queue of signals is full (RLIMIT_SIGPENDING): raise the limit with ulimit -i, or end the process whose \
             signals fill it (SigQ in /proc/PID/status is their number and the limit)"
        }
        (_, libc::EMFILE) => "; too many open files: raise the limit with ulimit -n",
        ("perf_event_open", libc::ENOSYS) => {
            "; this kernel is built without CONFIG_PERF_EVENTS, or a seccomp profile hides it"
        }
        _ => "",
    };
    HostError::Os { call, errno, remedy }
}

/// A perf event on the vCPU thread.
#[derive(Debug)]
pub struct PerfEvent {
    fd: OwnedFd,
    id: u64,
}

/// Most events in a group: all that a bank may hold, and the leader.
const MOST_IN_GROUP: usize = MAX_POOL + MAX_COUNTERS + 1;
/// Room for a group read: their number, then two words for each.
const GROUP_WORDS: usize = 1 + 2 * MOST_IN_GROUP;

/// Reads a group: reports the id and count of each event.
fn read_group(leader: &OwnedFd, mut visit: impl FnMut(u64, u64)) -> Result<(), HostError> {
    let mut words = [0; GROUP_WORDS];
    let got = asked(READ, sys::read(leader, &mut words))?;
    let (_, pairs) = words[..got].split_first().ok_or(HostError::PinnedLost)?;
    pairs.chunks_exact(2).for_each(|pair| visit(pair[1], pair[0]));
    Ok(())
}

impl PerfBackend {
    /// Returns the attribute of an event for `spec`, which is disabled at first.
    fn attr(&self, mut spec: Spec, period: u64) -> Result<perf_event_attr, HostError> {
        if self.kind == EventKind::Hardware {
            self.offers.check(spec)?;
            spec = encoding::on_host(spec, self.vendor)?;
        }
        let mut attr = event_attr(self.kind, spec, self.host_period(period));
        if self.leader.is_some() {
            // Only a leader can be pinned.
            attr.set_pinned(0);
        }
        if self.counts_host {
            attr.set_exclude_host(0);
        }
        // It counts when everything is set: an overflow before that has no signal and no record.
        attr.set_disabled(1);
        Ok(attr)
    }

    /// Returns the reason why an event did not open. The kernel refuses one that does not fit beside its group (`validate_group`).
    fn refused(&self, error: &io::Error) -> HostError {
        let grouped = self.facts.gate && self.kind == EventKind::Hardware;
        if grouped && error.raw_os_error() == Some(libc::EINVAL) {
            return HostError::GateTooLarge;
        }
        os("perf_event_open", error)
    }

    fn host_period(&self, period: u64) -> u64 {
        self.scale.to_host(period).max(self.shortest_period)
    }

    /// Reads the count of an event, in host counts.
    fn count(event: &PerfEvent) -> Result<u64, HostError> {
        let mut count = [0];
        let got = asked(READ, sys::read(&event.fd, &mut count))?;
        count[..got].first().copied().ok_or(HostError::PinnedLost)
    }
}

impl Backend for PerfBackend {
    type Event = PerfEvent;

    #[inline]
    fn facts(&self) -> &Facts {
        &self.facts
    }

    fn attend(&mut self) {
        if !std::mem::replace(&mut self.attends, true) {
            self.monitor = Monitor::open();
            self.facts.blind |= !self.monitor.sees_records();
        }
    }

    fn open(&mut self, spec: Spec, period: u64) -> Result<PerfEvent, HostError> {
        self.attend();
        let attr = self.attr(spec, period)?;
        let fd = sys::open_on_this_thread(attr, self.leader.as_ref()).map_err(|error| self.refused(&error))?;
        asked(SIGNAL, sys::signal_this_thread(&fd))?;
        self.facts.blind |= !self.monitor.adopt(&fd);
        let mut event = PerfEvent { id: asked("IOC_ID", sys::event_id(&fd))?, fd };
        self.resume(&mut event)?;
        Ok(event)
    }

    fn release(&mut self, event: PerfEvent) {
        self.anchors.forget(event.id);
    }

    fn pause(&mut self, event: &mut PerfEvent) -> Result<u64, HostError> {
        asked("IOC_DISABLE", sys::disable(&event.fd))?;
        self.anchors.forget(event.id);
        Ok(self.scale.to_guest(Self::count(event)?))
    }

    fn resume(&mut self, event: &mut PerfEvent) -> Result<(), HostError> {
        // Enabling an event stops and starts all others of the thread for a moment.
        self.anchors.0.clear();
        asked("IOC_ENABLE", sys::enable(&event.fd))?;
        // Linux 6.18 starts an event under a leader of another PMU with the thread's next slice; the leader's own start starts all.
        // Hardware events take their leader to their PMU.
        if let Some(leader) = self.leader.as_ref().filter(|_| self.is_open && self.kind != EventKind::Hardware) {
            asked("IOC_DISABLE", sys::disable(leader))?;
            asked("IOC_ENABLE", sys::enable(leader))?;
        }
        Ok(())
    }

    fn set_period(&mut self, event: &mut PerfEvent, period: u64) -> Result<(), HostError> {
        asked("IOC_PERIOD", sys::set_period(&event.fd, self.host_period(period)))
    }

    fn read(&mut self, event: &mut PerfEvent) -> Result<u64, HostError> {
        let Some(leader) = self.leader.as_ref().filter(|_| self.anchors.is_kept()) else {
            return Ok(self.scale.to_guest(Self::count(event)?));
        };
        self.anchors.0.clear();
        read_group(leader, |id, count| self.anchors.set(id, count, 0))?;
        let at = sys::monotonic_ns();
        self.anchors.0.iter_mut().for_each(|anchor| anchor.at = at);
        let own = self.anchors.count(event.id, at);
        if self.monitor.switched() {
            self.anchors.0.clear();
        }
        own.map(|count| self.scale.to_guest(count)).ok_or(HostError::PinnedLost)
    }

    fn peek(&mut self, event: &PerfEvent) -> Option<u64> {
        if !self.anchors.is_kept() {
            return None;
        }
        // A switch after this moment changes nothing that was counted until then.
        let now = sys::monotonic_ns();
        if self.monitor.switched() || self.monitor.throttles() {
            self.anchors.0.clear();
        }
        self.anchors.count(event.id, now).map(|count| self.scale.to_guest(count))
    }

    fn id(&self, event: &PerfEvent) -> u64 {
        event.id
    }

    #[inline]
    fn overflowed(&mut self, visit: &mut dyn FnMut(Overflow)) -> bool {
        let Self { scale, anchors, monitor, .. } = self;
        // The throttling may have been before or after an overflow that is reported now. The kernel stops throttled events.
        let steady = anchors.is_kept() && !monitor.switched() && !monitor.throttles();
        if !steady {
            anchors.0.clear();
        }
        let complete = monitor.overflowed(&mut |it| {
            if let Some(at) = it.at.filter(|_| steady) {
                anchors.set(it.id, it.count, at);
            }
            visit(Overflow { count: scale.to_guest(it.count), ..it });
        });
        complete && !self.facts.blind
    }

    fn open_gate(&mut self) -> Result<(), HostError> {
        let Some(leader) = &self.leader else { return Ok(()) };
        asked("IOC_ENABLE", sys::enable(leader))?;
        self.is_open = true;
        Ok(())
    }

    fn shut_gate(&mut self) -> Result<(), HostError> {
        self.shut.clear();
        let Some(leader) = &self.leader else { return Ok(()) };
        asked("IOC_DISABLE", sys::disable(leader))?;
        self.is_open = false;
        read_group(leader, |id, count| self.shut.push((id, count)))
    }

    fn shut_at(&mut self, event: &PerfEvent) -> Option<u64> {
        let shut = self.shut.iter().find(|(id, _)| *id == event.id);
        shut.map(|&(_, count)| self.scale.to_guest(count))
    }

    fn leave_gate(&mut self) {
        (self.facts.gate, self.is_open, self.leader) = (false, false, None);
    }

    #[inline]
    fn may_have_switched(&self) -> bool {
        self.monitor.may_have_switched()
    }

    fn sched_in(&mut self) -> bool {
        self.monitor.sched_in()
    }

    fn slices(&mut self) -> Option<(bool, bool)> {
        self.monitor.slices()
    }

    fn is_lost(&self, event: &PerfEvent) -> bool {
        Self::count(event) == Err(HostError::PinnedLost)
    }

    fn is_gate_lost(&self) -> bool {
        // Only the leader of hardware events is pinned.
        let pinned = self.facts.gate && self.kind == EventKind::Hardware;
        let leader = self.leader.as_ref().filter(|_| pinned);
        leader.is_some_and(|leader| read_group(leader, |_, _| ()) == Err(HostError::PinnedLost))
    }

    fn throttled(&self) -> u64 {
        self.monitor.records.throttled
    }

    fn now_ns(&self) -> u64 {
        sys::monotonic_ns()
    }
}

/// Age at which an anchor is given up, ns: the event's clock and the one that is read here run apart, by 500 ppm at the very most.
const MOST_AGE: u64 = 10_000_000;

#[derive(Clone, Copy, Debug)]
struct Anchor {
    id: u64,
    count: u64,
    at: u64,
}

/// The last known count of each event, in host counts, and its time; none where every event may have stood still since.
#[derive(Debug)]
struct Anchors(Vec<Anchor>);

impl Anchors {
    fn is_kept(&self) -> bool {
        self.0.capacity() > 0
    }

    /// Notes that event `id` had counted `count` at `at`.
    fn set(&mut self, id: u64, count: u64, at: u64) {
        self.forget(id);
        if self.0.len() < self.0.capacity() {
            self.0.push(Anchor { id, count, at });
        }
    }

    /// Forgets the anchor of an event that stopped.
    fn forget(&mut self, id: u64) {
        self.0.retain(|anchor| anchor.id != id);
    }

    /// Returns the event's count at `now`, if it ran since its anchor.
    fn count(&self, id: u64, now: u64) -> Option<u64> {
        let anchor = self.0.iter().find(|anchor| anchor.id == id)?;
        let age = now.checked_sub(anchor.at).filter(|&age| age <= MOST_AGE)?;
        Some(anchor.count + age)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_is_throttled_is_read() {
        use perf_event_open_sys::bindings::{PERF_RECORD_THROTTLE, PERF_RECORD_UNTHROTTLE};
        let strategy = Strategy::preset("virtual").unwrap();
        let backend = PerfBackend::new(&BackendKey::CpuClock, 1_000_000, Some(&strategy));
        let (mut backend, spec) = match backend {
            Ok(backend) => (backend, PerfEvtSel::from_bits(0x51_003c).spec()),
            Err(error) => return println!("SKIP: {error}"),
        };
        let mut event = match backend.open(spec, 1 << 40) {
            Ok(event) => event,
            Err(error) => return println!("SKIP: {error}"),
        };
        // The host may switch the thread out at any time.
        let known = |backend: &mut PerfBackend, event: &mut PerfEvent| {
            (0..1000).any(|_| backend.read(event).is_ok() && backend.peek(event).is_some())
        };
        for type_ in [PERF_RECORD_THROTTLE, PERF_RECORD_UNTHROTTLE] {
            assert!(known(&mut backend, &mut event));
            if !backend.monitor.forge(type_) {
                return println!("SKIP: perf rings exceed the locked-memory limit");
            }
            assert_eq!(backend.peek(&event), None, "it may stand still");
            assert!(!known(&mut backend, &mut event), "until the record is read");
            backend.overflowed(&mut |_| ());
        }
        assert!(known(&mut backend, &mut event));
        assert_eq!(backend.throttled(), 1);
    }

    #[test]
    fn no_hardware_event_has_a_period_of_one_which_makes_branches_a_bts_event() {
        let backend = PerfBackend::new(&BackendKey::Hardware, 1_000_000, None).unwrap();
        let branches = PerfEvtSel::from_bits(0x51_00c4).spec();
        let attr = event_attr(backend.kind, branches, backend.host_period(1));
        assert_eq!((sys::tests::sample_period(&attr), backend.facts.shortest_period), (2, 2));
    }

    #[test]
    fn an_event_that_does_not_fit_into_its_gate_is_told_from_other_refusals() {
        let mut backend = PerfBackend::new(&BackendKey::Hardware, 1_000_000, None).unwrap();
        backend.facts.gate = true;
        let refused = |backend: &PerfBackend, errno| backend.refused(&io::Error::from_raw_os_error(errno));
        assert_eq!(refused(&backend, libc::EINVAL), HostError::GateTooLarge);
        assert_ne!(refused(&backend, libc::EMFILE), HostError::GateTooLarge);
        backend.leave_gate();
        assert!(!backend.facts.gate && refused(&backend, libc::EINVAL) != HostError::GateTooLarge);
    }

    #[test]
    fn refusals_carry_their_remedy() {
        for (errno, remedy) in [
            (libc::EACCES, "paranoid"),
            (libc::ENOENT, "cpu-clock"),
            (libc::EMFILE, "ulimit -n"),
            (libc::EOPNOTSUPP, "mediated"),
        ] {
            let error = os("perf_event_open", &io::Error::from_raw_os_error(errno)).to_string();
            assert!(error.contains(remedy), "{error}");
        }
    }

    #[test]
    fn a_count_grows_with_the_time_since_its_anchor() {
        let mut anchors = Anchors(Vec::with_capacity(MAX_POOL + MAX_COUNTERS + 1));
        anchors.set(1, 1000, 50);
        anchors.set(2, 7, 60);
        assert_eq!([1, 2, 3].map(|id| anchors.count(id, 100)), [Some(1050), Some(47), None]);
        anchors.set(1, 2000, 100);
        assert_eq!(anchors.count(1, 100), Some(2000));
        assert_eq!(anchors.count(1, 99), None, "a record of the future has no count");
        assert_eq!(anchors.count(2, 61 + MOST_AGE), None, "too old");
        anchors.forget(1);
        assert_eq!([1, 2].map(|id| anchors.count(id, 100)), [None, Some(47)]);
        anchors.0.clear();
        assert_eq!(anchors.count(2, 100), None);
    }

    #[test]
    fn there_is_room_for_every_event_and_nothing_is_allocated_for_more() {
        let mut anchors = Anchors(Vec::with_capacity(MAX_POOL + MAX_COUNTERS + 1));
        let room = anchors.0.capacity() as u64;
        (0..room + 9).for_each(|id| anchors.set(id, id, 0));
        assert_eq!((anchors.0.capacity() as u64, anchors.count(room - 1, 0)), (room, Some(room - 1)));
        assert_eq!(anchors.count(room, 0), None);
    }
}
