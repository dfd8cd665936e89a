//! Report of a recording at its end.

use std::io::ErrorKind;
use std::path::Path;

use results::error::{Error, Exit};

use super::recorder::Recorded;
use super::spec::RecordSpec;

/// Formats the lines of the summary, and its warnings.
pub fn lines(recorded: &Recorded, spec: &RecordSpec, vcpus: usize) -> (Vec<String>, Vec<String>) {
    let Recorded { samples, lost: [ours, kernels, throttled], at_exit, parts, complete, file, .. } = recorded;
    let to = if spec.is_pipe() { "stdout".to_owned() } else { spec.output.display().to_string() };
    let events: Vec<_> = spec.sampling.event.iter().map(ToString::to_string).collect();
    let of = |part: u64, whole: u64| 100.0 * part as f64 / whole.max(1) as f64;
    let taken = if file.samples < *samples { format!("{} of {samples}", file.samples) } else { samples.to_string() };
    let level = spec.writing().level;
    let ratio = if level > 0 { format!(", compressed {:.1}:1 at level {level}", file.ratio) } else { String::new() };
    let mut lines = vec![format!(
        "recorded {taken} samples of {} on {vcpus} vCPUs in {to}: {} KiB{ratio}",
        events.join(", "),
        file.bytes.div_ceil(1024),
    )];
    if *at_exit > 0 {
        lines.push(format!(
            "{:.1} % of the samples fell into the host's handling of an exit: they are at the instruction that made it",
            of(*at_exit, *samples)
        ));
    }
    let levels = parts.iter().zip(complete).zip(["chains at level 0", "chains at level 3"]);
    let shares: Vec<_> = levels
        .filter(|((whole, _), _)| spec.chains && **whole > 0)
        .map(|((&whole, &complete), what)| format!("{:.2} % of {whole} {what}", of(complete, whole)))
        .collect();
    if !shares.is_empty() {
        lines.push(format!("complete: {}", shares.join(", ")));
    }
    let warnings = [
        (ours + kernels > 0).then(|| {
            format!(
                "{} samples were lost ({ours} since the recorder was late, {kernels} since the kernel's ring was full): sample less often",
                ours + kernels
            )
        }),
        (*throttled > 0).then(|| {
            let often = "sysctl kernel.perf_event_max_sample_rate, kernel.perf_cpu_time_max_percent";
            format!("the kernel throttled an event {throttled} times: sample less often, or raise {often}")
        }),
        (*samples == 0).then(|| {
            "no sample was taken: the guest ran for less than a period, slept all the time, or the event does not happen"
                .to_owned()
        }),
        (file.given_up > 0).then(|| {
            format!(
                "{} bytes of the last records are not in the file: there was no room for them and the file's features",
                file.given_up
            )
        }),
    ];
    (lines, warnings.into_iter().flatten().collect())
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

#[cfg(test)]
mod tests {
    use super::*;

    fn recorded(failed: Option<ErrorKind>, by_duration: bool) -> Recorded {
        Recorded { failed: failed.map(Into::into), by_duration, ..Recorded::default() }
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
