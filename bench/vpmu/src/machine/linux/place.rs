//! A file of the host and its place in the guest.

use std::ffi::OsStr;
use std::io::ErrorKind;
use std::path::PathBuf;
use std::str::FromStr;

use crate::setting::program::{in_path, is_program};

/// `FILE` or `FILE:PATH`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placed {
    /// A file, a folder, or the name of a program in PATH.
    pub host: PathBuf,
    /// Path in the guest; `None` is by rule: see [`Placed::resolve`].
    pub guest: Option<String>,
}

impl FromStr for Placed {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (host, guest) = match text.split_once(':') {
            Some((host, guest)) => (host, Some(guest)),
            None => (text, None),
        };
        if host.is_empty() {
            return Err("an empty name; give FILE or FILE:PATH".to_owned());
        }
        if guest.is_some_and(|guest| !is_plain(guest)) {
            return Err("PATH of FILE:PATH is an absolute path in the guest without . and ..".to_owned());
        }
        Ok(Self { host: host.into(), guest: guest.map(str::to_owned) })
    }
}

/// Returns whether `path` is absolute and names a file below the root.
fn is_plain(path: &str) -> bool {
    let parts = path.strip_prefix('/').map(|rest| rest.split('/'));
    parts.is_some_and(|mut parts| parts.all(|part| !part.is_empty() && part != "." && part != ".."))
}

impl Placed {
    /// Finds the file, and its path in the guest. A name without a slash that is no file here is looked for in `path`, the folders of
    /// PATH. Programs go to `/bin`, files and folders to `/root`.
    ///
    /// # Errors
    /// It does not exist.
    pub fn resolve(&self, path: Option<&OsStr>) -> Result<(PathBuf, String), String> {
        let is_name = self.host.components().count() == 1 && !self.host.to_string_lossy().contains('/');
        let found = in_path(&self.host, path).filter(|_| is_name && !self.host.is_file());
        let host = found.as_ref().unwrap_or(&self.host);
        std::fs::metadata(host).map_err(|error| match error.kind() {
            ErrorKind::NotFound if is_name => "it is neither a file here nor a program in PATH".to_owned(),
            _ => error.to_string(),
        })?;
        let guest = match &self.guest {
            Some(guest) => guest.clone(),
            None => {
                let name = host.canonicalize().map_err(|error| error.to_string())?;
                let name = host.file_name().or_else(|| name.file_name()).unwrap_or_default().to_string_lossy();
                format!("{}/{name}", if is_program(host) { "/bin" } else { "/root" })
            }
        };
        Ok((host.clone(), guest))
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;
    use std::path::Path;

    use super::*;

    #[test]
    fn a_place_is_a_file_and_a_path() {
        let placed: Placed = "perf:/usr/local/bin/perf".parse().unwrap();
        assert_eq!((placed.host.as_path(), placed.guest.as_deref()), (Path::new("perf"), Some("/usr/local/bin/perf")));
        assert_eq!("a/b".parse::<Placed>().unwrap().guest, None);
    }

    #[test]
    fn programs_and_files_have_their_usual_places() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str, mode| {
            let file = folder.path().join(name);
            std::fs::write(&file, "x").unwrap();
            std::fs::set_permissions(&file, std::fs::Permissions::from_mode(mode)).unwrap();
            file.to_string_lossy().into_owned()
        };
        let (tool, data) = (at("vpmu-tool", 0o755), at("vpmu-data", 0o644));
        let path = folder.path().as_os_str();
        let guest = |text: &str| text.parse::<Placed>().unwrap().resolve(Some(path)).map(|found| found.1);
        assert_eq!(guest(&tool).unwrap(), "/bin/vpmu-tool");
        assert_eq!(guest(&data).unwrap(), "/root/vpmu-data");
        assert_eq!(guest("vpmu-tool").unwrap(), "/bin/vpmu-tool");
        assert_eq!(guest(&format!("{data}:/etc/x")).unwrap(), "/etc/x");
        assert_eq!(guest(&folder.path().to_string_lossy()).unwrap().rsplit('/').nth(1), Some("root"));
        assert!(guest("vpmu-data").is_err(), "not executable, so no program");
        assert!(guest("/no/such").is_err());
    }
}
