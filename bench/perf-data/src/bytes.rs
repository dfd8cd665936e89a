//! Little-endian fields, appended and taken.

/// Appends fields.
pub(crate) trait Put {
    /// Appends a 16-bit field.
    fn u16(&mut self, value: u16);
    /// Appends a 32-bit field.
    fn u32(&mut self, value: u32);
    /// Appends a 64-bit field.
    fn u64(&mut self, value: u64);
    /// Appends text with a terminating zero, padded with zeros to a multiple of `align`.
    fn text(&mut self, text: &str, align: usize);
}

impl Put for Vec<u8> {
    fn u16(&mut self, value: u16) {
        self.extend_from_slice(&value.to_le_bytes());
    }

    fn u32(&mut self, value: u32) {
        self.extend_from_slice(&value.to_le_bytes());
    }

    fn u64(&mut self, value: u64) {
        self.extend_from_slice(&value.to_le_bytes());
    }

    fn text(&mut self, text: &str, align: usize) {
        // A zero inside would end the text earlier for the reader.
        self.extend(text.bytes().filter(|&byte| byte != 0));
        let length = text.bytes().filter(|&byte| byte != 0).count();
        self.resize(self.len() + (length + 1).next_multiple_of(align) - length, 0);
    }
}

/// Takes fields from the front of a slice; `None` where it is too short.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Take<'a>(pub(crate) &'a [u8]);

impl<'a> Take<'a> {
    pub(crate) fn bytes(&mut self, length: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(taken)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.bytes(N)?.try_into().ok()
    }

    pub(crate) fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_le_bytes)
    }

    pub(crate) fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    pub(crate) fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    /// Returns text up to its terminating zero or the end of the slice.
    pub(crate) fn text(&self) -> String {
        let end = self.0.iter().position(|&byte| byte == 0).unwrap_or(self.0.len());
        String::from_utf8_lossy(&self.0[..end]).into_owned()
    }
}
