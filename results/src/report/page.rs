//! Renders the page's content as HTML: the template escapes every text.

use minijinja::value::Serde;
use minijinja::{Value, context};

use crate::error::Error;
use crate::template;

/// The page's own script, the only one that its content security policy allows.
pub(super) const SCRIPT: &str = include_str!("page.js");
/// SHA-256 of the script in base64: `openssl dgst -sha256 -binary page.js | base64`.
pub(super) const DIGEST: &str = "3Cs8rME1Q1ltQMxSOXmPejfgn44m3BPLK9jMrtiWhcc=";

/// The style sheet of every page.
pub const STYLE: &str = concat!(include_str!("../plot/plot.css"), include_str!("page.css"));

/// Renders the page as HTML.
pub(super) fn render(page: &impl serde::Serialize) -> Result<String, Error> {
    let values = context! { page => Value::from(Serde(page)), style => STYLE, script => SCRIPT, digest => DIGEST };
    template::page(include_str!("page.html"), values)
}
