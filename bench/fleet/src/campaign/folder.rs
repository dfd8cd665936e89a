//! The folder of a campaign: what was submitted, and what each element left.
//!
//! Whoever submits a campaign runs its binaries, so it is acted on only in a folder that is this user's and closed to all others
//! (`own`). What is in such a folder is not checked again. A campaign of somebody else is only read: its files are opened below its
//! folder, without links, and of a bounded size.

use std::collections::BTreeMap;
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use results::document::Tool;
use results::error::Error;
use results::open;
use results::write::Target;
use rustix::process::geteuid;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::element::Element;
use crate::hash::sha256;
use crate::run::Labels;

/// Schema of a campaign's files.
pub const SCHEMA: &str = "vpmu-campaign/4";
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

/// Largest binary, bytes.
pub const MAX_BINARY: u64 = 1 << 30;

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
    /// SHA-256 of the binary that runs elements: that of the submission.
    pub runner: String,
    /// SHA-256 of the binary of each variant, by the variant's name.
    pub binaries: BTreeMap<String, String>,
    /// Text of the plan.
    pub plan: String,
    /// The elements, in order.
    pub elements: Vec<Element>,
}

impl Campaign {
    /// Returns the element of this number.
    pub fn element(&self, number: u64) -> Option<&Element> {
        self.elements.get(usize::try_from(number).ok()?)
    }
}

/// The facts of an attempt that are known at its start.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attempt {
    /// [`SCHEMA`].
    pub schema: String,
    /// Number of the element.
    pub element: u64,
    /// Which attempt, from 1.
    pub attempt: u32,
    /// The host: Slurm's node name, else the host's own.
    pub host: Option<String>,
    /// Identity of its boot.
    pub boot: Option<String>,
    /// The Slurm job, as `JOB_TASK`.
    pub job: Option<String>,
    /// Start, seconds since 1970 by the host's clock.
    pub began_unix: u64,
}

/// Outcome of an element.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
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
    /// Describes its end.
    pub fn how(&self) -> String {
        match (self.exit, self.signal) {
            (Some(code), _) => format!("exit {code}"),
            (None, Some(signal)) => format!("signal {signal}"),
            (None, None) => "unknown".to_owned(),
        }
    }
}

/// Checks that nobody else can write to a folder or put another in its place, and gives it back without links; `closed`: also that it
/// is this user's and that others cannot read it.
///
/// # Errors
/// Exit 2 with the step that others can change.
pub(super) fn own(path: &Path, closed: bool) -> Result<PathBuf, Error> {
    let real = path.canonicalize().map_err(|error| unusable(path, &error))?;
    let user = geteuid().as_raw();
    for step in real.ancestors() {
        let meta = std::fs::symlink_metadata(step).map_err(|error| unusable(step, &error))?;
        let is_campaign = closed && step == real;
        // In a folder with the sticky bit, such as /tmp, nobody replaces what belongs to another.
        let why = if meta.uid() != user && (is_campaign || meta.uid() != 0) {
            format!("it belongs to user {}", meta.uid())
        } else if meta.mode() & 0o022 != 0 && meta.mode() & 0o1000 == 0 {
            "others can write to it".to_owned()
        } else if is_campaign && meta.mode() & 0o077 != 0 {
            "it is open to others".to_owned()
        } else {
            continue;
        };
        return Err(Error::usage(
            format!("{} is not safe from other users", path.display()),
            format!("{}: {why}, and what is in a campaign's folder runs as you", step.display()),
            "choose a folder that only you can change; `chmod 700` closes one of yours",
        ));
    }
    Ok(real)
}

/// Makes a folder, and those above it that are missing, closed to others.
///
/// # Errors
/// Returns the errors of the file system.
pub(super) fn make(path: &Path) -> io::Result<()> {
    std::fs::DirBuilder::new().mode(0o700).recursive(true).create(path)
}

fn unusable(path: &Path, error: &io::Error) -> Error {
    let remedy = "choose another folder, or submit the plan again";
    Error::usage(format!("cannot use {}", path.display()), error.to_string(), remedy)
}

/// A campaign's folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Folder {
    /// Absolute path.
    pub path: PathBuf,
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
        if Self::is_one(path) {
            return Self { path: path.canonicalize().map_err(|error| unusable(path, &error))? }.read();
        }
        let why = format!("there is no {CAMPAIGN} in it");
        Err(Error::usage(
            format!("{} is no campaign", path.display()),
            why,
            "`vpmu fleet submit PLAN.toml -o DIR` makes one",
        ))
    }

    /// Opens a campaign to act on it: to run its elements, to write to it.
    ///
    /// # Errors
    /// Exit 2 if there is none, or if others could have changed it.
    pub fn own(path: &Path) -> Result<(Self, Campaign), Error> {
        if Self::is_one(path) { Self { path: own(path, true)? }.read() } else { Self::open(path) }
    }

    fn read(self) -> Result<(Self, Campaign), Error> {
        let file = self.path.join(CAMPAIGN);
        let text = self.text(&file).map_err(|error| refuse(&file, error.to_string()))?;
        let campaign: Campaign = parsed(&file, &text)?;
        if campaign.schema == SCHEMA {
            return Ok((self, campaign));
        }
        Err(refuse(&file, format!("its schema is {}, not {SCHEMA}", campaign.schema)))
    }

    /// Returns the path of a binary, by its hash.
    pub fn binary(&self, sha256: &str) -> PathBuf {
        self.path.join(BIN).join(format!("vpmu-{}", sha256.get(..12).unwrap_or(sha256)))
    }

    /// Reads a binary, which is the one that was submitted.
    ///
    /// # Errors
    /// Exit 2 for another file.
    pub fn program(&self, hash: &str) -> Result<Vec<u8>, Error> {
        let path = self.binary(hash);
        let bytes = open::found_bytes(&path, MAX_BINARY).map_err(|error| refuse(&path, error.to_string()))?;
        if sha256(&bytes) == hash {
            return Ok(bytes);
        }
        let what = format!("{} is not the binary that was submitted", path.display());
        Err(Error::usage(what, "its hash is another", "submit the plan to another folder"))
    }

    /// Returns the folder of an element.
    pub fn element(&self, number: u64) -> PathBuf {
        self.path.join("elements").join(format!("{number:06}"))
    }

    /// Lists the documents of the elements that have an outcome, relative to the folder, each with what is known of it.
    ///
    /// # Errors
    /// Exit 2 for a damaged outcome.
    pub fn documents(&self, campaign: &Campaign) -> Result<Vec<(PathBuf, Labels)>, Error> {
        let mut documents = Vec::new();
        for element in campaign.elements.iter().filter(|element| element.part.is_none()) {
            // A failed element has no figures; an inconclusive one says which of its figures are not whole.
            let Some(done) = self.done(element.number)?.filter(|done| matches!(done.exit, Some(0 | 3))) else {
                continue;
            };
            let labels = Labels {
                host: done.attempt.host,
                element: Some(element.number),
                variant: (campaign.binaries.len() > 1).then(|| element.variant.clone()),
                repetition: Some(u64::from(element.repetition)),
            };
            documents.extend(done.documents.into_iter().map(|document| (document.into(), labels.clone())));
        }
        Ok(documents)
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
        // A copy of another element's would move a run to another variant.
        if done.attempt.element != number {
            return Err(refuse(&path, format!("it is the outcome of element {}", done.attempt.element)));
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

    /// Makes the folder of the next attempt at an element.
    ///
    /// # Errors
    /// Exit 2 if it cannot be made.
    pub fn next_attempt(&self, number: u64) -> Result<(u32, PathBuf), Error> {
        let folder = self.element(number);
        make(&folder).map_err(|error| cannot(&folder, &error))?;
        for attempt in 1..=MAX_ATTEMPTS {
            let path = folder.join(format!("attempt-{attempt}"));
            match std::fs::create_dir(&path) {
                Ok(()) => return Ok((attempt, path)),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(cannot(&path, &error)),
            }
        }
        Err(cannot(&folder, &io::Error::other(format!("{MAX_ATTEMPTS} attempts are there already"))))
    }

    /// Reads the attempts at an element.
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
        let placed = Target::of(&path).and_then(|target| target.place_new((text + "\n").as_bytes()));
        placed.map_err(|error| cannot(&path, &error))
    }

    /// Reads the text of a file in the folder, which has no links.
    pub(super) fn text(&self, path: &Path) -> io::Result<String> {
        let relative = path.strip_prefix(&self.path).unwrap_or(path);
        open::text(open::Folder::open(&self.path)?.file(relative, MAX_FILE)?)
    }
}

fn parsed<T: DeserializeOwned>(path: &Path, text: &str) -> Result<T, Error> {
    serde_json::from_str(text).map_err(|error| refuse(path, error.to_string()))
}

pub(super) fn cannot(path: &Path, error: &io::Error) -> Error {
    let remedy = "what finished is kept; make room or choose another folder, then run the same command again";
    Error::output(format!("cannot write {}", path.display()), error, remedy)
}

fn refuse(path: &Path, why: String) -> Error {
    Error::usage(
        format!("cannot use {}", path.display()),
        why,
        "restore it; or, of an element, remove it: the element runs again with the next submission",
    )
}

#[cfg(test)]
pub(super) mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;
    use crate::campaign::element::elements;
    use crate::campaign::plan::Plan;
    use crate::campaign::submission::submit;
    use crate::slurm::command::Slurm;

    /// Submits the campaign of a plan to `dir`, or says why not.
    fn submit_to(dir: &Path, text: &str) -> Result<(Folder, Campaign), Error> {
        let plan = Plan::parse(text, "/".into(), &Slurm::default()).unwrap();
        let tool = trials::fixture::document(1).tool;
        submit(dir, &plan, elements(&plan), (tool, Path::new("/bin/true")), 7)
    }

    pub(crate) fn submitted(dir: &Path, text: &str) -> (Folder, Campaign) {
        submit_to(dir, text).unwrap()
    }

    /// Builds an outcome.
    pub(crate) fn done(number: u64, attempt: u32, exit: u8) -> Done {
        let attempt = Attempt { element: number, attempt, host: Some("n1".to_owned()), ..Attempt::default() };
        Done { attempt, exit: Some(exit), ..Done::default() }
    }

    const PLAN: &str = "name = 'x'\nexperiment = [{ run = 'sim' }]\nhosts = [{ names = 'a,b' }]";

    #[test]
    fn a_campaign_is_found_again_and_another_plan_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("new");
        assert!(Folder::open(&path).unwrap_err().to_string().contains("is no campaign"));
        let (folder, campaign) = submitted(&path, PLAN);
        assert_eq!(campaign.elements.len(), 2);
        let own = std::fs::read("/bin/true").unwrap();
        assert_eq!(std::fs::read(folder.binary(&campaign.binaries["default"])).unwrap(), own);
        assert_eq!(submitted(&path, PLAN), (folder.clone(), campaign.clone()));
        assert_eq!(Folder::own(&path).unwrap(), (folder, campaign));
        let error = submit_to(&path, &PLAN.replace("a,b", "a,c")).unwrap_err();
        assert!(error.to_string().contains("holds another campaign"), "{error}");
    }

    #[test]
    fn the_first_outcome_counts() {
        let dir = tempfile::tempdir().unwrap();
        let (folder, _) = submitted(&dir.path().join("run"), PLAN);
        assert_eq!(folder.next_attempt(1).unwrap().0, 1);
        assert_eq!(folder.next_attempt(1).unwrap().0, 2);
        assert_eq!(folder.done(1).unwrap(), None);
        assert!(folder.finish(&done(1, 1, 0)).unwrap());
        assert!(!folder.finish(&done(1, 2, 4)).unwrap());
        assert_eq!(folder.done(1).unwrap().unwrap(), done(1, 1, 0));
    }

    #[test]
    fn a_folder_is_acted_on_if_nobody_else_could_have_changed_it() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        let set_mode = |name: &str, mode| std::fs::set_permissions(at(name), Permissions::from_mode(mode)).unwrap();
        make(&at("a/b")).unwrap();
        symlink("a", at("link")).unwrap();
        let real = at("a/b").canonicalize().unwrap();
        assert_eq!(own(&at("link/b"), true).unwrap(), real);
        let refused = |why: &str| {
            let error = own(&at("link/b"), true).unwrap_err();
            assert!(error.exit.code() == 2 && error.to_string().contains(why), "{error}");
        };
        // Who may read today may have written yesterday: one rule, and what is in the folder needs no other.
        set_mode("a/b", 0o750);
        refused("a/b: it is open to others");
        set_mode("a/b", 0o777);
        refused("a/b: others can write to it");
        set_mode("a/b", 0o700);
        set_mode("a", 0o770);
        refused("/a: others can write to it");
        set_mode("a", 0o1777);
        assert_eq!(own(&at("a/b"), true).unwrap(), real);
        own(&at("a"), false).unwrap();
        assert!(own(&at("a"), true).is_err());
    }

    #[test]
    fn damaged_files_are_refused_by_name() {
        let dir = tempfile::tempdir().unwrap();
        let (folder, _) = submitted(&dir.path().join("run"), PLAN);
        folder.next_attempt(0).unwrap();
        folder.finish(&done(0, 1, 0)).unwrap();
        let path = folder.element(0).join(DONE);
        std::fs::write(&path, "{\"schema\": ").unwrap();
        assert!(folder.done(0).unwrap_err().to_string().contains("done.json"));
        std::fs::remove_file(&path).unwrap();
        symlink("/etc/hostname", &path).unwrap();
        assert!(folder.done(0).unwrap_err().to_string().contains("it is a link"));
        let path = folder.path.join(CAMPAIGN);
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::write(&path, text.replace(SCHEMA, "vpmu-campaign/9")).unwrap();
        assert!(Folder::open(&folder.path).unwrap_err().to_string().contains("vpmu-campaign/9"));
    }
}
