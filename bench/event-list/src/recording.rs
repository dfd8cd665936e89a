//! Events to record a guest by.

use host_pmu::sampler::SampledEvent;
use serde::Serialize;
use vmm::sample::Event;

use super::price::Price;

/// An event of `vpmu record -e`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RecordingEvent {
    /// Its name.
    pub name: String,
    /// Description of the event.
    pub about: String,
    /// Reason why it does not open here.
    pub refused: Option<String>,
    /// Cost of creating one; none for events that the VMM itself sees.
    pub price: Option<Price>,
}

/// Events whose cost is measured.
const TIMES: usize = 17;
/// Tracepoints are slow to open and close, so try fewer.
const TRACEPOINT_TRIES: usize = 3;

/// perf's spelling of the host PMU's own events.
const RAW: &str = "rHEX";

/// Lists events with such names, except tracepoints, tried on the calling thread.
#[must_use]
pub fn events(named: impl Fn(&str) -> bool) -> Vec<RecordingEvent> {
    let host = SampledEvent::named().filter(|name| named(name)).map(|name| of_host(name, about(name), TIMES));
    let raw = named(RAW).then(|| RecordingEvent {
        name: RAW.to_owned(),
        about: "the host PMU's own event: umask and event in hexadecimal, as perf's rNNN; in guest mode only"
            .to_owned(),
        ..of_host("r0", "", 1)
    });
    let own = Event::of_vmm().filter(|(name, _)| named(name)).map(|(name, about)| RecordingEvent {
        name: name.to_owned(),
        about: about.to_owned(),
        refused: None,
        price: None,
    });
    host.chain(raw).chain(own).collect()
}

/// Returns their names; nothing is tried.
pub fn names() -> impl Iterator<Item = &'static str> {
    SampledEvent::named().chain([RAW]).chain(Event::of_vmm().map(|(name, _)| name))
}

/// Describes a tracepoint, with its cost.
#[must_use]
pub fn tracepoint(name: &str) -> RecordingEvent {
    of_host(name, "occurrences on the vCPU's thread", TRACEPOINT_TRIES)
}

fn about(name: &str) -> &'static str {
    match name {
        "cpu-clock" => "ns that the vCPU's thread runs, in the guest and in the host for it",
        "task-clock" => "the same by the task's clock",
        _ => "by the host's PMU, in guest mode only",
    }
}

fn of_host(name: &str, about: &str, times: usize) -> RecordingEvent {
    let costs = name.parse::<SampledEvent>().and_then(|event| event.costs(times));
    let (refused, price) = match costs {
        Ok(costs) => (None, Price::of(&costs)),
        Err(why) => (Some(why), None),
    };
    RecordingEvent { name: name.to_owned(), about: about.to_owned(), refused, price }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_name_is_one_that_record_takes() {
        let all = events(|_| true);
        assert!(names().eq(all.iter().map(|event| event.name.as_str())));
        assert_eq!(events(|name| name == "pmi").len(), 1);
        for event in all {
            assert!(event.name == RAW || event.name.parse::<Event>().is_ok(), "{event:?}");
            assert!(!event.about.is_empty() && (event.refused.is_none() || event.price.is_none()), "{event:?}");
        }
        let missing = tracepoint("kvm:no_such_event");
        assert!(missing.refused.is_some() && missing.price.is_none());
    }
}
