//! Time of a whole set-up inside the guest.

use super::kind::{Better, Metric};

/// Time of a whole set-up inside the guest.
pub const SET_UP: Metric = Metric {
    key: "set_up_ns",
    unit: "ns",
    name: "guest set-up time",
    about: "one set-up of all events in the guest: program, enable, read, disable",
    experiments: &["guest-stat"],
    better: Better::Lower,
    headline: true,
    judged: true,
};
