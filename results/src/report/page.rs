//! From the page's content to HTML: the template escapes every text.

use minijinja::syntax::SyntaxConfig;
use minijinja::value::Serde;
use minijinja::{AutoEscape, Environment, Value};

use crate::error::{Error, Exit};

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
        .render(minijinja::context! { page => Value::from(Serde(page)), style => include_str!("page.css") })
        .map_err(failed)
}
