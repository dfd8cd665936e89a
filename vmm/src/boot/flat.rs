//! Flat segments of a vCPU: base 0, limit 4 GiB, ring by the selector's descriptor (SDM vol. 3, 3.2.1 and 3.4.5).

use kvm_bindings::kvm_segment;

/// Type of a code segment: execute, read, accessed.
pub(super) const CODE: u8 = 11;
/// Type of a data segment: read, write, accessed.
pub(super) const DATA: u8 = 3;

/// Creates a segment of 64-bit code if `long`, else of 32 bits.
pub(super) fn segment(selector: u16, type_: u8, long: bool) -> kvm_segment {
    kvm_segment {
        selector,
        type_,
        limit: u32::MAX,
        present: 1,
        s: 1,
        g: 1,
        l: long.into(),
        db: (!long).into(),
        ..kvm_segment::default()
    }
}
