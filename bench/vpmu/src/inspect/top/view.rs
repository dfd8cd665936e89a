//! The picture in the terminal, and what keys do to it.

use ratatui_core::layout::{Constraint, Layout, Rect};
use ratatui_core::style::{Modifier, Style};
use ratatui_core::terminal::Frame;
use ratatui_core::text::Line as TextLine;
use ratatui_crossterm::crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ratatui_widgets::block::Block;
use ratatui_widgets::clear::Clear;
use ratatui_widgets::paragraph::Paragraph;
use ratatui_widgets::sparkline::Sparkline;
use ratatui_widgets::table::{Row, Table, TableState};

use super::model::{Line, Snapshot};
use super::text::{event, handler, line, percent, rates, ring};

/// The order of functions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// Samples in the window.
    #[default]
    Window,
    /// Samples over all.
    All,
    /// Name.
    Name,
}

impl Order {
    const fn next(self) -> Self {
        match self {
            Self::Window => Self::All,
            Self::All => Self::Name,
            Self::Name => Self::Window,
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Window => "window",
            Self::All => "all",
            Self::Name => "name",
        }
    }
}

/// Request of a key to the one who draws.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked {
    /// Nothing, not even a new picture.
    Nothing,
    /// A new picture.
    Draw,
    /// New callers, and a picture.
    Look,
    /// The end.
    Quit,
    /// The end, as by SIGINT.
    Interrupt,
}

/// Parts of a snapshot that the picture shows.
#[derive(Clone, Debug, Default)]
pub struct View {
    order: Order,
    paused: bool,
    help: bool,
    /// The line that is marked.
    marked: usize,
    /// The function that is looked at.
    zoom: Option<(bool, String)>,
    /// Samples have call chains.
    chains: bool,
    /// Name of the guest.
    guest: &'static str,
}

impl View {
    /// Starts the view of a guest of this name.
    pub fn new(guest: &'static str, chains: bool) -> Self {
        Self { chains, guest, ..Self::default() }
    }

    /// Returns whether the picture stands.
    pub const fn paused(&self) -> bool {
        self.paused
    }

    /// Returns the function whose callers are wanted.
    pub const fn zoom(&self) -> Option<&(bool, String)> {
        self.zoom.as_ref()
    }

    /// Handles a key while `shown` is on the screen.
    pub fn key(&mut self, key: KeyEvent, shown: &Snapshot) -> Asked {
        if key.kind == KeyEventKind::Release {
            return Asked::Nothing;
        }
        // In raw mode Ctrl-C is a key like others.
        if key.modifiers.contains(KeyModifiers::CONTROL) {
            return if key.code == KeyCode::Char('c') { Asked::Interrupt } else { Asked::Nothing };
        }
        if self.help {
            self.help = false;
            return Asked::Draw;
        }
        let last = shown.functions.len().saturating_sub(1);
        match key.code {
            KeyCode::Char('q') => return Asked::Quit,
            KeyCode::Char('p' | ' ') => {
                self.paused = !self.paused;
                // The next picture differs from the one that was paused at.
                return if self.paused { Asked::Draw } else { Asked::Look };
            }
            KeyCode::Char('s') => self.order = self.order.next(),
            KeyCode::Char('?' | 'h') => self.help = true,
            KeyCode::Char('z') | KeyCode::Enter if self.zoom.is_none() => {
                let Some(line) = self.sorted(shown).get(self.marked).copied() else { return Asked::Nothing };
                self.zoom = Some((line.user, line.name.clone()));
                return Asked::Look;
            }
            KeyCode::Char('z') | KeyCode::Enter | KeyCode::Esc | KeyCode::Backspace => self.zoom = None,
            KeyCode::Up | KeyCode::Char('k') => self.marked = self.marked.min(last).saturating_sub(1),
            KeyCode::Down | KeyCode::Char('j') => self.marked = (self.marked + 1).min(last),
            KeyCode::Home => self.marked = 0,
            KeyCode::End => self.marked = last,
            _ => return Asked::Nothing,
        }
        Asked::Draw
    }

    fn sorted<'a>(&self, shown: &'a Snapshot) -> Vec<&'a Line> {
        let mut lines: Vec<_> = shown.functions.iter().collect();
        match self.order {
            // As the snapshot has them.
            Order::Window => {}
            Order::All => lines.sort_by(|a, b| (b.all, &a.name).cmp(&(a.all, &b.name))),
            Order::Name => lines.sort_by(|a, b| (&a.name, a.user).cmp(&(&b.name, b.user))),
        }
        lines
    }

    /// Draws a snapshot.
    pub fn draw(&self, frame: &mut Frame<'_>, shown: &Snapshot) {
        let figures = figures(shown);
        let rows = [
            Constraint::Length(1),
            Constraint::Length(figures.len() as u16),
            Constraint::Length(4),
            Constraint::Min(3),
            Constraint::Length(1),
        ];
        let [title, top, spark, list, keys] = Layout::vertical(rows).areas(frame.area());
        frame.render_widget(Paragraph::new(self.title(shown)).style(Modifier::REVERSED), title);
        frame.render_widget(Paragraph::new(figures.into_iter().map(TextLine::from).collect::<Vec<_>>()), top);
        history(frame, spark, shown);
        if self.zoom.is_some() {
            self.callers(frame, list, shown);
        } else {
            self.functions(frame, list, shown);
        }
        frame.render_widget(Paragraph::new("q quit  p pause  s sort  up/down mark  z zoom  ? help"), keys);
        if self.help {
            help(frame);
        }
    }

    fn title(&self, shown: &Snapshot) -> String {
        let lost: u64 = shown.lost.iter().sum();
        let paused = if self.paused { "  PAUSED" } else { "" };
        format!(
            "vpmu top  {}  {:.1} s  samples {}  lost {lost}  window {:.1} s  sorted by {}{paused}",
            self.guest,
            shown.seconds[0],
            shown.samples[2],
            shown.seconds[1],
            self.order.name()
        )
    }

    fn functions(&self, frame: &mut Frame<'_>, area: Rect, shown: &Snapshot) {
        let [_, window, all] = shown.samples;
        let rows = self.sorted(shown).into_iter().map(|line| {
            Row::new([
                format!("{:>6.2} %", percent(line.window, window)),
                format!("{:>6.2} %", percent(line.all, all)),
                ring(line).to_owned(),
                line.name.clone(),
            ])
        });
        let widths = [Constraint::Length(8), Constraint::Length(8), Constraint::Length(4), Constraint::Fill(1)];
        let table = Table::new(rows, widths)
            .header(
                Row::new([format!("{:>8}", "window"), format!("{:>8}", "all"), "ring".into(), "function".into()])
                    .style(Modifier::BOLD),
            )
            .row_highlight_style(Style::new().add_modifier(Modifier::REVERSED));
        let marked = self.marked.min(shown.functions.len().saturating_sub(1));
        frame.render_stateful_widget(table, area, &mut TableState::new().with_selected(Some(marked)));
    }

    fn callers(&self, frame: &mut Frame<'_>, area: Rect, shown: &Snapshot) {
        let name = self.zoom.as_ref().map_or("", |(_, name)| name);
        let title = TextLine::from(format!("callers of {name}, over all; z back")).style(Modifier::BOLD);
        let callers = shown.callers.as_deref().unwrap_or_default();
        let all: u64 = callers.iter().map(|line| line.all).sum();
        let mut lines = vec![title];
        if !self.chains {
            lines.push("samples have no call chains: give -g".into());
        } else if callers.is_empty() {
            lines.push("no sample of it has a caller".into());
        }
        let line = |line: &Line| format!("{:>6.2} %  {:>4}  {}", percent(line.all, all), ring(line), line.name).into();
        lines.extend(callers.iter().map(line));
        frame.render_widget(Paragraph::new(lines), area);
    }
}

/// Formats the lines of figures.
fn figures(shown: &Snapshot) -> Vec<String> {
    let mut lines: Vec<_> = shown.events.iter().map(event).collect();
    lines.extend(rates(&shown.window, shown.seconds[1]).map(|(name, figures)| line(name, figures)));
    lines
}

/// Draws the handler's median, or NMIs, tick by tick.
fn history(frame: &mut Frame<'_>, area: Rect, shown: &Snapshot) {
    let title = match handler(shown.handler[0]) {
        Some(times) => format!("NMI handler, median of each tick: {times}"),
        None => "NMIs of each tick".to_owned(),
    };
    // The latest are at the right.
    let from = shown.history.len().saturating_sub(usize::from(area.width));
    let history = &shown.history[from..];
    frame.render_widget(Sparkline::default().block(Block::new().title(title)).data(history), area);
}

const HELP: [(&str, &str); 9] = [
    ("q", "end the guest; Ctrl-C the same, exit code 3"),
    ("p, space", "stop the picture; the guest goes on"),
    ("s", "sort by window, over all, name"),
    ("up, down", "mark a function (also k, j, Home, End)"),
    ("z, enter", "its callers (with -g), and back"),
    ("window", "share of samples of the last seconds"),
    ("all", "the same since the begin"),
    ("ring", "privilege level 0 or 3"),
    ("0x...xxx", "code without a name: its page"),
];

fn help(frame: &mut Frame<'_>) {
    let area = frame.area();
    let (width, height) = (area.width.min(60), area.height.min(HELP.len() as u16 + 2));
    let area = Rect { x: (area.width - width) / 2, y: (area.height - height) / 2, width, height };
    frame.render_widget(Clear, area);
    let lines: Vec<_> = HELP.map(|(key, text)| TextLine::from(format!("{key:<8}  {text}"))).into();
    frame.render_widget(Paragraph::new(lines).block(Block::bordered().title("keys")), area);
}

#[cfg(test)]
mod tests {
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
}
