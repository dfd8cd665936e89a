//! Templates of HTML pages: what is put in is escaped.

use minijinja::syntax::SyntaxConfig;
use minijinja::{AutoEscape, Environment, Value, escape_formatter};

use crate::error::Error;
use crate::shown;

/// Renders the page that `source` gives with `values`.
///
/// # Errors
/// Exit 70: the template is wrong.
pub fn page(source: &str, values: Value) -> Result<String, Error> {
    let rendered = environment().and_then(|mut environment| {
        environment.add_template("page", source)?;
        environment.get_template("page")?.render(values)
    });
    rendered.map_err(|error| Error::internal("cannot make the page", format!("{error:#}")))
}

fn environment<'a>() -> Result<Environment<'a>, minijinja::Error> {
    let mut environment = Environment::new();
    environment.set_auto_escape_callback(|_| AutoEscape::Html);
    environment.set_formatter(|out, state, value| match value.as_str().filter(|_| !value.is_safe()) {
        Some(text) => escape_formatter(out, state, &Value::from(shown::text(text))),
        None => escape_formatter(out, state, value),
    });
    let syntax = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).keep_trailing_newline(true).build()?;
    environment.set_syntax(syntax);
    Ok(environment)
}
