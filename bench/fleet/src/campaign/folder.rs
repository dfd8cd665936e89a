//! The folder of a campaign: what was submitted, and what each element left.

use std::collections::BTreeMap;
use std::io;
use std::path::{Component, Path, PathBuf};

use results::document::Tool;
use results::error::Error;
use results::open::{self, below};
use results::write::place;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::element::Element;
use super::plan::{SlurmOptions, check_name};
use super::trust::{self, Trust, make, make_new};
use crate::hash::sha256;

/// Schema of the campaign's own file.
pub const SCHEMA: &str = "vpmu-campaign/1";
/// Schema of an element's outcome.
pub const ELEMENT_SCHEMA: &str = SCHEMA;
/// The campaign's own file.
pub const CAMPAIGN: &str = "campaign.json";
/// Folder of the binaries.
pub(super) const BIN: &str = "bin";
/// An element's outcome.
const DONE: &str = "done.json";
/// The facts of an attempt that are known at its start.
pub const ATTEMPT: &str = "attempt.json";
/// Most attempts at an element.
const MAX_ATTEMPTS: u32 = 1000;
/// Why an attempt was stopped, as text.
pub const STOPPED: &str = "stopped.txt";
/// Most bytes of it.
const MAX_REASON: usize = 1000;
/// Largest of these files, bytes: 100 000 elements are some 50 MB.
const MAX_FILE: u64 = 256 << 20;
/// Largest binary, bytes: one with all its debugging information.
const MAX_BINARY: u64 = 4 << 30;

/// A binary of a campaign.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Binary {
    /// Name of the file in the campaign's `bin/`, after its contents.
    pub file: String,
    /// SHA-256 of its bytes, hex.
    pub sha256: String,
}

impl Binary {
    /// Hashes these bytes.
    pub fn of(bytes: &[u8]) -> Self {
        let sha256 = sha256(bytes);
        Self { file: format!("vpmu-{}", &sha256[..12]), sha256 }
    }

    fn is_named_by_its_hash(&self) -> bool {
        let hex = self.sha256.len() == 64 && self.sha256.bytes().all(|byte| byte.is_ascii_hexdigit());
        hex && self.file == format!("vpmu-{}", &self.sha256[..12])
    }
}

/// The submitted campaign.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Campaign {
    /// [`SCHEMA`].
    pub schema: String,
    /// Its name.
    pub name: String,
    /// The program that submitted it.
    pub tool: Tool,
    /// First submission, seconds since 1970.
    pub submitted_unix: u64,
    /// The folder that relative paths in options start from.
    pub folder: PathBuf,
    /// The binary that runs elements: that of the submission.
    pub runner: Binary,
    /// Binary of each variant, by the variant's name.
    pub binaries: BTreeMap<String, Binary>,
    /// Options for Slurm.
    #[serde(default)]
    pub slurm: SlurmOptions,
    /// Text of the plan.
    pub plan: String,
    /// The elements, in order.
    pub elements: Vec<Element>,
}

/// The Slurm job that an element ran in.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Job {
    /// Job id.
    pub id: String,
    /// Array, as `JOB_TASK`.
    pub task: Option<String>,
    /// Times that Slurm started it anew.
    pub restarts: u64,
}

/// The facts of an attempt that are known at its start.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attempt {
    /// [`ELEMENT_SCHEMA`].
    pub schema: String,
    /// Number of the element.
    pub element: u64,
    /// Which attempt, from 1.
    pub attempt: u32,
    /// The host: Slurm's node name, else the host's own.
    pub host: Option<String>,
    /// Identity of its boot.
    pub boot: Option<String>,
    /// The job.
    pub job: Option<Job>,
    /// Start, seconds since 1970 by the host's clock.
    pub began_unix: u64,
    /// Findings of `vpmu doctor` there that are missing or doubtful, a line each.
    pub findings: Vec<String>,
}

/// Outcome of an element.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Done {
    /// The attempt that came to an end.
    #[serde(flatten)]
    pub attempt: Attempt,
    /// Name of the element.
    pub name: String,
    /// End, seconds since 1970 by the host's clock.
    pub ended_unix: u64,
    /// Exit code; `None` if a signal ended it.
    pub exit: Option<u8>,
    /// The signal that ended it.
    pub signal: Option<i32>,
    /// Result documents, relative to the campaign's folder.
    pub documents: Vec<String>,
    /// Its last words, if it failed.
    pub error: Option<String>,
}

impl Done {
    /// Returns whether the element is done; `false`: it failed or is open.
    pub fn is_ok(&self) -> bool {
        self.exit == Some(0)
    }

    /// Describes its end.
    pub fn how(&self) -> String {
        match (self.exit, self.signal) {
            (Some(code), _) => format!("exit {code}"),
            (None, Some(signal)) => format!("signal {signal}"),
            (None, None) => "unknown".to_owned(),
        }
    }
}

/// A campaign's folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Folder {
    /// Absolute path.
    pub path: PathBuf,
    /// Who may have changed it; `None` if that was not checked, of a folder that is only read.
    pub trust: Option<Trust>,
}

impl Folder {
    /// Returns true if `path` is the folder of a campaign.
    pub fn is_one(path: &Path) -> bool {
        path.join(CAMPAIGN).is_file()
    }

    /// Opens the folder of a campaign that was submitted, whoever did that: to read from.
    ///
    /// # Errors
    /// Exit 2 if there is none.
    pub fn open(path: &Path) -> Result<(Self, Campaign), Error> {
        Self::with_trust(path, None)
    }

    /// Opens a campaign to act on it: to run its elements, to write to it, to cancel its jobs.
    ///
    /// # Errors
    /// Exit 2 if there is none, or if others could have changed it.
    pub fn own(path: &Path, trust: Trust) -> Result<(Self, Campaign), Error> {
        Self::with_trust(path, Some(trust))
    }

    fn with_trust(path: &Path, trust: Option<Trust>) -> Result<(Self, Campaign), Error> {
        if !Self::is_one(path) {
            return Err(Error::usage(
                format!("{} is no campaign", path.display()),
                format!("there is no {CAMPAIGN} in it"),
                "`vpmu fleet submit PLAN.toml -o DIR` makes one",
            ));
        }
        let path = match trust {
            None => path.canonicalize().map_err(|error| cannot(path, &error))?,
            Some(trust) => trust::folder(path, trust)?,
        };
        let folder = Self { path, trust };
        let file = folder.path.join(CAMPAIGN);
        let text = match trust {
            None => folder.text(&file),
            Some(trust) => open::text(trust::file(&file, trust, MAX_FILE)?, MAX_FILE),
        };
        let campaign: Campaign = parsed(&file, &text.map_err(|error| refuse(&file, error.to_string()))?)?;
        if campaign.schema != SCHEMA {
            return Err(Error::usage(
                format!("cannot use {}", file.display()),
                format!("its schema is {}, not {SCHEMA}", campaign.schema),
                "use the version of vpmu that wrote it",
            ));
        }
        campaign.check().map_err(|why| refuse(&file, why))?;
        Ok((folder, campaign))
    }

    /// Returns the path of a binary.
    pub fn binary(&self, binary: &Binary) -> PathBuf {
        self.path.join(BIN).join(&binary.file)
    }

    /// Its bytes, if they are those that were submitted, and nobody else could have changed them.
    ///
    /// # Errors
    /// Exit 2 for another file.
    pub fn checked(&self, binary: &Binary) -> Result<Vec<u8>, Error> {
        let path = self.binary(binary);
        let file = trust::file(&path, self.trust.unwrap_or_default(), MAX_BINARY)?;
        let bytes = open::bytes(file, MAX_BINARY).map_err(|error| refuse(&path, error.to_string()))?;
        if Binary::of(&bytes) == *binary {
            return Ok(bytes);
        }
        let what = format!("{} is not the binary that was submitted", path.display());
        Err(Error::usage(what, "its hash is another", "submit the plan to another folder"))
    }

    /// Returns the folder of an element.
    pub fn element(&self, number: u64) -> PathBuf {
        self.path.join("elements").join(format!("{number:06}"))
    }

    /// Reads the outcome of an element; `None` as long as no attempt came to an end.
    ///
    /// # Errors
    /// Exit 2 if the file is damaged.
    pub fn done(&self, number: u64) -> Result<Option<Done>, Error> {
        let path = self.element(number).join(DONE);
        let text = match self.text(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            text => text.map_err(|error| refuse(&path, error.to_string()))?,
        };
        let done: Done = parsed(&path, &text)?;
        if done.attempt.schema != ELEMENT_SCHEMA || done.attempt.element != number {
            let why = format!("it is no outcome of element {number} ({})", done.attempt.schema);
            return Err(refuse(&path, why));
        }
        let attempt = Path::new("elements").join(format!("{number:06}/attempt-{}", done.attempt.attempt));
        let foreign = done.documents.iter().find(|document| !is_directly_in(&attempt, document));
        if let Some(document) = foreign {
            return Err(refuse(&path, format!("document {document} is not of its attempt")));
        }
        Ok(Some(done))
    }

    /// Writes the outcome of an element, unless there is one: the first counts. Gives back whether this one counts.
    ///
    /// # Errors
    /// Exit 2 if it cannot be written.
    pub fn finish(&self, done: &Done) -> Result<bool, Error> {
        self.write_new(&self.element(done.attempt.element).join(DONE), done)
    }

    /// Takes the outcome of an element away, so that it runs again. Its attempts stay.
    ///
    /// # Errors
    /// Exit 2 if the file cannot be moved.
    pub fn forget(&self, done: &Done) -> Result<(), Error> {
        let folder = self.element(done.attempt.element);
        let to = folder.join(format!("attempt-{}", done.attempt.attempt)).join(DONE);
        std::fs::rename(folder.join(DONE), &to).map_err(|error| cannot(&to, &error))
    }

    /// Makes the folder of the next attempt at an element.
    ///
    /// # Errors
    /// Exit 2 if it cannot be made.
    pub fn next_attempt(&self, number: u64) -> Result<(u32, PathBuf), Error> {
        let folder = self.element(number);
        let trust = self.trust.unwrap_or_default();
        make(&folder, trust).map_err(|error| cannot(&folder, &error))?;
        for attempt in 1..=MAX_ATTEMPTS {
            let path = folder.join(format!("attempt-{attempt}"));
            match make_new(&path, trust) {
                Ok(()) => return Ok((attempt, path)),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(cannot(&path, &error)),
            }
        }
        Err(cannot(&folder, &io::Error::other(format!("{MAX_ATTEMPTS} attempts are there already"))))
    }

    /// Attempts at an element.
    pub fn attempts(&self, number: u64) -> Vec<Attempt> {
        let folder = self.element(number);
        (1..=MAX_ATTEMPTS)
            .map(|attempt| folder.join(format!("attempt-{attempt}")))
            .take_while(|path| path.is_dir())
            .filter_map(|path| serde_json::from_str(&self.text(&path.join(ATTEMPT)).ok()?).ok())
            .collect()
    }

    /// Reads why the last attempt at an element was stopped, if it noted that.
    pub fn stopped(&self, number: u64, attempt: u32) -> Option<String> {
        let path = self.element(number).join(format!("attempt-{attempt}")).join(STOPPED);
        let text = self.text(&path).ok().filter(|text| text.len() <= MAX_REASON)?;
        Some(results::error::one_line(&text)).filter(|text| !text.is_empty())
    }

    /// Writes a file of the campaign, unless there is one; false if there is.
    ///
    /// # Errors
    /// Exit 2 with the file system's reason.
    pub fn write_new<T: Serialize>(&self, path: &Path, value: &T) -> Result<bool, Error> {
        let path = self.path.join(path);
        let text = serde_json::to_string_pretty(value).map_err(|error| Error::internal("cannot write JSON", error))?;
        place(&path, (text + "\n").as_bytes()).map_err(|error| cannot(&path, &error))
    }

    /// Reads the text of a file in the folder, which has no links.
    fn text(&self, path: &Path) -> io::Result<String> {
        let relative = path.strip_prefix(&self.path).unwrap_or(path);
        open::text(below(&self.path, relative, MAX_FILE)?, MAX_FILE)
    }
}

impl Campaign {
    /// Checks what becomes part of paths.
    fn check(&self) -> Result<(), String> {
        check_name("name", &self.name)?;
        for (at, element) in self.elements.iter().enumerate() {
            if element.number != at as u64 {
                return Err("its elements are not numbered from 0".to_owned());
            }
            check_name("experiment", &element.experiment)?;
            check_name("variant", &element.variant)?;
        }
        match self.binaries.values().chain([&self.runner]).find(|binary| !binary.is_named_by_its_hash()) {
            Some(binary) => Err(format!("binary '{}' is not named by its hash", binary.file)),
            None => Ok(()),
        }
    }
}

/// Returns true for a relative path of a file directly in a folder.
fn is_directly_in(folder: &Path, path: &str) -> bool {
    let name = Path::new(path).strip_prefix(folder).ok().map(Path::components);
    name.is_some_and(|mut name| matches!((name.next(), name.next()), (Some(Component::Normal(_)), None)))
}

fn parsed<T: DeserializeOwned>(path: &Path, text: &str) -> Result<T, Error> {
    serde_json::from_str(text).map_err(|error| refuse(path, error.to_string()))
}

pub(super) fn cannot(path: &Path, error: &io::Error) -> Error {
    let remedy = "what finished is kept; make room or choose another folder, then run the same command again";
    Error::usage(format!("cannot write {}", path.display()), error.to_string(), remedy)
}

fn refuse(path: &Path, why: String) -> Error {
    Error::usage(
        format!("cannot use {}", path.display()),
        why,
        "restore it; or, of an element, remove it: the element runs again with the next submission",
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::campaign::element::elements;
    use crate::campaign::fixture::{done, plan, submitted, tool};
    use crate::campaign::submission::{Terms, submit};

    const PLAN: &str = "name = 'x'\nexperiment = [{ run = 'sim' }]\nhosts = [{ names = 'a,b' }]";

    #[test]
    fn a_campaign_is_found_again_and_another_plan_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("new");
        assert!(Folder::open(&path).unwrap_err().to_string().contains("is no campaign"));
        let (folder, campaign) = submitted(&path, PLAN);
        assert_eq!(campaign.elements.len(), 2);
        let own = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        assert_eq!(std::fs::read(folder.binary(&campaign.binaries["default"])).unwrap(), own);
        assert_eq!(submitted(&path, PLAN), (folder.clone(), campaign.clone()));
        assert_eq!(Folder::own(&path, Trust::Own).unwrap(), (folder, campaign));
        let other = plan(&PLAN.replace("a,b", "a,c"));
        let error = submit(&path, &other, elements(&other, &|_| None), tool(), 9, Terms::default()).unwrap_err();
        assert!(error.to_string().contains("holds another campaign"), "{error}");
    }

    #[test]
    fn the_first_outcome_counts() {
        let dir = tempfile::tempdir().unwrap();
        let (folder, _) = submitted(dir.path(), PLAN);
        assert_eq!(folder.next_attempt(1).unwrap().0, 1);
        assert_eq!(folder.next_attempt(1).unwrap().0, 2);
        assert_eq!(folder.done(1).unwrap(), None);
        assert!(folder.finish(&done(1, 1, 0)).unwrap());
        assert!(!folder.finish(&done(1, 2, 4)).unwrap());
        let found = folder.done(1).unwrap().unwrap();
        assert_eq!(found, done(1, 1, 0));
        folder.forget(&found).unwrap();
        assert_eq!(folder.done(1).unwrap(), None);
    }

    #[test]
    fn what_a_campaign_names_stays_in_its_folder() {
        let dir = tempfile::tempdir().unwrap();
        let (folder, mut campaign) = submitted(dir.path(), PLAN);
        folder.next_attempt(0).unwrap();
        let path = folder.element(0).join(DONE);
        let of = |document: &str| {
            let outcome = Done { documents: vec![document.to_owned()], ..done(0, 1, 0) };
            std::fs::write(&path, serde_json::to_string(&outcome).unwrap()).unwrap();
            folder.done(0)
        };
        of("elements/000000/attempt-1/a.json").unwrap().unwrap();
        for document in [
            "/etc/passwd",
            "../a.json",
            "elements/000000/attempt-1/../../../a.json",
            "elements/000000/attempt-1/b/a.json",
            "elements/000000/attempt-1",
            "elements/000000/attempt-2/a.json",
            "elements/000001/attempt-1/a.json",
            "",
        ] {
            assert!(of(document).unwrap_err().to_string().contains("is not of its attempt"), "{document}");
        }
        std::fs::remove_file(&path).unwrap();
        std::os::unix::fs::symlink("/etc/hostname", &path).unwrap();
        assert!(folder.done(0).unwrap_err().to_string().contains("it is a link"));
        let refused = |campaign: &Campaign, why: &str| {
            std::fs::write(dir.path().join(CAMPAIGN), serde_json::to_string(campaign).unwrap()).unwrap();
            let error = Folder::open(dir.path()).unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
        };
        let file = std::mem::replace(&mut campaign.runner.file, "../../x".to_owned());
        refused(&campaign, "is not named by its hash");
        campaign.runner.file = file;
        campaign.elements[1].variant = "../x".to_owned();
        refused(&campaign, "variant '../x'");
    }

    #[test]
    fn damaged_files_are_refused_by_name() {
        let dir = tempfile::tempdir().unwrap();
        let (folder, _) = submitted(dir.path(), PLAN);
        folder.next_attempt(0).unwrap();
        folder.finish(&done(0, 1, 0)).unwrap();
        let path = folder.element(0).join(DONE);
        std::fs::write(&path, "{\"schema\": ").unwrap();
        assert!(folder.done(0).unwrap_err().to_string().contains("done.json"));
        std::fs::write(&path, serde_json::to_string(&done(1, 1, 0)).unwrap()).unwrap();
        assert!(folder.done(0).unwrap_err().to_string().contains("no outcome of element 0"));
        let path = dir.path().join(CAMPAIGN);
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::write(&path, text.replace(SCHEMA, "vpmu-campaign/9")).unwrap();
        assert!(Folder::open(dir.path()).unwrap_err().to_string().contains("vpmu-campaign/9"));
    }
}
