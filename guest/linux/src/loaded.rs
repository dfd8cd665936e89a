//! The code of a running guest's kernel: its modules, where they lie, and build-ids, as its `/proc` and `/sys` say.
//!
//! Everything here is the guest's word. Names, addresses and sizes are checked for form; whether code lies there is for
//! the reader of its memory to find out.

use crate::agent::{Agent, AgentError};

/// Most bytes of the list of modules.
const MOST_OF_LIST: u64 = 1 << 20;
/// Most bytes of the notes of a module or the kernel.
const MOST_NOTES: u64 = 1 << 16;

/// Fetches the code of the agent's kernel. A list that the guest refuses is not known then: a kernel without modules has none.
///
/// # Errors
/// The connection is of no use any more.
pub fn fetch(agent: &mut Agent<'_>) -> Result<Code, AgentError> {
    let list = files(agent, "/proc/modules", MOST_OF_LIST)?;
    let list = list.first().map_or_else(String::new, |(_, bytes)| String::from_utf8_lossy(bytes).into_owned());
    let (mut modules, left_out) = modules(&list);
    for module in &mut modules {
        let notes = files(agent, &format!("/sys/module/{}/notes", module.name), MOST_NOTES)?;
        module.build_id = notes.iter().find_map(|(_, bytes)| build_id(bytes));
    }
    let notes = files(agent, "/sys/kernel/notes", MOST_NOTES)?;
    Ok(Code { build_id: notes.iter().find_map(|(_, bytes)| build_id(bytes)), modules, left_out })
}

/// Fetches the files at a path; none if the guest has none there, or sends more than there can be.
fn files(agent: &mut Agent<'_>, path: &str, most: u64) -> Result<Vec<(String, Vec<u8>)>, AgentError> {
    match agent.get_files(path, most) {
        Ok(files) => Ok(files),
        Err(AgentError::Refused(_) | AgentError::Flood { .. }) => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

/// The code of a kernel at one time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Code {
    /// The kernel's own build-id.
    pub build_id: Option<Vec<u8>>,
    /// Its modules, in ascending order of their addresses.
    pub modules: Vec<Module>,
    /// Lines of the list of modules that are none, or whose address the kernel hides.
    pub left_out: usize,
}

/// A module.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Module {
    /// Its name, of letters, digits, `_` and `-`.
    pub name: String,
    /// Address at which its code begins.
    pub address: u64,
    /// Bytes of it and its data. Since Linux 6.4 these may lie apart, and the code is shorter.
    pub size: u64,
    /// Its build-id.
    pub build_id: Option<Vec<u8>>,
}

/// Most modules.
pub const MOST_MODULES: usize = 1024;
/// Most bytes of a name: the kernel has 56 with its zero.
const MOST_OF_NAME: usize = 64;
/// Most bytes of code and data of one module: all of them share 1.5 GiB.
const MOST_OF_SIZE: u64 = 1 << 30;
/// Start of the kernel's half of linear addresses.
const KERNEL: u64 = 1 << 63;

/// Reads the modules of a list, in ascending order of their addresses; and how many of its lines were left out.
fn modules(text: &str) -> (Vec<Module>, usize) {
    let lines = text.lines().filter(|line| !line.is_empty());
    let (mut found, mut left_out) = (Vec::new(), 0);
    for line in lines {
        match module(line).filter(|_| found.len() < MOST_MODULES) {
            Some(module) => found.push(module),
            None => left_out += 1,
        }
    }
    found.sort_by(|a, b| (a.address, &a.name).cmp(&(b.address, &b.name)));
    (found, left_out)
}

/// Reads `NAME SIZE USERS BY STATE ADDRESS [TAINT]`. A module on its way in or out has no code that stays.
fn module(line: &str) -> Option<Module> {
    let words: Vec<_> = line.split_ascii_whitespace().collect();
    let [name, size, _, _, "Live", address, ..] = words[..] else { return None };
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    let address = address_of(address)?;
    let size = size.parse().ok().filter(|&size| size > 0 && size <= MOST_OF_SIZE)?;
    address.checked_add(size)?;
    let named = !name.is_empty() && name.len() <= MOST_OF_NAME && name.chars().all(plain);
    named.then(|| Module { name: name.to_owned(), address, size, ..Module::default() })
}

/// Reads an address of the kernel, in hexadecimal digits. A kernel that hides addresses says 0.
fn address_of(text: &str) -> Option<u64> {
    let digits = text.strip_prefix("0x").unwrap_or(text);
    u64::from_str_radix(digits, 16).ok().filter(|&address| address >= KERNEL)
}

/// NT_GNU_BUILD_ID.
const BUILD_ID: u32 = 3;
/// Most bytes of a build-id in a recording.
const MOST: usize = 20;

/// Finds the build-id among the notes; `None` if there is none of a length that is used.
fn build_id(mut notes: &[u8]) -> Option<Vec<u8>> {
    loop {
        let [name_length, length, kind] = [0, 4, 8].map(|at| {
            let bytes = notes.get(at..at + 4)?;
            bytes.try_into().ok().map(u32::from_le_bytes)
        });
        let (name_length, length) = (name_length? as usize, length? as usize);
        let at = 12_usize.checked_add(name_length.checked_next_multiple_of(4)?)?;
        let name = notes.get(12..12_usize.checked_add(name_length)?)?;
        let id = notes.get(at..at.checked_add(length)?)?;
        if kind == Some(BUILD_ID) && name == b"GNU\0" {
            return (!id.is_empty() && id.len() <= MOST).then(|| id.to_vec());
        }
        notes = notes.get(at.checked_add(length.checked_next_multiple_of(4)?)?..)?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::tests::{done, entry, frame, sends};
    use crate::protocol::{DATA, ERROR, FILE, FOLDER};

    #[test]
    fn a_guest_is_asked_for_the_notes_of_each_module_and_what_it_refuses_or_floods_is_not_known() {
        let file = |name: &str, bytes: &[u8]| [entry(FILE, name, ""), frame(DATA, bytes)].concat();
        let list = [file("", b"loop 4096 0 - Live 0xffffffffc0000000\n"), done()].concat();
        let note = note_of(3, b"GNU\0", &[1, 2, 3, 4]);
        let in_folder = [entry(FOLDER, "", ""), file(".note.gnu.build-id", &note), done()].concat();
        let refused = frame(ERROR, &[&2_u32.to_le_bytes()[..], b"open\0x\0"].concat());
        let flood = [file("n", &vec![0; 60_000]).repeat(2), done()].concat();
        let many = [entry(FOLDER, "a", "").repeat(200), done()].concat();
        let id = Some(vec![1, 2, 3, 4]);
        // The list, the notes of its module, those of the kernel, and what is known then.
        for (replies, module, kernel) in [
            (&[&list, &in_folder, &[file("", &note), done()].concat()][..], Some(&id), &id),
            (&[&list, &flood, &many], Some(&None), &None),
            (&[&refused, &refused], None, &None),
        ] {
            let frames: Vec<u8> = replies.iter().copied().flatten().copied().collect();
            let code = fetch(&mut sends(&frames)).unwrap();
            assert_eq!((code.modules.first().map(|module| &module.build_id), &code.build_id), (module, kernel));
        }
    }

    #[test]
    fn a_list_has_its_live_modules_in_order_and_what_is_none_is_counted() {
        let lines = [
            "virtio_console 40960 1 - Live 0xffffffffc0020000",
            "virtio 16384 2 virtio_console, Live 0xffffffffc0010000 (OE)",
            "going 4096 0 - Unloading 0xffffffffc0030000",
            "hidden 4096 0 - Live 0x0000000000000000",
            "../../etc 4096 0 - Live 0xffffffffc0000000",
            "user 4096 0 - Live 0x400000",
            "huge 18446744073709551615 0 - Live 0xffffffffc0000000",
            "end 8192 0 - Live 0xfffffffffffff000",
            "empty 0 0 - Live 0xffffffffc0000000",
            "short 4096",
            "signed -1 0 - Live 0xffffffffc0000000",
            &format!("{} 4096 0 - Live 0xffffffffc0000000", "n".repeat(65)),
        ];
        let (found, left_out) = modules(&lines.join("\n"));
        let names: Vec<_> = found.iter().map(|module| (module.name.as_str(), module.address, module.size)).collect();
        let expected = [("virtio", 0xffff_ffff_c001_0000, 16384), ("virtio_console", 0xffff_ffff_c002_0000, 40960)];
        assert_eq!((names, left_out), (expected.to_vec(), lines.len() - 2));
        let flood = "m 4096 0 - Live 0xffffffffc0000000\n".repeat(MOST_MODULES + 7);
        let (found, left_out) = modules(&flood);
        assert_eq!((found.len(), left_out), (MOST_MODULES, 7));
    }

    fn note_of(kind: u32, name: &[u8], id: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for word in [name.len() as u32, id.len() as u32, kind] {
            bytes.extend(word.to_le_bytes());
        }
        for part in [name, id] {
            bytes.extend(part);
            bytes.resize(bytes.len().next_multiple_of(4), 0);
        }
        bytes
    }

    #[test]
    fn the_build_id_is_found_behind_other_notes() {
        let notes =
            [note_of(1, b"Xen\0", b"abc"), note_of(3, b"Xen\0", b"no"), note_of(3, b"GNU\0", &[7; 20])].concat();
        assert_eq!(build_id(&notes), Some(vec![7; 20]));
        assert_eq!(build_id(&notes[..notes.len() - 1]), None, "cut short");
        assert_eq!(
            [build_id(&note_of(3, b"GNU\0", &[7; 21])), build_id(&note_of(3, b"GNU\0", b"")), build_id(b"")],
            [None, None, None]
        );
        let mut lie = note_of(3, b"GNU\0", &[7; 20]);
        lie[..4].copy_from_slice(&u32::MAX.to_le_bytes());
        assert_eq!(build_id(&lie), None, "a length that is a lie");
    }
}
