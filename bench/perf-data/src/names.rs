//! Names of addresses in a recording. Files that a recording names are read only if they are plain files.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::rc::Rc;

use crate::plain::{self, Code};
use crate::record::{Mapping, Mode, cut};
use crate::spaces::Spaces;
use crate::symbols::{Image, Symbols, demangled};

/// Largest list of a kernel's symbols that is read: those of kernels with everything are a quarter of it.
const LARGEST_LIST: u64 = 64 << 20;
/// Most bytes of all files of code together whose symbols are read.
const MOST_OF_CODE: u64 = 2 << 30;
/// Most places whose names are kept, of the kernel and of files; others are looked up again.
const MOST_KNOWN: usize = 1 << 20;
/// Longest name: twice the longest symbol, and four times the longest name of a file.
const LONGEST: usize = 1 << 10;
/// Bytes that a name takes beside its text, which is there twice.
const OF_NAME: u64 = 128;

/// Names, each with a number, and what they are found by.
#[derive(Debug)]
pub struct Names {
    kernel: Option<Symbols>,
    /// Modules of the kernel by their first address: bytes, and the name in brackets.
    modules: BTreeMap<u64, (u64, String)>,
    /// Files of user code that were looked for, by their numbers in [`Spaces`].
    files: HashMap<usize, Option<Rc<Image>>>,
    /// Images by device and inode: any number of paths may lead to one file.
    images: HashMap<(u64, u64), Option<Rc<Image>>>,
    /// Files are read with their tables of callers.
    unwinding: bool,
    /// Bytes of files that may still be read, and the files that were left out as they are larger.
    room: u64,
    left_out: usize,
    /// Numbers of places that have been asked for: of the kernel, and of files.
    in_kernel: HashMap<u64, u32>,
    in_files: HashMap<(usize, u64), u32>,
    numbers: HashMap<String, u32>,
    all: Vec<String>,
    bytes: u64,
}

impl Default for Names {
    fn default() -> Self {
        Self {
            kernel: None,
            modules: BTreeMap::new(),
            files: HashMap::new(),
            images: HashMap::new(),
            unwinding: false,
            room: MOST_OF_CODE,
            left_out: 0,
            in_kernel: HashMap::new(),
            in_files: HashMap::new(),
            numbers: HashMap::new(),
            all: Vec::new(),
            bytes: 0,
        }
    }
}

impl Names {
    /// Starts with a kernel's list of symbols.
    pub fn of(kallsyms: Option<&Path>) -> Self {
        let bytes = kallsyms.and_then(|path| plain::read(path, LARGEST_LIST).ok());
        let kernel = bytes.map(|bytes| Symbols::of_kallsyms(&String::from_utf8_lossy(&bytes)));
        Self { kernel: kernel.filter(|symbols| !symbols.is_empty()), ..Self::default() }
    }

    /// Limits the bytes of files of code that are read.
    pub fn reading(self, room: u64) -> Self {
        Self { room, ..self }
    }

    /// Says whether callers will be asked for.
    pub fn unwinding(self, unwinding: bool) -> Self {
        Self { unwinding, ..self }
    }

    /// Notes a mapping of the kernel's.
    pub fn map(&mut self, mapping: &Mapping) {
        if !is_kernel(&mapping.file) {
            self.modules.insert(mapping.address, (mapping.length, module(&mapping.file)));
        }
    }

    /// Numbers a name, of which no more than a kilobyte is kept.
    pub fn number(&mut self, name: &str) -> u32 {
        let name = cut(name, LONGEST);
        if let Some(&known) = self.numbers.get(name) {
            return known;
        }
        let number = self.all.len() as u32;
        self.bytes += 2 * name.len() as u64 + OF_NAME;
        self.all.push(name.to_owned());
        self.numbers.insert(name.to_owned(), number);
        number
    }

    /// Bytes of memory for the names.
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns all names by their numbers, and how many files of code were left out as all together are too large.
    pub fn finish(self) -> (Vec<String>, usize) {
        (self.all, self.left_out)
    }

    /// Returns the number of the name of an address.
    pub fn find(&mut self, spaces: &Spaces, mode: Mode, pid: u32, address: u64) -> u32 {
        if matches!(mode, Mode::Kernel | Mode::GuestKernel) {
            // Code that was generated comes and goes.
            if let Some(name) = self.module(address).filter(|name| !name.starts_with('[')).map(str::to_owned) {
                return self.number(&name);
            }
            if let Some(&known) = self.in_kernel.get(&address) {
                return known;
            }
            let name = self.of_kernel(address);
            let number = self.number(&name);
            if self.in_kernel.len() < MOST_KNOWN {
                self.in_kernel.insert(address, number);
            }
            return number;
        }
        let Some((file, place)) = spaces.find(pid, address) else { return self.number("[user]") };
        if let Some(&known) = self.in_files.get(&(file, place)) {
            return known;
        }
        let path = Path::new(spaces.file(file));
        let image = self.of_file(file, path);
        let number = match image.as_ref().and_then(|image| image.find(place)) {
            Some(name) => self.number(&demangled(name)),
            None => {
                let name = path.file_name().unwrap_or_default().to_string_lossy();
                self.number(&format!("[{}]", name.trim_matches(['[', ']'])))
            }
        };
        if self.in_files.len() < MOST_KNOWN {
            self.in_files.insert((file, place), number);
        }
        number
    }

    /// Returns the image of a file by its number in [`Spaces`].
    pub(crate) fn of_file(&mut self, file: usize, path: &Path) -> Option<Rc<Image>> {
        if let Some(known) = self.files.get(&file) {
            return known.clone();
        }
        let image = self.image(path);
        self.files.insert(file, image.clone());
        image
    }

    /// Reads the functions of a file.
    fn image(&mut self, path: &Path) -> Option<Rc<Image>> {
        let code = Code::open(path)?;
        if let Some(known) = self.images.get(&code.identity) {
            return known.clone();
        }
        let identity = code.identity;
        let image = match self.room.checked_sub(code.size()) {
            Some(room) => {
                self.room = room;
                let with = |bytes: &[u8], image: Image| if self.unwinding { image.with_callers(bytes) } else { image };
                code.read().and_then(|bytes| Some(Rc::new(with(&bytes, Image::read(&bytes)?))))
            }
            None => {
                self.left_out += 1;
                None
            }
        };
        self.images.insert(identity, image.clone());
        image
    }

    /// Finds a function of the kernel. Behind the last symbol of one module there may be another that has none.
    fn of_kernel(&self, address: u64) -> String {
        let found = self.kernel.as_ref().and_then(|symbols| symbols.find(address));
        match (found, self.module(address)) {
            (Some(name), Some(module)) if !name.ends_with(module) => module.to_owned(),
            (Some(name), _) => demangled(name),
            (None, Some(module)) => module.to_owned(),
            (None, None) => "[kernel]".to_owned(),
        }
    }

    /// Returns the module, or the symbol of generated code, at an address.
    fn module(&self, address: u64) -> Option<&str> {
        let (start, (length, name)) = self.modules.range(..=address).next_back()?;
        (address - start < *length).then_some(name)
    }
}

/// Returns whether a mapping is the kernel's own: perf names a guest's `[guest.kernel.kallsyms]`, or
/// `[guest.kernel.kallsyms.PID]` of several, with the first symbol behind it.
fn is_kernel(file: &str) -> bool {
    ["[kernel.kallsyms", "[guest.kernel.kallsyms"].iter().any(|name| {
        let rest = file.strip_prefix(name);
        rest.is_some_and(|rest| rest.starts_with([']', '.']))
    })
}

/// Returns the name of a module in brackets. perf has its file: `/lib/modules/RELEASE/kernel/NAME.ko.xz`, where the
/// kernel's lists have `_` for `-`. A symbol of generated code, such as BPF's, is no file and has its own name.
fn module(file: &str) -> String {
    if file.starts_with('[') || !file.contains('/') {
        return file.to_owned();
    }
    let name = file.rsplit('/').next().unwrap_or(file);
    format!("[{}]", name.split('.').next().unwrap_or(name).replace('-', "_"))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn mapping(misc: u16, address: u64, length: u64, file: &str) -> Mapping {
        Mapping { misc, pid: 1, address, length, file: file.into(), ..Mapping::default() }
    }

    #[test]
    fn names_come_from_lists_modules_and_files() {
        let folder = tempfile::tempdir().unwrap();
        let list = folder.path().join("list");
        fs::write(&list, "ffffffff81000000 T start\nffffffff81001000 t _RNvCs4_1a1b\nffffffffc0000010 t one\t[loop]\n")
            .unwrap();
        let (mut names, mut spaces) = (Names::of(Some(&list)), Spaces::default());
        spaces.map(mapping(2, 0x1000, 0x1000, "/no/such"));
        spaces.map(mapping(2, 0x8000, 0x1000, "[vdso]"));
        names.map(&mapping(1, 0xffff_ffff_c000_0000, 0x1000, "[loop]"));
        names.map(&mapping(1, 0xffff_ffff_c000_4000, 0x1000, "[bare]"));
        names.map(&mapping(1, 0xffff_ffff_8100_0000, 1 << 29, "[kernel.kallsyms]_text"));
        let kernel = 0xffff_ffff_c000_0000_u64;
        let asked = [
            (Mode::Kernel, 0xffff_ffff_8100_0010, "start"),
            (Mode::Kernel, 0xffff_ffff_8100_1000, "a::b"),
            (Mode::GuestKernel, 5, "[kernel]"),
            (Mode::Kernel, kernel + 0x10, "one [loop]"),
            (Mode::Kernel, kernel + 0x4010, "[bare]"),
            (Mode::Kernel, kernel + 0xf, "[loop]"),
            (Mode::User, 0x1fff, "[such]"),
            (Mode::User, 0x2000, "[user]"),
            (Mode::User, 0x8000, "[vdso]"),
        ];
        let numbers = [(); 2].map(|()| asked.map(|(mode, address, _)| names.find(&spaces, mode, 1, address)));
        assert_eq!(numbers[0], numbers[1]);
        let (all, _) = names.finish();
        assert_eq!(numbers[0].map(|number| all[number as usize].as_str()), asked.map(|(_, _, name)| name));
    }

    #[test]
    fn a_function_is_found_wherever_its_file_is_mapped() {
        // This program: position-independent, with symbols.
        let path = std::env::current_exe().unwrap();
        let image = Image::read(&fs::read(&path).unwrap()).unwrap();
        let place = (0..1 << 24).step_by(16).find(|&place| image.find(place).is_some()).unwrap();
        let (mut names, mut spaces) = (Names::default(), Spaces::default());
        spaces.map(Mapping { offset: place, ..mapping(2, 0x7000, 16, path.to_str().unwrap()) });
        let number = names.find(&spaces, Mode::User, 1, 0x7000);
        assert_eq!(Some(&names.finish().0[number as usize]), image.find(place).map(demangled).as_ref());
    }

    #[test]
    fn a_file_of_many_paths_is_read_once_and_all_files_have_a_bound() {
        let (mut names, mut spaces) = (Names::default(), Spaces::default());
        let path = std::env::current_exe().unwrap();
        let [folder, file] = [path.parent(), path.file_name().map(Path::new)].map(|part| part.unwrap().display());
        for (pid, dots) in (1..50).zip(["/.", "/./.", "/././.", "//"].into_iter().cycle()) {
            spaces.map(Mapping { pid, ..mapping(2, 0x1000, 0x1000, &format!("{folder}{dots}/{file}")) });
            names.find(&spaces, Mode::User, pid, 0x1000);
        }
        assert_eq!((names.images.len(), names.room), (1, MOST_OF_CODE - fs::metadata(&path).unwrap().len()));
        let mut names = Names::default().reading(1 << 10);
        names.find(&spaces, Mode::User, 1, 0x1000);
        assert_eq!((names.left_out, names.room), (1, 1 << 10));
    }

    #[test]
    fn kernels_and_modules_are_told_apart() {
        for (file, kernel) in [
            ("[guest.kernel.kallsyms]_text", true),
            ("[guest.kernel.kallsyms.4711]_text", true),
            ("[kallsyms]", false),
            ("[loop]", false),
            ("/lib/modules/6.1/kernel/loop.ko", false),
        ] {
            assert_eq!(is_kernel(file), kernel, "{file}");
        }
        assert_eq!([module("/lib/modules/6.1/kernel/kvm-amd.ko.xz"), module("[loop]")], ["[kvm_amd]", "[loop]"]);
    }
}
