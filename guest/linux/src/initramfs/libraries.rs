//! The search for a shared library, as ld.so(8) does it, without running anything.

use std::fs;
use std::path::{Path, PathBuf};

use object::elf::{DT_NEEDED, DT_RPATH, DT_RUNPATH, DT_STRSZ, DT_STRTAB, DynamicTag, EM_X86_64, FileHeader64};
use object::read::elf::{Dyn as _, FileHeader as _, ProgramHeader as _};
use object::{Endianness, FileKind, StringTable};
use results::open;

use super::error::InitramfsError;

/// Most bytes of a file: those that a RAM disk has.
pub(super) const MOST_BYTES: u64 = 1 << 30;

/// Folders that a loader searches by itself: those of Debian, then those of others.
const DEFAULTS: [&str; 6] =
    ["/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu", "/lib64", "/usr/lib64", "/lib", "/usr/lib"];

/// Files that one /etc/ld.so.conf includes at most.
const MOST_INCLUDED: usize = 100;

/// A folder on the host, and the folder in the guest that stands for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Folder {
    pub(super) host: PathBuf,
    pub(super) guest: String,
}

impl Folder {
    /// Names one folder on both sides.
    pub(super) fn same(path: &str) -> Self {
        Self { host: path.into(), guest: path.to_owned() }
    }

    /// Finds a folder of an RPATH or RUNPATH of a file that is in `origin`. None for a token other than $ORIGIN, and for a relative
    /// folder, which is searched from wherever the program is started.
    pub(super) fn of_path(path: &str, origin: &Self) -> Option<Self> {
        let in_origin = path.strip_prefix("$ORIGIN").or_else(|| path.strip_prefix("${ORIGIN}"));
        match in_origin {
            Some(rest) if rest.is_empty() || rest.starts_with('/') => Some(Self {
                host: origin.host.join(rest.trim_start_matches('/')),
                guest: plain(&format!("{}/{rest}", origin.guest)),
            }),
            None if path.starts_with('/') && !path.contains('$') => {
                Some(Self { host: path.into(), guest: plain(path) })
            }
            _ => None,
        }
    }
}

/// Returns a path without `.`, `..` and empty parts.
pub(super) fn plain(path: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => _ = parts.pop(),
            _ => parts.push(part),
        }
    }
    format!("/{}", parts.join("/"))
}

/// A library that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) folder: Folder,
    pub(super) bytes: Vec<u8>,
    /// The guest's loader does not look into this folder by itself.
    pub(super) configured: bool,
}

/// The folders of one host.
#[derive(Debug)]
pub(super) struct Search {
    configured: Vec<Folder>,
    defaults: Vec<Folder>,
}

impl Search {
    /// Reads the configuration below `root`, which is `/` but for tests.
    pub(super) fn new(root: &Path) -> Self {
        let defaults: Vec<Folder> =
            DEFAULTS.iter().map(|path| Folder { host: root.join(&path[1..]), guest: (*path).to_owned() }).collect();
        let mut names = Vec::new();
        let mut files = vec![root.join("etc/ld.so.conf")];
        let mut read = 0;
        while let Some(file) = files.pop() {
            read += 1;
            if read > MOST_INCLUDED {
                break;
            }
            let Ok(text) = open::found(&file, MOST_BYTES).and_then(open::text) else {
                continue;
            };
            for line in text.lines().map(|line| line.split('#').next().unwrap_or_default().trim()) {
                if let Some(pattern) = line.strip_prefix("include").map(str::trim) {
                    files.extend(matching(root, pattern));
                } else if line.starts_with('/') {
                    names.push(line.to_owned());
                }
            }
        }
        let configured = names.iter().map(|name| Folder { host: root.join(&name[1..]), guest: plain(name) }).collect();
        Self { configured, defaults }
    }

    /// Looks for a library in `first`, then where the host's loader looks. One for another processor is passed over.
    pub(super) fn find(&self, name: &str, first: &[Folder]) -> Option<Found> {
        let is_default = |folder: &Folder| self.defaults.iter().any(|default| default.guest == folder.guest);
        let own = first.iter().map(|folder| (folder, false));
        let configured = self.configured.iter().map(|folder| (folder, !is_default(folder)));
        let defaults = self.defaults.iter().map(|folder| (folder, false));
        own.chain(configured).chain(defaults).find_map(|(folder, configured)| {
            let bytes = open::found_bytes(&folder.host.join(name), MOST_BYTES).ok()?;
            fits(&bytes).then(|| Found { folder: folder.clone(), bytes, configured })
        })
    }

    /// Returns the folders searched, for a message.
    pub(super) fn describe(&self, first: &[Folder]) -> String {
        let all = first.iter().chain(&self.configured).chain(&self.defaults);
        all.map(|folder| folder.host.display().to_string()).collect::<Vec<_>>().join(", ")
    }

    /// Returns the folder that the guest's loader surely searches: it has the C library.
    pub(super) fn loaders_own(&self) -> String {
        let has_libc = |folder: &&Folder| folder.host.join("libc.so.6").exists();
        self.defaults.iter().find(has_libc).map_or("/usr/lib", |folder| &folder.guest).to_owned()
    }
}

/// Lists the files of a pattern with `*` in its last part, in order of their names; reversed, as they are taken from the end.
fn matching(root: &Path, pattern: &str) -> Vec<PathBuf> {
    let path = if pattern.starts_with('/') { pattern.to_owned() } else { format!("/etc/{pattern}") };
    let Some((folder, last)) = path.rsplit_once('/') else { return Vec::new() };
    let folder = root.join(folder.trim_start_matches('/'));
    let Some((before, after)) = last.split_once('*') else { return vec![folder.join(last)] };
    let entries = fs::read_dir(&folder).into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    let fits =
        |name: &String| name.len() >= before.len() + after.len() && name.starts_with(before) && name.ends_with(after);
    let mut names: Vec<String> = names.filter(fits).collect();
    names.sort_by(|a, b| b.cmp(a));
    names.iter().map(|name| folder.join(name)).collect()
}

/// An x86-64 ELF file's wishes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Elf {
    /// PT_INTERP.
    pub(super) interpreter: Option<String>,
    /// DT_NEEDED, in order.
    pub(super) needed: Vec<String>,
    /// The folders of DT_RPATH.
    pub(super) rpath: Vec<String>,
    /// The folders of DT_RUNPATH.
    pub(super) runpath: Vec<String>,
}

/// Returns whether a file begins as ELF files do.
pub(super) fn is_elf(bytes: &[u8]) -> bool {
    bytes.starts_with(b"\x7fELF")
}

/// Returns whether a shared library is for the guest's processor.
pub(super) fn fits(bytes: &[u8]) -> bool {
    header(bytes).is_ok()
}

/// Reads the header of an ELF file for the guest's processor, or says what else the file is.
fn header(bytes: &[u8]) -> Result<&FileHeader64<Endianness>, String> {
    let damaged = |error: object::Error| format!("a damaged ELF file: {error}");
    let other = |what: String| Err(format!("not a 64-bit x86-64 ELF file ({what}); the guest is x86-64"));
    match FileKind::parse(bytes).map_err(damaged)? {
        FileKind::Elf64 => {}
        kind => return other(format!("{kind:?}")),
    }
    let header = FileHeader64::<Endianness>::parse(bytes).map_err(damaged)?;
    match header.endian().map_err(damaged)? {
        Endianness::Little if header.e_machine(Endianness::Little) == EM_X86_64 => Ok(header),
        endian => other(format!("machine {}", header.e_machine(endian))),
    }
}

/// Reads the dynamic section of an ELF file.
pub(super) fn parse(path: &Path, bytes: &[u8]) -> Result<Elf, InitramfsError> {
    let header = header(bytes).map_err(|what| InitramfsError::of(path, what))?;
    wishes(header, bytes).map_err(|what| InitramfsError::of(path, format!("a damaged ELF file: {what}")))
}

fn wishes(header: &FileHeader64<Endianness>, bytes: &[u8]) -> Result<Elf, String> {
    let (endian, damaged) = (Endianness::Little, |error: object::Error| error.to_string());
    let segments = header.program_headers(endian, bytes).map_err(damaged)?;
    let mut elf = Elf::default();
    let mut tags = Vec::new();
    for segment in segments {
        if let Some(interpreter) = segment.interpreter(endian, bytes).map_err(damaged)? {
            elf.interpreter = Some(text(interpreter)?);
        }
        if let Some(dynamic) = segment.dynamic(endian, bytes).map_err(damaged)? {
            tags.extend(dynamic.iter().map(|entry| (entry.d_tag(endian), entry.d_val(endian))));
        }
    }
    let value = |tag: DynamicTag| tags.iter().find(|&&(t, _)| t == tag).map(|&(_, value)| value);
    let (Some(table), Some(size)) = (value(DT_STRTAB), value(DT_STRSZ)) else { return Ok(elf) };
    let strings = segments.iter().find_map(|segment| segment.data_range(endian, bytes, table, size).ok().flatten());
    let strings = StringTable::new(strings.unwrap_or_default(), 0, size);
    for (tag, offset) in tags {
        if ![DT_NEEDED, DT_RPATH, DT_RUNPATH].contains(&tag) {
            continue;
        }
        let string = u32::try_from(offset).ok().and_then(|offset| strings.get(offset).ok());
        let string = text(string.ok_or("a name is not in its table of strings")?)?;
        let folders = || string.split(':').filter(|folder| !folder.is_empty()).map(str::to_owned);
        match tag {
            DT_NEEDED => elf.needed.push(string),
            DT_RPATH => elf.rpath.extend(folders()),
            _ => elf.runpath.extend(folders()),
        }
    }
    // The loader ignores RPATH where there is a RUNPATH.
    if !elf.runpath.is_empty() {
        elf.rpath.clear();
    }
    Ok(elf)
}

fn text(bytes: &[u8]) -> Result<String, String> {
    let bytes = bytes.strip_suffix(&[0]).unwrap_or(bytes);
    String::from_utf8(bytes.to_vec()).map_err(|_| "a name is not UTF-8".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(root: &Path, path: &str, bytes: &[u8]) {
        let path = root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }

    #[test]
    fn folders_are_searched_in_the_loaders_order() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path();
        write(root, "etc/ld.so.conf", b"include ld.so.conf.d/*.conf # all\n/opt/last\n");
        write(root, "etc/ld.so.conf.d/b.conf", b"/opt/b\n");
        write(root, "etc/ld.so.conf.d/a.conf", b"# none\n/opt/a\n/usr/lib\n");
        write(root, "etc/ld.so.conf.d/c.other", b"/opt/other\n");
        for folder in ["lib", "opt/b", "opt/other", "usr/lib"] {
            write(root, &format!("{folder}/libx.so"), crate::INIT);
        }
        write(root, "opt/a/libx.so", b"\x7fELF of another processor");
        write(root, "lib/libc.so.6", crate::INIT);
        let search = Search::new(root);
        let guest =
            |name, first: &[Folder]| search.find(name, first).map(|found| (found.folder.guest, found.configured));
        assert_eq!(guest("libx.so", &[]), Some(("/usr/lib".to_owned(), false)), "a default, though it is configured");
        let first = [Folder { host: root.join("opt/b"), guest: "/b".to_owned() }];
        assert_eq!(guest("libx.so", &first), Some(("/b".to_owned(), false)));
        fs::remove_file(root.join("usr/lib/libx.so")).unwrap();
        assert_eq!(guest("libx.so", &[]), Some(("/opt/b".to_owned(), true)));
        assert_eq!(guest("liby.so", &[]), None);
        assert!(search.describe(&first).contains("/opt/last"));
        assert_eq!(search.loaders_own(), "/lib");
    }

    #[test]
    fn a_configuration_that_includes_itself_ends() {
        let root = tempfile::tempdir().unwrap();
        write(root.path(), "etc/ld.so.conf", b"include /etc/ld.so.conf\ninclude /etc/ld.so.conf\n/opt/x");
        assert!(Search::new(root.path()).configured.len() <= MOST_INCLUDED);
    }

    #[test]
    fn an_origin_is_that_of_each_side() {
        let origin = Folder { host: "/home/me/bin".into(), guest: "/usr/bin".to_owned() };
        let of = |path| Folder::of_path(path, &origin);
        let lib = of("$ORIGIN/../lib").unwrap();
        assert_eq!((lib.host.to_str(), lib.guest.as_str()), (Some("/home/me/bin/../lib"), "/usr/lib"));
        assert_eq!(of("${ORIGIN}").unwrap().guest, "/usr/bin");
        assert_eq!(of("/opt//x/").unwrap().guest, "/opt/x");
        assert_eq!([of("$ORIGINAL/x"), of("/opt/$LIB"), of("lib"), of("")], [None, None, None, None]);
        assert_eq!(plain("/a/../../b/./c//"), "/b/c");
    }

    #[test]
    fn the_init_needs_nothing() {
        assert_eq!(parse(Path::new("/init"), crate::INIT).unwrap(), Elf::default());
        assert!(fits(crate::INIT));
    }

    #[test]
    fn another_processor_is_named() {
        let mut arm = crate::INIT.to_vec();
        arm[18] = 183;
        let error = parse(Path::new("x"), &arm).unwrap_err();
        assert!(error.to_string().contains("machine 183"), "{error}");
        assert!(!fits(&arm));
        let mut narrow = crate::INIT.to_vec();
        narrow[4] = 1;
        assert!(parse(Path::new("x"), &narrow).unwrap_err().to_string().contains("not a 64-bit"));
        assert!(!fits(&narrow) && !fits(b"\x7fELF") && !fits(b"#!/bin/sh"));
    }
}
