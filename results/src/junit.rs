//! JUnit reports, as CI systems read them.

use std::fmt::{self, Display, Formatter, Write as _};

use crate::shown;
use crate::verdict::Verdict;

/// One case: a row of a comparison, a host, an element.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Case {
    /// The case's name.
    pub name: String,
    /// Its class, with dots.
    pub class: String,
    /// Slower is a failure; what is open or not judged is skipped.
    pub verdict: Verdict,
    /// Its size and reason, for a case that is neither faster nor unchanged.
    pub message: String,
}

impl Case {
    fn element(&self) -> Option<&'static str> {
        match self.verdict {
            Verdict::Faster | Verdict::NoChange => None,
            Verdict::Slower => Some("failure"),
            Verdict::Inconclusive | Verdict::NotJudged => Some("skipped"),
        }
    }
}

/// Builds a suite of one skipped case: what keeps the whole from a verdict.
pub fn open(suite: &str, why: &str) -> (String, Vec<Case>) {
    let (name, class) = ("verdict".to_owned(), "vpmu".to_owned());
    (suite.to_owned(), vec![Case { name, class, verdict: Verdict::Inconclusive, message: why.to_owned() }])
}

/// Suites of cases, each with its heading, as XML.
pub fn junit(name: &str, suites: &[(String, Vec<Case>)]) -> String {
    let mut xml = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
    write(&mut xml, name, suites).expect("a String takes all that is written");
    xml
}

fn write(xml: &mut String, name: &str, suites: &[(String, Vec<Case>)]) -> fmt::Result {
    let counts = |cases: &mut dyn Iterator<Item = &Case>| {
        let (mut tests, mut skipped, mut failed) = (0, 0, 0);
        for case in cases {
            tests += 1;
            skipped += usize::from(case.element() == Some("skipped"));
            failed += usize::from(case.element() == Some("failure"));
        }
        format!("tests=\"{tests}\" skipped=\"{skipped}\" failures=\"{failed}\" errors=\"0\"")
    };
    let all = counts(&mut suites.iter().flat_map(|(_, cases)| cases));
    writeln!(xml, "<testsuites name=\"{}\" {all}>", Escaped(name))?;
    for (heading, cases) in suites {
        writeln!(xml, "    <testsuite name=\"{}\" {}>", Escaped(heading), counts(&mut cases.iter()))?;
        for case in cases {
            write!(xml, "        <testcase name=\"{}\" classname=\"{}\"", Escaped(&case.name), Escaped(&case.class))?;
            match case.element() {
                None => writeln!(xml, "/>")?,
                Some(element) => writeln!(xml, "><{element} message=\"{}\"/></testcase>", Escaped(&case.message))?,
            }
        }
        writeln!(xml, "    </testsuite>")?;
    }
    writeln!(xml, "</testsuites>")
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
            _ if shown::steers(character) => f.write_char(' '),
            _ => f.write_char(character),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verdicts_are_counted_and_texts_are_escaped() {
        let case = |name: &str, verdict, message: &str| Case {
            name: name.into(),
            class: "vpmu.a".into(),
            verdict,
            message: message.into(),
        };
        let cases = vec![
            case("a<b", Verdict::Faster, "not said"),
            case("c", Verdict::Slower, "\"1\" & \u{1b}[31m>\n2"),
            case("d", Verdict::NotJudged, "few\u{ffff}"),
        ];
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
        assert_eq!(junit("vpmu compare", &[("s".into(), cases), open("comparison", "inconclusive")]), expected);
    }
}
