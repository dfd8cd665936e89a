//! As much of ACPI's machine language as the tables need (ACPI 6.5, chapter 20).

/// An object with a name of four letters.
pub(super) fn name(name: [u8; 4], value: &[u8]) -> Vec<u8> {
    [&[0x08][..], &name, value].concat()
}

/// A device and what belongs to it.
pub(super) fn device(name: [u8; 4], terms: &[Vec<u8>]) -> Vec<u8> {
    [&[0x5b, 0x82][..], &package_length(&[&name[..], &terms.concat()].concat())].concat()
}

/// The scope of the system bus.
pub(super) fn system_bus(terms: &[Vec<u8>]) -> Vec<u8> {
    [&[0x10][..], &package_length(&[&b"\\_SB_"[..], &terms.concat()].concat())].concat()
}

/// A number of 32 bits.
pub(super) fn integer(value: u32) -> Vec<u8> {
    [&[0x0c][..], &value.to_le_bytes()].concat()
}

/// A text without zero bytes.
pub(super) fn string(text: &str) -> Vec<u8> {
    [&[0x0d][..], text.as_bytes(), &[0]].concat()
}

/// A package of bytes.
pub(super) fn bytes(values: &[u8]) -> Vec<u8> {
    let elements: Vec<u8> = values.iter().flat_map(|&value| [0x0a, value]).collect();
    [&[0x12][..], &package_length(&[&[values.len() as u8][..], &elements].concat())].concat()
}

/// Resources with their end tag.
pub(super) fn resources(resources: &[Vec<u8>]) -> Vec<u8> {
    let content = [resources.concat(), vec![0x79, 0]].concat();
    [&[0x11][..], &package_length(&[integer(content.len() as u32), content].concat())].concat()
}

/// I/O ports.
pub(super) fn ports(first: u16, count: u8) -> Vec<u8> {
    let [low, high] = first.to_le_bytes();
    vec![0x47, 1, low, high, low, high, 1, count]
}

/// A window of memory that is read and written.
pub(super) fn window(base: u32, size: u32) -> Vec<u8> {
    [&[0x86, 9, 0, 1][..], &base.to_le_bytes(), &size.to_le_bytes()].concat()
}

/// An interrupt: edge, active high, not shared.
pub(super) fn interrupt(gsi: u32) -> Vec<u8> {
    [&[0x89, 6, 0, 0b0011, 1][..], &gsi.to_le_bytes()].concat()
}

/// `content` after its length, which counts itself.
fn package_length(content: &[u8]) -> Vec<u8> {
    let length = content.len();
    let head = if length + 1 < 1 << 6 {
        vec![(length + 1) as u8]
    } else if length + 2 < 1 << 12 {
        vec![0x40 | ((length + 2) & 0xf) as u8, ((length + 2) >> 4) as u8]
    } else {
        vec![0x80 | ((length + 3) & 0xf) as u8, ((length + 3) >> 4) as u8, ((length + 3) >> 12) as u8]
    };
    [&head[..], content].concat()
}
