//! `vpmu completions` and `vpmu man`, from the definition of the command line.

use std::path::{Path, PathBuf};

use clap::{Args, Command};
use results::error::{Error, Exit};
use results::write::replace;

use crate::setting::parse::folder;
use crate::terminal::console::{complain, internal, print};

pub(super) const COMPLETIONS: &str = "\
Examples:
  vpmu completions bash \\
    > ~/.local/share/bash-completion/completions/vpmu
  # with fpath+=~/.zfunc before compinit
  vpmu completions zsh > ~/.zfunc/_vpmu
  vpmu completions fish \\
    > ~/.config/fish/completions/vpmu.fish

Exit codes: 0 done, 2 bad usage, 70 a bug of vpmu.";

pub(super) const MAN: &str = "\
Examples:
  vpmu man | man -l -
  # then: man vpmu-report
  vpmu man -o ~/.local/share/man/man1

Exit codes: 0 done, 2 bad usage, or a folder that cannot be
written, 70 a bug of vpmu.";

/// Options of `vpmu completions`.
#[derive(Clone, Debug, Args)]
pub struct CompletionsArgs {
    /// The shell
    #[arg(value_name = "SHELL", value_enum)]
    pub shell: clap_complete::Shell,
}

/// Options of `vpmu man`.
#[derive(Clone, Debug, Args)]
pub struct ManArgs {
    /// Write vpmu.1 and a page for each command (vpmu-report.1 …) to this folder instead
    #[arg(short, long, value_name = "DIR", value_parser = folder)]
    pub output: Option<PathBuf>,
}

/// A name and the bytes of its page.
type Page = (String, Vec<u8>);

pub(super) fn completions(args: &CompletionsArgs, command: &Command) -> Result<Exit, Error> {
    print(&script(args.shell, command)).map(|()| Exit::Done)
}

pub(super) fn man(args: &ManArgs, command: &Command) -> Result<Exit, Error> {
    let pages = pages(command)?;
    let Some(dir) = &args.output else {
        let first = pages.first().map_or(&[][..], |(_, page)| page);
        return print(&String::from_utf8_lossy(first)).map(|()| Exit::Done);
    };
    save(dir, &pages).map_err(|error| {
        Error::usage(
            format!("cannot write manual pages to {}", dir.display()),
            error.to_string(),
            "give -o a folder you may write to",
        )
    })?;
    complain(&format!("{} pages in {}", pages.len(), dir.display()));
    Ok(Exit::Done)
}

fn save(dir: &Path, pages: &[Page]) -> std::io::Result<()> {
    std::fs::create_dir_all(dir)?;
    pages.iter().try_for_each(|(name, page)| replace(&dir.join(name), page))
}

fn script(shell: clap_complete::Shell, command: &Command) -> String {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut command.clone(), "vpmu", &mut script);
    String::from_utf8_lossy(&script).into_owned()
}

/// Makes vpmu(1), and vpmu-COMMAND(1) for each command.
fn pages(command: &Command) -> Result<Vec<Page>, Error> {
    let mut command = command.clone();
    command.build();
    let subcommands: Vec<Command> =
        command.get_subcommands().filter(|command| !command.is_hide_set()).cloned().collect();
    std::iter::once(command).chain(subcommands).map(|command| page(&command)).collect()
}

fn page(command: &Command) -> Result<Page, Error> {
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
    use clap::ValueEnum as _;

    use super::*;

    fn command() -> Command {
        let report = Command::new("report").arg(clap::Arg::new("output").long("output").help("The page"));
        let format = clap::Arg::new("format").long("format").value_parser(["csv", "benchstat"]);
        let export = Command::new("export").arg(format);
        Command::new("vpmu")
            .disable_help_subcommand(true)
            .subcommands([report, export])
            .after_help("Examples:\n  vpmu\n\nExit codes: 0 done")
    }

    #[test]
    fn every_command_has_a_page_with_its_options() {
        let pages = pages(&command()).unwrap();
        assert_eq!(pages.len(), 3);
        let text = |name: &str| {
            let page = &pages.iter().find(|(found, _)| found == name).unwrap().1;
            String::from_utf8(page.clone()).unwrap()
        };
        assert!(text("vpmu.1").contains("vpmu\\-report(1)"));
        assert!(text("vpmu-report.1").contains("\\-\\-output"));
        assert!(text("vpmu.1").contains("\nExit codes: 0 done"));
    }

    #[test]
    fn an_examples_line_is_no_macro() {
        assert_eq!(examples("Examples:\n.x\\y -z"), ".SH EXAMPLES\n.nf\n\\&.x\\ey \\-z\n.fi\n");
    }

    #[test]
    fn every_shells_completions_know_commands_and_values() {
        for shell in clap_complete::Shell::value_variants() {
            let script = script(*shell, &command());
            for needle in ["report", "export"] {
                assert!(script.contains(needle), "{shell}: {needle}");
            }
        }
        assert!(script(clap_complete::Shell::Bash, &command()).contains("benchstat"));
    }

    #[test]
    fn pages_land_in_a_new_folder() {
        let dir = tempfile::tempdir().unwrap();
        let man = dir.path().join("man/man1");
        save(&man, &pages(&command()).unwrap()).unwrap();
        assert!(man.join("vpmu-report.1").exists());
    }
}
