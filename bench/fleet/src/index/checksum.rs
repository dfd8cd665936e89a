//! A checksum against accidents: what was stored must be what is loaded.

/// FNV-1a over words of 64 bits.
#[derive(Clone, Copy, Debug)]
pub(super) struct Checksum(u64);

impl Default for Checksum {
    fn default() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }
}

impl Checksum {
    pub(super) fn number(&mut self, number: u64) {
        // The fold brings high bits down, which a product alone never does.
        let product = (self.0 ^ number).wrapping_mul(0x0000_0100_0000_01b3);
        self.0 = product ^ (product >> 29);
    }

    pub(super) fn text(&mut self, text: &str) {
        self.number(text.len() as u64);
        for chunk in text.as_bytes().chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.number(u64::from_le_bytes(word));
        }
    }

    pub(super) fn float(&mut self, value: Option<f64>) {
        self.number(u64::from(value.is_some()));
        // SQLite has one zero.
        self.number((value.unwrap_or(0.0) + 0.0).to_bits());
    }

    pub(super) fn value(self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(texts: &[&str], numbers: &[Option<f64>]) -> u64 {
        let mut sum = Checksum::default();
        for text in texts {
            sum.text(text);
        }
        for number in numbers {
            sum.float(*number);
        }
        sum.value()
    }

    #[test]
    fn order_bounds_and_every_bit_count() {
        let all = [
            of(&[], &[]),
            of(&["ab", "c"], &[]),
            of(&["a", "bc"], &[]),
            of(&["c", "ab"], &[]),
            of(&["abc"], &[]),
            of(&[], &[None]),
            of(&[], &[Some(0.0)]),
            of(&[], &[Some(f64::from_bits(1))]),
            of(&[], &[Some(f64::from_bits(1 << 63 | 1))]),
            of(&[], &[Some(1.0)]),
        ];
        for (at, sum) in all.iter().enumerate() {
            assert!(!all[..at].contains(sum), "{at}");
        }
        assert_eq!(of(&[], &[Some(-0.0)]), of(&[], &[Some(0.0)]));
    }
}
