//! Templates of pages, pictures and reports: what is put into HTML, SVG and XML is escaped, and a text takes it as it is.

use minijinja::syntax::SyntaxConfig;
use minijinja::{AutoEscape, Environment, UndefinedBehavior, Value, escape_formatter};

use crate::error::Error;
use crate::shown;

/// Fills in the HTML, SVG or XML that `source` gives.
///
/// # Errors
/// Exit 70: the template is wrong.
pub fn page(source: &str, values: Value) -> Result<String, Error> {
    let mut environment = Environment::new();
    environment.set_auto_escape_callback(|_| AutoEscape::Html);
    environment.set_formatter(|out, state, value| match value.as_str().filter(|_| !value.is_safe()) {
        Some(text) => escape_formatter(out, state, &Value::from(shown::text(text))),
        None => escape_formatter(out, state, value),
    });
    let syntax = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).keep_trailing_newline(true).build();
    environment.set_syntax(syntax.map_err(|error| cannot(&error))?);
    environment.render_str(source, values).map_err(|error| cannot(&error))
}

/// Fills in a text, where `n|plural("is", "are")` is one of the two. A name without a value may be asked for and not shown.
///
/// # Errors
/// Exit 70: the template is wrong.
pub fn text(source: &str, values: Value) -> Result<String, Error> {
    let mut environment = Environment::new();
    environment.set_undefined_behavior(UndefinedBehavior::SemiStrict);
    environment.add_filter("plural", |n: u64, one: String, many: String| if n == 1 { one } else { many });
    environment.render_str(source, values).map_err(|error| cannot(&error))
}

fn cannot(error: &minijinja::Error) -> Error {
    Error::internal("cannot fill in a template", format!("{error:#}"))
}
