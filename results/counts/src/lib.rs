//! The counts of a vCPU: one struct that the vCPU fills and that the run's outcome, the round and the result document contain.
//!
//! A new count is one entry of [`Counts`] and the place that counts. Its sum over vCPUs and rounds, its key in
//! documents, its column of rounds and its place in the JSON Schema follow.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize, Serializer};

/// Folds a count of another vCPU or round into one that adds up.
const fn sum(all: u64, one: u64) -> u64 {
    all.saturating_add(one)
}

/// Folds a count of another vCPU or round into one of which the most counts.
const fn max(all: u64, one: u64) -> u64 {
    if all > one { all } else { one }
}

/// Defines [`Counts`] and [`CountColumns`]. An entry has its meaning, its name, and `sum` or `max` over vCPUs and
/// rounds. `within` names the field of a document that is made of it, in place of a key of its own; `by round` is the
/// meaning of its column of rounds.
macro_rules! counts {
    ($( $(#[$meta:meta])* $name:ident: $fold:ident $(, within $within:literal)? $(, by round $by_round:literal)?; )*) => {
        /// Counts of a vCPU, a round or an arm. Plain numbers, so that counting is an addition.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
        #[serde(default)]
        pub struct Counts {
            $(
                $(#[$meta])*
                $( #[doc = concat!("Documents have it within ", $within, ".")] #[serde(skip)] )?
                pub $name: u64,
            )*
        }

        impl Counts {
            /// Adds the counts of another part of the vCPU, of another vCPU or of another round.
            pub const fn merge(&mut self, other: &Self) {
                $( self.$name = $fold(self.$name, other.$name); )*
            }

            /// Returns the counts that have a key of their own in documents, the others being 0.
            pub const fn written(mut self) -> Self {
                $( $( let _ = $within; self.$name = 0; )? )*
                self
            }
        }

        /// Counts by round, a column a count. In a document a column has a value a round, or one value that stands for all rounds.
        #[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
        pub struct CountColumns {
            $( $(
                #[doc = $by_round]
                #[serde(default, skip_serializing_if = "Vec::is_empty", serialize_with = "column")]
                pub $name: Vec<u64>,
            )? )*
        }

        impl CountColumns {
            /// Adds a round.
            pub fn push(&mut self, round: &Counts) {
                $( $( let _ = $by_round; self.$name.push(round.$name); )? )*
            }
        }
    };
}

/// Returns whether a document leaves the count out.
pub const fn none(count: &u64) -> bool {
    *count == 0
}

/// Writes a column of rounds, or its one value where all of them are equal.
///
/// # Errors
/// Returns the errors of the serializer.
pub fn column<T: Serialize + PartialEq, S: Serializer>(column: &[T], serializer: S) -> Result<S::Ok, S::Error> {
    match column {
        [first, others @ ..] if others.iter().all(|other| other == first) => [first].serialize(serializer),
        _ => column.serialize(serializer),
    }
}

counts! {
    // The vPMU and the delivery of its PMIs.

    /// Overflows of counters seen by the VMM (counters, not signals).
    overflows: sum, by round "Host-event overflows seen by the VMM.";
    /// Overflows of counters with INT: each asks for a PMI, several may share one.
    pmi_requests: sum;
    /// Overflows whose counter had an earlier one that the guest had not acknowledged: a driver sees one.
    #[serde(skip_serializing_if = "none")]
    status_shared: sum;
    /// PMIs delivered, in any delivery mode.
    pmis: sum;
    /// PMIs delivered as NMI by the VMM.
    nmis_injected: sum, within "`nmis_delivered`, where the VMM delivers them";
    /// PMIs dropped by LVTPC's mask or a local APIC that is off, as on hardware (the STATUS bit stays).
    masked: sum;
    /// PMIs that met LVTPC masked by the delivery of an earlier one.
    #[serde(skip_serializing_if = "none")]
    deferred: sum;
    /// Deferred PMIs delivered once the guest had unmasked LVTPC: their overflow was still in STATUS.
    #[serde(skip_serializing_if = "none")]
    deferred_delivered: sum;
    /// Deferred PMIs without a delivery of their own: the overflow was acknowledged by then, the next delivery's
    /// handler found it, the local APIC was switched off, or LVTPC was no longer that of the delivery. The rest,
    /// besides one that is still deferred, is among the `undeliverable`.
    #[serde(skip_serializing_if = "none")]
    deferred_dropped: sum;
    /// PMIs that found the NMI of an earlier one still pending, on a guest's processor whose deliveries do not mask LVTPC.
    #[serde(skip_serializing_if = "none")]
    merged: sum;
    /// PMIs with a delivery mode that the VMM does not know.
    undeliverable: sum;
    /// Deliveries in xAPIC mode: they write the APIC's page back, and may have lost or repeated a tick of its timer.
    ticks_uncertain: sum, within "nothing: the guests of experiments are in x2APIC mode";
    /// RDPMCs of an image that were rewritten and answered.
    rdpmcs: sum, within "nothing: images have no document";
    /// RDMSRs with an index of RDPMC that were #GP, as they were at no rewritten site: a rewritten RDPMC that was copied.
    rdpmcs_elsewhere: sum, within "nothing: images have no document";

    // The host side.

    /// Guest entries.
    entries: sum;
    /// New sched slices noticed at an entry.
    sched_ins: sum;
    /// Resumes served by a parked event.
    reused: sum;
    /// Periods the host refused.
    refused_periods: sum;
    /// Opens that failed.
    failed_opens: sum;
    /// Pinned events found in error state: the host had no counter for them.
    pinned_errors: sum;
    /// Most host events held at once by one vCPU.
    held_max: max, within "`events_held.max`";
    /// Overflow signals that reached the vCPU's thread.
    signals: sum;
    /// Kicks that found no overflow (merged, stale or early signals).
    empty_kicks: sum;
    /// Throttle records.
    throttled: sum;
    /// Runs of a vCPU in which the host's records of some event did not reach the VMM, so that `throttled` may be too low.
    #[serde(skip_serializing_if = "none")]
    blind: sum;
    /// Runs of a vCPU whose gate fell apart to single events, in this run or before: they did not get the host's counters together.
    #[serde(skip_serializing_if = "none")]
    ungated: sum;
    /// Settings of the floor's timer: at most one a PMI, and a few at starts of counters.
    #[serde(skip_serializing_if = "none")]
    timer_calls: sum;
    /// Host events opened.
    opens: sum, within "`host_ops.open`", by round "Host events opened.";
    /// Events opened behind fixed counters.
    #[serde(skip_serializing_if = "none")]
    opens_fixed: sum, by round "Of the opens, those behind fixed counters.";
    /// Host events still held at the end.
    held_at_end: sum, within "`events_held.at_end`", by round "Host events still held at the end.";
    /// Host events held × ns, over `time_ns`.
    held_ns: sum, within "`events_held.time_mean`";
    /// Time in which events could be held, ns.
    time_ns: sum, within "`events_held.time_mean`";

    // The guest's report and log.

    /// NMIs the guest took.
    nmis: sum, by round "NMIs the guest took.";
    /// NMIs among them with no STATUS bit set.
    nmis_without_status: sum;
    /// NMIs that re-armed no counter, mostly as they met the guest's driver switched off: in `nmi_driver_off_ns`, not in
    /// `nmi_handler_ns`.
    nmis_driver_off: sum;
    /// Overflows seen by the guest's driver.
    guest_overflows: sum;
    /// Guest log entries that did not fit.
    log_dropped: sum;
    /// Accesses of a trace that the guest played back.
    #[serde(skip_serializing_if = "none")]
    played: sum;
    /// PMIs of the trace that did not come in time: their handlers' accesses were played without.
    #[serde(skip_serializing_if = "none")]
    pmis_absent: sum;
    /// Values of counters that were read otherwise than the trace has them: they count this run's time.
    #[serde(skip_serializing_if = "none")]
    counters_otherwise: sum;
    /// Values of other registers that were read otherwise than the trace has them.
    #[serde(skip_serializing_if = "none")]
    values_otherwise: sum;
    /// Guest log entries that make no sense (exit before entry).
    log_invalid: sum;

    // Both sides compared.

    /// The part of `lost` that was taken and not delivered.
    #[serde(skip_serializing_if = "none")]
    surplus: sum;
    /// Periods that the guest's events counted without an overflow of their own: count ÷ period less overflows, by event, vCPU and
    /// guest. The host reported an overflow late by a period or more, or never.
    #[serde(skip_serializing_if = "none")]
    periods_missed: sum;
    /// vCPU runs whose deliveries could not be matched to handler entries.
    delivery_unmatched: sum;
    /// Handler entries before their delivery by more than the TSC offset's uncertainty.
    delivery_negative: sum;
    /// Largest uncertainty of the TSC offset.
    tsc_uncertainty_ns: max;
}

impl Counts {
    /// Returns the number of overflows by which a driver that handled `handled` differs from the vPMU. Overflows of
    /// counters without INT ask for no PMI, so that the driver may or may not see them.
    pub const fn overflows_lost(&self, handled: u64) -> u64 {
        let least = self.pmi_requests.saturating_sub(self.status_shared);
        let (missed, surplus) = (least.saturating_sub(handled), handled.saturating_sub(self.overflows));
        if missed > surplus { missed } else { surplus }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_driver_may_leave_out_overflows_that_ask_for_no_pmi() {
        let counts = Counts { overflows: 10, pmi_requests: 7, ..Counts::default() };
        assert_eq!([5, 7, 8, 10, 13].map(|handled| counts.overflows_lost(handled)), [2, 0, 0, 0, 3]);
        let shared = Counts { status_shared: 1, ..counts };
        assert_eq!([5, 6, 13].map(|handled| shared.overflows_lost(handled)), [1, 0, 3], "two in one STATUS bit");
    }

    #[test]
    fn counts_are_summed_written_and_read_back_by_their_entries() {
        let mut all = Counts { overflows: u64::MAX, deferred: 1, held_max: 5, opens: 2, ..Counts::default() };
        all.merge(&Counts { overflows: 1, deferred: 2, held_max: 4, opens: 3, ..Counts::default() });
        let wanted = Counts { overflows: u64::MAX, deferred: 3, held_max: 5, opens: 5, ..Counts::default() };
        assert_eq!(all, wanted, "no sum wraps around");
        let text = serde_json::to_string(&all).unwrap();
        assert!(text.contains("\"deferred\":3") && text.contains("\"masked\":0"), "{text}");
        assert!(!["deferred_delivered", "\"opens\"", "held_max"].iter().any(|key| text.contains(key)), "{text}");
        assert_eq!(serde_json::from_str::<Counts>(&text).unwrap(), all.written());
        assert_eq!(all.written(), Counts { held_max: 0, opens: 0, ..all });
    }
}
