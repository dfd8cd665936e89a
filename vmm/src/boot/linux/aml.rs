//! The part of ACPI's machine language that the tables need (ACPI 6.5, chapter 20).

/// Returns an object with a name of four letters.
pub(super) fn name(name: [u8; 4], value: &[u8]) -> Vec<u8> {
    [&[0x08][..], &name, value].concat()
}

/// Returns a device and what belongs to it.
pub(super) fn device(name: [u8; 4], terms: &[Vec<u8>]) -> Vec<u8> {
    [&[0x5b, 0x82][..], &package_length(&[&name[..], &terms.concat()].concat())].concat()
}

/// Returns the scope of the system bus.
pub(super) fn system_bus(terms: &[Vec<u8>]) -> Vec<u8> {
    [&[0x10][..], &package_length(&[&b"\\_SB_"[..], &terms.concat()].concat())].concat()
}

/// Returns a number of 32 bits.
pub(super) fn integer(value: u32) -> Vec<u8> {
    [&[0x0c][..], &value.to_le_bytes()].concat()
}

/// Returns a text without zero bytes.
pub(super) fn string(text: &str) -> Vec<u8> {
    [&[0x0d][..], text.as_bytes(), &[0]].concat()
}

/// Returns a package of bytes.
pub(super) fn bytes(values: &[u8]) -> Vec<u8> {
    let elements: Vec<u8> = values.iter().flat_map(|&value| [0x0a, value]).collect();
    [&[0x12][..], &package_length(&[&[values.len() as u8][..], &elements].concat())].concat()
}

/// Resources with their end tag.
pub(super) fn resources(resources: &[Vec<u8>]) -> Vec<u8> {
    let content = [resources.concat(), vec![0x79, 0]].concat();
    [&[0x11][..], &package_length(&[integer(content.len() as u32), content].concat())].concat()
}

/// Returns I/O ports.
pub(super) fn ports(first: u16, count: u8) -> Vec<u8> {
    let [low, high] = first.to_le_bytes();
    vec![0x47, 1, low, high, low, high, 1, count]
}

/// Returns a window of memory that is read and written.
pub(super) fn window(base: u32, size: u32) -> Vec<u8> {
    [&[0x86, 9, 0, 1][..], &base.to_le_bytes(), &size.to_le_bytes()].concat()
}

/// Returns an interrupt: edge, active high, not shared.
pub(super) fn interrupt(gsi: u32) -> Vec<u8> {
    [&[0x89, 6, 0, 0b0011, 1][..], &gsi.to_le_bytes()].concat()
}

/// Returns `content` after its length, which counts itself.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_length_counts_itself() {
        for (content, head) in [
            (0, vec![1]),
            (62, vec![63]),
            (63, vec![0x41, 0x04]),
            (4093, vec![0x4f, 0xff]),
            (4094, vec![0x81, 0x00, 0x01]),
        ] {
            let bytes = package_length(&vec![0xaa; content]);
            assert_eq!((&bytes[..head.len()], bytes.len()), (&head[..], head.len() + content));
        }
    }

    /// Objects are encoded as by `iasl`.
    #[test]
    fn objects_are_encoded() {
        assert_eq!(name(*b"_UID", &integer(5)), b"\x08_UID\x0c\x05\0\0\0");
        assert_eq!(bytes(&[5, 0]), b"\x12\x06\x02\x0a\x05\x0a\0");
        assert_eq!(device(*b"COM1", &[name(*b"_STA", &[1])]), b"\x5b\x82\x0bCOM1\x08_STA\x01");
        let serial = resources(&[interrupt(4), ports(0x3f8, 8)]);
        let expected = b"\x11\x19\x0c\x13\0\0\0\x89\x06\0\x03\x01\x04\0\0\0\x47\x01\xf8\x03\xf8\x03\x01\x08\x79\0";
        assert_eq!(serial, expected);
    }
}
