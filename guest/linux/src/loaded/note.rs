//! ELF notes, of which one is a build-id.

/// NT_GNU_BUILD_ID.
const BUILD_ID: u32 = 3;
/// Most bytes of a build-id in a recording.
const MOST: usize = 20;

/// Finds the build-id among the notes; `None` if there is none of a length that is used.
pub(super) fn build_id(mut notes: &[u8]) -> Option<Vec<u8>> {
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
    use proptest::prelude::*;

    use super::*;

    fn note(kind: u32, name: &[u8], id: &[u8]) -> Vec<u8> {
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
        let notes = [note(1, b"Xen\0", b"abc"), note(3, b"Xen\0", b"no"), note(3, b"GNU\0", &[7; 20])].concat();
        assert_eq!(build_id(&notes), Some(vec![7; 20]));
        assert_eq!(build_id(&notes[..notes.len() - 1]), None, "cut short");
        assert_eq!(
            [build_id(&note(3, b"GNU\0", &[7; 21])), build_id(&note(3, b"GNU\0", b"")), build_id(b"")],
            [None, None, None]
        );
        let mut lie = note(3, b"GNU\0", &[7; 20]);
        lie[..4].copy_from_slice(&u32::MAX.to_le_bytes());
        assert_eq!(build_id(&lie), None, "a length that is a lie");
    }

    proptest! {
        #[test]
        fn any_bytes_have_a_build_id_or_none(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            prop_assert!(build_id(&bytes).is_none_or(|id| id.len() <= MOST));
        }
    }
}
