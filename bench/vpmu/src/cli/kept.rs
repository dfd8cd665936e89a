//! The files of a run.

use results::document::Document;
use results::error::Error;
use results::export;
use results::write::{OutputFolder, now_unix, time_stamp};

use crate::arms::fold::arm::ArmFold;
use crate::arms::rounds::run::Finished;
use crate::terminal::console::{complain, internal};

/// Returns the name of an experiment's files, without extension.
fn stem(document: &Document, opened_unix: u64) -> String {
    // A simulated document has no date; the names of its files have one.
    let unix = if document.started_unix == 0 { opened_unix } else { document.started_unix };
    format!("{}-{}", document.experiment, time_stamp(unix))
}

/// The files of a run. A full disk neither ends the run nor hides its table.
pub(super) struct Kept {
    pub(super) folder: Option<OutputFolder>,
    opened_unix: u64,
    /// Why the last write failed, if it did.
    pub(super) failed: Option<Error>,
}

impl Kept {
    pub(super) fn new(folder: Option<OutputFolder>) -> Self {
        let opened_unix = now_unix();
        Self { folder, opened_unix, failed: None }
    }

    /// Writes the document as it is now.
    pub(super) fn save(&mut self, document: &Document) -> Result<(), Error> {
        let Some(folder) = &mut self.folder else { return Ok(()) };
        let json = document.to_json().map_err(|error| internal("cannot show the result", error))?;
        let failed = folder.write(&stem(document, self.opened_unix), "json", json.as_bytes()).err();
        if let (Some(error), None) = (&failed, &self.failed) {
            complain(&format!("warning: {error}; measuring goes on, and the table comes at the end"));
        }
        self.failed = failed;
        Ok(())
    }

    /// Writes the exports beside the document.
    pub(super) fn export(&mut self, finished: &Finished) -> Result<(), Error> {
        let document = &finished.document;
        let measured = finished.arms.iter().any(|arm| !arm.intervals().is_empty());
        let Some(folder) = self.folder.as_mut().filter(|_| measured && self.failed.is_none()) else { return Ok(()) };
        let hlog = export::hlog::text(document, &finished.arms.iter().map(ArmFold::intervals).collect::<Vec<_>>())
            .map_err(|why| internal("cannot write the interval log", why))?;
        let stem = stem(document, self.opened_unix);
        let written = folder.write(&stem, "hlog", &hlog);
        let written = written.and_then(|_| folder.write(&stem, "txt", export::gobench::text(document).as_bytes()));
        self.failed = written.err();
        Ok(())
    }

    /// Formats a line that names what was written.
    pub(super) fn line(&self) -> String {
        let path = self.folder.as_ref().and_then(|folder| folder.path("json")).filter(|_| self.failed.is_none());
        path.map_or_else(String::new, |path| format!("saved: {} (and .hlog, .txt)\n", path.display()))
    }
}
