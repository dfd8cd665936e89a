//! Pictures in a terminal that is memory.

use ratatui_core::backend::TestBackend;
use ratatui_core::terminal::Terminal;

use super::super::text::tests::snapshot;
use super::*;

fn picture(view: &View, shown: &Snapshot, width: u16, height: u16) -> String {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| view.draw(frame, shown)).unwrap();
    terminal.backend().to_string()
}

fn press(view: &mut View, code: KeyCode, shown: &Snapshot) -> Asked {
    view.key(KeyEvent::new(code, KeyModifiers::NONE), shown)
}

/// The names of functions from the top.
fn order(picture: &str) -> Vec<&'static str> {
    let mut names = vec!["ftest", "nmi_handler"];
    names.sort_by_key(|name| picture.find(name));
    names
}

#[test]
fn a_picture_has_figures_and_functions() {
    let shown = snapshot();
    let picture = picture(&View::new("payload", false), &shown, 100, 20);
    for needle in [
        "vpmu top  payload  3.0 s  samples 40  lost 3  window 2.0 s  sorted by window",
        "cpu-clock  samples/s 8.0",
        "exits/s  rdmsr 1.0  wrmsr 2.0  io 3.0  mmio 0.0  signal 10.0",
        "open 0.5  release 0.0",
        "guest/s  overflows 6.0  nmis 5.0",
        "NMI handler, median of each tick: 10 runs, p50 50 ns",
        " 75.00 %  25.00 % 3",
        " 25.00 %  75.00 % 0",
        "q quit  p pause  s sort",
    ] {
        assert!(picture.contains(needle), "{picture} lacks {needle}");
    }
    assert!(picture.contains('█'), "{picture} has no history");
    assert_eq!(order(&picture), ["ftest", "nmi_handler"]);
}

#[test]
fn keys_sort_mark_pause_and_end() {
    let (mut view, shown) = (View::new("payload", true), snapshot());
    assert_eq!(press(&mut view, KeyCode::Char('s'), &shown), Asked::Draw);
    assert_eq!(order(&picture(&view, &shown, 100, 20)), ["nmi_handler", "ftest"]);
    assert_eq!(press(&mut view, KeyCode::Char('p'), &shown), Asked::Draw);
    assert!(view.paused() && picture(&view, &shown, 100, 20).contains("PAUSED"));
    assert_eq!(press(&mut view, KeyCode::Char(' '), &shown), Asked::Look);
    assert!(!view.paused());
    for (code, marked) in
        [(KeyCode::Down, 1), (KeyCode::Down, 1), (KeyCode::Up, 0), (KeyCode::Up, 0), (KeyCode::End, 1)]
    {
        press(&mut view, code, &shown);
        assert_eq!(view.marked, marked);
    }
    assert_eq!(press(&mut view, KeyCode::Char('x'), &shown), Asked::Nothing);
    assert_eq!(press(&mut view, KeyCode::Char('q'), &shown), Asked::Quit);
    let interrupt = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
    assert_eq!(view.key(interrupt, &shown), Asked::Interrupt);
}

#[test]
fn zoom_is_of_the_marked_function() {
    let (mut view, mut shown) = (View::new("image", true), snapshot());
    press(&mut view, KeyCode::Down, &shown);
    assert_eq!(press(&mut view, KeyCode::Enter, &shown), Asked::Look);
    assert_eq!(view.zoom(), Some(&(false, "nmi_handler".to_owned())));
    shown.callers = Some(vec![Line { user: true, name: "main_loop".to_owned(), window: 0, all: 3 }]);
    let zoomed = picture(&view, &shown, 100, 20);
    assert!(
        zoomed.contains("callers of nmi_handler") && zoomed.contains("3  main_loop") && zoomed.contains("100.00 %"),
        "{zoomed}"
    );
    view.chains = false;
    assert!(picture(&view, &shown, 100, 20).contains("give -g"));
    press(&mut view, KeyCode::Char('z'), &shown);
    assert!(view.zoom().is_none());
    // Without functions there is nothing to look at.
    assert_eq!(press(&mut view, KeyCode::Enter, &Snapshot::default()), Asked::Nothing);
}

#[test]
fn help_lies_over_the_picture_until_a_key() {
    let (mut view, shown) = (View::new("linux", false), snapshot());
    press(&mut view, KeyCode::Char('?'), &shown);
    let picture = picture(&view, &shown, 100, 24);
    assert!(HELP.iter().all(|(key, text)| picture.contains(key) && picture.contains(text)), "{picture}");
    assert_eq!(press(&mut view, KeyCode::Char('q'), &shown), Asked::Draw);
    assert!(!view.help);
}

#[test]
fn any_size_of_terminal_has_a_picture() {
    let (mut view, shown) = (View::new("linux", false), snapshot());
    for help in [false, true] {
        view.help = help;
        for (width, height) in [(1, 1), (10, 2), (20, 8), (300, 3), (500, 100)] {
            picture(&view, &shown, width, height);
            picture(&view, &Snapshot::default(), width, height);
        }
    }
}
