//! Numbers of tracepoints.

use std::io::ErrorKind;
use std::path::Path;

/// Mount points of tracefs.
const PLACES: [&str; 2] = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];

/// The number of a tracepoint.
///
/// # Errors
/// Why it has none here.
pub(super) fn id(group: &str, name: &str) -> Result<u64, String> {
    id_in(&PLACES.map(Path::new), group, name)
}

fn id_in(places: &[&Path], group: &str, name: &str) -> Result<u64, String> {
    let mut why = format!("no tracefs at {}", PLACES[0]);
    for events in places.iter().map(|place| place.join("events")) {
        let file = events.join(group).join(name).join("id");
        match std::fs::read_to_string(&file) {
            Ok(text) => {
                return text.trim().parse().map_err(|_| format!("{} has no number", file.display()));
            }
            Err(error) if error.kind() == ErrorKind::NotFound && events.is_dir() => {
                "this kernel has no such tracepoint".clone_into(&mut why);
            }
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            // The reason is the same for all, so that they are named together.
            Err(error) => why = format!("{}: {error}", events.display()),
        }
    }
    Err(why)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tracepoint_has_a_number_or_a_reason() {
        let found = std::env::temp_dir().join(format!("vpmu-triage-{}", std::process::id()));
        let point = found.join("events/sched/sched_switch");
        std::fs::create_dir_all(&point).unwrap();
        std::fs::write(point.join("id"), "316\n").unwrap();
        assert_eq!(id_in(&[&found], "sched", "sched_switch"), Ok(316));
        assert!(id_in(&[&found], "kvm", "kvm_exit").unwrap_err().contains("no such tracepoint"));
        std::fs::write(point.join("id"), "x").unwrap();
        assert!(id_in(&[&found], "sched", "sched_switch").unwrap_err().contains("no number"));
        std::fs::remove_dir_all(&found).unwrap();
        assert!(id_in(&[&found], "kvm", "kvm_exit").unwrap_err().contains("no tracefs"));
    }
}
