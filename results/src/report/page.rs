//! From the page's content to HTML: the template escapes every text.

use minijinja::syntax::SyntaxConfig;
use minijinja::value::Serde;
use minijinja::{AutoEscape, Environment, Value};

use crate::error::{Error, Exit};

/// The page's own script, the only one that its content security policy allows.
pub(super) const SCRIPT: &str = include_str!("page.js");
/// SHA-256 of the script in base64: `openssl dgst -sha256 -binary page.js | base64`.
pub(super) const DIGEST: &str = "3Cs8rME1Q1ltQMxSOXmPejfgn44m3BPLK9jMrtiWhcc=";

/// The page as HTML.
pub(super) fn render(page: &impl serde::Serialize) -> Result<String, Error> {
    let failed = |error: minijinja::Error| {
        Error::new(Exit::Inconclusive, "cannot make the page", format!("{error:#}"), "please report this as a bug")
    };
    let mut environment = Environment::new();
    environment.set_auto_escape_callback(|_| AutoEscape::Html);
    environment.set_syntax(
        SyntaxConfig::builder()
            .trim_blocks(true)
            .lstrip_blocks(true)
            .keep_trailing_newline(true)
            .build()
            .map_err(failed)?,
    );
    environment.add_template("page", include_str!("page.html")).map_err(failed)?;
    let template = environment.get_template("page").map_err(failed)?;
    template
        .render(minijinja::context! { page => Value::from(Serde(page)), style => include_str!("page.css"), script => SCRIPT, digest => DIGEST })
        .map_err(failed)
}
