//! A plan becomes a campaign's folder, or finds its own again.

use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use results::document::Tool;
use results::error::Error;
use results::open::found_bytes;
use results::write::Target;

use super::element::Element;
use super::folder::{BIN, Binary, CAMPAIGN, Campaign, Folder, MAX_BINARY, SCHEMA, cannot, make, own, way};
use super::plan::{Plan, Variant};

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
    let failed = |error: &io::Error| cannot(path, error);
    let there = path.ancestors().find(|path| path.as_os_str().is_empty() || path.exists()).unwrap_or(path);
    if there != path {
        way(if there.as_os_str().is_empty() { Path::new(".") } else { there })?;
        make(path).map_err(|error| failed(&error))?;
    }
    let folder = Folder { path: own(path)? };
    make(&folder.path.join(BIN)).map_err(|error| failed(&error))?;
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
        slurm: plan.slurm.clone(),
        plan: plan.text.clone(),
        elements,
    };
    // Written last: a folder without it is none.
    if folder.write_new(Path::new(CAMPAIGN), &campaign)? {
        return Ok((folder, campaign));
    }
    // Another submission was first.
    again(path, plan, &campaign.elements, vpmu)
}

/// Opens the campaign that `path` holds, if it is of this plan and would run what this submission runs.
fn again(path: &Path, plan: &Plan, elements: &[Element], vpmu: &Path) -> Result<(Folder, Campaign), Error> {
    let (folder, campaign) = Folder::own(path)?;
    let same = campaign.elements.len() == elements.len()
        && campaign.elements.iter().zip(elements).all(|(one, other)| one.is_same(other));
    if campaign.name != plan.name || !same {
        return Err(Error::usage(
            format!("{} holds another campaign", path.display()),
            format!("its elements are those of the plan of {}", results::write::time_stamp(campaign.submitted_unix)),
            "choose another folder with -o DIR, or restore that plan",
        ));
    }
    let is = |file: &Path, kept: &Binary| found_bytes(file, MAX_BINARY).is_ok_and(|bytes| Binary::of(&bytes) == *kept);
    if !is(vpmu, &campaign.runner) {
        return Err(Error::usage(
            format!("{} has another vpmu", path.display()),
            format!("{} is not this one: another version, or another user's program", campaign.runner.file),
            "choose another folder with -o DIR: one campaign has one vpmu",
        ));
    }
    for variant in &plan.variants {
        let kept = campaign.binaries.get(&variant.name);
        let (same, from) = match &variant.binary {
            None => (kept == Some(&campaign.runner), Path::new("the vpmu of this variant")),
            Some(binary) => (kept.is_some_and(|kept| is(binary, kept)), binary.as_path()),
        };
        if !same {
            return Err(Error::usage(
                format!("variant '{}' of {} has another binary", variant.name, path.display()),
                format!("{} has changed since the first submission", from.display()),
                "choose another folder with -o DIR: one campaign has one binary for each variant",
            ));
        }
    }
    Ok((folder, campaign))
}

/// Copies a binary into `bin/`.
fn keep_binary(folder: &Folder, from: &Path) -> Result<Binary, Error> {
    let unusable = |error: io::Error| {
        let what = format!("cannot use the binary {}", from.display());
        Error::usage(what, error.to_string(), "give a file that can be executed")
    };
    let bytes = found_bytes(from, MAX_BINARY).map_err(unusable)?;
    let mode = std::fs::metadata(from).map_err(unusable)?.permissions().mode();
    if mode & 0o111 == 0 {
        return Err(unusable(io::Error::other("it is not executable")));
    }
    let binary = Binary::of(&bytes);
    let to = folder.binary(&binary);
    Target::of(&to).and_then(|target| target.executable().replace(&bytes)).map_err(|error| cannot(&to, &error))?;
    Ok(binary)
}
