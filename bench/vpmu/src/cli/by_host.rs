//! Results of many hosts: campaigns, and folders of any number of documents, by way of their index.

use std::path::{Path, PathBuf};

use fleet::campaign::folder::{Campaign, Folder};
use fleet::{Labels, Run, index};
use results::error::{Error, Exit};
use results::read;
use results::table::layout::plural;

use super::files::say_left_out;
use crate::terminal::console::complain;

/// Runs, the files they are of, and whether all documents are among them.
#[derive(Debug, Default)]
pub(super) struct Gathered {
    pub(super) runs: Vec<Run>,
    pub(super) files: Vec<PathBuf>,
    /// Documents that cannot be used; each had its line.
    pub(super) bad: usize,
}

/// Returns whether a source is judged by host: a campaign, or more documents than fit in memory together.
pub(super) fn is_wanted(source: &Path) -> bool {
    Folder::is_one(source) || read::files(source).is_ok_and(|files| files.len() > read::MAX_DOCUMENTS)
}

/// Gathers the runs of a campaign, of a folder, or of one document.
pub(super) fn gather(source: &Path) -> Result<Gathered, Error> {
    let found = if Folder::is_one(source) {
        let (folder, campaign) = Folder::open(source)?;
        of_campaign(&folder, &campaign)?
    } else if source.is_dir() {
        let files = read::files(source)?;
        let relative = |path: PathBuf| path.strip_prefix(source).map_or_else(|_| path.clone(), Path::to_owned);
        indexed(source, files.into_iter().map(|path| (relative(path), Labels::default())).collect())
    } else {
        let run = Run::of(&read::document(source)?, &source.to_string_lossy(), Labels::default());
        Gathered { runs: vec![run], files: vec![source.to_owned()], bad: 0 }
    };
    if found.runs.is_empty() {
        let what = format!("no results in {}", source.display());
        let why = "none has ended with a document that can be used";
        return Err(Error::new(Exit::Inconclusive, what, why, "`vpmu fleet status` says more of a campaign"));
    }
    Ok(found)
}

/// Gathers the runs of the elements that have an outcome.
pub(super) fn of_campaign(folder: &Folder, campaign: &Campaign) -> Result<Gathered, Error> {
    Ok(indexed(&folder.path, folder.documents(campaign)?))
}

fn indexed(dir: &Path, documents: Vec<(PathBuf, Labels)>) -> Gathered {
    if documents.len() >= 1000 {
        complain(&format!("reading {}", plural(documents.len(), "document")));
    }
    let index::Indexed { runs, bad, warning, .. } = index::runs(dir, documents);
    if let Some(warning) = &warning {
        complain(&format!("warning: {warning}"));
    }
    say_left_out(bad.iter().map(|(_, error)| error), false);
    // Whatever a campaign names is its own.
    let is_own = |file: &str| Folder::is_one(dir) || !read::is_foreign(&dir.join(file));
    let bad = bad.iter().filter(|(file, _)| is_own(file)).count();
    let files = runs.iter().map(|run| dir.join(&run.file)).chain([dir.to_owned()]).collect();
    Gathered { runs, files, bad }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bad_document_is_left_out_and_no_success() {
        let dir = tempfile::tempdir().unwrap();
        let good =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("../../results/baselines/development-host/nmi-latency.json");
        std::fs::copy(good, dir.path().join("a.json")).unwrap();
        std::fs::write(dir.path().join("b.json"), "{").unwrap();
        let gathered = gather(dir.path()).unwrap();
        assert_eq!((gathered.runs.len(), gathered.bad), (1, 1));
        std::fs::remove_file(dir.path().join("a.json")).unwrap();
        assert_eq!(gather(dir.path()).unwrap_err().exit, Exit::Inconclusive);
    }
}
