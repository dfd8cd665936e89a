//! The folder of a campaign: what was submitted, and what each element left.

use std::collections::BTreeMap;
use std::io::{self, Read as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use results::document::Tool;
use results::error::Error;
use results::write::{place, replace};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::element::Element;
use super::plan::{Plan, PlannedVariant, SlurmOptions};
use crate::tool;

/// Schema of the campaign's own file.
pub const SCHEMA: &str = "vpmu-campaign/1";
/// Schema of an element's outcome.
pub const ELEMENT_SCHEMA: &str = SCHEMA;
/// The campaign's own file.
pub const CAMPAIGN: &str = "campaign.json";
/// Folder of the binaries.
const BIN: &str = "bin";
/// An element's outcome.
const DONE: &str = "done.json";
/// What is known of an attempt at its start.
pub const ATTEMPT: &str = "attempt.json";
/// Most attempts at an element.
const MAX_ATTEMPTS: u32 = 1000;
/// Why an attempt was stopped, as text.
pub const STOPPED: &str = "stopped.txt";
/// Most of it that is read, bytes.
const MAX_REASON: u64 = 1000;
/// Largest of these files, bytes: 100 000 elements are some 50 MB.
const MAX_FILE: u64 = 256 << 20;

/// A binary of a campaign.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Binary {
    /// Name of the file in the campaign's `bin/`, after its contents.
    pub file: String,
    /// BLAKE3 of its bytes, hex.
    pub blake3: String,
}

/// What was submitted.
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
    /// How often Slurm started it anew.
    pub restarts: u64,
}

/// What is known of an attempt at its start.
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
    /// What `vpmu doctor` finds missing or doubtful there, a line each.
    pub findings: Vec<String>,
}

/// How an element ended.
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
    /// What it said last, if it failed.
    pub error: Option<String>,
}

impl Done {
    /// Whether it did what it was to do.
    #[must_use]
    pub fn is_ok(&self) -> bool {
        self.exit == Some(0)
    }

    /// How it ended, in words.
    #[must_use]
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
}

impl Folder {
    /// Whether `path` is the folder of a campaign.
    #[must_use]
    pub fn is_one(path: &Path) -> bool {
        path.join(CAMPAIGN).is_file()
    }

    /// The folder of a campaign that was submitted.
    ///
    /// # Errors
    /// Exit 2 if there is none.
    pub fn open(path: &Path) -> Result<(Self, Campaign), Error> {
        if !Self::is_one(path) {
            return Err(Error::usage(
                format!("{} is no campaign", path.display()),
                format!("there is no {CAMPAIGN} in it"),
                "`vpmu fleet submit PLAN.toml -o DIR` makes one",
            ));
        }
        let folder = Self { path: absolute(path)? };
        let campaign: Campaign = folder.read(Path::new(CAMPAIGN))?;
        if campaign.schema != SCHEMA {
            return Err(Error::usage(
                format!("cannot use {}", folder.path.join(CAMPAIGN).display()),
                format!("its schema is {}, not {SCHEMA}", campaign.schema),
                "use the version of vpmu that wrote it",
            ));
        }
        let numbered = campaign.elements.iter().enumerate().all(|(at, element)| element.number == at as u64);
        if !numbered {
            return Err(refuse(&folder.path.join(CAMPAIGN), "its elements are not numbered from 0".to_owned()));
        }
        Ok((folder, campaign))
    }

    /// Makes the folder of a campaign, or finds it again.
    ///
    /// # Errors
    /// Exit 2 if the folder holds another campaign, or cannot be written to.
    pub fn submit(path: &Path, plan: &Plan, elements: Vec<Element>, now: u64) -> Result<(Self, Campaign), Error> {
        if Self::is_one(path) {
            let (folder, campaign) = Self::open(path)?;
            let same = campaign.elements.len() == elements.len()
                && campaign.elements.iter().zip(&elements).all(|(one, other)| one.is_same(other));
            if campaign.name != plan.name || !same {
                return Err(Error::usage(
                    format!("{} holds another campaign", path.display()),
                    format!(
                        "its elements are those of the plan of {}",
                        results::write::time_stamp(campaign.submitted_unix)
                    ),
                    "choose another folder with -o DIR, or restore that plan",
                ));
            }
            for variant in &plan.variants {
                let Some(binary) = &variant.binary else { continue };
                let kept = campaign.binaries.get(&variant.name).map(|binary| binary.blake3.as_str());
                let now = std::fs::read(binary).map(|bytes| blake3::hash(&bytes).to_hex().to_string());
                if now.as_deref().ok() != kept {
                    return Err(Error::usage(
                        format!("variant '{}' of {} has another binary", variant.name, path.display()),
                        format!("{} has changed since the first submission", binary.display()),
                        "choose another folder with -o DIR: one campaign has one binary for each variant",
                    ));
                }
            }
            return Ok((folder, campaign));
        }
        let failed = |error: &io::Error| cannot(path, error);
        std::fs::create_dir_all(path.join(BIN)).map_err(|error| failed(&error))?;
        let folder = Self { path: absolute(path)? };
        let own = std::env::current_exe().map_err(|error| failed(&error))?;
        let runner = folder.keep_binary(&own)?;
        let binary = |variant: &PlannedVariant| match &variant.binary {
            None => Ok((variant.name.clone(), runner.clone())),
            Some(binary) => Ok((variant.name.clone(), folder.keep_binary(binary)?)),
        };
        let binaries = plan.variants.iter().map(binary).collect::<Result<_, Error>>()?;
        let campaign = Campaign {
            schema: SCHEMA.to_owned(),
            name: plan.name.clone(),
            tool: tool::this(),
            submitted_unix: now,
            folder: plan.folder.clone(),
            runner,
            binaries,
            slurm: plan.slurm.clone(),
            plan: plan.text.clone(),
            elements,
        };
        // Written last: a folder without it is none.
        if folder.write_new(Path::new(CAMPAIGN), &campaign)? {
            return Ok((folder, campaign));
        }
        // Another submission was first.
        Self::submit(path, plan, campaign.elements, now)
    }

    /// Copies a binary into `bin/`.
    fn keep_binary(&self, from: &Path) -> Result<Binary, Error> {
        let unusable = |error: io::Error| {
            let what = format!("cannot use the binary {}", from.display());
            Error::usage(what, error.to_string(), "give a file that can be executed")
        };
        let bytes = std::fs::read(from).map_err(unusable)?;
        let mode = std::fs::metadata(from).map_err(unusable)?.permissions().mode();
        if mode & 0o111 == 0 {
            return Err(unusable(io::Error::other("it is not executable")));
        }
        let blake3 = blake3::hash(&bytes).to_hex().to_string();
        let binary = Binary { file: format!("vpmu-{}", &blake3[..12]), blake3 };
        let to = self.binary(&binary);
        replace(&to, &bytes)
            .and_then(|()| std::fs::set_permissions(&to, std::fs::Permissions::from_mode(0o755)))
            .map_err(|error| cannot(&to, &error))?;
        Ok(binary)
    }

    /// The path of a binary.
    #[must_use]
    pub fn binary(&self, binary: &Binary) -> PathBuf {
        self.path.join(BIN).join(&binary.file)
    }

    /// The folder of an element.
    #[must_use]
    pub fn element(&self, number: u64) -> PathBuf {
        self.path.join("elements").join(format!("{number:06}"))
    }

    /// The outcome of an element; `None` as long as no attempt came to an end.
    ///
    /// # Errors
    /// Exit 2 if the file is damaged.
    pub fn done(&self, number: u64) -> Result<Option<Done>, Error> {
        let path = self.element(number).join(DONE);
        if !path.exists() {
            return Ok(None);
        }
        let done: Done = self.read(&path)?;
        if done.attempt.schema != ELEMENT_SCHEMA || done.attempt.element != number {
            let why = format!("it is no outcome of element {number} ({})", done.attempt.schema);
            return Err(refuse(&path, why));
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
        std::fs::create_dir_all(&folder).map_err(|error| cannot(&folder, &error))?;
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

    /// Attempts at an element.
    #[must_use]
    pub fn attempts(&self, number: u64) -> Vec<Attempt> {
        let folder = self.element(number);
        (1..=MAX_ATTEMPTS)
            .map(|attempt| folder.join(format!("attempt-{attempt}")))
            .take_while(|path| path.is_dir())
            .filter_map(|path| self.read(&path.join(ATTEMPT)).ok())
            .collect()
    }

    /// Why the last attempt at an element was stopped, if it noted that.
    #[must_use]
    pub fn stopped(&self, number: u64, attempt: u32) -> Option<String> {
        let path = self.element(number).join(format!("attempt-{attempt}")).join(STOPPED);
        let mut text = String::new();
        std::fs::File::open(path).ok()?.take(MAX_REASON).read_to_string(&mut text).ok()?;
        Some(results::error::one_line(&text)).filter(|text| !text.is_empty())
    }

    /// Writes a file of the campaign, unless there is one; false if there is.
    ///
    /// # Errors
    /// Exit 2 with the file system's reason.
    pub fn write_new<T: Serialize>(&self, path: &Path, value: &T) -> Result<bool, Error> {
        let path = self.path.join(path);
        let text = serde_json::to_string_pretty(value)
            .map_err(|error| crate::console::internal("cannot write JSON", error))?;
        place(&path, (text + "\n").as_bytes()).map_err(|error| cannot(&path, &error))
    }

    fn read<T: DeserializeOwned>(&self, path: &Path) -> Result<T, Error> {
        let path = self.path.join(path);
        let mut text = String::new();
        std::fs::File::open(&path)
            .and_then(|file| file.take(MAX_FILE + 1).read_to_string(&mut text))
            .map_err(|error| refuse(&path, error.to_string()))?;
        if text.len() as u64 > MAX_FILE {
            return Err(refuse(&path, format!("it is larger than {MAX_FILE} bytes")));
        }
        serde_json::from_str(&text).map_err(|error| refuse(&path, error.to_string()))
    }
}

fn absolute(path: &Path) -> Result<PathBuf, Error> {
    path.canonicalize().map_err(|error| cannot(path, &error))
}

fn cannot(path: &Path, error: &io::Error) -> Error {
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
pub(super) mod tests {
    use super::*;
    use crate::fleet::element::elements;

    pub(in crate::fleet) fn plan(text: &str) -> Plan {
        Plan::parse(text, "/".into()).unwrap()
    }

    pub(in crate::fleet) fn submitted(dir: &Path, text: &str) -> (Folder, Campaign) {
        let plan = plan(text);
        let elements = elements(&plan, &|_| None);
        Folder::submit(dir, &plan, elements, 7).unwrap()
    }

    pub(in crate::fleet) fn done(number: u64, attempt: u32, exit: u8) -> Done {
        Done {
            attempt: Attempt {
                schema: ELEMENT_SCHEMA.to_owned(),
                element: number,
                attempt,
                host: Some("n1".to_owned()),
                boot: None,
                job: None,
                began_unix: 5,
                findings: Vec::new(),
            },
            name: "x".to_owned(),
            ended_unix: 6,
            exit: Some(exit),
            signal: None,
            documents: Vec::new(),
            error: None,
        }
    }

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
        assert_eq!(Folder::open(&path).unwrap(), (folder, campaign));
        let other = plan(&PLAN.replace("a,b", "a,c"));
        let error = Folder::submit(&path, &other, elements(&other, &|_| None), 9).unwrap_err();
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
