//! Tables with a row for each choice of a user.

/// The array of the `name`s of a table's rows, as a constant.
macro_rules! names {
    ($table:ident) => {{
        let mut names = [""; $table.len()];
        let mut row = 0;
        while row < names.len() {
            names[row] = $table[row].name;
            row += 1;
        }
        names
    }};
}

pub(crate) use names;
