//! The image and Linux loaders: whatever the file says, a plan lies within memory and without overlap, what is copied is in the
//! file, what a kernel unpacks is bounded, and rewriting changes the second byte of an RDPMC and nothing else.
#![no_main]

use libfuzzer_sys::fuzz_target;
use vmm::boot::image::Image;
use vmm::boot::information::Information;
use vmm::boot::linux::{Kernel, MAX_UNPACKED};
use vmm::boot::rdpmc::{self, Site};

fuzz_target!(|bytes: &[u8]| {
    // The first bytes choose the memory, from 64 KiB to 4 GiB.
    let Some((&[low, high], image)) = bytes.split_first_chunk() else { return };
    let ram = (u64::from(u16::from_le_bytes([low, high])) + 1) << 16;
    if let Ok(Image { plan, protocol, eip, .. }) = Image::of(image, ram) {
        assert!(plan.covers(eip.into()), "{plan:x?}");
        let mut end = 0;
        for segment in &plan.segments {
            assert!(segment.address >= end && segment.end() <= ram, "{plan:x?}");
            assert!(segment.file.len() as u64 <= segment.memory_size && segment.file.end <= image.len(), "{plan:x?}");
            end = segment.end();
        }
        plan.copy(image, |_, _| Ok::<_, ()>(())).expect("nothing fails");
        let information = Information { protocol, ram, program: "kernel", arguments: "", modules: &[] };
        let size = information.size().expect("a short command line fits");
        if let Ok(at) = plan.free_range(size) {
            assert!(at + size <= ram && plan.segments.iter().all(|s| s.end() <= at || at + size <= s.address));
            information.build(u32::try_from(at).expect("below 4 GiB")).expect("it was sized");
        }
    }
    let mut rewritten = image.to_vec();
    if let Ok(sites) = rdpmc::rewrite(&mut rewritten) {
        only(&sites, image, &rewritten);
    }
    let Ok(mut kernel) = Kernel::parse(image) else { return };
    assert!(kernel.image().len() <= MAX_UNPACKED.max(image.len()) && (1..=128).contains(&kernel.release().len()));
    let before = kernel.image().to_vec();
    if let Ok(sites) = kernel.rewrite_rdpmcs() {
        only(&sites, &before, kernel.image());
    }
});

/// These RDPMCs have changed, each in its second byte, and nothing else has.
fn only(sites: &[Site], before: &[u8], after: &[u8]) {
    let mut expected = before.to_vec();
    for &Site { offset, .. } in sites {
        assert_eq!(expected[offset - 1..=offset], [0x0f, 0x33]);
        expected[offset] = 0x32;
    }
    assert!(expected == after);
}
