//! The one table of everything that is shown: typed cells, with a form for each reader. Text fits its width; Markdown and pages are made
//! of the same cells, and so are a page's plots.

use serde::Serialize;
use textwrap::{Options, WordSplitter};

use super::layout;
use crate::paired::{Level, Ratio};
use crate::shown;
use crate::stats::interval::Interval;
use crate::verdict::Verdict;

/// Spaces between two columns.
const GAP: usize = 2;

/// Most rows of a table that is cut short, in every form.
const ROWS: usize = 60;

/// A cell: the text that is shown, and the figures that a plot draws of it.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Cell {
    pub(crate) text: String,
    /// Its figure, on the axis of a plot.
    pub(crate) value: Option<f64>,
    /// The figure's 95 % interval.
    pub(crate) interval: Option<Interval>,
    /// Points of a curve, or the values of rounds in order of time.
    pub(crate) points: Vec<(f64, f64)>,
}

impl<T: AsRef<str>> From<T> for Cell {
    fn from(text: T) -> Self {
        Self { text: shown::line(text.as_ref()), ..Self::default() }
    }
}

impl Cell {
    /// Makes the cell of a figure; a dash stands for an unknown one.
    pub fn of(value: Option<f64>, text: impl Fn(f64) -> String) -> Self {
        Self { value, ..value.map_or_else(layout::dash, text).into() }
    }

    /// Makes the cell of a level of a metric.
    pub fn level(metric: &str, level: Option<&Level>) -> Self {
        let text = level.map_or_else(layout::dash, |level| layout::level(metric, level));
        Self { value: level.map(|level| level.ns), interval: level.and_then(|level| level.interval), ..text.into() }
    }

    /// Makes the cell of a ratio.
    pub fn ratio(ratio: Option<&Ratio>) -> Self {
        let text = ratio.map_or_else(layout::dash, layout::ratio_with);
        Self { value: ratio.map(|ratio| ratio.ratio), interval: ratio.and_then(|ratio| ratio.interval), ..text.into() }
    }
}

/// Rows below a header.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Table {
    header: Vec<String>,
    pub(crate) rows: Vec<Vec<Cell>>,
    /// Columns that name the row, at the left of every block.
    keys: usize,
    /// Further columns of text.
    left: Vec<usize>,
    /// Most rows that are shown, if some may be left out.
    most: Option<usize>,
}

impl Table {
    /// Creates a table without rows: the first column has the rows' names, the others have figures.
    pub fn new<T: Into<String>>(header: impl IntoIterator<Item = T>) -> Self {
        let header = header.into_iter().map(|text| shown::line(&text.into())).collect();
        Self { header, keys: 1, ..Self::default() }
    }

    /// Leaves out rows beyond the limit; the document has all.
    pub fn cut(self) -> Self {
        Self { most: Some(ROWS), ..self }
    }

    /// Sets the number of columns that name the row.
    pub fn keys(self, keys: usize) -> Self {
        Self { keys, ..self }
    }

    /// Makes this column hold text.
    pub fn left(mut self, column: usize) -> Self {
        self.left.push(column);
        self
    }

    /// Adds a row of as many cells as the header has.
    pub fn add_row<T: Into<Cell>>(&mut self, row: impl IntoIterator<Item = T>) {
        self.rows.push(row.into_iter().map(Into::into).collect());
    }

    /// Returns whether there is no row.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    fn is_text(&self, column: usize) -> bool {
        column < self.keys || self.left.contains(&column)
    }

    fn shown(&self) -> &[Vec<Cell>] {
        &self.rows[..self.most.unwrap_or(usize::MAX).min(self.rows.len())]
    }

    fn left_out(&self) -> Option<String> {
        let more = self.rows.len() - self.shown().len();
        (more > 0).then(|| format!("\n{more} more: see the JSON"))
    }

    /// Formats the table in blocks of at most `width` columns: columns that do not fit beside the
    /// first ones follow below, under them again. A text that is too long beside them is wrapped.
    pub fn text(&self, width: usize) -> String {
        let blocks = self.blocks(width).iter().map(|block| self.block(block, width)).collect::<Vec<_>>().join("\n\n");
        blocks + &self.left_out().unwrap_or_default()
    }

    /// Formats the table as Markdown. A regression is bold.
    pub fn markdown(&self) -> String {
        let cell = |text: &str| {
            let shown = shown::markdown(text);
            if text == Verdict::Slower.word() { format!("**{shown}**") } else { shown }
        };
        let line = |cells: Vec<String>| format!("| {} |\n", cells.join(" | "));
        let mut out = line(self.header.iter().map(|text| cell(text)).collect()) + "|";
        for column in 0..self.header.len() {
            out += if self.is_text(column) { "---|" } else { "---:|" };
        }
        out += "\n";
        for row in self.shown() {
            out += &line(row.iter().map(|one| cell(&one.text)).collect());
        }
        out + &self.left_out().map(|more| more + "\n").unwrap_or_default()
    }

    /// Returns the texts of every line of a terminal's table, the header first.
    fn lines(&self) -> impl Iterator<Item = Vec<&str>> {
        let header = self.header.iter().map(String::as_str).collect();
        let rows = self.shown().iter().map(|row| row.iter().map(|cell| &*cell.text).collect());
        std::iter::once(header).chain(rows)
    }

    fn widths(&self) -> Vec<usize> {
        let width = |column: usize| self.lines().filter_map(|line| Some(line.get(column)?.chars().count())).max();
        (0..self.header.len()).map(|column| width(column).unwrap_or(0)).collect()
    }

    /// Returns the columns of each block.
    fn blocks(&self, width: usize) -> Vec<Vec<usize>> {
        let widths = self.widths();
        let keys: Vec<usize> = (0..self.keys.min(widths.len())).collect();
        let first = keys.iter().map(|&key| widths[key] + GAP).sum::<usize>().saturating_sub(GAP);
        let (mut all, mut block, mut used) = (Vec::new(), keys.clone(), first);
        for (column, own) in widths.iter().enumerate().skip(keys.len()) {
            if block.len() > keys.len() && used + GAP + own > width {
                all.push(std::mem::replace(&mut block, keys.clone()));
                used = first;
            }
            block.push(column);
            used += GAP + own;
        }
        all.push(block);
        all
    }

    fn block(&self, block: &[usize], width: usize) -> String {
        let widths = self.widths();
        let Some((&last, before)) = block.split_last() else { return String::new() };
        let indent = before.iter().map(|&column| widths[column] + GAP).sum();
        let room = width.saturating_sub(indent);
        let is_long = self.is_text(last) && widths[last] > room;
        // Only the last cell of a line has several lines.
        let fold = |text: &str| if is_long { wrapped(text, room, "  ") } else { text.to_owned() };
        let lines: Vec<(Vec<&str>, String)> = self.lines().map(|line| (line.clone(), fold(line[last]))).collect();
        let end = lines.iter().flat_map(|(_, folded)| folded.lines()).map(|line| line.chars().count()).max();
        let end = end.unwrap_or(0);
        let pad = |column: usize, text: &str, width: usize| {
            if self.is_text(column) { format!("{text:<width$}") } else { format!("{text:>width$}") }
        };
        let rule = "─".repeat(indent + end);
        let mut out = Vec::new();
        for (line, folded) in &lines {
            let first =
                before.iter().map(|&column| pad(column, line[column], widths[column]) + "  ").collect::<String>();
            for (number, text) in folded.split('\n').enumerate() {
                let start = if number == 0 { first.clone() } else { " ".repeat(indent) };
                out.push((start + &pad(last, text, end)).trim_end().to_owned());
            }
            if out.len() == lines[0].1.split('\n').count() {
                out.push(rule.clone());
            }
        }
        out.push(rule);
        out.join("\n")
    }
}

/// Wraps a line into lines of at most `width` columns, the further ones indented by `indent`. Words are kept whole.
pub fn wrapped(line: &str, width: usize, indent: &str) -> String {
    let options = Options::new(width).subsequent_indent(indent).break_words(false);
    textwrap::fill(&shown::line(line), options.word_splitter(WordSplitter::NoHyphenation))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table<const N: usize>(header: [&str; N], row: [&str; N]) -> Table {
        let mut table = Table::new(header);
        table.add_row(row.map(str::to_owned));
        table
    }

    #[test]
    fn a_table_that_is_cut_says_how_many_rows_are_left_out_in_each_form() {
        let mut long = Table::new(["arm", "p50", "verdict"]).left(2);
        for row in 0..500 {
            long.add_row([format!("a{row}"), "1".to_owned(), "SLOWER".to_owned()]);
        }
        assert!(!long.text(60).contains("more:") && !long.markdown().contains("more:"));
        let long = long.cut();
        assert!(long.text(60).ends_with("440 more: see the JSON"), "{}", long.text(60));
        let markdown = long.markdown();
        assert!(
            markdown.starts_with("| arm | p50 | verdict |\n|---|---:|---|\n| a0 | 1 | **SLOWER** |\n"),
            "{markdown}"
        );
        assert!(markdown.ends_with("\n440 more: see the JSON\n"), "{markdown}");
    }

    #[test]
    fn a_name_neither_ends_a_line_nor_steers() {
        let hostile = "reuse\n100 %\x1b[2J\u{202e}";
        let shown = [table([hostile, "p50"], [hostile, "1"]).text(60), wrapped(hostile, 60, "")];
        assert_eq!((shown[0].lines().count(), shown[1].lines().count()), (4, 1), "{shown:?}");
        assert!(!shown.concat().chars().any(|c| shown::steers(c) && c != '\n'), "{shown:?}");
    }

    #[test]
    fn a_text_that_is_too_long_is_wrapped_beside_its_name() {
        let text =
            table(["constant", "from"], ["exit", "handler of the floor, less the instructions"]).left(1).text(40);
        assert!(text.lines().all(|line| line.chars().count() <= 40), "{text}");
        assert!(text.contains("exit      handler of the floor, less the\n            instructions"), "{text}");
    }
}
