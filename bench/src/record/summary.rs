//! What a recording says at its end.

use std::path::Path;

use results::error::{Error, Exit};

use super::layout::Kind;
use super::recorder::{Recorded, reader_left};
use super::spec::RecordSpec;

/// The lines of the summary, and its warnings.
#[must_use]
pub fn lines(recorded: &Recorded, spec: &RecordSpec, vcpus: usize) -> (Vec<String>, Vec<String>) {
    let counts = &recorded.counts;
    let to = if spec.is_pipe() { "stdout".to_owned() } else { spec.output.display().to_string() };
    let names: Vec<_> = spec.events.iter().map(ToString::to_string).collect();
    let of = |part: u64, whole: u64| 100.0 * part as f64 / whole.max(1) as f64;
    let mut lines = vec![format!(
        "recorded {} samples of {} on {vcpus} vCPUs in {to}: {} KiB{}",
        counts.samples,
        names.join(", "),
        recorded.file.bytes.div_ceil(1024),
        if spec.level > 0 {
            format!(", compressed {:.1}:1 at level {}", recorded.file.ratio, spec.level)
        } else {
            String::new()
        }
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
    }
    (lines, warnings(recorded))
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
    if counts.at_exit * 2 > counts.samples {
        warnings.push(
            "most samples fell into the VMM: sampling leaves the guest little time; sample less often".to_owned(),
        );
    }
    if recorded.file.given_up > 0 {
        warnings.push(format!(
            "{} bytes of the last records were given up for the file's features",
            recorded.file.given_up
        ));
    }
    warnings
}

/// The error of a recording that ended early, unless its reader just left.
#[must_use]
pub fn error(recorded: &Recorded, output: &Path) -> Option<Error> {
    let error = recorded.failed.as_ref().filter(|error| !reader_left(error))?;
    let what = format!("the recording {} ended early", output.display());
    Some(Error::new(
        Exit::Inconclusive,
        what,
        error.to_string(),
        "what was written before that is readable, later samples are gone; make room, and record again",
    ))
}

/// The commands that show a recording.
#[must_use]
pub fn commands(spec: &RecordSpec, kind: Kind) -> Option<String> {
    if spec.is_pipe() {
        return None;
    }
    let (file, kallsyms) = (spec.output.display(), spec.beside("kallsyms"));
    Some(match kind {
        Kind::Task => format!("look at it: perf report -i {file}, or vpmu report {file}"),
        Kind::Host => {
            format!("look at it: perf report --kallsyms {} -i {file}, or vpmu report {file}", kallsyms.display())
        }
        Kind::Guest => format!(
            "look at it: perf kvm --guest --guestkallsyms {} --guestmodules {} report -i {file}, or vpmu report {file}",
            kallsyms.display(),
            spec.beside("modules").display()
        ),
    })
}

#[cfg(test)]
mod tests {
    use std::io;

    use host_pmu::sampler::Rate;
    use perf_data::writer::Summary;

    use super::super::layout::As;
    use super::super::recorder::Counts;
    use super::*;

    fn spec() -> RecordSpec {
        RecordSpec {
            output: "x.data".into(),
            events: vec!["cpu-clock".parse().unwrap()],
            rate: Rate::Hertz(999),
            chains: true,
            level: 1,
            duration: None,
            guest_as: As::Auto,
            quiet: false,
            command_line: Vec::new(),
        }
    }

    fn recorded(counts: Counts, failed: Option<io::Error>) -> Recorded {
        Recorded {
            counts,
            file: Summary { bytes: 2000, ratio: 5.25, ..Summary::default() },
            failed,
            by_duration: false,
        }
    }

    #[test]
    fn everything_lost_is_said() {
        let counts =
            Counts { samples: 1000, lost: [3, 4], at_exit: 10, parts: [900, 100], complete: [899, 0], throttled: 2 };
        let (lines, warnings) = lines(&recorded(counts, None), &spec(), 2);
        let text = lines.join("\n");
        for needle in
            ["1000 samples of cpu-clock on 2 vCPUs in x.data: 2 KiB", "5.2:1 at level 1", "1.0 %", "99.89 % of 900"]
        {
            assert!(text.contains(needle), "{text} lacks {needle}");
        }
        let text = warnings.join("\n");
        assert!(text.contains("7 samples were lost (3 ") && text.contains("throttled an event 2 times"), "{text}");
        assert!(warnings_of_none().contains("no sample was taken"));
    }

    fn warnings_of_none() -> String {
        warnings(&recorded(Counts::default(), None)).join("\n")
    }

    #[test]
    fn a_full_disk_is_an_error_and_a_reader_that_left_is_none() {
        let of = |kind: io::ErrorKind| error(&recorded(Counts::default(), Some(kind.into())), Path::new("x"));
        assert_eq!(of(io::ErrorKind::StorageFull).unwrap().exit, Exit::Inconclusive);
        assert!(of(io::ErrorKind::BrokenPipe).is_none());
    }
}
