//! The metrics that documents hold.
//!
//! A new metric is a [`Metric`] and a row of [`ALL`]. Reading, comparison, history, exports and the report take
//! every metric of a document, those that this table lacks included.

use serde::Serialize;

/// Every metric. The first headline metric that an arm has represents it.
pub const ALL: [&Metric; 12] = [
    &HOST_WORK,
    &NMI_HANDLER,
    &SET_UP,
    &ROTATION,
    &TOTAL,
    &TO_COUNTS,
    &ELAPSED,
    &PROCESSOR,
    &SIGNAL,
    &PMI_DELIVERY,
    &EXIT_PATH,
    &NMI_DRIVER_OFF,
];

/// Returns the metric of that key.
pub fn find(key: &str) -> Option<&'static Metric> {
    ALL.into_iter().find(|metric| metric.key == key)
}

/// Returns whether a comparison judges it without being asked: a headline metric, of an arm of a side, too, as `floor/nmi_handler_ns`;
/// and a time that is not known, but for phases.
pub fn is_main(key: &str) -> bool {
    let (of, last) = split(key);
    find(last).map_or(of.is_empty() && key.ends_with("_ns"), |metric| metric.headline)
}

/// Splits a key of an arm of a side, as `floor/nmi_handler_ns`.
fn split(key: &str) -> (&str, &str) {
    key.rsplit_once('/').unwrap_or(("", key))
}

/// Returns the name of a metric in tables and plots: that of [`ALL`], else made from its key.
pub fn name(key: &str) -> String {
    let (of, last) = split(key);
    let words = |key: &str| key.replace(['_', '/'], " ");
    match (find(last), key.strip_suffix("_ns")) {
        (Some(metric), _) if of.is_empty() => metric.name.to_owned(),
        (Some(metric), _) => format!("{} of {of}", metric.name),
        (None, Some(time)) => words(time) + " time",
        (None, None) => words(key),
    }
}

/// A time that experiments measure many times per round; smaller is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Metric {
    /// Its key in documents. The suffix names the unit.
    pub key: &'static str,
    /// Its unit.
    pub unit: &'static str,
    /// Its name in tables and plots.
    pub name: &'static str,
    /// Description of the measured interval, from start to end.
    pub about: &'static str,
    /// The experiments that measure it.
    pub experiments: &'static [&'static str],
    /// True if it represents an arm where there is room for one metric only. A comparison judges it; others are shown if asked for.
    pub headline: bool,
}

impl Metric {
    const fn new(
        key: &'static str,
        name: &'static str,
        about: &'static str,
        experiments: &'static [&'static str],
    ) -> Self {
        Self { key, unit: "ns", name, about, experiments, headline: false }
    }

    const fn headline(self) -> Self {
        Self { headline: true, ..self }
    }
}

/// Time of a command.
pub const ELAPSED: Metric = Metric::new(
    "elapsed_ns",
    "time of the command",
    "a command, from its start to its end",
    &["record-compression", "record-overhead", "stat-setup"],
)
.headline();

/// Processor time of a command.
pub const PROCESSOR: Metric = Metric::new(
    "processor_ns",
    "processor time of the command",
    "user and system time of a command and all that it started",
    &["record-compression", "record-overhead"],
);

/// VMM time per MSR exit.
pub const EXIT_PATH: Metric = Metric::new(
    "exit_path_ns",
    "VMM time per MSR exit",
    "VMM time from KVM_RUN's return at an MSR exit to the next KVM_RUN",
    &["nmi-latency", "guest-stat"],
);

/// The host's work for a trace that is replayed.
pub const HOST_WORK: Metric =
    Metric::new("host_work_ns", "host work", "a trace replayed on a model: exits, the VMM, operations and switches from one PMI to the next (without PMIs: from one start of \
            counters)", &["nmi-latency"]).headline();

/// Latency of the guest's NMI handler where it re-armed nothing.
pub const NMI_DRIVER_OFF: Metric = Metric::new(
    "nmi_driver_off_ns",
    "latency of NMIs that re-armed nothing",
    "guest NMI handler that re-armed no counter, as the guest's driver was off, entry to exit",
    &["nmi-latency"],
);

/// Latency of the guest's NMI handler.
pub const NMI_HANDLER: Metric = Metric::new(
    "nmi_handler_ns",
    "guest NMI handler latency",
    "guest NMI handler that re-armed a counter, entry to exit",
    &["nmi-latency"],
)
.headline();

/// Latency of PMI delivery.
pub const PMI_DELIVERY: Metric = Metric::new(
    "pmi_delivery_ns",
    "PMI delivery latency",
    "from the VMM seeing an overflow to the handler's entry",
    &["nmi-latency"],
);

/// Latency of the guest's rotation.
pub const ROTATION: Metric = Metric::new(
    "rotation_ns",
    "guest rotation latency",
    "guest rotation of multiplexed events, or stop and restart at a task switch",
    &["nmi-latency"],
)
.headline();

/// Time of a whole set-up inside the guest.
pub const SET_UP: Metric = Metric::new(
    "set_up_ns",
    "guest set-up time",
    "one set-up of all events in the guest: program, enable, read, disable",
    &["guest-stat"],
)
.headline();

/// Latency of the host's signals.
pub const SIGNAL: Metric = Metric::new(
    "signal_ns",
    "signal latency",
    "from the host's record of an overflow (floor: its timer's due time) to the VMM seeing it",
    &["nmi-latency", "guest-stat"],
);

/// Time until the counts are there.
pub const TO_COUNTS: Metric =
    Metric::new("to_counts_ns", "time to counts", "from the first open to the last count read", &["stat-setup"]);

/// Time of a whole set-up on the host.
pub const TOTAL: Metric = Metric::new(
    "total_ns",
    "set-up and tear-down time",
    "all phases of a set-up on the host, open to close",
    &["stat-setup"],
)
.headline();
