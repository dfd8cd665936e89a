//! Tables for terminals of 60 columns: what does not fit beside the first column follows below, under it again.

use comfy_table::{Cell, CellAlignment, ContentArrangement, Table};

use super::layout::STYLE;

/// Columns of the narrowest terminal that tables fit.
pub const NARROW: usize = 60;
/// Spaces between two columns.
const GAP: usize = 2;

/// The table of `header` and `rows`, the first column to the left and the others to the right, in blocks of at most
/// [`NARROW`] columns. Each row has as many texts as the header.
#[must_use]
pub fn folded(header: &[String], rows: &[Vec<String>]) -> String {
    blocks(&widths(header, rows)).iter().map(|block| table(block, header, rows)).collect::<Vec<_>>().join("\n\n")
}

fn widths(header: &[String], rows: &[Vec<String>]) -> Vec<usize> {
    let width = |column: usize| {
        let texts = std::iter::once(header).chain(rows.iter().map(Vec::as_slice));
        texts.filter_map(|row| row.get(column)).map(|text| text.chars().count()).max().unwrap_or(0)
    };
    (0..header.len()).map(width).collect()
}

/// The columns of each block, the first column in all of them.
fn blocks(widths: &[usize]) -> Vec<Vec<usize>> {
    let first = widths.first().copied().unwrap_or(0);
    let (mut all, mut block, mut used) = (Vec::new(), vec![0], first);
    for (column, width) in widths.iter().enumerate().skip(1) {
        if block.len() > 1 && used + GAP + width > NARROW {
            all.push(std::mem::replace(&mut block, vec![0]));
            used = first;
        }
        block.push(column);
        used += GAP + width;
    }
    all.push(block);
    all
}

fn table(block: &[usize], header: &[String], rows: &[Vec<String>]) -> String {
    let mut table = Table::new();
    table.load_style(STYLE).set_content_arrangement(ContentArrangement::Disabled);
    let cells = |row: &[String]| -> Vec<Cell> {
        let side = |column| if column == 0 { CellAlignment::Left } else { CellAlignment::Right };
        block
            .iter()
            .map(|&column| Cell::new(row.get(column).map_or("", String::as_str)).set_alignment(side(column)))
            .collect()
    };
    table.set_header(cells(header));
    for row in rows {
        table.add_row(cells(row));
    }
    for column in table.column_iter_mut() {
        column.set_padding((0, 1));
    }
    table.trim_fmt()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(texts: &[&str]) -> Vec<String> {
        texts.iter().map(|&text| text.to_owned()).collect()
    }

    #[test]
    fn a_narrow_table_is_one_block() {
        let text = folded(&row(&["arm", "p50"]), &[row(&["reuse", "12.0 µs"])]);
        assert_eq!(text.lines().count(), 4, "{text}");
        assert!(text.contains("reuse  12.0 µs"), "{text}");
    }

    #[test]
    fn columns_that_do_not_fit_follow_below_with_the_first() {
        let wide = "a column of 25 columns   ";
        let text = folded(&row(&["strategy", wide, wide, "last"]), &[row(&["event-major", "1", "2", "3"])]);
        assert!(text.lines().all(|line| line.chars().count() <= NARROW), "{text}");
        assert_eq!(text.matches("event-major").count(), 2, "{text}");
        for needle in ["1", "2", "3", "last"] {
            assert!(text.contains(needle), "{text}");
        }
    }

    #[test]
    fn a_column_wider_than_the_terminal_has_a_block_of_its_own() {
        let long = "x".repeat(100);
        let text = folded(&row(&["a", "b", "c"]), &[row(&["1", &long, "2"])]);
        assert_eq!(text.matches('1').count(), 2, "{text}");
    }
}
