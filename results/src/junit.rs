//! JUnit reports, as CI systems read them.

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
    let counts = |cases: &mut dyn Iterator<Item = &Case>| {
        let elements: Vec<_> = cases.map(Case::element).collect();
        let of = |wanted| elements.iter().filter(|element| **element == Some(wanted)).count();
        let (tests, skipped, failed) = (elements.len(), of("skipped"), of("failure"));
        format!("tests=\"{tests}\" skipped=\"{skipped}\" failures=\"{failed}\" errors=\"0\"")
    };
    let all = counts(&mut suites.iter().flat_map(|(_, cases)| cases));
    let mut xml = vec![
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>".to_owned(),
        format!("<testsuites name=\"{}\" {all}>", escaped(name)),
    ];
    for (heading, cases) in suites {
        xml.push(format!("    <testsuite name=\"{}\" {}>", escaped(heading), counts(&mut cases.iter())));
        for case in cases {
            let begin =
                format!("        <testcase name=\"{}\" classname=\"{}\"", escaped(&case.name), escaped(&case.class));
            xml.push(match case.element() {
                None => begin + "/>",
                Some(element) => format!("{begin}><{element} message=\"{}\"/></testcase>", escaped(&case.message)),
            });
        }
        xml.push("    </testsuite>".to_owned());
    }
    xml.push("</testsuites>\n".to_owned());
    xml.join("\n")
}

/// Escapes text as the value of an attribute: names of arms and hosts come from documents of anybody.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            // XML 1.0 has no way to write these.
            '\u{fffe}' | '\u{ffff}' => {}
            _ => out.push(if shown::steers(character) { ' ' } else { character }),
        }
    }
    out
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
