//! Exports of results for other tools, with a row of [`ALL`] for each.

mod csv;
mod gobench;
mod hlog;

use crate::document::Record;
use crate::error::Error;
use crate::report;
use crate::shown;

/// Another tool's format.
#[derive(Clone, Copy, Debug)]
pub struct Format {
    /// Its name.
    pub name: &'static str,
    /// Description of it.
    pub about: &'static str,
    write: fn(&[Record]) -> Result<String, Error>,
}

/// Every format, one row each.
pub const ALL: [Format; 4] = [
    format("hlog", "HdrHistogram interval log, an interval per arm, tagged with it", hlog::text),
    format("benchstat", "Go benchmark text, a line per arm, metric and round, for benchstat", |all| {
        Ok(gobench::text(all))
    }),
    format("csv", "Comma-separated values: a row per arm, metric and round, and one for all rounds", |all| {
        Ok(csv::text(all))
    }),
    format("svg", "A picture, SVG: each strategy's ratio to the floor, with its interval", picture),
];

const fn format(name: &'static str, about: &'static str, write: fn(&[Record]) -> Result<String, Error>) -> Format {
    Format { name, about, write }
}

/// Draws the strategies of the only record against its floor.
fn picture(records: &[Record]) -> Result<String, Error> {
    let [record] = records else {
        let why = format!("{} results were given", records.len());
        return Err(Error::usage("a picture shows one result", why, "give one FILE"));
    };
    report::picture(record)?.ok_or_else(|| {
        let file = record.path.display();
        Error::usage(format!("cannot draw {file}"), "it has no floor with rounds", "give a result with a floor arm")
    })
}

/// Exports `records` in that format.
///
/// # Errors
/// Exit 2 for results that a format cannot express.
pub fn export(format: Format, records: &[Record]) -> Result<String, Error> {
    // A terminal shows a file as well as stdout.
    (format.write)(records).map(|text| shown::text(&text))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;

    #[test]
    fn no_text_of_a_document_steers_or_begins_a_line() {
        const HOSTILE: &str = "x\npkg: y\r\u{1b}[2J\u{9b}\u{202e}\u{200b}\u{7f}";
        let mut document = fixture::document(2);
        document.host.class = HOSTILE.to_owned();
        document.host.cpu_model = Some(HOSTILE.to_owned());
        document.tool.version = HOSTILE.to_owned();
        document.tool.git_revision = HOSTILE.to_owned();
        document.parameters.workload = HOSTILE.to_owned();
        document.parameters.cpu = HOSTILE.to_owned();
        for arm in &mut document.arms {
            arm.name += HOSTILE;
            arm.backend = HOSTILE.to_owned();
            arm.not_available = arm.not_available.take().map(|_| HOSTILE.to_owned());
        }
        let record = fixture::changed(document);
        for format in ALL {
            let text = export(format, std::slice::from_ref(&record)).unwrap();
            let steers = |c: char| shown::steers(c) && c != '\n';
            assert!(!text.replace("\r\n", "\n").chars().any(steers), "{}: {text:?}", format.name);
            // A line of XML begins nothing.
            let begins = format.name != "svg" && text.lines().any(|line| line.starts_with("pkg: y"));
            assert!(!begins, "{}: {text}", format.name);
        }
    }

    #[test]
    fn tables_and_benchmarks_are_as_they_should_be() {
        let mut record = fixture::changed(fixture::document(2));
        let of = |name: &str, record: &Record| {
            let format = ALL.into_iter().find(|format| format.name == name).unwrap();
            export(format, std::slice::from_ref(record)).unwrap()
        };
        let whole = of("csv", &record).replace('\r', "") + "\n" + &of("benchstat", &record);
        for arm in &mut record.arms {
            arm.rounds.metrics.retain(|key, _| key == "exit_path_ns");
        }
        let golden = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/exports.txt");
        trials::golden(golden.as_ref(), &(whole + "\n" + &of("benchstat", &record)));
    }

    #[test]
    fn several_results_have_a_place_in_every_format_but_a_picture() {
        let record = fixture::changed(fixture::document(2));
        let twice = [record.clone(), record];
        for format in ALL {
            assert!(export(format, &twice[..1]).is_ok());
            let both = export(format, &twice);
            assert_eq!(both.is_ok(), format.name != "svg", "{}", format.name);
        }
    }
}
