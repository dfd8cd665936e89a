//! A Markdown file as lines of prose and lines of code.

/// A line of a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Line<'a> {
    /// Outside code blocks.
    Prose(&'a str),
    /// Within a fenced block, by its language; an indented block has none.
    Code(&'a str, &'a str),
}

/// Every line, with its number from 1. Fences are left out.
pub(super) fn lines(text: &str) -> Vec<(usize, Line<'_>)> {
    let mut fence: Option<&str> = None;
    let mut found = Vec::new();
    let (mut blank_before, mut indented) = (true, false);
    for (number, line) in text.lines().enumerate() {
        if let Some(language) = line.trim_start().strip_prefix("```") {
            fence = if fence.is_some() { None } else { Some(language.trim()) };
            continue;
        }
        // An indented block begins after a blank line.
        indented = fence.is_none() && line.starts_with("    ") && (blank_before || indented);
        blank_before = line.trim().is_empty();
        found.push((
            number + 1,
            match fence {
                Some(language) => Line::Code(language, line),
                None if indented => Line::Code("", line),
                None => Line::Prose(line),
            },
        ));
    }
    found
}

/// The parts of a line between pairs of backticks, and the rest.
pub(super) fn split_code(line: &str) -> (Vec<&str>, String) {
    let mut parts = line.split('`');
    let mut rest = parts.next().unwrap_or_default().to_owned();
    let mut code = Vec::new();
    while let (Some(inside), Some(outside)) = (parts.next(), parts.next()) {
        code.push(inside);
        rest.push_str("``");
        rest.push_str(outside);
    }
    (code, rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fenced_and_indented_code_is_distinguished_from_prose() {
        let text = "prose\n```sh\nvpmu\n```\n    continued prose\n\n    vpmu doctor\n    vpmu show\nprose";
        let found: Vec<_> =
            lines(text).into_iter().map(|(_, line)| line).filter(|line| *line != Line::Prose("")).collect();
        assert_eq!(
            found,
            [
                Line::Prose("prose"),
                Line::Code("sh", "vpmu"),
                Line::Prose("    continued prose"),
                Line::Code("", "    vpmu doctor"),
                Line::Code("", "    vpmu show"),
                Line::Prose("prose"),
            ]
        );
    }

    #[test]
    fn inline_code_is_taken_out_of_prose() {
        assert_eq!(split_code("see `a/b` and `c`."), (vec!["a/b", "c"], "see `` and ``.".to_owned()));
    }
}
