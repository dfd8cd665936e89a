//! The mode of a vCPU whose guest has SVM, on which its Guest-Only and Host-Only counters depend.
//!
//! Writes of EFER exit and show SVME. KVM itself enters and leaves the guest's guests: tracepoints in both paths signal the
//! vCPU's thread, so that KVM_RUN ends before an instruction of the other mode. That costs a return to userspace each
//! time, and is on only while a counter depends on it.

use std::io;

use host_pmu::sampler::{Rate, SampledEvent, Sampler};
use kvm_bindings::KVM_STATE_NESTED_GUEST_MODE;
use kvm_bindings::nested::KvmNestedStateBuffer;
use kvm_ioctls::VcpuFd;

/// KVM's tracepoint of an entry, by its name since Linux 6.3 and the one before, and that of an exit.
const ENTRIES: [&str; 2] = ["kvm:kvm_nested_vmenter", "kvm:kvm_nested_vmrun"];
const EXIT: &str = "kvm:kvm_nested_vmexit_inject";

/// Signals of a kick that were of transitions, and the mode after the last of them.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Seen {
    pub(crate) transitions: u64,
    /// Times that the kernel stopped reporting them for the rest of a tick.
    pub(crate) throttled: u64,
    pub(crate) guest: Option<bool>,
}

/// The transitions of one vCPU.
pub(crate) struct Nested {
    /// The tracepoints, or why they do not open here, which matters once a counter depends on them.
    events: Result<Sampler, String>,
    state: Box<KvmNestedStateBuffer>,
    watched: bool,
    /// Signals that are in no account yet.
    signals: u64,
}

impl Nested {
    /// Opens the tracepoints on the calling thread, which may open no file later.
    pub(crate) fn open() -> Self {
        let open = |entry: &str| {
            let events = Sampler::open(&[entry.parse()?, EXIT.parse::<SampledEvent>()?], Rate::Period(1))?;
            events.set_enabled(false).map_err(|error| error.to_string()).map(|()| events)
        };
        let events = open(ENTRIES[0]).or_else(|_| open(ENTRIES[1]));
        Self { events, state: Box::default(), watched: false, signals: 0 }
    }

    /// Watches the transitions if a counter `depends` on them and none did. Returns the mode then.
    pub(crate) fn watch(&mut self, fd: &VcpuFd, depends: bool) -> io::Result<Option<bool>> {
        if !depends || self.watched {
            return Ok(None);
        }
        let events = self.events.as_ref().map_err(|why| io::Error::other(why.clone()))?;
        events.set_enabled(true)?;
        self.watched = true;
        self.guest_mode(fd).map(Some)
    }

    /// Returns what came since the last call. Transitions on which no counter `depends` are no longer watched.
    pub(crate) fn take(&mut self, fd: &VcpuFd, depends: bool) -> io::Result<Seen> {
        let Ok(events) = &mut self.events else { return Ok(Seen::default()) };
        let taken = events.take(|_| (), |_, _| ());
        if taken.overflows + taken.throttled == 0 {
            return Ok(Seen::default());
        }
        self.signals += taken.overflows;
        if !depends {
            self.watched = false;
            events.set_enabled(false)?;
        }
        let guest = self.guest_mode(fd)?;
        Ok(Seen { transitions: taken.overflows, throttled: taken.throttled, guest: Some(guest) })
    }

    /// Takes the number of signals that came.
    pub(crate) const fn take_signals(&mut self) -> u64 {
        std::mem::replace(&mut self.signals, 0)
    }

    fn guest_mode(&mut self, fd: &VcpuFd) -> io::Result<bool> {
        self.state.size = size_of::<KvmNestedStateBuffer>() as u32;
        fd.nested_state(&mut self.state).map_err(|error| io::Error::from_raw_os_error(error.errno()))?;
        Ok(u32::from(self.state.flags) & KVM_STATE_NESTED_GUEST_MODE != 0)
    }
}
