//! A plan becomes a campaign's folder, or finds its own again.

use std::io;
use std::path::Path;

use results::document::Tool;
use results::error::Error;
use results::open::found_bytes;
use results::write::Target;

use super::element::Element;
use super::folder::{BIN, CAMPAIGN, Campaign, Folder, MAX_BINARY, SCHEMA, cannot, make, own};
use super::plan::{Plan, Variant};
use crate::hash::sha256;

/// Makes the folder of a campaign, or finds it again; `tool` and `vpmu` are the program that submits.
///
/// # Errors
/// Exit 2 if the folder holds another campaign or program, is not safe from other users, or cannot be written to.
pub fn submit(
    path: &Path,
    plan: &Plan,
    elements: Vec<Element>,
    (tool, vpmu): (Tool, &Path),
    now: u64,
) -> Result<(Folder, Campaign), Error> {
    if Folder::is_one(path) {
        return again(path, plan, &elements, vpmu);
    }
    let failed = |error: io::Error| cannot(path, &error);
    // A folder that others can change must not get one of this user's below it.
    if !path.exists() {
        let there = path.ancestors().skip(1).find(|path| path.exists()).unwrap_or(Path::new("."));
        own(there, false)?;
        make(path).map_err(failed)?;
    }
    let folder = Folder { path: own(path, true)? };
    make(&folder.path.join(BIN)).map_err(failed)?;
    let runner = keep_binary(&folder, vpmu)?;
    let binary = |variant: &Variant| match &variant.binary {
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
        plan: plan.text.clone(),
        elements,
    };
    // This file is written last, because a folder without it is no campaign.
    if folder.write_new(Path::new(CAMPAIGN), &campaign)? {
        return Ok((folder, campaign));
    }
    // Another submission was first.
    again(path, plan, &campaign.elements, vpmu)
}

/// Opens the campaign that `path` holds, if it is of this plan and would run what this submission runs.
fn again(path: &Path, plan: &Plan, elements: &[Element], vpmu: &Path) -> Result<(Folder, Campaign), Error> {
    let (folder, campaign) = Folder::own(path)?;
    if campaign.name != plan.name || campaign.elements != elements {
        return Err(Error::usage(
            format!("{} holds another campaign", path.display()),
            format!("its elements are those of the plan of {}", results::write::time_stamp(campaign.submitted_unix)),
            "choose another folder with -o DIR, or restore that plan",
        ));
    }
    let is = |file: &Path, kept: &str| found_bytes(file, MAX_BINARY).is_ok_and(|bytes| sha256(&bytes) == kept);
    let other = |what: String, file: &Path| {
        let why = format!("{} is not the one of the first submission", file.display());
        Err(Error::usage(what, why, "choose another folder with -o DIR: one campaign has one binary for each variant"))
    };
    if !is(vpmu, &campaign.runner) {
        return other(format!("{} has another vpmu", path.display()), vpmu);
    }
    for Variant { name, binary, .. } in &plan.variants {
        let file = binary.as_deref().unwrap_or(vpmu);
        if !campaign.binaries.get(name).is_some_and(|kept| is(file, kept)) {
            return other(format!("variant '{name}' of {} has another binary", path.display()), file);
        }
    }
    Ok((folder, campaign))
}

/// Copies a binary into `bin/`; returns its hash.
fn keep_binary(folder: &Folder, from: &Path) -> Result<String, Error> {
    let bytes = found_bytes(from, MAX_BINARY).map_err(|error| {
        let what = format!("cannot use the binary {}", from.display());
        Error::usage(what, error.to_string(), "give a file that can be executed")
    })?;
    let hash = sha256(&bytes);
    let to = folder.binary(&hash);
    Target::of(&to).and_then(|target| target.mode(0o755).replace(&bytes)).map_err(|error| cannot(&to, &error))?;
    Ok(hash)
}
