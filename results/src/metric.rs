//! The metrics that documents hold.
//!
//! A new metric is an entry of `metrics!`. Reading, comparison, history, exports and the report take
//! every metric of a document, those that this table lacks included.

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
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Metric {
    /// Its key in documents. The suffix names the unit.
    pub key: &'static str,
    /// Its name in tables and plots.
    pub name: &'static str,
    /// Description of the measured interval, from start to end.
    pub about: &'static str,
    /// True if it represents an arm where there is room for one metric only. A comparison judges it; others are shown if asked for.
    pub headline: bool,
}

/// Defines a constant for each metric, and [`ALL`] in this order: key, name, meaning.
macro_rules! metrics {
    ($($name:ident: $key:literal, $shown:literal, $about:literal, headline $headline:literal;)*) => {
        $(
            #[doc = concat!("Metric `", $key, "`: ", $shown, ".")]
            pub const $name: Metric = Metric { key: $key, name: $shown, about: $about, headline: $headline };
        )*
        /// Every metric. The first headline metric that an arm has represents it.
        pub const ALL: [&Metric; 11] = [$(&$name),*];
    };
}

metrics! {
    HOST_WORK: "host_work_ns", "host work",
        "a trace replayed on a model: exits, the VMM, operations and switches from one PMI to the next (without PMIs: from one start of \
         counters)", headline true;
    NMI_HANDLER: "nmi_handler_ns", "guest NMI handler latency",
        "guest NMI handler that re-armed a counter, entry to exit", headline true;
    SET_UP: "set_up_ns", "guest set-up time",
        "one set-up of all events in the guest: program, enable, read, disable", headline true;
    ROTATION: "rotation_ns", "guest rotation latency",
        "guest rotation of multiplexed events, or stop and restart at a task switch", headline true;
    TOTAL: "total_ns", "set-up and tear-down time",
        "all phases of a set-up on the host, open to close", headline true;
    TO_COUNTS: "to_counts_ns", "time to counts",
        "from the first open to the last count read", headline false;
    ELAPSED: "elapsed_ns", "time of the command",
        "a command, from its start to its end", headline true;
    SIGNAL: "signal_ns", "signal latency",
        "from the host's record of an overflow (simulated floor: its timer's due time) to the VMM seeing it", headline false;
    PMI_DELIVERY: "pmi_delivery_ns", "PMI delivery latency",
        "from the VMM seeing an overflow to the handler's entry", headline false;
    EXIT_PATH: "exit_path_ns", "VMM time per MSR exit",
        "VMM time from KVM_RUN's return at an MSR exit to the next KVM_RUN", headline false;
    // The guest's driver was off.
    NMI_DRIVER_OFF: "nmi_driver_off_ns", "latency of NMIs that re-armed nothing",
        "guest NMI handler that re-armed no counter, as the guest's driver was off, entry to exit", headline false;
}
