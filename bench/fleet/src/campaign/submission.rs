//! A plan becomes a campaign's folder, or finds its own again.

use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use results::document::Tool;
use results::error::Error;
use results::write::Target;

use super::element::Element;
use super::folder::{BIN, Binary, CAMPAIGN, Campaign, Folder, SCHEMA, cannot};
use super::plan::{Plan, PlannedVariant};
use super::trust::{self, Trust, make};
use crate::hash::sha256;

/// Permissions that the user gives.
#[derive(Clone, Copy, Debug, Default)]
pub struct Terms {
    /// Who may have changed the folder.
    pub trust: Trust,
    /// True to go on with the program that first submitted the campaign, although this one is another.
    pub keep_binary: bool,
}

/// Makes the folder of a campaign, or finds it again.
///
/// # Errors
/// Exit 2 if the folder holds another campaign or program, is not safe from other users, or cannot be written to.
pub fn submit(
    path: &Path,
    plan: &Plan,
    elements: Vec<Element>,
    tool: Tool,
    now: u64,
    terms: Terms,
) -> Result<(Folder, Campaign), Error> {
    if Folder::is_one(path) {
        return again(path, plan, &elements, terms);
    }
    let failed = |error: &io::Error| cannot(path, error);
    let there = path.ancestors().find(|path| path.as_os_str().is_empty() || path.exists()).unwrap_or(path);
    if there != path {
        trust::place(if there.as_os_str().is_empty() { Path::new(".") } else { there }, terms.trust)?;
        make(path, terms.trust).map_err(|error| failed(&error))?;
    }
    let folder = Folder { path: trust::folder(path, terms.trust)?, trust: Some(terms.trust) };
    make(&folder.path.join(BIN), terms.trust).map_err(|error| failed(&error))?;
    let own = std::env::current_exe().map_err(|error| failed(&error))?;
    let runner = keep_binary(&folder, &own)?;
    let binary = |variant: &PlannedVariant| match &variant.binary {
        None => Ok((variant.name.clone(), runner.clone())),
        Some(binary) => Ok((variant.name.clone(), keep_binary(&folder, binary)?)),
    };
    let binaries = plan.variants.iter().map(binary).collect::<Result<_, Error>>()?;
    let campaign = Campaign {
        schema: SCHEMA.to_owned(),
        name: plan.name.clone(),
        tool,
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
    again(path, plan, &campaign.elements, terms)
}

/// Opens the campaign that `path` holds, if it is of this plan and would run what this submission runs.
fn again(path: &Path, plan: &Plan, elements: &[Element], terms: Terms) -> Result<(Folder, Campaign), Error> {
    let (folder, campaign) = Folder::own(path, terms.trust)?;
    let same = campaign.elements.len() == elements.len()
        && campaign.elements.iter().zip(elements).all(|(one, other)| one.is_same(other));
    if campaign.name != plan.name || !same {
        return Err(Error::usage(
            format!("{} holds another campaign", path.display()),
            format!("its elements are those of the plan of {}", results::write::time_stamp(campaign.submitted_unix)),
            "choose another folder with -o DIR, or restore that plan",
        ));
    }
    let own = std::env::current_exe().ok();
    let is = |file: Option<&Path>, kept: &Binary| {
        file.and_then(|file| std::fs::read(file).ok()).is_some_and(|bytes| sha256(&bytes) == kept.sha256)
    };
    if !terms.keep_binary && !is(own.as_deref(), &campaign.runner) {
        return Err(Error::usage(
            format!("{} has another vpmu", path.display()),
            format!("{} is not this one: another version, or another user's program", campaign.runner.file),
            "choose another folder with -o DIR, or go on with the one there by --keep-binary",
        ));
    }
    for variant in &plan.variants {
        let kept = campaign.binaries.get(&variant.name);
        let (same, from) = match &variant.binary {
            None => (kept == Some(&campaign.runner), Path::new("the vpmu of this variant")),
            Some(binary) => (kept.is_some_and(|kept| is(Some(binary), kept)), binary.as_path()),
        };
        if !same {
            return Err(Error::usage(
                format!("variant '{}' of {} has another binary", variant.name, path.display()),
                format!("{} has changed since the first submission", from.display()),
                "choose another folder with -o DIR: one campaign has one binary for each variant",
            ));
        }
    }
    for binary in campaign.binaries.values().chain([&campaign.runner]) {
        folder.checked(binary)?;
    }
    Ok((folder, campaign))
}

/// Copies a binary into `bin/`.
fn keep_binary(folder: &Folder, from: &Path) -> Result<Binary, Error> {
    let unusable = |error: io::Error| {
        let what = format!("cannot use the binary {}", from.display());
        Error::usage(what, error.to_string(), "give a file that can be executed")
    };
    let bytes = std::fs::read(from).map_err(unusable)?;
    let mode = std::fs::metadata(from).map_err(unusable)?.permissions().mode();
    if mode & 0o111 == 0 {
        return Err(unusable(io::Error::other("it is not executable")));
    }
    let binary = Binary::of(&bytes);
    let to = folder.binary(&binary);
    Target::of(&to).and_then(|target| target.executable().replace(&bytes)).map_err(|error| cannot(&to, &error))?;
    Ok(binary)
}
