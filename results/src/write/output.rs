//! The folder that an experiment's results go to.

use std::ffi::OsString;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::Mode;

use super::folder::{Folder, Unplaced};
use crate::error::Error;

/// Folder of one experiment's results.
#[derive(Debug)]
pub struct OutputFolder {
    folder: Arc<Folder>,
    made: Made,
    stem: Option<String>,
}

/// The folders this run made, innermost first. Unless something was written, empty ones go again: `remove_dir` refuses
/// one that is not empty.
#[derive(Debug)]
struct Made(Vec<PathBuf>);

impl Drop for Made {
    fn drop(&mut self) {
        for made in &self.0 {
            let _ = std::fs::remove_dir(made);
        }
    }
}

const MODE: Mode = Mode::from_raw_mode(0o644);

fn cannot(path: &Path, error: &io::Error) -> Error {
    Error::usage(
        format!("cannot write results to {}", path.display()),
        error.to_string(),
        "choose another folder with -o DIR",
    )
}

impl OutputFolder {
    /// Makes the folder if need be and tries to write in it.
    ///
    /// # Errors
    /// Exit 2 if it cannot be made or written to.
    pub fn open(dir: &Path) -> Result<Self, Error> {
        let missing = |path: &&Path| !path.as_os_str().is_empty() && !path.exists();
        let made = Made(dir.ancestors().take_while(missing).map(Path::to_owned).collect());
        let open = || {
            std::fs::create_dir_all(dir)?;
            let folder = Arc::new(Folder::open(dir)?);
            Unplaced::begin(&folder, MODE)?;
            Ok(folder)
        };
        let folder = open().map_err(|error| cannot(dir, &error))?;
        Ok(Self { folder, made, stem: None })
    }

    /// Returns the path of the file with that extension, once one was written.
    pub fn path(&self, extension: &str) -> Option<PathBuf> {
        let stem = self.stem.as_ref()?;
        Some(self.folder.path().join(format!("{stem}.{extension}")))
    }

    /// Writes `text` as this experiment's file with that extension. The first file picks the name: `stem`, or
    /// `stem-2`, `stem-3` … if an earlier experiment has it; the others follow.
    ///
    /// # Errors
    /// Exit 2 with the reason; what was there before is untouched.
    pub fn write(&mut self, stem: &str, extension: &str, text: &[u8]) -> Result<PathBuf, Error> {
        self.put(stem, extension, text).map_err(|error| cannot(self.folder.path(), &error))
    }

    fn put(&mut self, stem: &str, extension: &str, text: &[u8]) -> io::Result<PathBuf> {
        let mut file = Unplaced::begin(&self.folder, MODE)?;
        file.file.write_all(text)?;
        file.file.sync_all()?;
        let path = |stem: &str| self.folder.path().join(format!("{stem}.{extension}"));
        let name = |stem: &str| OsString::from(format!("{stem}.{extension}"));
        if let Some(stem) = &self.stem {
            file.replace(&name(stem))?;
            self.folder.sync()?;
            return Ok(path(stem));
        }
        for n in 1..=1000_u32 {
            let stem = if n == 1 { stem.to_owned() } else { format!("{stem}-{n}") };
            if file.place(&name(&stem))? {
                self.folder.sync()?;
                let path = path(&stem);
                self.stem = Some(stem);
                self.made.0.clear();
                return Ok(path);
            }
        }
        Err(io::Error::other("1000 results of the same second are there already"))
    }
}
