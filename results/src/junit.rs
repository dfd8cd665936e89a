//! JUnit reports, as CI systems read them.

use minijinja::context;
use minijinja::value::Serde;
use serde::Serialize;

use crate::template;
use crate::verdict::Verdict;

/// One case: a row of a comparison, a host, an element.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Case {
    /// The case's name.
    pub name: String,
    /// Its class, with dots.
    pub class: String,
    /// Slower is a failure; what is open or not judged is skipped; what broke before a verdict is an error.
    pub verdict: Option<Verdict>,
    /// Its size and reason, for a case that is neither faster nor unchanged.
    pub message: String,
}

/// Builds a suite of one case: what keeps the whole from a verdict, or is an error.
pub fn open(suite: &str, verdict: Option<Verdict>, why: &str) -> (String, Vec<Case>) {
    let (name, class) = ("verdict".to_owned(), "vpmu".to_owned());
    (suite.to_owned(), vec![Case { name, class, verdict, message: why.to_owned() }])
}

/// Suites of cases, each with its heading, as XML.
pub fn junit(name: &str, suites: &[(String, Vec<Case>)]) -> String {
    let all: Vec<&Case> = suites.iter().flat_map(|(_, cases)| cases).collect();
    let [all, suites] = [minijinja::Value::from(Serde(all)), minijinja::Value::from(Serde(suites))];
    let made = template::page(include_str!("junit.xml"), context! { name, all, suites });
    made.unwrap_or_else(|error| error.to_string())
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
            case("a<b", Some(Verdict::Faster), "not said"),
            case("c", Some(Verdict::Slower), "\"1\" & \u{1b}[31m>\n2"),
            case("d", Some(Verdict::NotJudged), "few\u{ffff} a/b"),
        ];
        let expected = r#"<?xml version="1.0" encoding="UTF-8"?>
<testsuites name="vpmu compare" tests="5" skipped="2" failures="1" errors="1">
    <testsuite name="s" tests="3" skipped="1" failures="1" errors="0">
        <testcase name="a&lt;b" classname="vpmu.a"/>
        <testcase name="c" classname="vpmu.a"><failure message="&quot;1&quot; &amp; \u001b[31m&gt;
2"/></testcase>
        <testcase name="d" classname="vpmu.a"><skipped message="few\uffff a&#x2f;b"/></testcase>
    </testsuite>
    <testsuite name="comparison" tests="1" skipped="1" failures="0" errors="0">
        <testcase name="verdict" classname="vpmu"><skipped message="inconclusive"/></testcase>
    </testsuite>
    <testsuite name="run" tests="1" skipped="0" failures="0" errors="1">
        <testcase name="verdict" classname="vpmu"><error message="no PMU"/></testcase>
    </testsuite>
</testsuites>
"#;
        let inconclusive = open("comparison", Some(Verdict::Inconclusive), "inconclusive");
        let suites = [("s".into(), cases), inconclusive, open("run", None, "no PMU")];
        assert_eq!(junit("vpmu compare", &suites), expected);
    }
}
