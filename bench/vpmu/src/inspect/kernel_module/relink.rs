//! Copies of KVM's modules that call the kernel module in place of perf: for kernels whose perf cannot be traced.

use std::collections::BTreeMap;
use std::ops::Range;

use object::LittleEndian;
use object::elf::{FileHeader64, SHT_SYMTAB};
use object::read::elf::{FileHeader as _, SectionHeader as _, Sym as _};

/// The calls by which KVM's vPMU reaches perf.
pub(super) const TRACED: [&str; 6] = [
    "perf_event_create_kernel_counter",
    "perf_event_enable",
    "perf_event_pause",
    "perf_event_period",
    "perf_event_read_value",
    "perf_event_release_kernel",
];
/// End of a signed module.
pub(super) const SIGNED: &[u8] = b"~Module signature appended~\n";
/// Begin of the names of perf's functions, and what takes its place in those of the module.
const BEGINS: [&str; 2] = ["perf", "vpmu"];
/// Size of an entry of `__versions`: the checksum of a function's types, and its name.
const VERSION: usize = 64;
const NAME_AT: usize = 8;
/// Bytes of a signature's description, whose last four are the signature's length.
const DESCRIPTION: usize = 12;

/// Returns perf's function of this name, if KVM's vPMU calls it.
fn traced(name: &[u8]) -> Option<&'static str> {
    TRACED.into_iter().find(|traced| traced.as_bytes() == name)
}

/// Reads the checksums of the module's functions from the `Module.symvers` of its build.
pub(super) fn checksums(text: &str) -> BTreeMap<&str, u32> {
    text.lines()
        .filter_map(|line| {
            let mut fields = line.split('\t');
            let sum = u32::from_str_radix(fields.next()?.strip_prefix("0x")?, 16).ok()?;
            Some((fields.next()?, sum))
        })
        .collect()
}

/// Returns a module without its signature.
fn unsigned(module: &[u8]) -> Result<&[u8], String> {
    let Some(rest) = module.strip_suffix(SIGNED) else { return Ok(module) };
    let end = rest.last_chunk().and_then(|length| {
        let length = usize::try_from(u32::from_be_bytes(*length)).ok()?;
        rest.len().checked_sub(DESCRIPTION)?.checked_sub(length)
    });
    end.map(|end| &rest[..end]).ok_or_else(|| "its signature is longer than itself".to_owned())
}

/// Returns a copy of a module whose calls of perf's functions are calls of those of these checksums.
///
/// # Errors
/// Why its calls cannot be changed.
pub(super) fn relink(module: &[u8], checksums: &BTreeMap<&str, u32>) -> Result<Vec<u8>, String> {
    let module = unsigned(module)?;
    let mut copy = module.to_vec();
    for (at, bytes) in changes(module, checksums)? {
        let place = usize::try_from(at).ok().and_then(|at| copy.get_mut(at..)?.get_mut(..bytes.len()));
        place.ok_or("it is cut short")?.copy_from_slice(&bytes);
    }
    Ok(copy)
}

/// Returns what is to be changed, and where.
fn changes(module: &[u8], checksums: &BTreeMap<&str, u32>) -> Result<Vec<(u64, Vec<u8>)>, String> {
    let wrong = |error: object::Error| error.to_string();
    let header = FileHeader64::<LittleEndian>::parse(module).map_err(wrong)?;
    let sections = header.sections(LittleEndian, module).map_err(wrong)?;
    let symbols = sections.symbols(LittleEndian, module, SHT_SYMTAB).map_err(wrong)?;
    let strings = sections.section(symbols.string_section()).map_err(wrong)?;
    let (strings, _) = strings.file_range(LittleEndian).ok_or("its names are not in the file")?;
    let mut changes = Vec::new();
    let mut others: Vec<Range<u64>> = Vec::new();
    for symbol in symbols.iter() {
        let name = symbols.symbol_name(LittleEndian, symbol).map_err(wrong)?;
        let at = strings.saturating_add(symbol.st_name(LittleEndian).into());
        if symbol.is_undefined(LittleEndian) && traced(name).is_some() {
            changes.push((at, BEGINS[1].into()));
        } else {
            others.push(at..at.saturating_add(name.len() as u64));
        }
    }
    // A linker may keep a name that ends another one within that.
    let shared = |(at, _): &(u64, _)| others.iter().any(|other| other.start < at + 4 && *at < other.end);
    if changes.iter().any(shared) {
        return Err("the name of a function of perf's is a part of another name".to_owned());
    }
    if sections.section_by_name(LittleEndian, b"__version_ext_names").is_some() {
        return Err("its functions have versions of a later form (__version_ext_names)".to_owned());
    }
    let Some((_, versions)) = sections.section_by_name(LittleEndian, b"__versions") else { return Ok(changes) };
    let (start, _) = versions.file_range(LittleEndian).unwrap_or_default();
    let entries = versions.data(LittleEndian, module).map_err(wrong)?.chunks_exact(VERSION);
    for (at, entry) in (start..).step_by(VERSION).zip(entries) {
        let Some(name) = entry[NAME_AT..].split(|&byte| byte == 0).next().and_then(traced) else { continue };
        let own = name.replacen(BEGINS[0], BEGINS[1], 1);
        let sum = checksums.get(&*own).ok_or_else(|| format!("the module's build has no checksum of {own}"))?;
        changes.push((at, [&u64::from(*sum).to_le_bytes(), own.as_bytes()].concat()));
    }
    Ok(changes)
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use object::{Object as _, ObjectSection as _, ObjectSymbol};

    use super::*;

    /// A module's parts that matter, as a compiler makes them. The linker's name of the last is within perf's.
    const SOURCE: &str = "
        unsigned long perf_event_pause(void *, int); void perf_event_enable(void *); void event_enable(void *);
        struct { unsigned long sum; char name[56]; } versions[] __attribute__((section(\"__versions\"))) =
            { { 1, \"module_layout\" }, { 2, \"perf_event_pause\" }, { 3, \"perf_event_enable\" } };
        int call(void *e) { perf_event_enable(e); event_enable(e); return perf_event_pause(e, 1); }";
    const SYMVERS: &str =
        "0xacb4a0c8\tvpmu_event_pause\t/m\tEXPORT_SYMBOL_GPL\t\n0x10\tvpmu_event_enable\t/m\tX\t\nno\n";

    fn compiled(source: &str) -> Vec<u8> {
        let folder = tempfile::tempdir().unwrap();
        let [from, to] = ["m.c", "m.o"].map(|name| folder.path().join(name));
        std::fs::write(&from, source).unwrap();
        let done = Command::new("cc").args(["-c", "-fno-stack-protector", "-o"]).args([&to, &from]).status().unwrap();
        assert!(done.success());
        std::fs::read(to).unwrap()
    }

    fn undefined(module: &[u8]) -> Vec<String> {
        let file = object::File::parse(module).unwrap();
        let names = file.symbols().filter(ObjectSymbol::is_undefined).filter_map(|symbol| symbol.name().ok());
        let mut names: Vec<_> = names.filter(|name| !name.is_empty()).map(str::to_owned).collect();
        names.sort();
        names
    }

    #[test]
    fn calls_of_perfs_functions_become_calls_of_ours_with_their_checksums() {
        let module = compiled(SOURCE);
        let signature = [&[7; 20][..], &[0; 8], &20_u32.to_be_bytes(), SIGNED].concat();
        let copy = relink(&[&module[..], &signature].concat(), &checksums(SYMVERS)).unwrap();
        assert_eq!(undefined(&module), ["event_enable", "perf_event_enable", "perf_event_pause"]);
        assert_eq!(undefined(&copy), ["event_enable", "vpmu_event_enable", "vpmu_event_pause"]);
        let file = object::File::parse(&*copy).unwrap();
        let versions = file.section_by_name("__versions").unwrap().data().unwrap();
        let versions: Vec<_> = versions
            .chunks(VERSION)
            .map(|entry| {
                (u64::from_le_bytes(*entry.first_chunk().unwrap()), String::from_utf8_lossy(&entry[8..]).into_owned())
            })
            .map(|(sum, name)| (sum, name.trim_end_matches('\0').to_owned()))
            .collect();
        let wanted = [(1, "module_layout"), (0xacb4_a0c8, "vpmu_event_pause"), (0x10, "vpmu_event_enable")];
        assert_eq!(versions, wanted.map(|(sum, name)| (sum, name.to_owned())));
        assert_eq!(copy.len(), module.len(), "without the signature, and in place");
    }

    #[test]
    fn what_cannot_be_changed_is_refused_and_no_bytes_end_it() {
        let module = compiled(SOURCE);
        let refused = |bytes: &[u8], sums: &str| relink(bytes, &checksums(sums)).unwrap_err();
        assert!(refused(&module, "").contains("no checksum of vpmu_event_pause"));
        let shared = compiled(&SOURCE.replace(" event_enable(", " of_perf_event_enable("));
        assert!(refused(&shared, SYMVERS).contains("a part of another name"));
        assert!(refused(&[&[0, 0, 1, 0], SIGNED].concat(), SYMVERS).contains("longer than itself"));
        assert!(refused(b"\x7fELF", SYMVERS).len() > 4);
        // Cut anywhere, and with any byte of its tables damaged.
        for at in 0..module.len() {
            let _ = relink(&module[..at], &checksums(SYMVERS));
            let mut damaged = module.clone();
            damaged[at] ^= 0xff;
            let _ = relink(&damaged, &checksums(SYMVERS));
        }
    }
}
