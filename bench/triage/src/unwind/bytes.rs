//! Reading DWARF's encodings, bounded by the bytes that are there.

/// A place in some bytes.
#[derive(Clone, Debug)]
pub(super) struct Reader<'a> {
    bytes: &'a [u8],
    pub(super) at: usize,
}

impl<'a> Reader<'a> {
    pub(super) fn new(bytes: &'a [u8], at: usize) -> Self {
        Self { bytes, at }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.at >= self.bytes.len()
    }

    pub(super) fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let taken = self.bytes.get(self.at..self.at.checked_add(N)?)?.try_into().ok()?;
        self.at += N;
        Some(taken)
    }

    pub(super) fn skip(&mut self, count: u64) -> Option<()> {
        self.at = self.at.checked_add(usize::try_from(count).ok()?).filter(|&at| at <= self.bytes.len())?;
        Some(())
    }

    pub(super) fn u8(&mut self) -> Option<u8> {
        self.take::<1>().map(|[byte]| byte)
    }

    pub(super) fn u16(&mut self) -> Option<u16> {
        self.take().map(u16::from_le_bytes)
    }

    pub(super) fn u32(&mut self) -> Option<u32> {
        self.take().map(u32::from_le_bytes)
    }

    pub(super) fn u64(&mut self) -> Option<u64> {
        self.take().map(u64::from_le_bytes)
    }

    pub(super) fn uleb(&mut self) -> Option<u64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.u8()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }

    pub(super) fn sleb(&mut self) -> Option<i64> {
        let mut value = 0_i64;
        for shift in (0..64).step_by(7) {
            let byte = self.u8()?;
            value |= i64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                let rest = shift + 7;
                return Some(if byte & 0x40 != 0 && rest < 64 { value | (-1 << rest) } else { value });
            }
        }
        None
    }

    /// Bytes up to a zero, which is passed over.
    pub(super) fn until_zero(&mut self) -> Option<&'a [u8]> {
        let rest = self.bytes.get(self.at..)?;
        let length = rest.iter().position(|&byte| byte == 0)?;
        self.at += length + 1;
        Some(&rest[..length])
    }

    /// A pointer by a `DW_EH_PE` format, sign or zero extended: not yet added to its base.
    pub(super) fn pointer(&mut self, encoding: u8) -> Option<u64> {
        match encoding & 0x0f {
            0x00 | 0x04 | 0x0c => self.u64(),
            0x01 => self.uleb(),
            0x02 => self.u16().map(u64::from),
            0x03 => self.u32().map(u64::from),
            0x09 => self.sleb().map(i64::cast_unsigned),
            0x0a => self.u16().map(|half| i64::from(half.cast_signed()).cast_unsigned()),
            0x0b => self.u32().map(|word| i64::from(word.cast_signed()).cast_unsigned()),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_as_in_the_standard() {
        // DWARF 5, 7.6: 624485 and -123456.
        assert_eq!(Reader::new(&[0xe5, 0x8e, 0x26], 0).uleb(), Some(624_485));
        assert_eq!(Reader::new(&[0xc0, 0xbb, 0x78], 0).sleb(), Some(-123_456));
        assert_eq!(Reader::new(&[0x80; 12], 0).uleb(), None);
        assert_eq!(Reader::new(b"zR\0x", 0).until_zero(), Some(&b"zR"[..]));
        assert_eq!(Reader::new(&[0xff; 4], 0).pointer(0x1b), Some(u64::MAX));
        assert_eq!(Reader::new(&[0; 3], 0).pointer(0x1b), None);
        assert_eq!((Reader::new(&[1], 0).skip(1), Reader::new(&[1], 0).skip(2)), (Some(()), None));
    }
}
