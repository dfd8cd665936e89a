//! The model with samples that are made up.

use perf_data::symbols::Symbols;

use super::super::names::Of;
use super::*;

fn names() -> Names {
    Names::new(Symbols::of_kallsyms("1000 T one\n2000 T two\n3000 T three\n"), Of::Everything)
}

fn at(rip: u64) -> Sample {
    Sample { rip, period: 10, ..Sample::default() }
}

fn model(span: usize) -> Model {
    Model::new(vec!["cpu-clock".to_owned(), "kvm:kvm_exit".to_owned()], span, false)
}

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn the_window_slides_and_the_rest_stays() {
    let mut model = model(2);
    let counts = |n: u64| LiveCounts { nmis: n, exits: [n, 2 * n, 0, 0, 0], ..LiveCounts::default() };
    for (rip, n) in [(0x1001, 3), (0x2001, 5), (0x1002, 9)] {
        (0..n).for_each(|_| model.sample(&at(rip)));
        model.tick(SECOND, counts(n), [n, 0]);
    }
    let shown = model.snapshot(&mut names(), None);
    let line = |name: &str, window, all| Line { user: false, name: name.to_owned(), window, all };
    assert_eq!(shown.functions, [line("one", 9, 12), line("two", 5, 5)]);
    assert_eq!((shown.samples, shown.seconds, shown.ticks), ([9, 14, 17], [3.0, 2.0], 3));
    assert_eq!(shown.events, [("cpu-clock".to_owned(), 7.0, 70.0), ("kvm:kvm_exit".to_owned(), 0.0, 0.0)]);
    assert_eq!((shown.window.nmis, shown.window.exits[1], shown.all.nmis, shown.lost), (6, 12, 9, [9, 0]));
    assert_eq!((shown.history.as_slice(), shown.handler), (&[3, 2, 4][..], [None, None]));
    assert_eq!(shown.callers, None);
}

#[test]
fn functions_are_those_of_the_first_event() {
    let mut model = model(1);
    model.sample(&at(0x1000));
    model.sample(&Sample { event: 1, ..at(0x2000) });
    model.sample(&Sample { event: 9, ..at(0x2000) });
    model.tick(SECOND, LiveCounts::default(), [0; 2]);
    let shown = model.snapshot(&mut names(), None);
    assert_eq!((shown.functions.len(), shown.samples[2], model.every_sample()), (1, 1, 3));
    assert_eq!((shown.events[0].1, shown.events[1].1), (1.0, 1.0));
}

#[test]
fn callers_are_found_by_function_and_ring() {
    let mut model = model(1);
    let chain = |kernel: &[u64], user: &[u64]| [kernel.to_vec(), user.to_vec()];
    model.sample(&Sample { chain: chain(&[0x1001, 0x2001, 0x3001], &[]), ..at(0x1001) });
    // A return address at the end of its function is the next one's begin.
    model.sample(&Sample { chain: chain(&[0x1002, 0x3000], &[]), ..at(0x1002) });
    model.sample(&Sample { chain: chain(&[0x1002], &[0x3000]), ..at(0x1002) });
    model.sample(&Sample { user: true, chain: chain(&[], &[0x1001, 0x3001]), ..at(0x1001) });
    model.sample(&at(0x1001));
    let mut names = names();
    let shown = model.snapshot(&mut names, Some(&(false, "one".to_owned())));
    let line = |user, name: &str, all| Line { user, name: name.to_owned(), window: 0, all };
    assert_eq!(shown.callers.unwrap(), [line(false, "two", 2), line(true, "three", 1)]);
    let of_user = model.snapshot(&mut names, Some(&(true, "one".to_owned()))).callers.unwrap();
    assert_eq!(of_user, [line(true, "three", 1)]);
    assert_eq!(model.snapshot(&mut names, Some(&(false, "no such".to_owned()))).callers, Some(Vec::new()));
}

#[test]
fn the_handlers_times_are_those_of_the_window() {
    let mut model = Model::new(vec!["cpu-clock".to_owned()], 1, true);
    model.handler(1000);
    model.tick(SECOND, LiveCounts::default(), [0; 2]);
    (0..99).for_each(|_| model.handler(50));
    model.handler(100);
    model.tick(SECOND, LiveCounts::default(), [0; 2]);
    let shown = model.snapshot(&mut names(), None);
    assert_eq!(shown.handler[0], Some(Handler { count: 100, p50: 50, p99: 50, worst: 100 }));
    assert_eq!(shown.handler[1].map(|all| all.count), Some(101));
    model.tick(SECOND, LiveCounts { nmis: 7, ..LiveCounts::default() }, [0; 2]);
    let shown = model.snapshot(&mut names(), None);
    assert_eq!((shown.handler[0], shown.history[1..].to_vec()), (None, vec![50, 0]));
}

#[test]
fn a_guest_that_jumps_anywhere_does_not_grow_the_model() {
    let mut model = model(1);
    let more = MOST_PLACES as u64 + 1000;
    (0..more).for_each(|n| model.sample(&at(0x10_0000 + n)));
    model.tick(SECOND, LiveCounts::default(), [0; 2]);
    assert_eq!(model.places.counts.len(), MOST_PLACES + 1);
    let shown = model.snapshot(&mut names(), None);
    assert_eq!(shown.samples, [more; 3]);
    let others = |shown: &Snapshot| {
        let line = shown.functions.iter().find(|line| line.name == "[others]").unwrap();
        (line.window, line.all)
    };
    assert_eq!(others(&shown), (1000, 1000));
    // New places of a later window are the others of both columns; known ones stay.
    (0..50).for_each(|n| model.sample(&at(0x9000_0000 + n)));
    (0..5).for_each(|_| model.sample(&at(0x10_0000)));
    model.tick(SECOND, LiveCounts::default(), [0; 2]);
    let mut names = names();
    let shown = model.snapshot(&mut names, None);
    assert_eq!((others(&shown), shown.samples), ((50, 1050), [55, 55, more + 55]));
    assert_eq!(model.bins[0].places.counts.len(), 2);
}
