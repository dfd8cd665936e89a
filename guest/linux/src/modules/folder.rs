//! Folders of a kernel's modules.

use std::fs;
use std::path::{Path, PathBuf};

use super::error::ModuleError;

/// Folders in which a system keeps its modules, by release.
const SYSTEM: [&str; 2] = ["lib/modules", "usr/lib/modules"];

/// Finds the folder of the modules of kernel `release`: in the folder `given`, which is that folder or one above it; otherwise beside the
/// kernel's file, as a package has them. The host's own modules are those of such a kernel, too.
pub fn find(release: &str, given: Option<&Path>, kernel: &Path) -> Result<PathBuf, ModuleError> {
    let candidates = match given {
        Some(folder) => within(folder, release),
        None => beside(kernel, release),
    };
    if let Some(found) = candidates.iter().find(|folder| folder.join("kernel").is_dir()) {
        return Ok(found.clone());
    }
    if let Some(folder) = given {
        let found = releases(folder);
        if !found.is_empty() {
            let (folder, release) = (folder.to_owned(), release.to_owned());
            return Err(ModuleError::OtherRelease { folder, found: found.join(", "), release });
        }
    }
    let searched = candidates.iter().map(|folder| folder.display().to_string()).collect::<Vec<_>>().join(", ");
    Err(ModuleError::NoFolder { release: release.to_owned(), searched })
}

fn within(folder: &Path, release: &str) -> Vec<PathBuf> {
    let mut candidates = vec![folder.join(release)];
    candidates.extend(SYSTEM.iter().map(|system| folder.join(system).join(release)));
    // A folder that is named otherwise, such as a build's: each module's own release decides.
    if release_of(folder).is_none_or(|named| named == release) {
        candidates.insert(0, folder.to_owned());
    }
    candidates
}

fn beside(kernel: &Path, release: &str) -> Vec<PathBuf> {
    let kernel = fs::canonicalize(kernel).unwrap_or_else(|_| kernel.to_owned());
    let mut candidates = Vec::new();
    // usr/lib/modules/RELEASE/vmlinuz.
    candidates.extend(kernel.parent().filter(|folder| folder.ends_with(release)).map(Path::to_owned));
    // boot/vmlinuz-RELEASE.
    if let Some(root) = kernel.parent().and_then(Path::parent) {
        candidates.extend(SYSTEM.iter().map(|system| root.join(system).join(release)));
    }
    candidates.push(Path::new("/").join(SYSTEM[0]).join(release));
    candidates.dedup();
    candidates
}

/// Returns the release in a folder's name: it begins with a number.
fn release_of(folder: &Path) -> Option<String> {
    let name = fs::canonicalize(folder).ok()?.file_name()?.to_str()?.to_owned();
    name.starts_with(|first: char| first.is_ascii_digit()).then_some(name)
}

/// Lists the releases of the modules in a folder, or below it.
fn releases(folder: &Path) -> Vec<String> {
    let mut found: Vec<String> = release_of(folder).filter(|_| folder.join("kernel").is_dir()).into_iter().collect();
    for above in [folder.to_owned()].into_iter().chain(SYSTEM.iter().map(|system| folder.join(system))) {
        for entry in fs::read_dir(above).into_iter().flatten().flatten() {
            let path = entry.path();
            found.extend(release_of(&path).filter(|_| path.join("kernel").is_dir()));
        }
    }
    found.sort();
    found.dedup();
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn make(root: &Path, path: &str) {
        fs::create_dir_all(root.join(path)).unwrap();
    }

    #[test]
    fn a_package_has_its_modules_beside_its_kernel() {
        let root = tempfile::tempdir().unwrap();
        let root = &fs::canonicalize(root.path()).unwrap();
        make(root, "lib/modules/6.1.0-50-amd64/kernel");
        make(root, "usr/lib/modules/7.2.12/kernel");
        make(root, "boot");
        for kernel in ["boot/vmlinuz-6.1.0-50-amd64", "usr/lib/modules/7.2.12/vmlinuz"] {
            fs::write(root.join(kernel), "").unwrap();
        }
        let found = |release, kernel| find(release, None, &root.join(kernel));
        assert_eq!(
            found("6.1.0-50-amd64", "boot/vmlinuz-6.1.0-50-amd64").unwrap(),
            root.join("lib/modules/6.1.0-50-amd64")
        );
        assert_eq!(found("7.2.12", "boot/vmlinuz-7.2.12").unwrap(), root.join("usr/lib/modules/7.2.12"));
        assert_eq!(found("7.2.12", "usr/lib/modules/7.2.12/vmlinuz").unwrap(), root.join("usr/lib/modules/7.2.12"));
        let error = found("5.0-none", "boot/vmlinuz-5.0-none").unwrap_err();
        assert!(error.to_string().contains("--modules"), "{error}");
    }

    #[test]
    fn a_given_folder_is_that_of_the_release_or_above_it() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path();
        make(root, "x/lib/modules/6.1/kernel");
        make(root, "build/kernel");
        let found = |folder: &str, release| find(release, Some(&root.join(folder)), Path::new("/nowhere/vmlinuz"));
        for folder in ["x", "x/lib/modules", "x/lib/modules/6.1"] {
            assert!(found(folder, "6.1").unwrap().ends_with("lib/modules/6.1"), "{folder}");
            let error = found(folder, "6.2").unwrap_err().to_string();
            assert!(error.contains("modules of 6.1") && error.contains("kernel is 6.2"), "{error}");
        }
        assert!(found("build", "6.2").is_ok(), "a folder without a release in its name");
        assert!(matches!(found("y", "6.1"), Err(ModuleError::NoFolder { .. })));
    }
}
