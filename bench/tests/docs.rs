//! The command line accepts every command that a document shows.

use std::path::Path;

use checks::docs::{commands, links};

#[test]
fn every_command_in_the_documents_parses() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("a workspace around this crate");
    let (mut count, mut refused) = (0, Vec::new());
    for document in links::documents(root).unwrap() {
        let text = std::fs::read_to_string(&document).unwrap();
        for shown in commands::shown(&text) {
            count += 1;
            if let Err(error) = bench::cli::app::parse(&shown.words)
                && !error.to_string().contains("No such file")
            {
                refused.push(format!("{}:{}: {}: {error}", document.display(), shown.line, shown.words.join(" ")));
            }
        }
    }
    assert!(refused.is_empty(), "{}", refused.join("\n"));
    assert!(count >= 40, "only {count} commands found");
}
