//! The Linux loader: whatever the file says, parsing ends, memory is bounded, and rewriting changes the second byte of an RDPMC and
//! nothing else.
#![no_main]

use libfuzzer_sys::fuzz_target;
use vmm::boot::linux::{Kernel, MAX_UNPACKED};

fuzz_target!(|bytes: &[u8]| {
    let Ok(mut kernel) = Kernel::parse(bytes) else { return };
    assert!(kernel.image().len() <= MAX_UNPACKED.max(bytes.len()) && (1..=128).contains(&kernel.release().len()));
    let before = kernel.image().to_vec();
    let Ok(sites) = kernel.rewrite_rdpmcs() else { return };
    let changed: Vec<_> = (0..before.len()).filter(|&i| before[i] != kernel.image()[i]).collect();
    let mut offsets: Vec<_> = sites.iter().map(|site| site.offset).collect();
    offsets.sort_unstable();
    assert_eq!(changed, offsets);
    assert!(changed.iter().all(|&i| i > 0 && before[i - 1..=i] == [0x0f, 0x33] && kernel.image()[i] == 0x32));
});
