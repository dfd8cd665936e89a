//! Report of a recording at its end.

use std::io::ErrorKind;
use std::path::Path;

use results::error::{Error, Exit};

use super::beside::KALLSYMS;
use super::layout::Kind;
use super::recorder::Recorded;
use super::spec::RecordSpec;

/// Formats the lines of the summary, and its warnings.
pub fn lines(recorded: &Recorded, spec: &RecordSpec, vcpus: usize) -> (Vec<String>, Vec<String>) {
    let counts = &recorded.counts;
    let to = if spec.is_pipe() { "stdout".to_owned() } else { spec.output.display().to_string() };
    let of_event = |event: usize| counts.by_event.get(event).copied().unwrap_or(0);
    let events = &spec.sampling.event;
    let names: Vec<_> = match &events[..] {
        [event] => vec![event.to_string()],
        events => events.iter().enumerate().map(|(n, event)| format!("{event} ({})", of_event(n))).collect(),
    };
    let of = |part: u64, whole: u64| 100.0 * part as f64 / whole.max(1) as f64;
    let taken = match recorded.file.samples {
        written if written < counts.samples => format!("{written} of {}", counts.samples),
        _ => counts.samples.to_string(),
    };
    let mut lines = vec![format!(
        "recorded {taken} samples of {} on {vcpus} vCPUs in {to}: {} KiB{}{}",
        names.join(", "),
        recorded.file.bytes.div_ceil(1024),
        if spec.writing().level > 0 {
            format!(", compressed {:.1}:1 at level {}", recorded.file.ratio, spec.writing().level)
        } else {
            String::new()
        },
        spec.aio.map_or_else(String::new, |writes| format!(", written by a thread, {writes} ahead of it"))
    )];
    if counts.at_exit > 0 {
        lines.push(format!(
            "{:.1} % of the samples fell into the host's handling of an exit: they are at the instruction that made it",
            of(counts.at_exit, counts.samples)
        ));
    }
    if spec.chains {
        let part = |at: usize, what: &str| {
            let whole = counts.parts[at];
            (whole > 0).then(|| format!("{:.2} % of {whole} {what}", of(counts.complete[at], whole)))
        };
        let parts: Vec<_> =
            [part(0, "chains at level 0"), part(1, "chains at level 3")].into_iter().flatten().collect();
        if !parts.is_empty() {
            lines.push(format!("complete: {}", parts.join(", ")));
        }
        if counts.no_table > 0 {
            lines.push(format!(
                "{} chains broke at code of the kernel without an unwind table, as of its modules",
                counts.no_table
            ));
        }
    }
    let mut warnings = warnings(recorded);
    if counts.at_exit * 2 > counts.samples {
        warnings.push(
            "most samples fell into the VMM: sampling leaves the guest little time; sample less often".to_owned(),
        );
    }
    (lines, warnings)
}

fn warnings(recorded: &Recorded) -> Vec<String> {
    let counts = &recorded.counts;
    let mut warnings = Vec::new();
    let [ours, kernels] = counts.lost;
    if ours + kernels > 0 {
        warnings.push(format!(
            "{} samples were lost ({ours} since the recorder was late, {kernels} since the kernel's ring was full): sample less often",
            ours + kernels
        ));
    }
    if counts.throttled > 0 {
        let often = "sysctl kernel.perf_event_max_sample_rate, kernel.perf_cpu_time_max_percent";
        warnings.push(format!(
            "the kernel throttled an event {} times: sample less often, or raise {often}",
            counts.throttled
        ));
    }
    if counts.samples == 0 {
        warnings.push(
            "no sample was taken: the guest ran for less than a period, slept all the time, or the event does not happen"
                .to_owned(),
        );
    }
    if recorded.file.given_up > 0 {
        warnings.push(format!(
            "{} bytes of the last records are not in the file: there was no room for them and the file's features",
            recorded.file.given_up
        ));
    }
    warnings
}

/// Returns the exit code where nothing failed: the guest's own.
pub fn exit(recorded: &Recorded, guest: Exit) -> Exit {
    match guest {
        // The recording's end is not the guest's failure.
        Exit::Inconclusive if recorded.by_duration && recorded.failed.is_none() => Exit::Done,
        // The reader of the pipe left before the end of the guest.
        Exit::Done if recorded.failed.is_some() => Exit::Inconclusive,
        exit => exit,
    }
}

/// Builds the error of a recording that ended early, unless its reader just left.
pub fn error(recorded: &Recorded, output: &Path) -> Option<Error> {
    let error = recorded.failed.as_ref().filter(|error| error.kind() != ErrorKind::BrokenPipe)?;
    let what = format!("the recording {} ended early", output.display());
    let remedy = "what was written before that is readable, later samples are gone; make room, and record again";
    Some(Error::output(what, error, remedy))
}

/// Returns the commands that show a recording.
pub fn commands(spec: &RecordSpec, kind: Kind) -> Option<String> {
    let kallsyms = spec.beside(KALLSYMS);
    let names = if kind == Kind::Task { String::new() } else { format!("--kallsyms {} ", kallsyms.display()) };
    match kind {
        _ if !spec.is_pipe() => Some(format!("look at it: perf report {names}-i {}", spec.output.display())),
        Kind::Task => None,
        Kind::Host => Some(format!("names of the guest's kernel, if it has --run: {}", kallsyms.display())),
    }
}

#[cfg(test)]
mod tests {
    use perf_data::writer::Summary;

    use super::super::recorder::Counts;
    use super::*;

    fn recorded(failed: Option<ErrorKind>, by_duration: bool) -> Recorded {
        Recorded { file: Summary::default(), counts: Counts::default(), failed: failed.map(Into::into), by_duration }
    }

    #[test]
    fn a_reader_that_left_is_no_whole_recording_and_a_full_disk_is_an_error() {
        let of = |failed: Option<ErrorKind>, by_duration, guest| exit(&recorded(failed, by_duration), guest);
        let left = Some(ErrorKind::BrokenPipe);
        assert_eq!(of(None, false, Exit::Done), Exit::Done);
        assert_eq!(of(left, false, Exit::Done), Exit::Inconclusive);
        assert_eq!(of(None, true, Exit::Inconclusive), Exit::Done);
        assert_eq!(of(left, true, Exit::Inconclusive), Exit::Inconclusive);
        assert_eq!(of(left, false, Exit::Guest(7)), Exit::Guest(7));
        let of = |kind: ErrorKind| error(&recorded(Some(kind), false), Path::new("x"));
        assert_eq!(of(ErrorKind::StorageFull).unwrap().exit, Exit::Host);
        assert!(of(ErrorKind::BrokenPipe).is_none());
    }
}
