use super::*;

#[test]
fn words_are_the_structure_in_memory_order() {
    let mut next = 0;
    let page = BootPage::from_words(&mut || {
        next += 1;
        next
    });
    assert_eq!(next as usize, BootPage::COUNT);
    assert_eq!(BootPage::COUNT * 8, size_of::<BootPage>());
    assert_eq!((page.self_addr, page.magic, page.events[1].selector), (1, 2, page.event_count + 4));
    let mut last = 0;
    page.for_each_word(&mut |word| {
        last += 1;
        assert_eq!(word, last);
    });
    assert_eq!(last, next);
}

const PAGE: usize = 4096;

#[test]
fn each_structure_fits_its_page() {
    for size in [size_of::<BootPage>(), size_of::<UserPage>(), size_of::<Report>(), size_of::<ConformanceReport>()] {
        assert!(size <= PAGE, "{size}");
    }
}

#[test]
fn structures_have_no_padding() {
    let last = |offsets: &[(&str, usize)]| offsets.last().map(|(_, offset)| *offset);
    assert_eq!(last(BootPage::OFFSETS), Some(size_of::<BootPage>() - MAX_EVENTS * size_of::<EventSpec>()));
    assert_eq!(last(Report::OFFSETS), Some(size_of::<Report>() - 8));
    assert_eq!(LogEntry::OFFSETS.len() * 8, size_of::<LogEntry>(), "one word per field");
}

#[test]
fn the_boot_pages_address_is_its_first_word() {
    assert_eq!(BootPage::OFFSETS[0], ("self_addr", 0));
}

#[test]
fn c_definitions_name_arrays_as_c_does() {
    assert!(BootPage::C_DEFINITION.contains("EventSpec events[MAX_EVENTS];"));
    assert!(Report::C_DEFINITION.contains("u64 sync_before[SYNC_ROUNDS];"));
    assert!(EventSpec::C_DEFINITION.starts_with("struct EventSpec {"));
}

#[test]
fn doorbells_and_vectors_are_distinct() {
    for prefix in ["DB_", "VECTOR_", "WORKLOAD_", "FLAG_", "PORT_", "LOG_", "PHASE_", "CASE_", "SKIP_"] {
        let mut of_prefix = CONSTANTS.iter().chain(conformance::CONSTANTS).filter(|(name, _)| name.starts_with(prefix));
        while let Some((name, value)) = of_prefix.next() {
            assert!(of_prefix.clone().all(|(_, other)| other != value), "{name}");
        }
    }
    assert!(VECTOR_SPURIOUS < ISR_COUNT as u64);
}

/// A doorbell, a log line and a call's number say what they mean for every phase and every event.
#[test]
fn phases_have_doorbells_and_log_lines_of_their_own() {
    let phases = [PHASE_NONE, PHASE_PROGRAM, PHASE_ENABLE, PHASE_READ, PHASE_DISABLE, PHASE_ROTATE];
    assert_eq!(phases, core::array::from_fn::<u64, PHASES, _>(|n| n as u64), "dense");
    assert!(u64::from(DB_FAILED) < u64::from(DB_PHASE) && LOG_ROTATION < LOG_PHASE);
    assert!((MAX_EVENTS as u64) < CALLS);
    assert!(conformance::CONSTANTS.iter().all(|(name, _)| CONSTANTS.iter().all(|(other, _)| name != other)));
}
