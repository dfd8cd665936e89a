//! `/proc/modules` and the files of `/sys/module/NAME/sections`.

use super::code::Module;

/// Most modules.
pub const MOST_MODULES: usize = 1024;
/// Most bytes of a name: the kernel has 56 with its zero.
const MOST_OF_NAME: usize = 64;
/// Most bytes of code and data of one module: all of them share 1.5 GiB.
const MOST_OF_SIZE: u64 = 1 << 30;
/// Start of the kernel's half of linear addresses.
const KERNEL: u64 = 1 << 63;

/// Reads the modules of a list, in ascending order of their addresses; and how many of its lines were left out.
pub(super) fn modules(text: &str) -> (Vec<Module>, usize) {
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
pub(super) fn address_of(text: &str) -> Option<u64> {
    let text = text.trim();
    let digits = text.strip_prefix("0x").unwrap_or(text);
    u64::from_str_radix(digits, 16).ok().filter(|&address| address >= KERNEL)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_has_its_live_modules_in_order() {
        let text = "virtio_console 40960 1 - Live 0xffffffffc0020000\n\
                    virtio 16384 2 virtio_console, Live 0xffffffffc0010000 (OE)\n\
                    going 4096 0 - Unloading 0xffffffffc0030000\n";
        let (found, left_out) = modules(text);
        let names: Vec<_> = found.iter().map(|module| (module.name.as_str(), module.address, module.size)).collect();
        let expected = [("virtio", 0xffff_ffff_c001_0000, 16384), ("virtio_console", 0xffff_ffff_c002_0000, 40960)];
        assert_eq!((names, left_out), (expected.to_vec(), 1));
    }

    #[test]
    fn what_is_no_module_is_left_out_and_counted() {
        let lines = [
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
        assert_eq!(modules(&lines.join("\n")), (Vec::new(), lines.len()));
        let flood = "m 4096 0 - Live 0xffffffffc0000000\n".repeat(MOST_MODULES + 7);
        let (found, left_out) = modules(&flood);
        assert_eq!((found.len(), left_out), (MOST_MODULES, 7));
    }
}
