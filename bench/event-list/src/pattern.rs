//! Words that choose among names.

/// Returns whether `name` has `word` in it; a word with `*` or `?` must fit the whole name. The case of letters does not matter.
#[must_use]
pub fn fits(name: &str, word: &str) -> bool {
    let (name, word) = (name.to_ascii_lowercase(), word.to_ascii_lowercase());
    if word.contains(['*', '?']) { fits_glob(name.as_bytes(), word.as_bytes()) } else { name.contains(&word) }
}

/// Goes back to the last `*` alone: time is at most the product of both lengths.
fn fits_glob(name: &[u8], glob: &[u8]) -> bool {
    let (mut at, mut of, mut star) = (0, 0, None);
    while at < name.len() {
        match glob.get(of) {
            Some(b'*') => {
                star = Some((at, of));
                of += 1;
            }
            Some(&byte) if byte == b'?' || byte == name[at] => (at, of) = (at + 1, of + 1),
            _ => {
                let Some((from, star_at)) = star else { return false };
                star = Some((from + 1, star_at));
                (at, of) = (from + 1, star_at + 1);
            }
        }
    }
    glob[of..].iter().all(|&byte| byte == b'*')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_is_a_part_and_a_glob_is_the_whole() {
        for (name, word, wanted) in [
            ("kvm:kvm_exit", "exit", true),
            ("kvm:kvm_exit", "EXIT", true),
            ("kvm:kvm_exit", "kvm:*", true),
            ("kvm:kvm_exit", "*exit", true),
            ("kvm:kvm_exit", "k*_e?it", true),
            ("kvm:kvm_exit", "exit*", false),
            ("kvm:kvm_exit", "kvm:?", false),
            ("cycles", "cycle?*", true),
            ("cycles", "", true),
            ("", "*", true),
            ("", "?", false),
        ] {
            assert_eq!(fits(name, word), wanted, "{name} {word}");
        }
        assert!(!fits(&"a".repeat(500), &"a*".repeat(200).replace("a*", "a*b*")), "bounded");
    }
}
