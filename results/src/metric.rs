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

/// Direction in which values are better.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Better {
    /// Smaller values.
    Lower,
    /// Larger values.
    Higher,
}

/// A quantity that experiments measure many times per round.
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
    /// Direction in which values are better.
    pub better: Better,
    /// True if it represents an arm where there is room for one metric only. A comparison judges it; others are shown if asked for.
    pub headline: bool,
}

/// Time of a command.
pub const ELAPSED: Metric = Metric {
    key: "elapsed_ns",
    unit: "ns",
    name: "time of the command",
    about: "a command, from its start to its end",
    experiments: &["record-compression", "record-overhead", "stat-setup"],
    better: Better::Lower,
    headline: true,
};

/// Processor time of a command.
pub const PROCESSOR: Metric = Metric {
    key: "processor_ns",
    unit: "ns",
    name: "processor time of the command",
    about: "user and system time of a command and all that it started",
    experiments: &["record-compression", "record-overhead"],
    better: Better::Lower,
    headline: false,
};

/// VMM time per MSR exit.
pub const EXIT_PATH: Metric = Metric {
    key: "exit_path_ns",
    unit: "ns",
    name: "VMM time per MSR exit",
    about: "VMM time from KVM_RUN's return at an MSR exit to the next KVM_RUN",
    experiments: &["nmi-latency", "guest-stat"],
    better: Better::Lower,
    headline: false,
};

/// The host's work for a trace that is replayed.
pub const HOST_WORK: Metric = Metric {
    key: "host_work_ns",
    unit: "ns",
    name: "host work",
    about: "a trace replayed on a model: exits, the VMM, operations and switches from one PMI to the next (without PMIs: from one start of \
            counters)",
    experiments: &["nmi-latency"],
    better: Better::Lower,
    headline: true,
};

/// Latency of the guest's NMI handler where it re-armed nothing.
pub const NMI_DRIVER_OFF: Metric = Metric {
    key: "nmi_driver_off_ns",
    unit: "ns",
    name: "latency of NMIs that re-armed nothing",
    about: "guest NMI handler that re-armed no counter, as the guest's driver was off, entry to exit",
    experiments: &["nmi-latency"],
    better: Better::Lower,
    headline: false,
};

/// Latency of the guest's NMI handler.
pub const NMI_HANDLER: Metric = Metric {
    key: "nmi_handler_ns",
    unit: "ns",
    name: "guest NMI handler latency",
    about: "guest NMI handler that re-armed a counter, entry to exit",
    experiments: &["nmi-latency"],
    better: Better::Lower,
    headline: true,
};

/// Latency of PMI delivery.
pub const PMI_DELIVERY: Metric = Metric {
    key: "pmi_delivery_ns",
    unit: "ns",
    name: "PMI delivery latency",
    about: "from the VMM seeing an overflow to the handler's entry",
    experiments: &["nmi-latency"],
    better: Better::Lower,
    headline: false,
};

/// Latency of the guest's rotation.
pub const ROTATION: Metric = Metric {
    key: "rotation_ns",
    unit: "ns",
    name: "guest rotation latency",
    about: "guest rotation of multiplexed events, or stop and restart at a task switch",
    experiments: &["nmi-latency"],
    better: Better::Lower,
    headline: true,
};

/// Time of a whole set-up inside the guest.
pub const SET_UP: Metric = Metric {
    key: "set_up_ns",
    unit: "ns",
    name: "guest set-up time",
    about: "one set-up of all events in the guest: program, enable, read, disable",
    experiments: &["guest-stat"],
    better: Better::Lower,
    headline: true,
};

/// Latency of the host's signals.
pub const SIGNAL: Metric = Metric {
    key: "signal_ns",
    unit: "ns",
    name: "signal latency",
    about: "from the host's record of an overflow (floor: its timer's due time) to the VMM seeing it",
    experiments: &["nmi-latency", "guest-stat"],
    better: Better::Lower,
    headline: false,
};

/// Time until the counts are there.
pub const TO_COUNTS: Metric = Metric {
    key: "to_counts_ns",
    unit: "ns",
    name: "time to counts",
    about: "from the first open to the last count read",
    experiments: &["stat-setup"],
    better: Better::Lower,
    headline: false,
};

/// Time of a whole set-up on the host.
pub const TOTAL: Metric = Metric {
    key: "total_ns",
    unit: "ns",
    name: "set-up and tear-down time",
    about: "all phases of a set-up on the host, open to close",
    experiments: &["stat-setup"],
    better: Better::Lower,
    headline: true,
};
