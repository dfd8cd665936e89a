//! `vpmu man`: manual pages and shells' completions, from the definition of the command line.

use std::path::Path;

use clap::{Args, Command};
use clap_complete::Shell;
use results::error::{Error, Exit};
use results::open::Folder;
use results::write::Target;

use crate::setting::options::FolderOption;
use crate::terminal::console::{complain, internal};

pub(super) const EXAMPLES: &str = "\
Examples:
  # as the Debian package has them
  vpmu man -o share
  man -l share/vpmu-report.1

Exit codes: 0 done, 2 bad usage, or a folder that cannot be
written, 70 a bug of vpmu.";

/// Options of `vpmu man`.
#[derive(Clone, Debug, Args)]
pub struct ManArgs {
    /// The folder for the pages and the completions.
    #[command(flatten)]
    pub output: FolderOption,
}

/// Writes vpmu.1, a page for each command, and the completions of each shell under the names that the shells look for.
pub(super) fn run(args: &ManArgs, mut command: Command) -> Result<Exit, Error> {
    command.build();
    let dir = args.output.or("man");
    let refused = |error: std::io::Error| {
        let what = format!("cannot write manual pages to {}", dir.display());
        Error::output(what, &error, "give -o a folder you may write to")
    };
    let shown = command.get_subcommands().filter(|command| !command.is_hide_set());
    let mut files: Vec<_> = std::iter::once(&command).chain(shown).map(page).collect::<Result<_, _>>()?;
    for (shell, name) in [(Shell::Bash, "vpmu.bash"), (Shell::Zsh, "_vpmu"), (Shell::Fish, "vpmu.fish")] {
        let mut script = Vec::new();
        clap_complete::generate(shell, &mut command, "vpmu", &mut script);
        files.push((name.to_owned(), script));
    }
    let folder = Folder::make(&dir).map_err(refused)?;
    for (name, text) in &files {
        Target::at(&folder, Path::new(name)).and_then(|target| target.replace(text)).map_err(refused)?;
    }
    complain(&format!("{} files in {}", files.len(), dir.display()));
    Ok(Exit::Done)
}

/// Makes vpmu(1) or vpmu-COMMAND(1): the name of its file, and its text.
fn page(command: &Command) -> Result<(String, Vec<u8>), Error> {
    let failed = |error: std::io::Error| internal("cannot make a manual page", error);
    let man = clap_mangen::Man::new(command.clone());
    let mut page = Vec::new();
    man.render_title(&mut page).map_err(failed)?;
    man.render_name_section(&mut page).map_err(failed)?;
    man.render_synopsis_section(&mut page).map_err(failed)?;
    man.render_description_section(&mut page).map_err(failed)?;
    man.render_options_section(&mut page).map_err(failed)?;
    if command.has_subcommands() {
        man.render_subcommands_section(&mut page).map_err(failed)?;
    }
    if let Some(text) = command.get_after_help() {
        page.extend(examples(&text.to_string()).into_bytes());
    }
    Ok((man.get_filename(), page))
}

/// Formats the text after the options, unchanged, line by line; clap_mangen would fill it as a paragraph.
fn examples(text: &str) -> String {
    let line = |line: &str| {
        let line = line.replace('\\', "\\e").replace('-', "\\-");
        // A dot or an apostrophe begins a macro.
        if line.starts_with(['.', '\'']) { format!("\\&{line}\n") } else { line + "\n" }
    };
    let lines: String = text.lines().filter(|text| *text != "Examples:").map(line).collect();
    format!(".SH EXAMPLES\n.nf\n{lines}.fi\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_land_in_a_new_folder_with_options_and_examples() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("man/man1");
        let report = Command::new("report").arg(clap::Arg::new("output").long("output"));
        let command = Command::new("vpmu").subcommand(report).after_help("Examples:\n.x\\y -z\n\nExit codes: 0 done");
        let output = FolderOption { output: Some(folder.clone()) };
        run(&ManArgs { output }, command.disable_help_subcommand(true)).unwrap();
        let text = |name: &str| std::fs::read_to_string(folder.join(name)).unwrap();
        assert!(text("vpmu.bash").contains("report") && text("_vpmu").contains("report"));
        assert!(text("vpmu-report.1").contains("\\-\\-output"));
        assert!(text("vpmu.1").contains("vpmu\\-report(1)"));
        // A dot begins no macro.
        assert!(text("vpmu.1").ends_with(".SH EXAMPLES\n.nf\n\\&.x\\ey \\-z\n\nExit codes: 0 done\n.fi\n"));
    }
}
