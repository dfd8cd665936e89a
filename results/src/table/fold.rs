//! Tables, in a form for each reader: text that fits its width, Markdown, and a page's template.

use comfy_table::{Cell, CellAlignment, ContentArrangement, LineStyle, TableStyle};
use serde::Serialize;
use textwrap::{Options, WordSplitter};

use crate::shown;
use crate::verdict::Verdict;

/// The style of every table: no colour at all, so that NO_COLOR and pipes get what terminals get.
const STYLE: TableStyle = TableStyle::new()
    .header_separator(LineStyle::none().fill('─').junction('─'))
    .bottom_border(LineStyle::none().fill('─').junction('─'));
/// Spaces between two columns.
const GAP: usize = 2;

/// Most rows of a table that is cut short in a terminal.
const TEXT_ROWS: usize = 60;
/// Most rows of such a table in Markdown, which is read in mails and pull requests.
const MARKDOWN_ROWS: usize = 40;
/// Most rows of such a table on a page.
const PAGE_ROWS: usize = 400;
/// Longest text of a page's table that is not wrapped.
const PAGE_TEXT: usize = 32;

/// Rows below a header.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(into = "PageTable")]
pub struct Table {
    /// Says what the table is of; empty for none.
    caption: String,
    header: Vec<String>,
    rows: Vec<Vec<String>>,
    /// Columns that name the row, at the left of every block.
    keys: usize,
    /// Further columns of text.
    left: Vec<usize>,
    /// True if forms leave out rows beyond their limit.
    cut: bool,
}

/// A table for a page's template.
#[derive(Serialize)]
struct PageTable {
    caption: String,
    head: Vec<String>,
    /// Class of each column: `n` for figures, `t` for texts, `w` for texts that are wrapped.
    classes: Vec<&'static str>,
    rows: Vec<Vec<String>>,
    /// Number of rows left out.
    more: usize,
}

impl From<Table> for PageTable {
    fn from(table: Table) -> Self {
        let long = |column: usize| {
            table.rows.iter().filter_map(|row| row.get(column)).any(|text| text.chars().count() > PAGE_TEXT)
        };
        let class = |column: usize| match column {
            _ if long(column) => "w",
            _ if table.is_text(column) => "t",
            _ => "n",
        };
        let classes = (0..table.header.len()).map(class).collect();
        let rows = table.shown(PAGE_ROWS).to_vec();
        let more = table.rows.len() - rows.len();
        Self { caption: table.caption, head: table.header, classes, rows, more }
    }
}

impl Table {
    /// Creates a table without rows: the first column has the rows' names, the others have figures.
    pub fn new<T: Into<String>>(header: impl IntoIterator<Item = T>) -> Self {
        Self {
            caption: String::new(),
            header: header.into_iter().map(|text| shown::line(&text.into()).into_owned()).collect(),
            rows: Vec::new(),
            keys: 1,
            left: Vec::new(),
            cut: false,
        }
    }

    /// Sets the caption.
    pub fn caption(self, caption: impl Into<String>) -> Self {
        Self { caption: caption.into(), ..self }
    }

    /// Leaves out rows beyond the limit of each form; the document has all.
    pub fn cut(self) -> Self {
        Self { cut: true, ..self }
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

    /// Adds a row of as many texts as the header has.
    pub fn add_row(&mut self, row: impl IntoIterator<Item = String>) {
        self.rows.push(row.into_iter().map(|text| shown::line(&text).into_owned()).collect());
    }

    /// Returns whether there is no row.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    fn is_text(&self, column: usize) -> bool {
        column < self.keys || self.left.contains(&column)
    }

    fn shown(&self, most: usize) -> &[Vec<String>] {
        &self.rows[..if self.cut { most.min(self.rows.len()) } else { self.rows.len() }]
    }

    fn left_out(&self, most: usize) -> Option<String> {
        let more = self.rows.len() - self.shown(most).len();
        (more > 0).then(|| format!("{more} more: see the page or the JSON"))
    }

    /// Formats the table below its caption, in blocks of at most `width` columns: columns that do not fit beside the
    /// first ones follow below, under them again. A text that is too long beside them is wrapped.
    pub fn text(&self, width: usize) -> String {
        let caption = (!self.caption.is_empty()).then(|| wrapped(&self.caption, width, "  ") + "\n");
        let blocks = self.blocks(width).iter().map(|block| self.block(block, width)).collect::<Vec<_>>().join("\n\n");
        let more = self.left_out(TEXT_ROWS).map(|more| format!("\n{more}"));
        caption.unwrap_or_default() + &blocks + &more.unwrap_or_default()
    }

    /// Formats the table as Markdown, below its caption as a paragraph. A regression is bold.
    pub fn markdown(&self) -> String {
        let line = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
        let cell = |text: &String| {
            let shown = shown::markdown(text);
            if text == Verdict::Slower.word() { format!("**{shown}**") } else { shown }
        };
        let caption = (!self.caption.is_empty()).then(|| shown::markdown(&self.caption) + "\n\n");
        let mut out = caption.unwrap_or_default() + &line(&self.header.iter().map(cell).collect::<Vec<_>>());
        out += "|";
        for column in 0..self.header.len() {
            out += if self.is_text(column) { "---|" } else { "---:|" };
        }
        out += "\n";
        for row in self.shown(MARKDOWN_ROWS) {
            out += &line(&row.iter().map(cell).collect::<Vec<_>>());
        }
        out + &self.left_out(MARKDOWN_ROWS).map(|more| format!("\n{more}\n")).unwrap_or_default()
    }

    fn widths(&self) -> Vec<usize> {
        let width = |column: usize| {
            let texts = std::iter::once(&self.header).chain(self.shown(TEXT_ROWS));
            texts.filter_map(|row| row.get(column)).map(|text| text.chars().count()).max().unwrap_or(0)
        };
        (0..self.header.len()).map(width).collect()
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
        let last = block.len() - 1;
        let room = width.saturating_sub(block[..last].iter().map(|&column| widths[column] + GAP).sum());
        let mut table = comfy_table::Table::new();
        table.load_style(STYLE).set_content_arrangement(ContentArrangement::Disabled);
        let cells = |row: &[String]| -> Vec<Cell> {
            let side = |column| if self.is_text(column) { CellAlignment::Left } else { CellAlignment::Right };
            let text = |column: usize| {
                let text = row.get(column).map_or("", String::as_str);
                let is_long = column == block[last] && self.is_text(column) && widths[column] > room;
                if is_long { wrapped(text, room, "  ") } else { text.to_owned() }
            };
            block.iter().map(|&column| Cell::new(text(column)).set_alignment(side(column))).collect()
        };
        table.set_header(cells(&self.header));
        for row in self.shown(TEXT_ROWS) {
            table.add_row(cells(row));
        }
        for (place, column) in table.column_iter_mut().enumerate() {
            column.set_padding((0, u16::from(place < last)));
        }
        table.trim_fmt()
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
        let mut long = Table::new(["arm", "p50", "verdict"]).left(2).caption("a|b");
        for row in 0..500 {
            long.add_row([format!("a{row}"), "1".to_owned(), "SLOWER".to_owned()]);
        }
        assert!(!long.text(60).contains("more:") && !long.markdown().contains("more:"));
        let long = long.cut();
        assert!(long.text(60).ends_with("440 more: see the page or the JSON"), "{}", long.text(60));
        let markdown = long.markdown();
        assert!(
            markdown.starts_with("a\\|b\n\n| arm | p50 | verdict |\n|---|---:|---|\n| a0 | 1 | **SLOWER** |\n"),
            "{markdown}"
        );
        assert!(markdown.ends_with("\n460 more: see the page or the JSON\n"), "{markdown}");
        let page = serde_json::to_value(&long).unwrap();
        assert_eq!((&page["more"], &page["classes"]), (&100.into(), &serde_json::json!(["t", "n", "t"])));
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
