//! JUnit reports, as CI systems read them.

use std::fmt::{self, Display, Formatter, Write as _};

/// Test suites of one command.
#[derive(Clone, Debug, Default)]
pub(crate) struct Report {
    pub(crate) name: &'static str,
    pub(crate) suites: Vec<Suite>,
}

/// Cases with a heading.
#[derive(Clone, Debug, Default)]
pub(crate) struct Suite {
    pub(crate) name: String,
    pub(crate) cases: Vec<Case>,
}

/// One case.
#[derive(Clone, Debug)]
pub(crate) struct Case {
    pub(crate) name: String,
    pub(crate) class: String,
    pub(crate) outcome: Outcome,
}

/// What became of a case; the text says why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Passed,
    Failed(String),
    Skipped(String),
}

impl Report {
    /// Adds a suite of one skipped case: what keeps the whole from a verdict.
    pub(crate) fn open(&mut self, suite: &str, why: &str) {
        let case = Case { name: "verdict".into(), class: "vpmu".into(), outcome: Outcome::Skipped(why.into()) };
        self.suites.push(Suite { name: suite.into(), cases: vec![case] });
    }
}

impl Suite {
    fn counts(&self) -> (usize, usize, usize) {
        let of = |wanted: fn(&Outcome) -> bool| self.cases.iter().filter(|case| wanted(&case.outcome)).count();
        let failed = of(|outcome| matches!(outcome, Outcome::Failed(_)));
        (self.cases.len(), of(|outcome| matches!(outcome, Outcome::Skipped(_))), failed)
    }
}

impl Display for Report {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let counts = |(tests, skipped, failed)| {
            format!("tests=\"{tests}\" skipped=\"{skipped}\" failures=\"{failed}\" errors=\"0\"")
        };
        let all = self.suites.iter().map(Suite::counts);
        let all = all.fold((0, 0, 0), |sum, suite| (sum.0 + suite.0, sum.1 + suite.1, sum.2 + suite.2));
        writeln!(f, "<?xml version=\"1.0\" encoding=\"UTF-8\"?>")?;
        writeln!(f, "<testsuites name=\"{}\" {}>", Escaped(self.name), counts(all))?;
        for suite in &self.suites {
            writeln!(f, "    <testsuite name=\"{}\" {}>", Escaped(&suite.name), counts(suite.counts()))?;
            for Case { name, class, outcome } in &suite.cases {
                write!(f, "        <testcase name=\"{}\" classname=\"{}\"", Escaped(name), Escaped(class))?;
                let (what, why) = match outcome {
                    Outcome::Passed => {
                        writeln!(f, "/>")?;
                        continue;
                    }
                    Outcome::Failed(why) => ("failure", why),
                    Outcome::Skipped(why) => ("skipped", why),
                };
                writeln!(f, "><{what} message=\"{}\"/></testcase>", Escaped(why))?;
            }
            writeln!(f, "    </testsuite>")?;
        }
        writeln!(f, "</testsuites>")
    }
}

/// Text as the value of an attribute: names of arms and hosts come from documents of anybody.
struct Escaped<'a>(&'a str);

impl Display for Escaped<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        self.0.chars().try_for_each(|character| match character {
            '&' => f.write_str("&amp;"),
            '<' => f.write_str("&lt;"),
            '>' => f.write_str("&gt;"),
            '"' => f.write_str("&quot;"),
            // XML 1.0 has no way to write these.
            '\u{fffe}' | '\u{ffff}' => Ok(()),
            _ if character.is_control() => f.write_char(' '),
            _ => f.write_char(character),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outcomes_are_counted_and_texts_are_escaped() {
        let case = |name: &str, outcome| Case { name: name.into(), class: "vpmu.a".into(), outcome };
        let cases = vec![
            case("a<b", Outcome::Passed),
            case("c", Outcome::Failed("\"1\" & \u{1b}[31m>\n2".into())),
            case("d", Outcome::Skipped("few\u{ffff}".into())),
        ];
        let mut report = Report { name: "vpmu compare", suites: vec![Suite { name: "s".into(), cases }] };
        report.open("comparison", "inconclusive");
        let expected = r#"<?xml version="1.0" encoding="UTF-8"?>
<testsuites name="vpmu compare" tests="4" skipped="2" failures="1" errors="0">
    <testsuite name="s" tests="3" skipped="1" failures="1" errors="0">
        <testcase name="a&lt;b" classname="vpmu.a"/>
        <testcase name="c" classname="vpmu.a"><failure message="&quot;1&quot; &amp;  [31m&gt; 2"/></testcase>
        <testcase name="d" classname="vpmu.a"><skipped message="few"/></testcase>
    </testsuite>
    <testsuite name="comparison" tests="1" skipped="1" failures="0" errors="0">
        <testcase name="verdict" classname="vpmu"><skipped message="inconclusive"/></testcase>
    </testsuite>
</testsuites>
"#;
        assert_eq!(report.to_string(), expected);
    }
}
