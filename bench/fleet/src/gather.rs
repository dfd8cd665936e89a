//! The runs of files and folders of ordinary size, without an index on disk.

use std::path::Path;

use super::index::Index;
use super::run::{Labels, Run};
use results::error::Error;
use results::read;

/// Reads the runs of a document, or of every document of a folder, in the order of their start. A few documents are in
/// memory at a time. As for [`read::folder`], nothing is skipped.
///
/// # Errors
/// Exit 2: a bad document, or one that is there twice; a folder without any.
pub fn gather(source: &Path) -> Result<Vec<Run>, Error> {
    if !source.is_dir() {
        let record = read::record(source)?;
        return Ok(vec![Run::of(&record, &source.to_string_lossy(), Labels::default())]);
    }
    let mut index = Index::in_memory(Path::new(""));
    let refreshed = index.refresh(read::files(source)?.into_iter().map(|path| (path, Labels::default())), &|_, _| {});
    match refreshed.bad.into_iter().next() {
        Some((_, error)) => Err(error),
        None => Ok(index.runs()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use trials::fixture::value;

    #[test]
    fn a_folder_is_all_of_it_or_nothing() {
        let dir = tempfile::tempdir().unwrap();
        for at in [7, 5] {
            std::fs::write(dir.path().join(format!("{at}.json")), value(3, at, |_, round| 1000 + round).to_string())
                .unwrap();
        }
        let runs = gather(dir.path()).unwrap();
        assert_eq!(runs.iter().map(|run| run.started_unix).collect::<Vec<_>>(), [5, 7]);
        let file = dir.path().join("7.json");
        assert_eq!(gather(&file).unwrap(), runs[1..]);
        assert_eq!(runs[1].file, file.to_str().unwrap());
        // Nothing is left beside the documents.
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 2);
        std::fs::write(dir.path().join("a.json"), "{").unwrap();
        assert!(gather(dir.path()).unwrap_err().to_string().contains("a.json"));
        assert!(gather(&dir.path().join("none")).unwrap_err().to_string().contains("measure first"));
    }
}
