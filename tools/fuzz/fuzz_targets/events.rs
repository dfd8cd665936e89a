//! Event lists: whatever the text says, it is refused or read; what was read has every event in one group, and what the list
//! writes for perf reads back.
#![no_main]

use libfuzzer_sys::fuzz_target;
use stat_setup::list::parse::{join_lines, parse};
use stat_setup::list::resolve::resolve;
use stat_setup::list::sysfs::Sysfs;

fuzz_target!(|text: &str| {
    let _ = parse(&join_lines(text));
    let Ok(written) = parse(text) else { return };
    let list = resolve(&written, &mut Sysfs::at("/nonexistent"));
    let mut members: Vec<usize> = list.groups.iter().flat_map(|group| group.members.clone()).collect();
    members.sort_unstable();
    assert!(members.into_iter().eq(0..list.events.len()));
    assert_eq!(written.iter().map(|group| group.events.len()).sum::<usize>(), list.events.len());
    assert!(parse(&list.to_perf(Some(1))).is_ok());
});
