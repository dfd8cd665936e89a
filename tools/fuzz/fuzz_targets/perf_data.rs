//! Recordings: whatever a file says, reading ends, and what it returns is bounded by the bytes that are there. Then
//! what `vpmu report` does with one: chains of stacks, names of their time, folded text, in bounded memory.
//!
//! To be run with `-rss_limit_mb=256 -malloc_limit_mb=256`: zstd's window takes half of it.
#![no_main]

use libfuzzer_sys::fuzz_target;
use perf_data::feature::{MOST_IDS, MOST_OF_NAME};
use perf_data::history::Gathered;
use perf_data::names::Names;
use perf_data::reader::{MOST_BUILD_IDS, MOST_EVENTS, MOST_UNUSED, Recording, allowed};
use perf_data::record::{MOST_ENTRIES, Record};
use perf_data::unwind::Table;

/// Most bytes of memory for a recording, and of its text.
const MOST: u64 = 32 << 20;

fuzz_target!(|bytes: &[u8]| {
    let Ok(mut recording) = Recording::open(bytes) else { return };
    let (mut records, mut fields, mut text) = (0_u64, 0_u64, 0_u64);
    let damage = recording.records(|_, record| {
        records += 1;
        match record {
            Record::Sample(sample) => {
                assert!(sample.chain.len() <= MOST_ENTRIES && (sample.cut == 0 || sample.chain.len() == MOST_ENTRIES));
                let stack = sample.user.map_or(0, |user| user.stack.len());
                fields += 8 * (sample.chain.len() as u64 + u64::from(sample.cut)) + stack as u64;
            }
            // A byte that is no UTF-8 becomes three.
            Record::Comm { name, .. } => text += name.len() as u64,
            Record::Mapping(mapping) => text += mapping.file.len() as u64,
            Record::Deferred { chain, cut, .. } => {
                assert!(chain.len() <= MOST_ENTRIES && (cut == 0 || chain.len() == MOST_ENTRIES));
                fields += 8 * (chain.len() as u64 + u64::from(cut));
            }
            Record::LostSamples(_) => fields += 8,
            Record::Lost { .. } | Record::Fork { .. } => fields += 16,
            Record::Other(_) => {}
        }
    });
    let here = bytes.len() as u64;
    let most = here + allowed(here);
    // Records, read or damaged, have a header of 8 bytes each; a stop in a frame may be without one.
    assert!(8 * records + fields + text / 3 <= most);
    assert!(damage.frames <= here / 8 && damage.records <= most / 8 + here / 8);
    assert!(damage.rest <= here + MOST_UNUSED as u64);
    assert!(recording.events.len() <= MOST_EVENTS);
    assert!(recording.events.iter().map(|event| event.ids.len()).sum::<usize>() <= MOST_IDS);
    assert!(recording.events.iter().all(|event| event.name.len() <= MOST_OF_NAME));
    // The section of build-ids may lie in the data as well.
    assert!(recording.build_ids.len() as u64 <= 2 * here / 36 && recording.build_ids.len() <= MOST_BUILD_IDS);
    assert!(recording.command_line.iter().map(|word| word.len() as u64).sum::<u64>() <= 3 * here);
    stacks(bytes);
    #[cfg(feature = "traces")]
    import(bytes);
    let _ = Table::new(bytes.to_vec(), 0x1000).caller(0x1000, &[Some(0x1000); 17], Some);
});

fn stacks(bytes: &[u8]) {
    let Ok(Ok(gathered)) = Recording::open(bytes).map(|mut recording| Gathered::read(&mut recording, MOST)) else {
        return;
    };
    let Some((&event, &samples)) = gathered.counts().iter().max_by_key(|(_, samples)| **samples) else { return };
    // Without the files of this host.
    let Ok(named) = gathered.name(event, Names::default().reading(0)) else { return };
    let tree = named.tree();
    assert!(named.calls.bytes() <= MOST && named.samples.len() == samples);
    assert!(tree.nodes.iter().map(|node| node.own).sum::<u64>() == samples as u64);
    assert!(tree.nodes.iter().zip(0..).all(|(node, at)| node.caller().is_none_or(|caller| caller < at)));
    // A thread, what says that the chain is cut, and its entries.
    for sample in &named.samples {
        let (mut depth, mut next) = (0, Some(sample.innermost));
        while let Some(number) = next {
            next = named.calls.get(number).0;
            depth += 1;
        }
        assert!(depth <= MOST_ENTRIES + 2);
    }
    if let Ok(text) = tree.folded(&named.names, MOST) {
        assert!(text.len() as u64 <= MOST && text.lines().count() <= samples);
    }
}

/// Whatever a recording says, its import is a trace that can be read, or an error in a line that leaves no folder.
#[cfg(feature = "traces")]
fn import(bytes: &[u8]) {
    use std::path::Path;
    let to = std::env::temp_dir().join(format!("vpmu-fuzz-import-{}", std::process::id()));
    match trace::import::import((Path::new("input"), bytes, &[]), None, &to) {
        Ok(_) => {
            let trace = trace::read::Trace::open(&to).expect("a trace");
            assert!(trace.batches().all(|batch| batch.is_ok()));
            let _ = std::fs::remove_dir_all(&to);
        }
        Err(error) => assert!(!error.to_string().contains('\n') && !to.exists(), "{error}"),
    }
}
