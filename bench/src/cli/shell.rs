//! Options of `vpmu completions` and `vpmu man`.

use std::path::PathBuf;

use clap::Args;

pub(super) const COMPLETIONS: &str = "\
Examples:
  vpmu completions bash > ~/.local/share/bash-completion/completions/vpmu
  vpmu completions zsh > ~/.zfunc/_vpmu        with fpath+=~/.zfunc before compinit
  vpmu completions fish > ~/.config/fish/completions/vpmu.fish";

pub(super) const MAN: &str = "\
Examples:
  vpmu man | man -l -
  vpmu man -o ~/.local/share/man/man1          then: man vpmu-report";

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
    #[arg(short, long, value_name = "DIR")]
    pub output: Option<PathBuf>,
}
